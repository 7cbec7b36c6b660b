"""`wordorder init` writes recipes that are checked and that train, for every task."""

import errno
import gzip
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import app
from wordorder.comparison import read_results
from wordorder.tasks.catalog import CLASSES
from wordorder.training.recipe.recipe import read_recipe

WORDS = ["the", "people", "of", "these", "united", "states", "went", "home", "again", "today"]


def text_of(number):
    return " ".join(WORDS[(number * 3 + place * (1 + number % 4)) % len(WORDS)] for place in range(20))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a folder with data for every task."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    for number in range(30):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"{text_of(number)} {number}.")
    rows = [{"text": f"{text_of(n)} {n}", "label": f"class {n % 2}", "target": text_of(n + 1)} for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "numbers.jsonl").write_text("\n".join(json.dumps(row | {"label": n % 5}) for n, row in enumerate(rows)))
    (tmp_path / "a.en").write_text("\n".join(row["text"] for row in rows))
    (tmp_path / "a.de").write_text("\n".join(row["target"] for row in rows))
    return tmp_path


DATA = {
    "masked-lm": ["texts/*.txt"],
    "causal-lm": ["texts"],
    "classification": ["rows.jsonl"],
    "regression": ["numbers.jsonl"],
    "translation": ["rows.jsonl"],
}


def call(*words, code=0):
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result.stderr if code else result.stdout


def test_every_task_is_offered():
    assert set(DATA) == set(CLASSES)


def test_a_file_name_with_a_space_is_quoted_in_commands():
    shown = call("init", "--data", "texts", "--task", "causal-lm", "--out", "my own.toml")
    assert "Check it: wordorder compare 'my own.toml' --dry-run\nRun it: wordorder compare 'my own.toml'\n" in shown
    assert "#   wordorder cost 'my own.toml' " in Path("my own.toml").read_text()
    Path("my texts.txt").write_text("no recipe")
    assert "wordorder init --data 'my texts.txt' --task TASK" in call("train", "my texts.txt", code=2)


