"""`wordorder convert` through the real command line: a folder, a report, and one line per fault."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tupe_reference as ref
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM
from typer.testing import CliRunner

import wordorder.models  # noqa: F401  registers the model types
from wordorder.cli.app import app


class Trap:
    """Asks whoever unpickles it to leave a mark."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return exec, (f"__import__('os').mkdir({str(self.mark)!r})",)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a good checkpoint."""
    monkeypatch.chdir(tmp_path)
    ref.save(tmp_path / "model.pt", ref.weights(), stream=True)
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(app, ["convert", "tupe", *arguments])


def test_convert_makes_a_folder_and_says_what_it_did(folder: Path):
    result = run("model.pt", "new/out")
    assert result.exit_code == 0, result.stderr
    for word in ("tupe-r", "reference-code", "WordOrderEncoderForMaskedLM", "No tokeniser was written"):
        assert word in result.stdout
    assert result.stderr == ""
    assert AutoModelForMaskedLM.from_pretrained(folder / "new" / "out").config.encoding == "tupe-r"


@pytest.mark.slow
def test_json_is_all_of_stdout(folder: Path):
    lines = "".join(f"piece{n} 1\n" for n in range(ref.V - 5))
    (folder / "dict.txt").write_text(lines)
    (folder / "args.json").write_text(json.dumps({"dropout": 0.4}))
    command = [sys.executable, "-m", "wordorder", "convert", "tupe", "model.pt", "out", "--json"]
    command += ["--dictionary", "dict.txt", "--config", "args.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert report["out_dir"] == "out"
    assert report["config"]["hidden_dropout_prob"] == 0.4
    assert report["tokenizer"] is True
    assert report["mapped"]["sentence_encoder.pos.weight"] == ["model.encoder.encoding.parts.tupe.table.weight"]
    assert done.stderr == ""


def test_a_chosen_head_and_overwriting(folder: Path):
    ref.save(folder / "tuned.pt", ref.weights(heads=[("mnli", 3), ("rte", 2)]))
    assert run("tuned.pt", "out", "--head", "rte").exit_code == 0
    assert json.loads((folder / "out" / "config.json").read_text())["architectures"][0].endswith("Classification")
    assert run("tuned.pt", "out", "--head", "mnli").exit_code == 2
    assert run("tuned.pt", "out", "--head", "mnli", "--overwrite").exit_code == 0
    assert len(json.loads((folder / "out" / "config.json").read_text())["id2label"]) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.pt", "out"], "checkpoint missing.pt does not exist"),
        (["empty.pt", "out"], "checkpoint empty.pt: is damaged"),
        (["cut.pt", "out"], "checkpoint cut.pt: is damaged"),
        (["text.pt", "out"], "checkpoint text.pt: is damaged"),
        (["other.pt", "out"], 'has no state dict under "model"'),
        (["trap.pt", "out"], "cannot be read without running code"),
        (["trap.pt", "out"], "save the model's state_dict() alone"),
        (["model.pt", "full"], "OUT_DIR full is not empty"),
        (["model.pt", "full", "--overwrite"], "is no earlier conversion (it holds more: thesis.tex)"),
        (["model.pt", "text.pt"], "OUT_DIR text.pt is not a folder"),
        (["model.pt", "out", "--head", "rte"], "head 'rte' is not in the checkpoint; it has: nothing"),
        (["model.pt", "out", "--dictionary", "text.pt"], "dictionary text.pt: line 1"),
        (["model.pt", "out", "--config", "text.pt"], "config text.pt: is no JSON"),
        (["model.pt", "out", "--config", "list.json"], "config list.json: must be a JSON object"),
        (["model.pt", "out", "--config", "missing.json"], "config missing.json: cannot be read"),
        (["model.pt", "out", "--config", "wrong.json"], "args.dropout must be a number in [0, 1), got 12"),
    ],
)
def test_bad_input_is_one_line_and_exit_2_and_leaves_nothing(folder: Path, arguments: list[str], said: str):
    (folder / "empty.pt").write_bytes(b"")
    (folder / "cut.pt").write_bytes((folder / "model.pt").read_bytes()[:-100])
    (folder / "text.pt").write_text("hello\n")
    ref.torch.save({"state_dict": {}}, folder / "other.pt")
    name = "sentence_encoder.pos_ln.bias"
    w = ref.weights()
    ref.save(folder / "trap.pt", {**w, name: Trap(folder / "mark")}, ref.arguments(w))
    (folder / "full").mkdir()
    (folder / "full" / "thesis.tex").write_text("years")
    (folder / "list.json").write_text("[1]")
    (folder / "wrong.json").write_text('{"dropout": 12}')
    before = sorted(folder.rglob("*"))
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("wordorder: ")
    assert said in line
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(("code", "options", "said"), [
    ("tupe", ["--vocab", "dict.txt"], "--vocab: not for checkpoints of tupe"),
    ("lamemo", ["--dictionary", "dict.txt"], "--dictionary: not for checkpoints of lamemo"),
    ("transformer-xl", ["--head", "rte"], "--head: not for checkpoints of transformer-xl"),
    ("lamemo", [], 'has no state dict under "model_state"; a checkpoint of the reference code has model_config and'),
])  # fmt: skip
def test_options_and_files_of_another_code_are_refused(folder: Path, code: str, options: list[str], said: str):
    result = CliRunner().invoke(app, ["convert", code, "model.pt", "out", *options])
    (line,) = result.stderr.splitlines()
    assert (result.exit_code, said in line) == (2, True)
    assert not (folder / "out").exists()


