"""Every code block of the README and the documentation: Python runs, recipes are read, command lines are parsed.

A page's Python blocks run one after the other in one namespace, in a folder of its own; where the page goes on with
"It prints `...`", they have printed that.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

RUN_ELSEWHERE = {
    "docs/decoder.md": "models/test_seq2seq_models.py",
    "docs/ecosystem.md": "training/test_page_of_ecosystem.py",
    "docs/export.md": "models/test_onnx.py",
    "docs/generation.md": "models/test_streaming.py",
    "docs/tutorials": "repository/test_tutorials.py",
}
"""Pages, or folders of them, whose Python another test runs, with more to say about the outcome."""

PRINTS = re.compile(r"\s*(?:It prints|它输出) (`[^`\n]+`(?:(?:, | and )`[^`\n]+`)*)[.。]")
FENCE = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    """The name of a file, or nothing."""
    text: str
    prints: list[str]
    """The lines that the page says it prints."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for fence in FENCE.finditer(text):
        indent, language, rest, body = fence.groups()
        if language in languages:
            title = re.search(r'title="([^"]+)"', rest)
            prints = PRINTS.match(text, fence.end())
            yield Block(
                language,
                title[1] if title else "",
                re.sub(rf"^{indent}", "", body, flags=re.MULTILINE),
                re.findall(r"`([^`]+)`", prints[1]) if prints else [],
            )


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
    table = model.model.encoder.encoding.parts["Neighbours"].table
    assert torch.equal(table.detach()[:, 0], torch.tensor([0.1, 0.0, -0.1])), "the tutorial's own numbers are lost"
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


@pytest.mark.usefixtures("catalogue_of_before")
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft 0.21
@pytest.mark.parametrize("page", pages_with("python"))
def test_python_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = name_of(page)
    for entry in {name, name_of(page.parent)} & RUN_ELSEWHERE.keys():
        test = ROOT / "tests" / RUN_ELSEWHERE[entry]
        assert Path(entry).stem in test.read_text(encoding="utf-8"), f"{test.name} does not name {entry}"
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("WORDORDER_CACHE", os.environ["WORDORDER_CACHE"])
    runnable = list(blocks(page, "python"))
    for block in runnable:
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
    BEFORE.get(name, lambda: None)()
    names: dict[str, Any] = {"__name__": "page"}
    for block in runnable:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block.text, name, "exec"), names)
        assert not block.prints or printed.getvalue().splitlines() == block.prints


# ------------------------------------------------------------------------------------------------------------ TOML

