"""An encoding, a task and a metric are added to a copy of the repository as CONTRIBUTING.md says, by two files each."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from wordorder import encodings
from wordorder.encodings import CATALOG, OnDistance

ROOT = Path(__file__).resolve().parents[1]
CATALOG_FILE = "src/wordorder/encodings/catalog.py"

NEW = {
    "src/wordorder/encodings/neighbours.py": '''
"""Neighbours: a learned number for the tokens beside a token."""

import torch
from torch import Tensor, nn

from wordorder.encodings.places import OnDistance


class Neighbours(OnDistance):
    """Add a learned number to the scores of the token before, the token itself, and the token after."""

    purpose = "learned relative positions"
    paper = "Shaw et al. 2018, https://arxiv.org/abs/1803.02155"

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(3, heads))

    def at_distance(self, distance: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        near = (distance.abs() <= 1)[..., None]
        return torch.where(near, self.table[distance.clamp(-1, 1) + 1], 0).movedim(-1, 0)
''',
    "tests/encodings/test_neighbours.py": """
import torch

from wordorder.encodings import Neighbours
from wordorder.ops import Contiguous


def test_numbers_by_distance():
    encoding = Neighbours(2)
    torch.nn.init.normal_(encoding.table)
    found = encoding(Contiguous(4), Contiguous(4)).dense()[0]
    for head, query, key in torch.cartesian_prod(torch.arange(2), torch.arange(4), torch.arange(4)):
        near = abs(key - query) <= 1
        assert found[head, query, key] == (encoding.table[key - query + 1, head] if near else 0)
""",
    "docs/mechanisms/neighbours.md": """
# Neighbours

Shaw et al., [Self-attention with relative position representations](https://arxiv.org/abs/1803.02155), 2018.

```math
s_{hij} = \\frac{q_i^\\top k_j}{\\sqrt{D}} + b_{h, j - i}
```

## Cost and options

<!-- facts: neighbours -->
<!-- /facts -->

## Measured results

<!-- measured: neighbours -->
<!-- /measured -->

## Differences from the paper

None.
""",
}
ENTRY = {'        "t5": ': '        "neighbours": "wordorder.encodings.neighbours:Neighbours",\n'}
"""What is put before which line of the catalogue."""
EXPORTS_FILE = "src/wordorder/encodings/__init__.py"
EXPORT = {
    "    from wordorder.encodings.none ": "    from wordorder.encodings.neighbours import Neighbours as Neighbours\n"
}

CHECKS = [
    "tests/repository/test_generated_pages.py",
    "tests/cli/test_list.py",
    "tests/encodings/test_composition.py",
    "tests/encodings/test_neighbours.py",
    "tests/networks/test_encoding_suite.py",
]


TASK = {
    "src/wordorder/tasks/cosine_similarity.py": "tests/contribution/cosine_similarity.py",
    "tests/tasks/test_cosine_similarity.py": "tests/contribution/checks_of_cosine_similarity.py",
}
"""File of the copy -> file of this repository."""
TASK_ENTRY = {'    "translation": "': '    "cosine-similarity": "cosine_similarity:CosineSimilarity",\n'}
METRIC = {
    "src/wordorder/tasks/scores.py": {
        '        return {"loss": loss, "pearson": found[0]': "        found = [*found, float(np.abs(errors).mean())]\n",
        '"pearson": math.nan': '"mean_absolute_error": math.nan, ',
        '"pearson": found[0]': '"mean_absolute_error": found[2], ',
    },
    "src/wordorder/tasks/regression.py": {
        "PEARSON, SPEARMAN)": """Metric(
            key="mean_absolute_error",
            name="mean absolute error",
            meaning="mean distance of predictions from labels on the {split} split (lower is better)",
        ), """,
    },
}
"""Source file -> what is put before which text."""


def copied(to: Path, *folders: str) -> None:
    for folder in ("src", "tests", *folders):
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", to)


def put_before(file: Path, entries: dict[str, str]) -> None:
    text = file.read_text(encoding="utf-8")
    for before, line in entries.items():
        assert text.count(before) == 1
        text = text.replace(before, line + before)
    file.write_text(text, encoding="utf-8")


def checked(folder: Path, chosen: str, checks: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n0", "-v", "-p", "no:cacheprovider", "-k", chosen, *checks],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder / "src"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_an_encoding_is_one_file_one_test_one_page_and_one_entry(tmp_path: Path):
    copied(tmp_path, "docs", "benchmarks", "evidence")
    for name in ("mkdocs.yml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    for name, text in NEW.items():
        (tmp_path / name).write_text(text.lstrip(), encoding="utf-8")
    put_before(tmp_path / CATALOG_FILE, ENTRY)
    put_before(tmp_path / EXPORTS_FILE, EXPORT)

    # as `make catalogue`
    publish = [sys.executable, "evidence/publish/publish_encodings.py"]
    subprocess.run(publish, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path / "src")}, check=True)
    # of the pages those that go over the catalogue, of the other tests only the new name
    chosen = "publish_encodings or has_a_page or publish_choice or test_list or neighbours"
    found = checked(tmp_path, chosen, CHECKS)
    assert "`neighbours`" in (tmp_path / "README.md").read_text(encoding="utf-8")
    for test in (
        "has_a_page_and_a_meaning_for_each_option",
        "test_files_are_what_their_script_writes[publish_encodings]",
        "test_numbers_by_distance",
    ):
        assert f"{test} PASSED" in found


@pytest.mark.slow
def test_a_task_is_one_file_and_one_entry_and_a_metric_is_two_places(tmp_path: Path):
    copied(tmp_path)
    for name, original in TASK.items():
        shutil.copy(ROOT / original, tmp_path / name)
    put_before(tmp_path / "src/wordorder/tasks/catalog.py", TASK_ENTRY)
    for name, entries in METRIC.items():
        put_before(tmp_path / name, entries)

    found = checked(
        tmp_path,
        "cosine or mean_absolute_error or no_other_file or floors or (a_score and regression) or (help and arguments0)",
        [
            "tests/tasks",
            "tests/comparison/test_statistics_and_verdict.py",
            "tests/data/test_config.py",
            "tests/test_import_cost.py",
            "tests/repository/test_import_direction.py",
        ],
    )
    for test in (
        "test_it_is_trained_evaluated_and_compared",
        "test_a_task_knows_its_own_saved_models_and_no_other_does[cosine-similarity]",
        "test_every_metric_that_a_recipe_may_name_is_a_score[cosine-similarity-False]",
        "test_scores_of_two_processes_are_those_of_one[cosine-similarity-False]",
        "test_every_metric_can_be_the_headline[mean_absolute_error]",
        "test_help_loads_no_heavy_module[arguments0]",
    ):
        assert f"{test} PASSED" in found


def test_an_encoding_without_a_page_is_named(script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(CATALOG, "neighbours", OnDistance)
    with pytest.raises(ValueError, match=r"'neighbours'; write docs/mechanisms/neighbours\.md"):
        script("publish_encodings").pages()


def test_every_class_of_the_catalogue_is_exported_and_says_so_to_type_checkers():
    public = {
        alias.asname
        for node in ast.walk(ast.parse((ROOT / EXPORTS_FILE).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert public >= {kind.__name__ for kind in CATALOG.values()}
    assert all(getattr(encodings, kind.__name__) is kind for kind in CATALOG.values())
