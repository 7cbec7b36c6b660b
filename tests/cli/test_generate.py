"""wordorder generate."""

import json
import os
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from wordorder.cli.app import app
from wordorder.data import TokenizerConfig, load_tokenizer
from wordorder.inference.continuation import Continuation
from wordorder.models import build_config, build_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of bytes that nobody trained: one with a memory, one with a table of positions, one that fills masks."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = load_tokenizer(TokenizerConfig(kind="byte"), [], cache_dir=folder)
    sizes = {"vocab_size": 261, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"max_position_embeddings": 32, "initializer_range": 0.3, "bos_token_id": 3, "eos_token_id": 3}
    memory = {"memory": "look-ahead", "memory_length": 8, "segment_length": 6, "encoding": "rope"}
    for name, network, task, fields in (
        ("memory", "decoder", "causal-lm", memory),
        ("table", "decoder", "causal-lm", {"encoding": "learned"}),
        ("masks", "encoder", "masked-lm", {}),
    ):
        config = build_config(network, **{**sizes, **fields})
        build_model(config, task, seed=1).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in that folder."""
    monkeypatch.chdir(folder)


def run(*arguments: str, text: str | None = None, code: int = 0) -> Result:
    """Run the command line in this process."""
    result = CliRunner().invoke(app, ["generate", *arguments], input=text)
    assert result.exit_code == code, result.stderr
    return result


def refused(*arguments: str, text: str | None = None) -> str:
    """Run it, expecting one fault."""
    result = run(*arguments, text=text, code=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def test_text_is_written_and_repeated_by_its_seed():
    told = json.loads(run("memory", "The state", "--max-new-tokens", "30", "--top-p", "0.9", "--json").stdout)
    assert told["prompt"] == "The state"
    assert 0 < told["tokens"] <= 30
    assert told["ended"] == (told["tokens"] < 30)
    assert (told["temperature"], told["top_k"], told["top_p"]) == (1.0, None, 0.9)
    again = ["--max-new-tokens", "30", "--top-p", "0.9", "--seed", str(told["seed"])]
    plain = run("memory", "The state", *again)
    assert plain.stdout == told["text"] + "\n"
    assert plain.stderr == ""
    assert run("memory", *again, text="The state\n").stdout == plain.stdout
    assert run("memory", "", *again).stdout != plain.stdout


def test_beams_and_endless_text():
    written = Continuation("memory").search("The state", max_new_tokens=9, beams=3)
    told = json.loads(run("memory", "The state", "--max-new-tokens", "9", "--beams", "3", "--json").stdout)
    assert told["text"] == "".join(step.text for step in written)
    assert told["beams"] == 3
    told = json.loads(run("memory", "a", "--max-new-tokens", "40", "--no-stop-at-end", "--json").stdout)
    assert (told["tokens"], told["ended"]) == (40, False)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_signal_stops_it_after_the_present_token(as_json: bool, monkeypatch: pytest.MonkeyPatch):
    steps = Continuation.write

    def interrupted(*arguments: object, **settings: object):
        for number, step in enumerate(steps(*arguments, **settings)):  # type: ignore[arg-type]
            if number == 4:
                os.kill(os.getpid(), signal.SIGINT)
            yield step

    monkeypatch.setattr(Continuation, "write", interrupted)
    arguments = ["memory", "a", "--max-new-tokens", "2000", "--no-stop-at-end", "--seed", "1"]
    result = run(*arguments, *(["--json"] if as_json else []), code=3)
    assert result.stderr.splitlines() == ["wordorder: stopped by SIGINT after 5 tokens"]
    if as_json:
        assert json.loads(result.stdout)["tokens"] == 5
    else:
        assert result.stdout.endswith("\n")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_bad_input_is_one_line():
    assert "trained for fill-mask, it cannot go on with a text" in refused("masks", "a")
    assert "there is no such folder" in refused("nowhere", "a")
    assert "config.json: holds no model" in refused("memory/config.json", "a")
    assert "no text given" in refused("memory", text="\n")
    assert "do not fit the position table of encoding 'learned'" in refused("table", "abc")
    assert "do not fit the position table of encoding 'learned'" in refused("table", "abc", "--beams", "2")
    assert "--seed is for drawing, beam search draws nothing" in refused("memory", "a", "--beams", "2", "--seed", "1")
    assert "top_p must be above 0 and at most 1, got 0.0" in refused("memory", "a", "--top-p", "0")
    assert "--max-new-tokens" in refused("memory", "a", "--max-new-tokens", "0")
    assert "beams must lie between 1 and 261 for this model, got 100000" in refused("memory", "a", "--beams", "100000")
    assert len(run("table", "abc", "--max-new-tokens", "20", "--no-stop-at-end").stdout) > 0