def test_a_language_model_with_a_memory(folder: Path):
    state = {"state": {}, "args": None, "vocab": None}
    sizes = {"n_layer": 1, "n_head": 2, "d_model": 4, "d_head": 2, "d_inner": 8, "mem_len": 6, "tgt_len": 3}
    shapes = {
        "word_emb.emb_layers.0.weight": (9, 4),
        "crit.out_layers.0.weight": (9, 4),
        "crit.out_layers.0.bias": (9,),
        "r_w_bias": (2, 2),
        "r_r_bias": (2, 2),
        "r_r_bias_future": (2, 2),
    }
    layer = {"q_net.weight": (4, 4), "kv_net.weight": (8, 4), "r_net.weight": (4, 4), "o_net.weight": (4, 4)}
    layer |= {"layer_norm.weight": (4,), "layer_norm.bias": (4,)}
    shapes |= {f"layers.0.dec_attn.{name}": shape for name, shape in layer.items()}
    feed = {"CoreNet.0.weight": (8, 4), "CoreNet.0.bias": (8,), "CoreNet.3.weight": (4, 8), "CoreNet.3.bias": (4,)}
    feed |= {"layer_norm.weight": (4,), "layer_norm.bias": (4,)}
    shapes |= {f"layers.0.pos_ff.{name}": shape for name, shape in feed.items()}
    weights = {name: ref.torch.randn(shape) for name, shape in shapes.items()}
    config = {**sizes, "attn_type": 3}
    ref.torch.save({**state, "model_config": config, "model_state": weights}, folder / "lamemo.pt")
    (folder / "words.txt").write_text("".join(f"word{n}\n" for n in range(9)))
    arguments = ["convert", "lamemo", "lamemo.pt", "out", "--vocab", "words.txt", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["config"]["memory"] == "look-ahead"
    assert report["tokenizer"] is True
    assert AutoModelForCausalLM.from_pretrained(folder / "out").config.memory_length == 6


def test_an_unknown_code_is_one_line(folder: Path):
    result = CliRunner().invoke(app, ["convert", "bert", "model.pt", "out"])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "tupe" in result.stderr


def test_help_has_an_example():
    result = CliRunner().invoke(app, ["convert", "--help"])
    assert result.exit_code == 0
    assert "Example: `wordorder convert tupe" in result.stdout
    assert "imported or called" in result.stdout
