"""`wordorder inspect` through the real command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import app
from wordorder.models import build_config, build_model


def save(place: Path, encoding: str) -> Path:
    config = build_config(
        "encoder", vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, encoding=encoding,
        max_position_embeddings=12, initializer_range=0.3,
    )  # fmt: skip
    build_model(config, "masked-lm", seed=0).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Saved models, one of each kind that the command tells apart."""
    place = tmp_path_factory.mktemp("runs")
    return {name: save(place / name / "model", name) for name in ("tupe-r", "learned", "rope", "none")}


def run(*arguments: object) -> tuple[int, str, list[str]]:
    """Run the command line in this process: exit code, stdout, lines of stderr."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert "Traceback" not in result.stderr
    return result.exit_code, result.stdout, result.stderr.splitlines()


def test_a_table_the_answer_and_where_the_page_is(models: dict[str, Path]):
    code, text, lines = run("inspect", models["tupe-r"])
    assert (code, lines) == (0, [])
    for said in ("absolute: Toeplitz", "sum: rest", "relative: rms", "all"):
        assert said in text
    numbers = json.loads((models["tupe-r"].parent / "inspect" / "numbers.json").read_text(encoding="utf-8"))
    share = numbers["maps"]["absolute"]["toeplitz_share"]
    assert f"absolute: {share:.1%} of what softmax sees of it depends on distance alone" in text
    assert f"{share:.3f}" in text
    page = models["tupe-r"].parent / "inspect" / "inspect.html"
    assert f"Written: {page}" in text
    assert page.is_file()


def test_json_is_that_of_the_file_and_nothing_else(models: dict[str, Path], tmp_path: Path):
    code, text, lines = run("inspect", models["tupe-r"], "--output-dir", tmp_path / "out", "--length", 8, "--json")
    assert (code, lines) == (0, [])
    printed = json.loads(text)
    assert printed.pop("folder") == str(tmp_path / "out")
    assert printed == json.loads((tmp_path / "out" / "numbers.json").read_text(encoding="utf-8"))
    assert printed["length"] == 8
    assert "absolute" in printed["maps"]


@pytest.mark.parametrize("encoding", ["rope", "learned", "none"])
def test_where_there_is_nothing_on_scores_one_line_says_so(models: dict[str, Path], encoding: str):
    code, text, _ = run("inspect", models[encoding])
    assert code == 0
    line, written = text.splitlines()
    assert line.startswith(f"There is nothing to draw: encoding '{encoding}'")
    assert written.endswith("numbers.json")
    assert [path.name for path in (models[encoding].parent / "inspect").iterdir()] == ["numbers.json"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "nowhere: there is no such folder"),
        (("MODEL", "--length", "13"), "max_position_embeddings=12"),
        (("MODEL", "--length", "99999"), "max_position_embeddings=12"),
        (("MODEL", "--length", "2"), "4 .. 1024"),
        (("MODEL", "--length", "some"), "Invalid value for '--length'"),
        (("MODEL", "--output-dir", "/proc/x"), "'/proc/x' cannot be written"),
        (("MODEL", "--text", "nowhere.txt"), "--text is for a causal language model"),
        ((), "Missing argument 'MODEL_DIR'"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(models: dict[str, Path], arguments: tuple[str, ...], said: str):
    code, text, lines = run("inspect", *(models["tupe-r"] if word == "MODEL" else word for word in arguments))
    assert (code, text, len(lines)) == (2, "", 1)
    assert lines[0].startswith("wordorder: ")
    assert said in lines[0]


def test_a_model_of_another_type_is_one_clear_error(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    code, text, lines = run("inspect", tmp_path)
    assert (code, text, len(lines)) == (2, "", 1)
    assert f"{tmp_path}: holds a model of type 'bert'" in lines[0]


def test_a_disk_that_fills_up_is_a_failed_run(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("wordorder.inspection.saved.write_files", full)
    code, text, lines = run("inspect", models["none"])
    assert (code, text, len(lines)) == (1, "", 1)
    assert "No space left on device" in lines[0]


def test_help_has_an_example_and_loads_nothing_heavy():
    code, text, _ = run("inspect", "--help")
    assert code == 0
    assert "Example: `wordorder inspect runs/demo/tupe-r/seed-0/model`" in text
    assert all(option in text for option in ("--length", "--output-dir", "--text", "--json"))
    statement = """
import contextlib, io, sys
sys.argv = ["wordorder", "inspect", "--help"]
from wordorder.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
print(sorted({"torch", "transformers", "matplotlib", "numpy", "jinja2"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", statement], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_the_command_is_in_the_list():
    assert "inspect" in run("--help")[1]