@pytest.mark.parametrize("words", [["--data", "texts", "--task", "causal-lm"], ["demo"]])
def test_a_full_disk_leaves_no_half_recipe_that_would_be_in_the_way(words, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("wordorder.files.os.fsync", full)
        assert "mine.toml: cannot be written: No space left on device" in call(
            "init", *words, "--out", "mine.toml", code=2
        )
    assert not list(Path().glob("*mine.toml*"))
    call("init", *words, "--out", "mine.toml")


@pytest.mark.parametrize("task", DATA)
def test_nothing_in_the_recipe_changes_the_text(task):
    from wordorder.data.tokenizers import load_tokenizer

    call("init", "--data", *DATA[task], "--task", task, "--out", "mine.toml")
    recipe, text = read_recipe("mine.toml"), "Möchte Bxc3 bxc3 й खेल ブ I_JUMP."
    tokenizer = load_tokenizer(recipe.tokenizer, [text] * 9, cache_dir=Path("cache"))
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("task", DATA)
def test_the_recipe_is_commented_and_passes_every_check(task):
    shown = call("init", "--data", *DATA[task], "--task", task, "--out", "new/mine.toml")
    assert shown.startswith("Written: new/mine.toml\nCheck it: wordorder compare new/mine.toml --dry-run\n")
    text = Path("new/mine.toml").read_text()
    resolved = json.loads(call("compare", "new/mine.toml", "--dry-run", "--json"))
    assert resolved["compare"]["seeds"] == [0, 1, 2, 3, 4]
    assert len(resolved["compare"]["tune"]) == 3
    assert resolved["compare"]["tune_encoding"] == [1, 4]
    assert len(resolved["compare"]["arms"]) == 4
    assert resolved["data"]["source"] == DATA[task][0]
    assert resolved["training"]["output_dir"] == "runs/mine"
    keys = [line for line in text.splitlines() if re.match(r"\w+ = ", line)]
    assert sum("  # " in line for line in keys) > len(keys) / 2
    commands = re.findall(r"^#   wordorder (\w+) new/mine.toml", text, flags=re.MULTILINE)
    assert commands == ["compare", "data", "cost", "compare", "compare"]


@pytest.mark.slow
@pytest.mark.parametrize("task", DATA)
def test_the_recipe_trains(task):
    call("init", "--data", *DATA[task], "--task", task)
    shorter = [
        "training.max_steps=4",
        "training.log_every=2",
        "compare.workers=1",
        "model.hidden_size=16",
        "compare.tune=[]",
        "compare.tune_encoding=[]",
    ]
    arms = [word for setting in shorter for word in ("--set", setting)]
    call("compare", "recipe.toml", "--seeds", "1", *arms)
    results = read_results(Path("runs/recipe/results.json"))
    assert [arm.name for arm in results.arms] == re.findall(r'arms\]\]\nname = "(.*)"', Path("recipe.toml").read_text())
    assert not results.failed
    assert len(results.rows) == 4


def test_translation_may_have_two_files():
    call("init", "--data", "a.en", "--target", "a.de", "--task", "translation")
    assert json.loads(call("compare", "recipe.toml", "--dry-run", "--json"))["task"]["target_source"] == "a.de"


@pytest.mark.parametrize(
    ("task", "words", "written"),
    [
        ("classification", ["--label-column", "stars"], {"text_column": "review", "label_column": "stars"}),
        ("causal-lm", [], {"text_column": "review"}),
        ("translation", ["--target-column", "stars"], {"text_column": "review", "target_column": "stars"}),
    ],
)
def test_columns_have_the_names_of_the_file(folder, task, words, written):
    stars = [("bad", "good")[number % 2] + (f" {number}" if task == "translation" else "") for number in range(40)]
    rows = "".join(f"{text_of(number)} {number},{star}\n" for number, star in enumerate(stars))
    (folder / "opinions.csv").write_text("review,stars\n" + rows)
    call("init", "--data", "opinions.csv", "--task", task, "--text-column", "review", *words)
    recipe = read_recipe("recipe.toml")
    columns = {**dict(recipe.data), **dict(recipe.task)}
    assert {name: columns[name] for name in written} == written
    assert call("compare", "recipe.toml", "--dry-run")


def test_encodings_are_picked_by_name():
    names = [word for name in ("RoPE", "rope", "Learned+T5", "rope*1,none") for word in ("--encoding", name)]
    call("init", "--data", "texts", "--task", "masked-lm", "--out", "mine.toml", *names)
    arms = read_recipe(Path("mine.toml")).compare.arms
    assert [(arm.name, arm.overrides["model.encoding"]) for arm in arms] == [
        ("rope", "rope"),
        ("learned+t5", "learned+t5"),
        ("rope-1-none", "rope*1,none"),
    ]
    said = call("init", "--data", "texts", "--task", "masked-lm", "--out", "no.toml", "--encoding", "alibbi", code=2)
    assert "alibi" in said
    assert not Path("no.toml").exists()


def test_sizes_follow_the_amount_of_text(folder):
    call("init", "--data", "texts", "--task", "masked-lm", "--out", "small.toml")
    for number in range(30):
        (folder / "texts" / f"{number}.txt").write_text(f"{text_of(number)} {number}. " * 400)
    call("init", "--data", "texts", "--task", "masked-lm", "--out", "medium.toml")
    small, medium = (Path(f"{name}.toml").read_text() for name in ("small", "medium"))
    assert 'kind = "character"' in small
    assert "hidden_size = 64 " in small
    assert "test_fraction = 0.1 " in small
    assert 'kind = "bpe"' in medium
    assert "hidden_size = 128 " in medium


@pytest.mark.parametrize("characters", [979_372, 1_500_000])
def test_steps_are_five_passes_over_the_text(folder, characters):
    words = text_of(3)
    for number in range(20):
        (folder / "texts" / f"{number}.txt").write_text((f"{number} {words} " * characters)[: characters // 20])
    call("init", "--data", "texts/[0-9]*.txt", "--task", "causal-lm", "--out", "mine.toml")
    resolved = json.loads(call("compare", "mine.toml", "--dry-run", "--json"))
    training, length = resolved["training"], resolved["data"]["length"]
    per_token = 1 if characters < 2**20 else 4  # letters, or pieces of some four
    read = training["max_steps"] * training["batch_size"] * length
    assert read >= 5 * 0.8 * characters / per_token
    assert "warmup_steps = 0.06" in Path("mine.toml").read_text()


def test_steps_that_are_too_few_say_what_five_passes_cost():
    from wordorder.training.recipe.starter import _steps

    line, passes = _steps(30_000.0)
    assert line.startswith("max_steps = 20000  # optimizer steps of each run: about 0.67 passes over the text; 5 take")
    assert "some 150,000 steps" in line
    assert passes == pytest.approx(2 / 3)


def test_a_text_that_is_read_once_or_twice_gets_no_dropout(folder, monkeypatch):
    call("init", "--data", "texts", "--task", "masked-lm", "--out", "often.toml")
    monkeypatch.setattr("wordorder.training.recipe.starter._steps", lambda steps: ("max_steps = 500\n", 2.9))
    call("init", "--data", "texts", "--task", "masked-lm", "--out", "twice.toml")
    assert "hidden_dropout_prob = 0.1 " in Path("often.toml").read_text()
    assert "hidden_dropout_prob = 0.0 " in Path("twice.toml").read_text()


def test_a_packed_file_is_measured_by_its_texts(folder):
    lines = "".join(
        json.dumps({"text": f"{number} {text_of(3)} " * 400, "n": "x" * 5_000}) + "\n" for number in range(20)
    )
    Path("plain.jsonl").write_text(lines)
    with gzip.open("packed.jsonl.gz", "wt") as file:
        file.write(lines)
    steps = []
    for name in ("plain.jsonl", "packed.jsonl.gz"):
        call("init", "--data", name, "--task", "causal-lm", "--out", f"{name[:5]}.toml")
        steps.append(json.loads(call("compare", f"{name[:5]}.toml", "--dry-run", "--json"))["training"]["max_steps"])
    assert steps[0] == steps[1] > 500


@pytest.mark.parametrize(("rows", "fraction"), [(100, 0.2), (3_000, 0.167), (20_000, 0.05)])
def test_validation_and_test_have_five_hundred_rows_where_there_are_enough(folder, rows, fraction):
    Path("rows.csv").write_text("text,label\n" + "".join(f"row {n} {text_of(3)},{n % 2}\n" for n in range(rows)))
    call("init", "--data", "rows.csv", "--task", "classification", "--out", "rows.toml")
    assert f"test_fraction = {fraction} " in Path("rows.toml").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "nowhere.txt", "--task", "masked-lm"], "data.source"),
        (["--data", "texts", "--task", "mlm"], "--task: unknown value 'mlm'; did you mean 'masked-lm'?"),
        (
            ["--data", "texts/3.txt", "--task", "masked-lm"],
            "texts/3.txt is 1 document, and training, validation and test",
        ),
        (
            ["--data", "numbers.jsonl", "--task", "classification", "--target", "a.de"],
            "--target: is for --task translation",
        ),
        (
            ["--data", "a.en", "--task", "masked-lm", "--out", "recipe"],
            "a recipe's name ends in .toml; write recipe.toml",
        ),
        (
            ["--data", "opinions.csv", "--task", "classification", "--text-column", "review"],
            "no column 'label'; its columns are review, stars; name the right one by --label-column",
        ),
        (
            ["--data", "opinions.csv", "--task", "masked-lm", "--label-column", "stars"],
            "--label-column: masked-lm reads no such column; leave it out",
        ),
        (
            ["--data", "a.en", "--task", "translation", "--target", "a.de", "--target-column", "to"],
            "--target-column: translation reads no such column beside --target; leave it out",
        ),
        (["--data", "opinions.csv", "--task", "masked-lm", "--text-column", ""], "--text-column"),
        (["--data", "texts", "--task", "masked-lm", "--out", "there.toml"], "there.toml: exists and is not replaced"),
        (["--data", "texts", "--task", "masked-lm", "--out", "a.en/x.toml"], "--out: a.en/x.toml: cannot be written"),
    ],
)
def test_what_cannot_be_used_is_one_error_and_nothing_is_written(words, said, folder):
    (folder / "there.toml").write_text("# mine\n")
    (folder / "opinions.csv").write_text("review,stars\n" + "good,5\nbad,1\n" * 20)
    (line,) = call("init", *words, code=2).splitlines()
    assert said in line
    assert (folder / "there.toml").read_text() == "# mine\n"
    assert not (folder / "recipe.toml").exists()


def test_a_spreadsheet_s_export_is_read_as_it_is_written(folder):
    rows = "".join(f"{text_of(number)} grün {number};{'gut' if number % 2 else 'übel'}\n" for number in range(40))
    (folder / "export.csv").write_text("review;stars\n" + rows, encoding="cp1252")
    words = ("--text-column", "review", "--label-column", "stars", "--set", "data.file_encoding=cp1252")
    call("init", "--data", "export.csv", "--task", "classification", *words, "--set", "data.delimiter=;")
    data = read_recipe("recipe.toml").data
    assert (data.delimiter, data.file_encoding) == (";", "cp1252")
    assert call("compare", "recipe.toml", "--dry-run")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--data", "texts", "--set", "training.seed=1"), "takes data.KEY=VALUE or task.KEY=VALUE here"),
        (("--data", "texts", "--set", "data.length=64"), "init writes this key itself"),
        (("--data", "task:parity"), "is generated; copy a recipe"),
    ],
)
def test_what_init_does_not_take_is_one_sentence(words, fault):
    assert fault in call("init", "--task", "causal-lm", *words, code=2)
