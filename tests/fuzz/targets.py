"""What is fuzzed: for each target how good files are spoilt, and what reads them; only typed errors may come of it."""

import contextlib
import functools
import gzip
import io
import json
import resource
import shutil
import signal
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bundles import from_bytes, pack, to_bytes, unpack
from hypothesis import strategies as st
from spoiling import ODD_TEXT, as_json, spoilt, spoilt_bytes, spoilt_json, values

from wordorder.errors import WordOrderError

SECONDS = 10
"""That one input may take."""
BYTES = 3 * 2**30
"""Of memory that one input may ask for beyond what the process has."""


class TooSlow(BaseException):
    """An input took longer than `SECONDS`."""


@dataclass(frozen=True)
class Target:
    """One reader of files.

    Args:
        inputs: gives a strategy of inputs as bytes.
        read: reads an input in a folder of its own.
        good: gives an input with which nothing is wrong.
    """

    inputs: Callable[[], st.SearchStrategy[bytes]]
    read: Callable[[bytes, Path], object]
    good: Callable[[], bytes]


@functools.cache
def workplace() -> Path:
    """A folder for all targets of this process, removed at its end."""
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def folder_of(name: str) -> Path:
    """Where a target's inputs lie."""
    folder = workplace() / name
    folder.mkdir(exist_ok=True)
    return folder


def check(name: str, content: bytes) -> None:
    """Read one input; anything but a result or a typed error within the limits is an AssertionError."""
    target, folder = TARGETS[name], folder_of(name)
    with limited(), warnings.catch_warnings(), contextlib.chdir(folder):
        warnings.simplefilter("ignore")
        try:
            target.read(content, folder)
        except WordOrderError as error:
            faults = getattr(error, "faults", (str(error),))
            assert faults, "an error without a message"
            assert all("\n" not in fault for fault in faults), f"more than a line for a fault: {faults}"
        except TooSlow:
            raise AssertionError(f"took more than {SECONDS} s") from None
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise AssertionError(f"untyped: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Bound time and memory: what asks for more fails here, and does not take the machine with it."""

    def stop(*_: object) -> None:
        raise TooSlow

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    former = signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, former)


# Recipes

RECIPE: dict[str, Any] = {
    "data": {"source": "corpus.txt", "length": 16},
    "task": {"name": "masked-lm", "mask_probability": 0.15},
    "tokenizer": {"kind": "word", "vocab_size": 64},
    "model": {
        "network": "encoder",
        "encoding": "tupe-r",
        "encoding_options": {"buckets": 8},
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": 16,
    },
    "training": {"max_steps": 4, "learning_rate": 1e-2, "output_dir": "run", "trackers": [], "device": "cpu"},
    "compare": {
        "seeds": [0, 1],
        "match": "none",
        "probes": {"extrapolation": {"lengths": [16]}},
        "arms": [{"name": "a"}, {"name": "b", "model.encoding": "t5"}],
    },
}


def toml(value: Any) -> bytes:
    """TOML of what JSON can hold; None is left out."""
    lines: list[str] = []
    for section, table in value.items() if isinstance(value, dict) else ():
        if isinstance(table, dict):
            lines.append(f"[{json.dumps(section)}]")
            lines += [f"{json.dumps(key)} = {inline(item)}" for key, item in table.items() if item is not None]
        elif table is not None:
            lines.insert(0, f"{json.dumps(section)} = {inline(table)}")
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def inline(value: Any) -> str:
    """A value as TOML has it on one line."""
    if isinstance(value, dict):
        items = (f"{json.dumps(key)} = {inline(item)}" for key, item in value.items() if item is not None)
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(item) for item in value if item is not None) + "]"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else _plain(value)


def _plain(value: Any) -> str:
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def recipes() -> st.SearchStrategy[bytes]:
    """Recipes of two sorts: with and without arms."""
    alone = {name: table for name, table in RECIPE.items() if name != "compare"}
    texts = st.one_of(spoilt(RECIPE), spoilt(alone), st.dictionaries(st.text(max_size=5), values, max_size=3)).map(toml)
    return st.one_of(texts, texts.flatmap(lambda text: spoilt_bytes(text)))


def read_a_recipe(content: bytes, folder: Path) -> None:
    """Read it as `wordorder train --dry-run` does, and write it out as that does."""
    from wordorder.training import read_recipe

    (folder / "corpus.txt").write_text("a word " * 50)
    (folder / "r.toml").write_bytes(content)
    read_recipe(folder / "r.toml").to_toml()


