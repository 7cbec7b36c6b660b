"""The commands with a translation model: train, evaluate, predict; and evaluate with a language model."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from wordorder.cli.app import app

ENGLISH, GERMAN = "the people of states went home".split(), "die Leute von Staaten gingen heim".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, recipe_text: str) -> Path:
    """Train a translator and a language model in a folder."""
    folder = tmp_path_factory.mktemp("translation")
    for name, count in (("train", 40), ("test", 6)):
        for ending, words in (("en", ENGLISH), ("de", GERMAN)):
            lines = [" ".join(words[(n + k) % 6] for k in range(1 + (n + count) % 5)) for n in range(count)]
            text = "".join(f"{line} {number}{count}\n" for number, line in enumerate(lines))
            (folder / f"{name}.{ending}").write_text(text, encoding="utf-8")
    sources = 'source = "train.en"\ntest_source = "test.en"'
    task = 'name = "translation"\ntarget_source = "train.de"\ntest_target_source = "test.de"'
    recipe = recipe_text.replace('source = "corpus.txt"', sources).replace('name = "masked-lm"', task)
    recipe = recipe.replace('"encoder"', '"seq2seq"').replace('"tupe-r"', '"learned"')
    (folder / "translate.toml").write_text(recipe, encoding="utf-8")
    causal = (
        recipe_text.replace("corpus.txt", "text.txt").replace("masked-lm", "causal-lm").replace('"run"', '"causal"')
    )
    causal = causal.replace('"encoder"', '"decoder"').replace('"tupe-r"', '"rope"')
    (folder / "causal.toml").write_text(causal, encoding="utf-8")
    (folder / "text.txt").write_text(
        "".join(f"the people of state {number} went home .\n" * 10 for number in range(40)), encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("translate.toml", "causal.toml"):
            run("train", name, "--json")
    return folder


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in that folder."""
    monkeypatch.chdir(folder)


def run(*arguments: str, text: str | None = None) -> Result:
    """Run the command line in this process, expecting success."""
    result = CliRunner().invoke(app, list(arguments), input=text)
    assert result.exit_code == 0, result.stderr
    return result


def refused(*arguments: str, text: str | None = None) -> str:
    """Run the command line in this process, expecting one fault."""
    result = CliRunner().invoke(app, list(arguments), input=text)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    return line


def test_a_line_is_written_for_each_line_of_stdin():
    texts = ["the people went home", "", "states of the people", " "]
    written = run("predict", "run/model", "--max-length", "6", text="\n".join(texts) + "\n")
    lines = written.stdout.split("\n")
    assert len(lines) == 5
    assert [bool(line) for line in lines] == [True, False, True, False, False]
    assert written.stderr == ""
    assert run("predict", "run/model", "--max-length", "6", text="\ufeff" + "\r\n".join(texts)).stdout == written.stdout
    answers = json.loads(run("predict", "run/model", texts[0], texts[2], "--max-length", "6", "--json").stdout)
    assert [answer["text"] for answer in answers] == [texts[0], texts[2]]
    assert [answer["answers"] for answer in answers] == [[{"translation": lines[0]}], [{"translation": lines[2]}]]
    one = run("predict", "run/model", texts[0], "--beams", "1", "--batch-size", "1", "--max-length", "3").stdout
    assert len(one.split()) <= 2


def test_letters_that_the_model_does_not_know_are_said():
    note = "[UNK] stands for tokens that the tokenizer does not know: 100.0% of the text; give texts of the language"
    assert run("predict", "run/model", "\u043f\u0440\u0438", "--max-length", "4").stderr.startswith(note)
    written = run("generate", "causal/model", "\u043f\u0440\u0438", "--max-new-tokens", "2", "--json")
    assert written.stderr.startswith(note)
    assert json.loads(written.stdout)["tokens"] == 2 or json.loads(written.stdout)["ended"]
    assert run("generate", "causal/model", "the people", "--max-new-tokens", "2").stderr == ""


def test_a_line_feed_in_a_translation_shifts_no_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("wordorder.inference.translate", lambda *_, **__: ["two\nlines", "one"])
    assert run("predict", "run/model", "a", "b").stdout == "two lines\none\n"


def test_evaluate_gives_the_scores_of_the_run_and_of_other_files(folder: Path):
    expected = json.loads((folder / "run" / "metrics.json").read_text(encoding="utf-8"))
    scores = json.loads(run("evaluate", "run/model", "train.en", "--json").stdout)
    assert scores["bleu"] == pytest.approx(expected["test"]["bleu"], rel=1e-6)
    assert scores["bleu_signature"] == expected["bleu_signature"]
    other = ["evaluate", "run/model", "test.en", "--target", "test.de", "--split", "all", "--beams", "1"]
    assert json.loads(run(*other, "--json").stdout)["sentences"] == 6
    assert "bleu_signature" in run(*other).stdout


def test_evaluate_scores_a_language_model(folder: Path):
    expected = json.loads((folder / "causal" / "metrics.json").read_text(encoding="utf-8"))["test"]
    assert json.loads(run("evaluate", "causal/model", "text.txt", "--json").stdout)["loss"] == pytest.approx(
        expected["loss"], rel=1e-6
    )
    assert "bits_per_character" in run("evaluate", "causal/model", "text.txt").stdout


def test_cost_counts_both_sides():
    cost = json.loads(run("cost", "translate.toml", "--json").stdout)["arms"][0]
    assert cost["parameters"]["total"] == sum(n for part, n in cost["parameters"].items() if part != "total")
    assert cost["encoding_parameters"] == {"learned table": 2 * 16 * 16}  # one in the encoder, one in the decoder
    # two FLOPs for each weight that a token meets: of the encoder, or of decoder and head
    encoder, decoder, head = 4 * 16 * 16 + 2 * 16 * 32, 8 * 16 * 16 + 2 * 16 * 32, 64 * 16
    scores = (2 * 2 * 16 * 16) * 3 / 2  # of at most 16 keys, in self-attention of either side and across
    assert 0 <= cost["forward_flops_per_token"] - (encoder + decoder + head) <= scores


def test_bad_input_is_one_line():
    assert "single texts; give no second ones" in refused("predict", "run/model", "a", "--pair", "b")
    assert "no text given" in refused("predict", "run/model", text="\n \n")
    assert "takes at most 16" in refused("predict", "run/model", "people " * 20)
    said = refused("predict", "run/model", "people", "--max-length", "40")
    assert "max_length must be at most 17 for the model's position table, got 40" in said
    assert "task.target_source" in refused("evaluate", "run/model", "test.en")
    assert "no file matches 'nowhere.de'" in refused("evaluate", "run/model", "test.en", "--target", "nowhere.de")
    assert "target is for translation" in refused("evaluate", "causal/model", "text.txt", "--target", "test.de")
    assert "nor translates; use wordorder generate" in refused("predict", "causal/model", "the people")
    assert "--beams is for translation" in refused("predict", "causal/model", "the people", "--beams", "2")
    assert "num_beams is for translation" in refused("evaluate", "causal/model", "text.txt", "--beams", "2")
