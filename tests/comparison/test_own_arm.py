"""`--arm my.py:MyEncoding`: tried out first, an arm like any other, resumable, and in worker processes too."""

import json
from pathlib import Path

import comparison_stand_in
import pytest
from comparison_stand_in import STAND_IN

from wordorder.comparison.arms import with_own_arms
from wordorder.comparison.compare import compare
from wordorder.encodings import CATALOG, Encoding, registered_encodings, split_options
from wordorder.errors import BadInput
from wordorder.own_classes import parse_own_class, register_again, use_own_classes

GOOD = """
from __future__ import annotations
import torch
from torch import nn
from neighbour import SLOPE
from wordorder.encodings import OnDistance

class Mine(OnDistance):
    def __init__(self, heads: int, *, slope: float = SLOPE) -> None:
        super().__init__()
        self.raw, self.slope = nn.Parameter(torch.zeros(heads)), slope

    def at_distance(self, distance, dtype=torch.float32):
        return self.raw.view(-1, *(1,) * distance.dim()) * torch.log1p(self.slope * distance.abs())
"""
FADING = (Path(__file__).resolve().parents[1] / "contribution" / "fading.py").read_text(encoding="utf-8")
LEAKING = """
from wordorder.encodings import NoEncoding, OnEmbeddings

class Mine(OnEmbeddings):
    def forward(self, x_BTC, positions):
        return x_BTC + x_BTC.roll(-1, dims=1)

class Decoders(OnEmbeddings):
    refused_in = {"encoder": "only to be seen", "decoder": "nor there"}
    def forward(self, x_BTC, positions):
        return x_BTC
"""


pytestmark = pytest.mark.usefixtures("registries_as_they_were")


def use_arms(texts):
    return use_own_classes(texts, option="--arm", bases=(Encoding,))


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("SLOPE = 0.5\n")
    path = tmp_path / "my.py"
    path.write_text(GOOD)
    return path


@pytest.mark.slow
def test_it_is_an_arm_like_any_other(mine, make_recipe, log):
    said = use_arms([f"{mine}:Mine=mine"])
    assert said[0].startswith("Mine of my.py: ")
    arms = {"none": {"model.encoding": "none"}, "rope": {"model.encoding": "rope"}}
    recipe = with_own_arms(make_recipe(seeds=[0], arms=arms), [f"{mine}:Mine=mine"])
    assert [arm.name for arm in recipe.compare.arms] == ["none", "rope", "mine"]
    assert recipe.compare.arms[-1].overrides == {"model.encoding": "mine"}
    results = json.loads(compare(recipe, progress=False, pipeline=STAND_IN).read_text())
    assert {row["arm"] for row in results["rows"]} == {"none", "rope", "mine"}
    source = registered_encodings()["mine"]
    assert results["own_encodings"] == {"mine": {"class": "Mine", "file": "my.py", "sha256": source.sha256}}
    folder = Path(recipe.output_dir)
    assert json.loads((folder / "mine" / "seed-0" / "arm.json").read_text())["own_encodings"]["mine"]["file"] == "my.py"
    assert "own_encodings" not in json.loads((folder / "rope" / "seed-0" / "arm.json").read_text())


@pytest.mark.slow
def test_finished_runs_are_kept_until_the_file_changes(mine, make_recipe, log):
    texts = [f"{mine}:Mine=mine"]
    use_arms(texts)
    recipe = with_own_arms(make_recipe(seeds=[0], arms={"none": {"model.encoding": "none"}}), texts)
    compare(recipe, progress=False, pipeline=STAND_IN)
    started = [line for line in log() if line.startswith("start")]
    use_arms(texts)  # as in a new process: the same file again
    compare(recipe, progress=False, pipeline=STAND_IN)
    assert [line for line in log() if line.startswith("start")] == started
    mine.write_text(GOOD + "\n# another content\n")
    use_arms(texts)
    with pytest.raises(BadInput, match=r"mine/seed-0.*file of your own encoding was changed \(my\.py\)"):
        compare(recipe, progress=False, pipeline=STAND_IN)


@pytest.mark.slow
def test_a_memory_of_ones_own_is_told_with_its_file_and_refused_once_that_changed(tmp_path, make_recipe, log):
    path = tmp_path / "fading.py"
    path.write_text(FADING)
    use_own_classes([f"{path}:FadingMemory"])
    memory = (
        "task.name=causal-lm",
        "task.packing=lanes",
        "model.network=decoder",
        "model.memory=fading",
        "model.memory_length=8",
    )
    arms = {"one": {"model.encoding": "rope"}, "other": {"model.encoding": "none"}}
    recipe = make_recipe(*memory, seeds=[0], arms=arms)
    results = json.loads(compare(recipe, progress=False, pipeline=STAND_IN).read_text())
    assert results["own_memories"]["fading"]["file"] == "fading.py"
    path.write_text(FADING + "\n# another content\n")
    use_own_classes([f"{path}:FadingMemory"])
    with pytest.raises(BadInput, match=r"the file of your own memory was changed \(fading\.py\)"):
        compare(recipe, progress=False, pipeline=STAND_IN)


@pytest.mark.slow
def test_worker_processes_know_it_too(mine, make_recipe, log):
    texts = [f"{mine}:Mine=mine"]
    use_arms(texts)
    recipe = with_own_arms(make_recipe(seeds=[0], workers=2, arms={"none": {"model.encoding": "none"}}), texts)
    results = json.loads(compare(recipe, progress=False, pipeline=KNOWING).read_text())
    assert results["complete"]
    assert sorted(line for line in log() if "knows" in line) == ["knows mine: True"] * 2


