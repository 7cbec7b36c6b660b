"""Every code block of the README and the documentation: Python runs, recipes are read, command lines are parsed.

A page's Python blocks run one after the other in one namespace, in a folder of its own. A block that cannot run here
(it needs a GPU, or a network) stands below a line `*Not run by the tests: REASON.*`, which a reader sees too.
"""

import ast
import importlib
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

RUN_ELSEWHERE = {
    "README.md": "test_readme.py",
    "docs/complex-order.md": "encodings/test_page_of_complex_order.py",
    "docs/decoder.md": "models/test_seq2seq_models.py",
    "docs/ecosystem.md": "training/test_page_of_ecosystem.py",
    "docs/export.md": "models/test_onnx.py",
    "docs/generation.md": "models/test_streaming.py",
    "docs/graft.md": "models/test_graft.py",
    "docs/inspect.md": "inspection/test_page_of_the_docs.py",
    "docs/language-models.md": "training/test_page_of_language_models.py",
    "docs/memory.md": "models/test_page_of_memory.py",
    "docs/tutorials/convert-a-checkpoint.md": "test_tutorials.py",
    "docs/tutorials/graft-tupe-on-bert.md": "test_tutorials.py",
    "docs/tutorials/memory-language-model.md": "test_tutorials.py",
    "docs/tutorials/pretrain-and-fine-tune.md": "test_tutorials.py",
    "docs/tutorials/my-own-encoding.md": "test_tutorials.py",
    "docs/tutorials/my-own-network.md": "test_tutorials.py",
    "docs/tutorials/my-own-text.md": "test_tutorials.py",
    "docs/tutorials": "test_tutorials.py",
}
"""Pages, or folders of them, whose Python another test runs, with more to say about the outcome."""

