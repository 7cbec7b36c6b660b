"""The measures of the source: what is planted in a small package is counted, and nothing else."""

from pathlib import Path

import pytest

from tools.house import (
    any_annotations,
    casts,
    circles,
    constructors,
    files_by_folder,
    graph_of,
    main,
    measures,
    modules,
    repetitions,
    task_comparisons,
    trainer_methods,
    trainer_overrides,
)

SIX = "".join(f"    value_{i} = {i} + start\n" for i in range(6))

PLANTED = {
    "one.py": "from wordorder.two import f",
    "two.py": "def f():\n    from wordorder import three",
    "three.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from wordorder.one import g",
    "four.py": "from wordorder.one import g",
    "tasks/translation.py": "def f(task): return task == 'translation'",
    "training/loop.py": """TIED = ("masked-lm", "causal-lm")
def f(task, data, config, colour):
    if task == "regression" or data.task not in ("causal-lm", "translation"):
        return task in TIED
    match task:
        case "classification":
            return "translation" + colour == "red"
    return config.problem_type == "regression"
""",
    "training/typed.py": """from typing import Any, cast
def f(x: Any, y: dict[str, "Any"], *, z: "Any" = None) -> int:
    return cast(int, x)
""",
    "training/wide.py": "class Wide:\n    def __init__(self, a, b, *, c): ...\n",
    "training/trainer.py": """_Trainer = object
class Ours(_Trainer):
    def _save_checkpoint(self): ...
    def _ours(self): ...
class More(Ours):
    def _inner_training_loop(self): ...
    def train(self): ...
class Other:
    def _save_checkpoint(self): ...
""",
    "training/alike.py": f"def f(start):\n{SIX}    return 1\n",
    "training/same.py": f'"""Words."""\nimport os\ndef g(start):\n{SIX}\n    # why\n    return 1\n',
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, text in PLANTED.items():
        file = tmp_path / "wordorder" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return tmp_path / "wordorder"


def test_a_planted_circle_is_found(source: Path):
    assert circles(graph_of(modules(source))) == [["wordorder.one", "wordorder.three", "wordorder.two"]]


def test_comparisons_with_a_task_are_found_outside_tasks_alone(source: Path):
    assert [place.split(": ")[0] for place in task_comparisons(source)] == [
        f"training/loop.py:{line}" for line in (3, 3, 4, 6)
    ]


def test_annotations_with_any_and_casts_are_found(source: Path):
    assert [place.split(": ")[1] for place in any_annotations(source)] == ["Any", "dict[str, 'Any']", "'Any'"]
    assert casts(source) == ["training/typed.py:3: cast(int, x)"]


def test_private_methods_of_a_trainer_are_found_down_the_line(source: Path):
    private = {"_save_checkpoint", "_inner_training_loop", "_save"}
    assert trainer_overrides(private, source) == [
        "training/trainer.py:2: Ours._save_checkpoint",
        "training/trainer.py:5: More._inner_training_loop",
    ]
    assert {"_inner_training_loop", "_save_checkpoint"} <= (trainer_methods() or set())


def test_a_repetition_counts_once_whatever_stands_around_it(source: Path):
    assert repetitions(source) == ["training/alike.py:2: 7 lines as in training/same.py:4"]
    assert repetitions(source, 8) == []


def test_files_and_constructors_are_counted(source: Path):
    assert files_by_folder(source) == {".": 4, "tasks": 1, "training": 6}
    assert constructors(source) == [(3, "Wide", True)]


def test_the_table_has_what_was_planted(source: Path):
    today = {measure.name: measure.today for measure in measures(source)}
    assert today["import circles, lazy and TYPE_CHECKING included"] == "1"
    assert today["places that compare a task with a string outside tasks/"] == "4 in 1 files"
    assert today["most files in one folder (encodings aside)"] == "6 (training)"
    assert today["files"] == "11"


def test_the_package_itself_is_measured(capsys: pytest.CaptureFixture[str]):
    main(["--places"])
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["today", "goal"]
    assert "lines of src (.py)" in printed
