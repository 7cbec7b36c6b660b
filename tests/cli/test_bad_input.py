"""Bad input through the real command line: one line per fault on stderr, exit 2, nothing left half-written."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import app

SENTENCE = "the people of the united states went to the house and spoke of peace and of war . "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe_text: str) -> Path:
    """Make a working folder with a good recipe and a good corpus of eight documents."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORDORDER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("WORDORDER_DATA", raising=False)
    (tmp_path / "good.toml").write_text(recipe_text, encoding="utf-8")
    (tmp_path / "corpus.txt").write_text("\n\n".join(SENTENCE * 8 for _ in range(8)), encoding="utf-8")
    return tmp_path


def run(*arguments: str) -> tuple[int, list[str]]:
    """Run the command line in this process; give the exit code and the lines of stderr."""
    result = CliRunner().invoke(app, list(arguments))
    assert "Traceback" not in result.stderr
    if result.exit_code == 2:
        assert result.stdout == ""
        assert all(line.startswith("wordorder: ") for line in result.stderr.splitlines())
    return result.exit_code, result.stderr.splitlines()


def files(folder: Path) -> set[str]:
    """List what lies in a folder, the cache of tokenisers left out."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if "cache" not in path.parts}


def test_the_recipe_that_the_others_spoil_is_good(folder: Path):
    code, lines = run("train", "good.toml", "--dry-run")
    assert (code, len(lines)) == (0, 1)
    assert "fewer than 20: scores on so few are mostly chance" in lines[0]
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("data.source=nowhere.txt", ["nowhere.txt"]),
        ("task.name=summarise", ["summarise", "masked-lm", "classification"]),
        ("model.encoding=tupe-x", ["tupe-x", "tupe-a", "tupe-r", "`wordorder list` shows all"]),
        ("model.hidden_size=15", ["15", "num_attention_heads"]),
        ("data.length=32", ["32", "16", "max_position_embeddings"]),
        ("model.hiden_size=32", ["hiden_size", "hidden_size"]),
        ("training.max_stepps=3", ["max_stepps", "max_steps"]),
        ("tokenizer.kind=syllable", ["syllable", "wordpiece", "byte"]),
        ("training.output_dir=corpus.txt/run", ["corpus.txt/run"]),
        ("training.output_dir=/proc/run", ["/proc/run"]),
        ("nonsense", ["section.key=value"]),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_remedy(folder: Path, override: str, said: list[str]):
    before = files(folder)
    code, lines = run("train", "good.toml", "--set", override)
    assert code == 2
    assert len(lines) == 1, lines
    assert [word for word in said if word not in lines[0]] == [], lines[0]
    assert files(folder) == before


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("training.max_steps=1000000000000000000", "at most 2,147,483,647"),
        ("training.epochs=1e18", "at most 2,147,483,647"),
        (f"training.evaluate_every={10**400}", "must be greater than 0 and at most 2,147,483,647, got a huge number"),
        ("training.threads=3000000000", "at most 1,024"),
        ("training.workers=100000", "at most 256"),
        ("training.seed=4294967296", "at most 4,294,967,295"),
        ("training.weight_decay=nan", "finite number"),
        ("training.adam_beta2=inf", "finite number"),
        ("data.seed=4294967296", "at most 4,294,967,295"),
        ("data.folds=3000000000", "at most 2,147,483,647"),
        ("tokenizer.vocab_size=100000000000", "at most 16,777,216"),
    ],
)
def test_a_number_that_no_machine_serves_is_refused(folder: Path, override: str, said: str):
    code, lines = run("train", "good.toml", "--set", override)
    assert (code, len(lines)) == (2, 1)
    assert f"{override.partition('=')[0]}" in lines[0]
    assert said in lines[0]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["lr_schedule=polynomial"], "training.lr_schedule: unknown value 'polynomial'"),
        (["compile=bogus"], "training.compile: unknown value 'bogus'"),
        (["workers=-3"], "training.workers: must be at least 0"),
        (["trackers=['tensorbord']"], "training.trackers: unknown value 'tensorbord'"),
        (["evaluate_every=0"], "training.evaluate_every: must be"),
        (['segments_per_step="x"'], "training.segments_per_step: must be an integer, got 'x'"),
        (["segments_per_step=[1]"], "training.segments_per_step: must be an integer, got [1]"),
        (["num_train_epochs=3"], "training.num_train_epochs: is epochs here"),
    ],
)
def test_what_the_training_cannot_make_is_said_before_it_starts(folder: Path, overrides: list[str], said: str):
    options = [word for override in overrides for word in ("--set", f"training.{override}")]
    code, lines = run("train", "good.toml", *options, "--dry-run")
    assert (code, len(lines)) == (2, 1), lines
    assert said in lines[0]


@pytest.mark.parametrize(
    "overrides",
    [
        ["optimizer=muon", "momentum=0.9"],
        ["lr_schedule=warmup-stable-decay", "decay_steps=0.1"],
        ["lr_schedule=inverse-sqrt"],
        ["evaluate_every=never", "select=last"],
        ["compile=default", "precision=bf16", "workers=2"],
    ],
)
def test_what_the_training_can_make_passes(folder: Path, overrides: list[str]):
    options = [word for override in overrides for word in ("--set", f"training.{override}")]
    code, lines = run("train", "good.toml", *options, "--dry-run")
    assert (code, [line for line in lines if "fewer than 20" not in line]) == (0, [])


def test_whole_numbers_are_decays_too(folder: Path):
    code, lines = run("train", "good.toml", "--set", "training.adam_beta1=0", "--set", "training.adam_beta2=0")
    assert code == 0, lines


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_name_that_no_folder_can_have_is_refused(folder: Path, command: str):
    recipe = (folder / "good.toml").read_text() + f'\n[compare]\n[[compare.arms]]\nname = "{"a" * 300}"\n'
    (folder / "long.toml").write_text(recipe, encoding="utf-8")
    code, lines = run(command, "long.toml", "--dry-run")
    assert (code, len(lines)) == (2, 1)
    assert "at most 100" in lines[0]
    assert len(lines[0]) < 300


def test_regression_is_told_of_labels_beyond_its_loss_and_of_smoothing(folder: Path):
    rows = "\n".join(f"{SENTENCE},{n}e{n % 20 + 20}" for n in range(1, 40))
    (folder / "labels.csv").write_text("text,label\n" + rows, encoding="utf-8")
    changes = ["task.name=regression", "data.source=labels.csv", "data.text_column=text", "task.label_column=label"]
    options = [word for change in changes for word in ("--set", change)]
    code, lines = run("train", "good.toml", *options)
    assert (code, len(lines)) == (2, 1), lines
    assert "set task.label_scale" in lines[0]
    code, lines = run("train", "good.toml", *options, "--set", "training.label_smoothing=0.1", "--dry-run")
    assert code == 2
    assert any("training.label_smoothing: spreads over classes" in line for line in lines)


def test_every_fault_is_reported_at_once(folder: Path):
    faults = ["model.intermediate_size=-1", "task.name=summarise", "training.max_stepps=3", "tokenizer.vocab_size=-1"]
    faults += ["data.length=17"]  # the table's length stands, whatever else is wrong
    code, lines = run("train", "good.toml", *(word for fault in faults for word in ("--set", fault)))
    assert code == 2
    for word in ("intermediate_size", "summarise", "max_stepps", "vocab_size", "data.length"):
        assert len([line for line in lines if word in line]) == 1, lines
    assert len(lines) == len(faults)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b" \n\n ", ""),
        (b"\x00\x01\x02\xff binary " * 50, ""),
        ("the caf\xe9 of the people ".encode("latin-1") * 50, "UTF-8"),
        (b"too short\n\nfor one\n\nsegment\n\nof text", ""),
    ],
    ids=["empty", "white space", "binary", "not UTF-8", "no full segment"],
)
def test_a_corpus_that_cannot_be_used_is_one_line_that_names_it(folder: Path, content: bytes, said: str):
    (folder / "corpus.txt").write_bytes(content)
    before = files(folder)
    code, lines = run("train", "good.toml")
    assert code == 2
    assert len(lines) == 1, lines
    assert said in lines[0]
    assert files(folder) == before


@pytest.mark.parametrize("command", ["train", "compare", "cost"])
@pytest.mark.parametrize("recipe", ["missing.toml", "binary.toml", "broken.toml", "."])
def test_a_recipe_that_cannot_be_read_is_one_line(folder: Path, command: str, recipe: str):
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (folder / "broken.toml").write_text("[data\nsource = ", encoding="utf-8")
    code, lines = run(command, recipe)
    assert code == 2
    assert len(lines) == 1
    assert recipe in lines[0]


def test_compare_into_a_folder_that_cannot_be_written_is_refused_before_any_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch, recipe_text: str
):
    monkeypatch.setattr("wordorder.tasks.prepare", None)
    arms = '\n[compare]\n[[compare.arms]]\nname = "a"\n'
    (folder / "arms.toml").write_text(recipe_text + arms, encoding="utf-8")
    code, lines = run("compare", "arms.toml", "--set", "training.output_dir=/proc")
    assert (code, len(lines)) == (2, 1)
    assert "'/proc' cannot be written" in lines[0]


def test_compare_without_arms_says_what_to_add(folder: Path):
    code, lines = run("compare", "good.toml")
    assert code == 2
    assert "[compare]" in lines[0]
    assert not (folder / "run").exists()


@pytest.mark.parametrize("arguments", [["evaluate", "nowhere", "corpus.txt"], ["predict", "nowhere", "a text"]])
def test_a_folder_without_a_model_is_one_line(folder: Path, arguments: list[str]):
    code, lines = run(*arguments)
    assert code == 2
    assert len(lines) == 1
    assert "nowhere" in lines[0]