NOT_RUN = re.compile(r"\*Not run by the tests: ([^*]+)\.\*\n+$")
FENCE = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its title (a file's name), its text, and the reason why it is not run."""

    language: str
    title: str
    text: str
    not_run: str | None


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        language, rest, body = found[2], found[3], found[4]
        if language in languages:
            title = re.search(r'title="([^"]+)"', rest)
            why = NOT_RUN.search(text[: found.start()])
            body = re.sub(rf"^{found[1]}", "", body, flags=re.MULTILINE)
            yield Block(language, title[1] if title else "", body, why[1] if why else None)


def pages_with(*languages: str) -> list[Any]:
    return [pytest.param(page, id=name_of(page)) for page in PAGES if any(blocks(page, *languages))]


# ---------------------------------------------------------------------------------------------------------- Python


def saved_own_encoding() -> None:
    """The tutorial's class, and the model with it that docs/add-encoding.md loads."""
    (file,) = [block for block in blocks(ROOT / "docs/tutorials/my-own-encoding.md", "python") if block.title]
    Path(file.title).write_text(file.text, encoding="utf-8")
    from neighbours import Neighbours  # pyright: ignore[reportMissingImports]

    from wordorder.encodings import CATALOG, register_encoding
    from wordorder.models import build_config, build_model

    register_encoding("Neighbours", Neighbours)
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = build_model(build_config("encoder", encoding="Neighbours", **sizes), "masked-lm", seed=0)
    model.save_pretrained("runs/demo/Neighbours/seed-0/model")
    del CATALOG["Neighbours"]


def reference_checkpoints() -> None:
    """The files that docs/convert.md converts and loads."""
    import tupe_reference

    from wordorder.models import build_config, build_model

    Path("tupe_ckp").mkdir()
    tupe_reference.save(Path("tupe_ckp/model.pt"), tupe_reference.weights())
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    memory = {"encoding": "transformer-xl", "memory": "look-ahead", "memory_length": 100, "segment_length": 150}
    build_model(build_config("decoder", **sizes, **memory), "causal-lm", seed=0).save_pretrained("lamemo-text8")


BEFORE: dict[str, Callable[[], None]] = {
    "docs/add-encoding.md": saved_own_encoding,
    "docs/convert.md": reference_checkpoints,
}
"""What a page takes for granted."""


@pytest.fixture
def known_encodings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what a page registers and imports."""
    from wordorder.encodings import CATALOG

    before = dict(CATALOG)
    yield
    for name in set(CATALOG) - set(before):
        del CATALOG[name]
    sys.modules.pop("neighbours", None)


@pytest.mark.usefixtures("known_encodings")
@pytest.mark.parametrize("page", pages_with("python"))
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name, folder = name_of(page), name_of(page.parent)
    if name in RUN_ELSEWHERE or folder in RUN_ELSEWHERE:
        test = ROOT / "tests" / RUN_ELSEWHERE.get(name, RUN_ELSEWHERE.get(folder, ""))
        assert page.stem in test.read_text(encoding="utf-8"), f"{test.name} does not name the page"
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("WORDORDER_CACHE", os.environ["WORDORDER_CACHE"])
    runnable = [block for block in blocks(page, "python") if block.not_run is None]
    for block in runnable:
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
    BEFORE.get(name, lambda: None)()
    names: dict[str, Any] = {"__name__": "page"}
    for block in runnable:
        exec(compile(block.text, name, "exec"), names)


def test_blocks_that_are_not_run_are_few_and_say_why(capsys: pytest.CaptureFixture[str]):
    skipped = [(name_of(page), block.not_run) for page in PAGES for block in blocks(page, "python") if block.not_run]
    with capsys.disabled():
        for name, reason in skipped:
            print(f"\n{name}: a block is not run: {reason}")
    assert len(skipped) <= 5


def test_every_fence_names_a_language_that_is_looked_at():
    """A block without a language is output; another language would be looked at by no test."""
    looked_at = {"python", "toml", "bash", "sh", "console", "json", "text", "yaml", "csv", "math", "bibtex"}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"^ *```([\w+-]+)", text, flags=re.MULTILINE))
        assert named <= looked_at, name_of(page)
        assert len(re.findall(r"^ *```", text, flags=re.MULTILINE)) % 2 == 0, f"{name_of(page)}: a fence is not closed"


# ------------------------------------------------------------------------------------------------------- equations


def equations(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("latex2mathml", reason="latex2mathml is not installed; it comes with the extra docs")
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("equations")


def test_equations_are_latex(monkeypatch: pytest.MonkeyPatch):
    faults = equations(monkeypatch).faults
    found = {name_of(page): faults(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: of for page, of in found.items() if of} == {}


@pytest.mark.parametrize(
    ("latex", "fault"),
    [
        (r"\foo{x}", r"unknown command \\foo"),
        (r"\frac{a}", "argument is missing"),
        (r"{a", "1 opening and 0 closing"),
        (r"\begin{cases} 1", "missing end"),
        (r"\begin{foo} 1 \end{foo}", "unknown environment 'foo'"),
        (r"\left( a", "extra left or missing right"),
        (r"a_1_2", "double subscripts"),
        (r"a & b", "& outside"),
        (r"a \\ b", "line break outside"),
        (r"50% of it", "comment"),
        ("", "no available tokens"),
    ],
)
def test_a_faulty_equation_is_named_with_its_line(latex: str, fault: str, monkeypatch: pytest.MonkeyPatch):
    page = f"# Title\n\n```math\nx\n```\n\n- a list\n\n    ```math\n    {latex}\n    ```\n"
    ((line, said),) = equations(monkeypatch).faults(page)
    assert line == 9
    assert re.search(fault, said), said


def test_equations_become_mathml(monkeypatch: pytest.MonkeyPatch):
    made = equations(monkeypatch).mathml
    display = '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><mrow>{}</mrow></math>'
    fraction = '<mfrac><mrow><mi class="letter">a</mi></mrow><mrow><mi class="letter">b</mi></mrow></mfrac>'
    assert made(r"\frac{a}{b}") == display.format(fraction)
    assert made(r"\mathrm{head}") == display.format("<mrow><mi>head</mi></mrow>")
    aligned = made(r"\begin{aligned} a &= 1 \\ b &= 2 \end{aligned}")
    assert (aligned.count("<mtr>"), aligned.count("<mtd")) == (2, 4)


# ------------------------------------------------------------------------------------------------------------ TOML

BASE: dict[str, Any] = {
    "data": {"source": "sotu", "task": "masked-lm"},
    "tokenizer": {"kind": "character"},
    "model": {"network": "encoder", "encoding": "tupe-r"},
    "training": {"max_steps": 1},
}
TASK_OF = {"decoder": "causal-lm", "seq2seq": "translation", "classifier": "classification"}
ARM = {"name": "rope", "model.encoding": "rope"}


def whole(part: dict[str, Any]) -> dict[str, Any]:
    """A recipe of which the page shows a part."""
    recipe = {section: dict(values) for section, values in BASE.items()}
    for section, values in part.items():
        recipe[section] = {**recipe.get(section, {}), **values}
    network = recipe["model"]["network"]
    if "predict_with_generate" in recipe["training"]:
        network = recipe["model"]["network"] = "seq2seq"
    task = part.get("data", {}).get("task")
    if task is None and network in TASK_OF:
        recipe["data"] |= {"task": TASK_OF[network], "source": "a.en", "target_source": "a.de"}
    if task == "translation" or (task is None and network == "seq2seq"):
        recipe["model"]["network"] = "seq2seq"
    if task == "classification" and network == "encoder":
        recipe["data"]["task"] = task
    if "compare" in recipe and not recipe["compare"].get("arms"):
        recipe["compare"]["arms"] = [{"name": "tupe-r"}, ARM]
    return recipe


def named_files(data: dict[str, Any]) -> None:
    """Empty files where a recipe's data would be: reading a recipe asks whether they are there, and no more."""
    for key in ("source", "validation_source", "target_source"):
        name = data.get(key, "sotu")
        if name != "sotu" and not name.startswith("hub:"):
            path = Path(name.replace("*", "a"))
            path = path if path.suffix else path / "train.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def saved_models(recipe: dict[str, Any]) -> None:
    """Models of the folders that a recipe starts from."""
    from tokenizers import Tokenizer, models

    from wordorder.models import build_config, build_model

    start = recipe["model"].pop("pretrained", None)
    if start is None:
        return
    recipe["model"] = {"pretrained": start}
    del recipe["tokenizer"]  # it is the saved model's
    arms = [arm["name"] for arm in recipe.get("compare", {}).get("arms", [])] or [""]
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    for arm in arms:
        for seed in recipe.get("compare", {}).get("seeds", [0]):
            folder = start.format(arm=arm, seed=seed)
            build_model(build_config("encoder", **sizes), "masked-lm", seed=0).save_pretrained(folder)
            Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")).save(f"{folder}/tokenizer.json")


@pytest.mark.parametrize("page", pages_with("toml"))
def test_recipes_are_read(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from wordorder.training import read_recipe
    from wordorder.training.recipe.toml_text import to_toml

    monkeypatch.chdir(tmp_path)
    for recipe in (ROOT / "src" / "wordorder" / "recipes").glob("*.toml"):
        (tmp_path / recipe.name).write_text(recipe.read_text(encoding="utf-8"), encoding="utf-8")
    found: dict[str, Any] = {}
    for number, block in enumerate(blocks(page, "toml")):
        table = tomllib.loads(block.text)
        named_files(table.get("data", {}))
        # [compare] alone belongs to the recipe that the page showed before
        part = found if set(table) == {"compare"} and "data" in found else {}
        if "base" in table:
            text = block.text
        else:
            recipe = whole({**part, **table})
            named_files(recipe["data"])
            saved_models(recipe)
            text = to_toml(recipe)
        path = tmp_path / f"block-{number}.toml"
        path.write_text(text, encoding="utf-8")
        read_recipe(path)
        found = table


# ----------------------------------------------------------------------------------------------------------- shell

OTHERS = {
    "cat",
    "cd",
    "export",
    "head",
    "git",
    "accelerate",
    "torchrun",
    ".",
    ".venv/bin/pre-commit",
    "tensorboard",
    "kill",
    "hf",
    "srun",
    "scontrol",
    "[",
    "exit",
}
"""Programs of others, whose lines are not looked into."""


def command_lines() -> list[tuple[str, str]]:
    """Every line of a shell block that is a command, with its page's name."""
    lines: list[tuple[str, str]] = []
    for page in PAGES:
        for block in blocks(page, "bash", "sh", "console"):
            text = block.text.replace("\\\n", " ")
            if block.language == "console":  # what is typed stands after "$ "; the rest was printed
                text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
            lines += [(name_of(page), line) for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]
    return lines


def commands_of(line: str) -> Iterator[list[str]]:
    """The programs of a line with their arguments: pipes and lists taken apart, files and variables left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if skip:
            skip = False
        elif word in ("<", ">", ">>"):
            skip = True
        elif word and set(word) <= set("|&;"):
            if words:
                yield words
            words = []
        elif words or not re.fullmatch(r"[A-Z_]+=.*", word):
            words.append(word)


def parse(arguments: list[str]) -> None:
    """Let the command line read arguments of `wordorder` without running the command.

    Raises:
        Exception: one of click's, with the fault.
    """
    import typer

    from wordorder.cli.app import app

    group: Any = typer.main.get_command(app)
    if not arguments or arguments[0].startswith("-"):
        group.make_context("wordorder", arguments, resilient_parsing=True)
        return
    command = group.commands[arguments[0]]
    command.make_context(arguments[0], arguments[1:])


def named_recipe(name: str, where: str) -> None:
    """Fail where a name is neither that of a packaged recipe, nor a file of evidence/, nor a reader's own file."""
    from wordorder.training.recipe.packaged import find_recipe

    if name.startswith("evidence/"):
        assert (ROOT / name).is_file(), where
    elif name != "RECIPE" and not name.endswith(".toml"):
        assert find_recipe(name).is_file(), where


def test_command_lines_are_parsed_and_name_what_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    looked_at = 0
    for page, line in command_lines():
        for words in commands_of(line):
            where = f"{page}: {line.strip()}"
            program, arguments = words[0], words[1:]
            if "-m" in arguments and arguments[arguments.index("-m") + 1 :][:1] == ["wordorder"]:
                program, arguments = "wordorder", arguments[arguments.index("-m") + 2 :]
            looked_at += 1
            if program == "wordorder":
                try:
                    parse(arguments)
                except Exception as error:
                    pytest.fail(f"{where}: {getattr(error, 'message', '') or error!r}")
                named = [word for word in arguments if re.fullmatch(r"examples/[\w./-]+", word)]
                assert all((ROOT / name).is_file() for name in named), where
                if arguments and arguments[0] in ("train", "compare", "cost", "data"):
                    named_recipe(arguments[1], where)
            elif program == "make":
                assert {word for word in arguments if "=" not in word} <= targets, where
            elif program == "pip":
                extras = [extra for word in arguments for extra in re.findall(r"\.\[([a-z,]+)\]", word)]
                known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
                wanted = {name for extra in extras for name in extra.split(",")}
                assert wanted <= set(known["optional-dependencies"]), where
            elif program in ("python", "python3"):
                if arguments[0] == "-c":
                    ast.parse(arguments[1])
                elif arguments[0] != "-m":
                    assert (ROOT / arguments[0]).is_file(), where
            else:
                assert program in OTHERS or re.fullmatch(r"\w+=\$(\?|\(scontrol)", program), (
                    f"{where}: {program!r} is looked at by no test"
                )
    assert looked_at > 60


@pytest.mark.parametrize(
    "line", ["wordorder train", "wordorder train a.toml --reume", "wordorder evaluate model --top 3"]
)
def test_a_wrong_command_line_is_found(line: str):
    ((_, *arguments),) = commands_of(line)
    with pytest.raises(Exception, match=r"(?i)missing parameter|no such option"):
        parse(arguments)


def test_lines_are_taken_apart():
    line = "WORDORDER_DATA=x cat a.txt | wordorder predict model --top 3 > out.txt; make test  # then"
    assert list(commands_of(line)) == [
        ["cat", "a.txt"],
        ["wordorder", "predict", "model", "--top", "3"],
        ["make", "test"],
    ]


def test_the_documentation_is_short():
    """Counted as by wc -w."""
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in (ROOT / "docs").rglob("*.md")) <= 40_000
