"""`--use FILE.py:CLASS`: a memory or an encoding of one's own in `train` and `compare`, by its name in the recipe."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import app
from wordorder.errors import BadInput
from wordorder.memory import MEMORIES, SegmentRecurrence, register_memory
from wordorder.models import WordOrderDecoderConfig
from wordorder.own_classes import all_registered, register_again, use_own_classes

pytestmark = pytest.mark.usefixtures("registries_as_they_were")

FADING = (Path(__file__).parent / "contribution" / "fading.py").read_text(encoding="utf-8")
SIZES = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
OF_MEMORY = (
    "task.name=causal-lm",
    "task.packing=lanes",
    "model.network=decoder",
    "model.encoding=rope",
    "model.memory=fading",
    "model.memory_length=8",
    "model.segment_length=8",
)


@pytest.fixture
def fading(tmp_path: Path) -> Path:
    path = tmp_path / "fading.py"
    path.write_text(FADING)
    return path


def test_a_memory_is_tried_registered_and_named_in_a_saved_configuration(fading, tmp_path):
    assert use_own_classes([f"{fading}:FadingMemory"]) == [
        "FadingMemory of fading.py: read in steps, from a saved state, and beside a row of another length"
    ]
    config = WordOrderDecoderConfig(**SIZES, memory="fading", memory_options={"keep": 0.5})
    config.save_pretrained(tmp_path)
    (source,) = all_registered()
    assert json.loads((tmp_path / "config.json").read_text())["own_memories"] == {"fading": source.as_dict()}
    del MEMORIES["fading"]
    with pytest.raises(BadInput, match=r"memory 'fading' of this model .* FadingMemory of fading\.py.*register_memory"):
        WordOrderDecoderConfig.from_pretrained(tmp_path)
    register_again([source])  # as a worker process does
    assert all_registered() == (source,)
    assert WordOrderDecoderConfig.from_pretrained(tmp_path).memory_kept().keep == 0.5
    fading.write_text(FADING + "# another content")
    use_own_classes([f"{fading}:FadingMemory"])
    with pytest.warns(UserWarning, match="memory 'fading' is of another file than the model was trained with"):
        WordOrderDecoderConfig.from_pretrained(tmp_path)


def test_an_encoding_of_the_same_name_and_annotations_as_strings(fading, tmp_path):
    fading.write_text("from __future__ import annotations\n" + FADING)
    own = "from wordorder.encodings import NoEncoding\nclass Mine(NoEncoding):\n    pass\n"
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(own)
    use_own_classes([f"{fading}:FadingMemory", f"{tmp_path}/a/mine.py:Mine=fading"])
    config = WordOrderDecoderConfig(**SIZES, memory="fading", memory_options={"keep": 0.5})
    assert set(config.own_memories) == {"fading"}
    plain = WordOrderDecoderConfig(**SIZES, encoding="fading")
    assert not hasattr(plain, "own_memories")
    assert set(plain.own_encodings) == {"fading"}
    with pytest.raises(BadInput, match="name 'fading' is taken by wordorder_own_mine"):
        use_own_classes([f"{tmp_path}/b/mine.py:Mine=fading"])


def test_a_wrong_memory_is_named_with_its_fault_before_anything_is_read(fading):
    fading.write_text(FADING.replace("x_BTC.detach()", "x_BTC.mean(0, keepdim=True).expand_as(x_BTC).detach()"))
    with pytest.raises(BadInput, match=r"fading\.py: FadingMemory: a row is read otherwise beside one of another"):
        use_own_classes([f"{fading}:FadingMemory"])
    assert "fading" not in MEMORIES


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (":FadingMemory=other", "a memory has the name of its class, 'fading'; leave =other out"),
        (":Step", r"defines no encoding or memory Step; it defines FadingMemory.*a memory one of wordorder\.memory"),
        ("", r"write --use FILE\.py:CLASS or"),
    ],
)
def test_what_is_no_class_of_a_file_is_one_line(fading, text, words):
    with pytest.raises(BadInput, match=words) as error:
        use_own_classes([f"{fading}{text}"])
    assert len(error.value.faults) == 1


def test_names_of_memories():
    with pytest.raises(ValueError, match="name 'segment-recurrence' is taken by"):
        register_memory(type("Mine", (SegmentRecurrence,), {}))
    with pytest.raises(ValueError, match="name 'none' says that there is no memory"):
        register_memory(type("Mine", (SegmentRecurrence,), {"name": "none"}))
    with pytest.raises(ValueError, match="memory must be a class of wordorder"):
        register_memory(type("Mine", (), {"name": "mine"}))
    with pytest.raises(BadInput, match=r"unknown memory 'look-ahed'; did you mean 'look-ahead'\? known: none, segment"):
        WordOrderDecoderConfig(**SIZES, memory="look-ahed")


@pytest.mark.slow
def test_the_command_takes_it(fading, recipe_file, tmp_path):
    recipe = str(recipe_file)
    use = ["--use", f"{fading}:FadingMemory", *(part for setting in OF_MEMORY for part in ("--set", setting))]
    steps = [
        "--set",
        "training.max_steps=2",
        "--set",
        "training.evaluate_every=2",
        "--output-dir",
        str(tmp_path / "run"),
    ]
    trained = CliRunner().invoke(app, ["train", recipe, *use, *steps, "--json"])
    assert trained.exit_code == 0, trained.output
    assert "FadingMemory of fading.py" in trained.stderr
    model = Path(json.loads(trained.stdout)["model"])
    assert json.loads((model / "config.json").read_text())["memory"] == "fading"
    del MEMORIES["fading"]
    without = CliRunner().invoke(app, ["train", recipe, *use[2:], *steps])
    assert without.exit_code == 2
    assert "unknown memory 'fading'" in without.stderr