# Model folders

MODEL = {
    "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 2,
}  # fmt: skip


@functools.cache
def model_files(network: str, task: str) -> dict[str, bytes]:
    """A tiny model as save_pretrained writes it."""
    from wordorder.models import build_config, build_model

    more = {"encoder": {"encoding": "tupe-r"}, "decoder": {"encoding": "rope", "memory": "look-ahead"}}
    config = build_config(network, **MODEL, **more.get(network, {}))
    with tempfile.TemporaryDirectory() as place:
        build_model(config, task, seed=0).save_pretrained(place)
        return pack(Path(place))


KINDS = [("encoder", "masked-lm"), ("decoder", "causal-lm"), ("encoder", "classification")]


@st.composite
def model_folders(draw: st.DrawFn) -> bytes:
    """Folders of a model: a spoilt configuration mostly, and sometimes spoilt weights or an index of shards."""
    files = dict(model_files(*draw(st.sampled_from(KINDS))))
    config = json.loads(files["config.json"])
    what = draw(st.sampled_from(["config", "config", "weights", "both", "index"]))
    if what in ("config", "both"):
        files["config.json"] = draw(spoilt_json({"own_encodings": None, "num_labels": 2, "auto_map": None, **config}))
    if what in ("weights", "both"):
        files["model.safetensors"] = draw(spoilt_safetensors(files["model.safetensors"]))
    if draw(st.integers(0, 3)) == 0:
        generation = {"eos_token_id": 2, "max_new_tokens": 3, "num_beams": 1, "cache_implementation": None}
        files["generation_config.json"] = draw(spoilt_json(generation))
    if what == "index":
        index = {"metadata": {}, "weight_map": {"a": "model.safetensors", "b": "part.safetensors"}}
        files["model.safetensors.index.json"] = draw(spoilt_json(index))
    return to_bytes(files)


@st.composite
def spoilt_safetensors(draw: st.DrawFn, good: bytes) -> bytes:
    """A file with its header spoilt as JSON, or any of its bytes."""
    length = int.from_bytes(good[:8], "little")
    if draw(st.integers(0, 2)):
        header = draw(spoilt_json(json.loads(good[8 : 8 + length])))
        claimed = draw(st.sampled_from([len(header), len(header), len(header) + 1, 2**40, 0]))
        return struct.pack("<Q", claimed) + header + good[8 + length :]
    return draw(spoilt_bytes(good, window=8 + length))


def read_a_model_folder(content: bytes, folder: Path) -> None:
    """Read it as each command does; an error of one must not keep the others from it."""
    from wordorder.inference.saved_model import load_model, remembers
    from wordorder.inspection.saved import class_of, load_saved
    from wordorder.models.saved_folder import load_config
    from wordorder.training.recipe.pretrained import read_pretrained

    place = folder / "model"
    unpack(from_bytes(content), place)
    for read in (remembers, read_pretrained, lambda place: load_config(class_of(place).config_class, place)):
        with contextlib.suppress(WordOrderError):
            read(place)
    with contextlib.suppress(WordOrderError):
        load_saved(place, class_of(place))
    load_model(place)


# Checkpoints of a run


@functools.cache
def checkpoint_files() -> dict[str, bytes]:
    """A checkpoint as a run writes it, small: weights, optimizer, generators, what the Trainer knew, the manifest."""
    from wordorder.training.checkpoints.checkpoint import seal
    from wordorder.training.checkpoints.state_files import save_state

    weight = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        unpack(dict(model_files("encoder", "masked-lm")), folder)
        save_state(folder, "optimizer", optimizer.state_dict())
        save_state(folder, "scheduler", {"last_epoch": 3, "_last_lr": [0.1], "best": float("inf")})
        save_state(folder, "training", {"loss_sum": 0.5, "logged_step": 2, "meter": {"tokens": 5}, "batches": None})
        (folder / "state.json").write_text('{"step": 4, "log": [{"loss": 1.0, "step": 2}]}')
        seal(folder)
        return pack(folder)