def test_a_worker_does_not_take_a_file_that_was_changed_meanwhile(mine, capsys):
    use_arms([f"{mine}:Mine=mine"])
    source = registered_encodings()["mine"]
    register_again([source])  # registered already: nothing is done
    del CATALOG["mine"]
    register_again([source])
    assert registered_encodings() == {"mine": source}
    del CATALOG["mine"]
    mine.write_text(GOOD.replace("log1p", "sqrt"))
    register_again([source])
    assert "my.py was changed since the comparison began" in capsys.readouterr().err
    with pytest.raises(BadInput, match=r"unknown encoding 'mine'.*register_encoding.*--arm"):
        split_options("mine", None)


def test_an_arm_of_the_recipe_that_names_it_is_the_only_one(mine, make_recipe):
    texts = [f"{mine}:Mine=mine"]
    use_arms(texts)
    arms = {
        "none": {"model.encoding": "none"},
        "both": {"model.encoding": "rope+mine", "model.encoding_options.mine.slope": 2.0},
    }
    recipe = with_own_arms(make_recipe(arms=arms), texts)
    assert [arm.name for arm in recipe.compare.arms] == ["none", "both"]
    plain = with_own_arms(
        make_recipe("model.encoding=t5", "model.encoding_options={buckets = 8}", arms={"t5": {}}), texts
    )
    assert plain.compare.arms[-1].overrides == {"model.encoding": "mine", "model.encoding_options": {}}


def test_faults_are_found_before_anything_is_read(tmp_path, make_recipe):
    path = tmp_path / "wrong.py"
    path.write_text(LEAKING)
    with pytest.raises(BadInput) as error:
        use_arms([f"{path}:Mine"])
    assert any("a decoder, causality: a decoder's tokens see what comes after them" in f for f in error.value.faults)
    assert "Mine" not in CATALOG
    with pytest.raises(BadInput, match="refuses encoders and decoders"):
        use_arms([f"{path}:Decoders"])


@pytest.mark.parametrize(
    ("content", "end", "words"),
    [
        (GOOD, ":Other", r"defines no encoding Other; it defines Mine, and an encoding is"),
        ("x = 3\n\ny = 1 / 0\n", ":Mine", r"my\.py cannot be run: ZeroDivisionError: division by zero \(line 3\)"),
        ("class Mine(:\n", ":Mine", r"my\.py cannot be run: SyntaxError.*line 1"),
        ("from nowhere_at_all import x\n", ":Mine", r"cannot be run: ModuleNotFoundError.*line 1"),
        (GOOD, ":Mine=rope", r"name 'rope' is taken by wordorder\.encodings\.rope\.Rotary; choose another"),
        (GOOD, ":Mine=a+b", r"name must be of letters, digits"),
        (GOOD, "", r"write --arm FILE\.py:CLASS or"),
        (GOOD, ":", r"write --arm FILE\.py:CLASS or"),
        (GOOD, "x:Mine", r"write --arm FILE\.py:CLASS or"),
    ],
)
def test_wrong_files_and_names_are_one_line_each(mine, content, end, words):
    mine.write_text(content)
    with pytest.raises(BadInput, match=words) as error:
        use_arms([f"{mine}{end}"])
    assert len(error.value.faults) == 1


def test_all_faults_of_several_are_listed_and_paths_may_hold_colons(tmp_path):
    with pytest.raises(BadInput) as error:
        use_arms([f"{tmp_path}/no.py:A", "my.py"])
    assert len(error.value.faults) == 2
    assert "there is no file" in error.value.faults[0]
    (tmp_path / "a:b.py").write_text("")
    own = parse_own_class(f"{tmp_path}/a:b.py:Mine")
    assert (own.path.name, own.class_name, own.name) == ("a:b.py", "Mine", "Mine")


def test_the_recipe_needs_a_comparison(mine, make_recipe):
    recipe = make_recipe()
    with pytest.raises(BadInput, match=r"no \[compare\] section"):
        with_own_arms(recipe.for_arm(recipe.compare.arms[0]), [f"{mine}:Mine"])


def test_the_command_says_what_was_tried_and_leaves_with_2_where_a_fault_is_found(mine, make_recipe, tmp_path):
    from typer.testing import CliRunner

    from wordorder.cli.app import app

    make_recipe()
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "small.toml"), "--arm", f"{mine}:Mine", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert 'name = "Mine"' in done.stdout
    assert "checks passed" in done.stderr
    assert "Mine: training starts with what the constructor sets" in done.stderr
    file = tmp_path / "rates.toml"
    file.write_text(
        (tmp_path / "small.toml").read_text().replace("arms]]\n", 'arms]]\n"training.learning_rate" = 1e-3\n')
    )
    rate = ["compare", str(file), "--dry-run", "--set", "training.learning_rate=5e-3"]
    assert CliRunner().invoke(app, rate).exit_code == 2
    done = CliRunner().invoke(app, [*rate, "--arm", f"{mine}:Mine"])
    assert done.exit_code == 0, f"the arm of its own takes it: {done.output}"
    mine.write_text(LEAKING)
    wrong = CliRunner().invoke(app, ["compare", str(tmp_path / "small.toml"), "--arm", f"{mine}:Mine=other"])
    assert wrong.exit_code == 2
    assert "causality" in wrong.stderr
    assert not (tmp_path / "out").exists()


def knows(recipe, folder, seed, *, test=True):
    """What a training does first, whichever process it is in; then what the stand-in does."""
    split_options(recipe.model["encoding"], None)
    comparison_stand_in._log(f"knows mine: {'mine' in CATALOG}")
    comparison_stand_in.train(recipe, folder, seed, test=test)


KNOWING = type(STAND_IN)(prepare=STAND_IN.prepare, train=knows, cost=STAND_IN.cost)