BASE: dict[str, Any] = {
    "data": {"source": "sotu"},
    "task": {"name": "masked-lm"},
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
    if "translate_while_training" in recipe["task"]:
        network = recipe["model"]["network"] = "seq2seq"
    task = part.get("task", {}).get("name")
    if task is None and network in TASK_OF:
        recipe["task"]["name"] = TASK_OF[network]
    if recipe["task"]["name"] == "translation":
        recipe["model"]["network"] = "seq2seq"
        if task is None:
            recipe["data"]["source"], recipe["task"]["target_source"] = "a.en", "a.de"
    if "compare" in recipe and not recipe["compare"].get("arms"):
        recipe["compare"]["arms"] = [{"name": "tupe-r"}, ARM]
    return recipe


def named_files(recipe: dict[str, Any]) -> None:
    """Empty files where a recipe's data would be: reading a recipe asks whether they are there, and no more."""
    names = {**recipe.get("data", {}), **recipe.get("task", {})}
    for key in ("source", "validation_source", "target_source"):
        name = names.get(key, "sotu")
        if name != "sotu" and not name.startswith("hub:"):
            path = Path(name.replace("*", "a"))
            path = path if path.suffix else path / "train.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def saved_models(recipe: dict[str, Any]) -> None:
    """Models of the folders that a recipe starts from."""
    from tokenizers import Tokenizer, models
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from wordorder.models import build_config, build_model

    start = recipe["model"].pop("pretrained", None)
    if start is None:
        return
    recipe["model"] = {"pretrained": start}
    del recipe["tokenizer"]  # it is the saved model's
    arms = [arm["name"] for arm in recipe.get("compare", {}).get("arms", [])] or [""]
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    for arm in arms:
        seeds = recipe.get("compare", {}).get("seeds", [0])
        for seed in range(seeds) if isinstance(seeds, int) else seeds:
            folder = start.format(arm=arm, seed=seed)
            if recipe["task"]["name"] == "causal-lm":  # a model of transformers
                model = Qwen2ForCausalLM(Qwen2Config(**sizes, num_key_value_heads=1, bos_token_id=0, eos_token_id=1))
                model.save_pretrained(folder)
                tokens = Tokenizer(models.WordLevel({"[UNK]": 0, "[EOS]": 1}, unk_token="[UNK]"))
                tokens.add_special_tokens(["[UNK]", "[EOS]"])
                tokens.save(f"{folder}/tokenizer.json")
                continue
            build_model(build_config("encoder", **sizes), "masked-lm", seed=0).save_pretrained(folder)
            Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")).save(f"{folder}/tokenizer.json")


@pytest.mark.parametrize("page", pages_with("toml"))
def test_recipes_are_read(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from wordorder.training import read_recipe
    from wordorder.training.recipe.files import to_toml

    monkeypatch.chdir(tmp_path)
    for recipe in (ROOT / "src" / "wordorder" / "recipes").glob("*.toml"):
        (tmp_path / recipe.name).write_text(recipe.read_text(encoding="utf-8"), encoding="utf-8")
    shown: dict[str, Any] = {}
    for number, block in enumerate(blocks(page, "toml")):
        table = tomllib.loads(block.text)
        named_files(table)
        # [compare] alone belongs to the recipe that the page showed before
        part = shown if set(table) == {"compare"} and "data" in shown else {}
        if "base" in table:
            text = block.text
        else:
            recipe = whole({**part, **table})
            named_files(recipe)
            saved_models(recipe)
            text = to_toml(recipe)
        path = tmp_path / f"block-{number}.toml"
        path.write_text(text, encoding="utf-8")
        read_recipe(path)
        shown = table


# ----------------------------------------------------------------------------------------------------------- shell


def command_lines() -> Iterator[tuple[str, str]]:
    """Yield every line of a shell block that is a command, with its page's name."""
    for page in PAGES:
        for block in blocks(page, "bash", "sh", "console"):
            lines = block.text.replace("\\\n", " ").splitlines()
            if block.language == "console":  # what is typed stands after "$ "; the rest was printed
                lines = [line[2:] for line in lines if line.startswith("$ ")]
            yield from ((name_of(page), line) for line in lines)


def commands_of(line: str) -> Iterator[list[str]]:
    """Yield the programs of a line with their arguments, without variables and files of redirections."""
    lexer = shlex.shlex(re.sub(r"[<>]+\s*\S+", "", line), posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if not word or not set(word) <= set("|&;"):
            words += [word] if words or not re.fullmatch(r"[A-Z_]+=.*", word) else []
        elif words:
            program = words.index("wordorder") if "wordorder" in words else 0  # below python -m, torchrun, srun
            yield words[program:]
            words = []


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
    else:
        group.commands[arguments[0]].make_context(arguments[0], arguments[1:])


def files_of(program: str, arguments: list[str]) -> list[Path]:
    """Return the files of the repository that a command names: scripts, examples and recipes."""
    from wordorder.training.recipe.files import find_recipe

    if program == "wordorder":
        files = [ROOT / word for word in arguments if re.fullmatch(r"(examples|evidence)/[\w./-]+", word)]
        if arguments[:1] and arguments[0] in ("train", "compare", "cost", "data"):
            reader = arguments[1] == "RECIPE" or arguments[1].endswith(".toml")
            files += [] if reader else [find_recipe(arguments[1])]
        return files
    is_script = program in ("python", "python3") and arguments[0] not in ("-c", "-m")
    return [ROOT / arguments[0]] if is_script else []


def test_command_lines_are_parsed_and_name_what_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    commands = [(f"{page}: {line}", words) for page, line in command_lines() for words in commands_of(line)]
    assert len([words for _, words in commands if words[0] == "wordorder"]) > 60
    for where, (program, *arguments) in commands:
        if program == "wordorder":
            try:
                parse(arguments)
            except Exception as error:
                pytest.fail(f"{where}: {getattr(error, 'message', '') or error!r}")
        elif program == "make":
            assert {word for word in arguments if "=" not in word} <= targets, where
        elif program == "pip":
            lists = [names for word in arguments for names in re.findall(r"\[([a-z,]+)\]", word)]
            assert {name for names in lists for name in names.split(",")} <= set(extras), where
        assert all(file.is_file() for file in files_of(program, arguments)), where


@pytest.mark.parametrize(
    "line", ["wordorder train", "wordorder train a.toml --reume", "wordorder evaluate model --top 3 > scores.txt"]
)
def test_a_wrong_command_line_is_found(line: str):
    ((_, *arguments),) = commands_of(line)
    with pytest.raises(Exception, match=r"(?i)missing parameter|no such option"):
        parse(arguments)


def test_a_llama_s_weights_leave_those_of_another_encoding_as_drawn():
    section = (ROOT / "docs" / "decoder.md").read_text("utf-8").partition("## Weights of a Llama")[2]
    block = section.partition("```python\n")[2].partition("```")[0].partition("\nids = ")[0]
    block = block.replace('encoding="rope", encoding_options={"base": 10_000.0}', 'encoding="tupe-r"')
    names = {}
    exec("import torch\nfrom wordorder.models import build_config, build_model\n" + block, names)
    filled, drawn = names["model"].state_dict(), names["build_model"](names["config"], "causal-lm", seed=1).state_dict()
    own = [name for name in drawn if ".encoding." in name]
    assert len(own) > 5
    assert all(filled[name].equal(drawn[name]) for name in own)
    changed = {name for name in drawn if not filled[name].equal(drawn[name])}
    assert {name for name in drawn if name not in own and drawn[name].dim() > 1} <= changed
    assert not any(filled[name].any() for name in drawn if name not in own and name.endswith(".bias"))


@pytest.mark.slow
def test_what_the_reference_says_of_help_is_so():
    pages = [path.read_text("utf-8") for path in sorted((ROOT / "docs" / "reference").glob("*.md"))]
    calls = [re.search(r"in Python: `(help\(.*\))`", page)[1] for page in pages]
    program = "import sys, wordorder\nfor call in sys.argv[1:]:\n    exec(call)\n"
    done = subprocess.run([sys.executable, "-c", program, *calls], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Help on ") == len(calls) > 10