@st.composite
def checkpoints(draw: st.DrawFn) -> bytes:
    """Checkpoints with a file spoilt; the manifest is that of the spoilt files half of the time."""
    files = dict(checkpoint_files())
    name = draw(st.sampled_from(sorted(files)))
    if name.endswith(".json"):
        files[name] = draw(spoilt_json(json.loads(files[name])))
    else:
        files[name] = draw(spoilt_safetensors(files[name]))
    if name != "manifest.json" and draw(st.booleans()):
        files["SEAL"] = b"anew"
    return to_bytes(files)


@functools.cache
def _model() -> Any:
    from wordorder.models import build_config, build_model

    return build_model(build_config("encoder", **MODEL, encoding="tupe-r"), "masked-lm", seed=0)


def read_a_checkpoint(content: bytes, folder: Path) -> None:
    """Look whether it is whole; and if it is, read all that a resumed run reads."""
    from wordorder.training.checkpoints.checkpoint import find_newest, read_state, seal
    from wordorder.training.checkpoints.state_files import load_state
    from wordorder.training.checkpoints.weights import load_weights

    files, place = from_bytes(content), folder / "checkpoint-4"
    anew = files.pop("SEAL", None)
    unpack(files, place)
    if anew is not None:
        seal(place)
    if find_newest(folder).newest is None:
        return
    for name in ("optimizer", "scheduler", "training"):
        with contextlib.suppress(WordOrderError):
            load_state(place, name)
    with contextlib.suppress(WordOrderError):
        read_state(place)
    load_weights(_model(), place)


# Checkpoints to convert


def reference_safetensors() -> st.SearchStrategy[bytes]:
    """Spoilt state dicts."""
    return spoilt_safetensors(model_files("encoder", "masked-lm")["model.safetensors"])


def read_reference_safetensors(content: bytes, folder: Path) -> None:
    """Read it as a state dict of the reference code."""
    from wordorder.papers.tupe.convert import FAIRSEQ
    from wordorder.papers.weights import read_checkpoint

    path = folder / "c.safetensors"
    path.write_bytes(content)
    read_checkpoint(path, FAIRSEQ)


# Data

ROWS = [
    {"text": "a word of peace", "label": "x", "n": 1},
    {"text": "another one", "label": "y", "n": None},
    {"text": "a third", "label": "x", "n": 2},
]


@functools.cache
def parquet_file() -> bytes:
    """A small table."""
    import pyarrow as pa
    from pyarrow import parquet

    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(ROWS), sink)
    return sink.getvalue()


def json_lines() -> st.SearchStrategy[bytes]:
    """Lines, spoilt as values and as text."""
    lines = spoilt(ROWS).map(
        lambda rows: b"\n".join(as_json(row) for row in (rows if isinstance(rows, list) else [rows]))
    )
    return st.one_of(lines, lines.flatmap(lambda text: spoilt_bytes(text)))


TABLE = 'text,label,n\n"a ""quoted"", word",x,1\nanother one,y,2\na third,x,3\n'


def data_target(ending: str, good: Callable[[], bytes], inputs: Callable[[], st.SearchStrategy[bytes]]) -> Target:
    """A reader of one kind of file."""

    def read(content: bytes, folder: Path) -> None:
        from documents import settings

        from wordorder.tasks.preparation import read as read_texts

        path = folder / f"train{ending}"
        path.write_bytes(content)
        task = "masked-lm" if ending == ".txt" else "classification"  # the label of a text is its folder's name
        read_texts(*settings(source=str(path), task=task), cache_dir=folder / "cache")

    return Target(inputs, read, good)


# Results of a comparison that goes on


@functools.cache
def results() -> dict[str, Any]:
    """A results file of two arms."""
    from comparison_example import example_results

    from wordorder.comparison.results_file import parse_results
    from wordorder.comparison.statistics.curves import steps_to_loss
    from wordorder.comparison.statistics.significance import compare_arms
    from wordorder.comparison.statistics.summary import with_look

    made = example_results({"rope": 40.0, "tupe-r": 30.0}, seeds=2)
    for row in made["rows"]:
        row["model"] = f"{row['arm']}/seed-{row['seed']}/model"
    found = parse_results(made)
    tested = compare_arms(found)
    return found.having(
        looks=with_look(found),
        comparisons=tested.comparisons,
        significance=tested.significance,
        steps_to_loss=steps_to_loss(found),
    ).as_json()


def read_results(content: bytes, folder: Path) -> None:
    """Read the looks at a comparison that goes on; a file that somebody changed has none."""
    from wordorder.comparison.statistics.summary import earlier_looks

    (folder / "results.json").write_bytes(content)
    for look in earlier_looks(folder / "results.json"):
        assert look.runs


# The command line

WORDS = [
    "list", "train", "compare", "evaluate", "predict", "generate", "inspect", "cost", "convert", "data", "init",
    "tupe", "lamemo", "transformer-xl", "--json", "--dry-run", "--resume", "--set", "--from", "--help", "--debug",
    "--arm", "--output-dir", "--top-k", "--max-new-tokens", "--config", "--vocab", "--overwrite",
    "--length", "good.toml", "nowhere", "corpus.txt", ".", "..", "", "-", "--", "10", "1e9", "30m", "data.length=3",
    "model.encoding=rope*9", "model.hidden_size=1000000000000", "training.output_dir=../x", "a.b.c=[[[",
    "x=" + "9" * 5000, "model={}", "--keep", "0", "model.encoding_options={buckets=-1}", "my.py:Class", "good.toml:x",
    "--version", "-h",
]  # fmt: skip


def commands() -> st.SearchStrategy[bytes]:
    """Lines of known words, and words that nobody would write."""
    odd = [text for text in ODD_TEXT if text != "\ud800"]  # what a shell sends is UTF-8
    words = st.sampled_from(WORDS) | st.sampled_from(odd) | st.text(max_size=12)
    return st.lists(words, max_size=7).map(as_json)


def run_a_command(content: bytes, folder: Path) -> None:
    """Run the line in this process, but for trainings; the exit code must be one of those that have a meaning."""
    from unittest import mock

    from wordorder.cli.app import app
    from wordorder.errors import RunFailed

    (folder / "corpus.txt").write_text("a word " * 50)
    (folder / "good.toml").write_bytes(toml(RECIPE))
    arguments = [str(word).replace("\x00", "") for word in json.loads(content)]
    out, err = io.StringIO(), io.StringIO()
    stub = mock.Mock(side_effect=RunFailed("nothing is trained here"))
    with (
        mock.patch("wordorder.training.runs.run", stub),
        mock.patch("wordorder.comparison.compare", stub),
        mock.patch("sys.stdin", io.StringIO("a word\n")),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = None
        try:
            app(arguments, standalone_mode=True)
        except SystemExit as end:
            code = end.code
    said = err.getvalue()
    assert code in (0, 1, 2, None), code
    assert "--debug" in arguments or "Traceback" not in said
    assert "(--debug shows where)" not in said, said  # how an error that nobody foresaw is shown


LINES = b"\n".join(as_json(row) for row in ROWS)
TEXT = b"a word\n\nanother one\n" * 30


def packed(content: bytes) -> bytes:
    """As gzip writes it, without the time."""
    return gzip.compress(content, mtime=0)


TARGETS: dict[str, Target] = {
    "recipe": Target(recipes, read_a_recipe, lambda: toml(RECIPE)),
    "model-folder": Target(model_folders, read_a_model_folder, lambda: to_bytes(model_files("encoder", "masked-lm"))),
    "checkpoint": Target(checkpoints, read_a_checkpoint, lambda: to_bytes(checkpoint_files())),
    "safetensors": Target(
        reference_safetensors,
        read_reference_safetensors,
        lambda: model_files("encoder", "masked-lm")["model.safetensors"],
    ),
    "jsonl": data_target(".jsonl", lambda: LINES, json_lines),
    "jsonl-gz": data_target(
        ".jsonl.gz",
        lambda: packed(LINES),
        lambda: json_lines().map(packed) | json_lines().flatmap(lambda text: spoilt_bytes(packed(text))),
    ),
    "csv": data_target(".csv", TABLE.encode, lambda: spoilt_bytes(TABLE.encode(), most=8)),
    "tsv": data_target(
        ".tsv",
        lambda: b"text\tlabel\na word\tx\nanother\ty\na third\tx",
        lambda: spoilt_bytes(TABLE.replace(",", "\t").encode(), most=8),
    ),
    "parquet": data_target(".parquet", parquet_file, lambda: spoilt_bytes(parquet_file())),
    "text": data_target(".txt", lambda: TEXT, lambda: spoilt_bytes(TEXT, most=8)),
    "results": Target(lambda: spoilt_json(results()), read_results, lambda: as_json(results())),
    "command-line": Target(commands, run_a_command, lambda: b'["train", "good.toml", "--dry-run"]'),
}
