"""Write a first recipe for somebody's own data: sizes by the amount of text, a few arms, a comment for each key."""

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from wordorder.data.reading_log import ReadingLog
from wordorder.data.settings import DataSettings, generated_task
from wordorder.data.sources import find_files
from wordorder.data.table import Texts
from wordorder.errors import BadInput
from wordorder.files import write_text
from wordorder.streams import printable
from wordorder.tasks import TASKS, TaskOptions, task_options
from wordorder.tasks.preparation import read
from wordorder.training.recipe.files import ENDING
from wordorder.training.recipe.recipe import read_recipe
from wordorder.training.recipe.sections import find_source

_SMALL, _MEDIUM = 2**20, 20 * 2**20
_MOST_READ = 32 * 2**20
_FEW_DOCUMENTS = 400
_PASSES = 5
"""Passes over the text below which a comparison says who is fast, not who is best."""
_FEW_PASSES = 3
"""Passes below which a network has no time to learn its texts by heart, and dropout only slows it down."""
_MOST_STEPS = 20_000
_BATCH = 32
_CHARACTERS_PER_PIECE = 4
_ENOUGH_ROWS = 500
"""Texts with a label or a translation below which a score is mostly chance."""
_MOST_HELD_OUT = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """Sizes that train in minutes to hours on the amount of text."""

    hidden_size: int
    layers: int
    heads: int
    epochs: int
    rate: float
    pieces: int
    """Entries of a vocabulary of pieces of words."""


_SIZES = (
    _Size(hidden_size=64, layers=2, heads=4, epochs=10, rate=2e-3, pieces=2000),
    _Size(hidden_size=128, layers=4, heads=4, epochs=5, rate=1e-3, pieces=6000),
    _Size(hidden_size=256, layers=6, heads=8, epochs=5, rate=5e-4, pieces=16_000),
)

_ARMS = {
    "encoder": ("none", "learned", "rope", "tupe-r"),
    "decoder": ("none", "learned", "rope", "alibi"),
    "seq2seq": ("sinusoidal", "learned", "rope", "t5"),
}


COLUMNS = {"text_column": "text", "label_column": "label", "target_column": "target"}
"""Keys that name a column, the first of [data] and the others of [task] -> its usual name. `wordorder init` has an
option for each."""


_WRITTEN = ("source", "name", "length", "validation_fraction", "test_fraction", "target_source")


def write_starter(
    data: str,
    task: str,
    target: Path,
    *,
    translations: str | None = None,
    encodings: Sequence[str] = (),
    columns: Mapping[str, str | None] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Write a recipe that compares encodings on a source, and check it.

    The size of the files decides the tokenizer, the network and the steps: up to 1 MB, up to 20 MB, or more.

    Args:
        data: as `data.source`.
        task: one of `TASKS`.
        target: the file to write; it must not exist.
        translations: for translation, the file with the translations of the lines of `data`; None: the column target.
        encodings: as `model.encoding`; without any, four usual ones of the network.
        columns: keys of `COLUMNS` -> the name of this column in the source; None: the usual one.
        options: "data" and "task" -> other keys of these sections, which say how the source is read.

    Raises:
        BadInput: the task or an encoding is unknown, the source is not there or cannot be used, or the file exists.
    """
    if target.suffix != ENDING:
        raise BadInput(f"--out: {target}: a recipe's name ends in {ENDING}; write {target}{ENDING}")
    if target.exists():
        raise BadInput(f"--out: {target}: exists and is not replaced; name another file")
    if translations is not None and not (task in TASKS and TASKS[task].translates):
        raise BadInput(f"--target: is for --task translation, not for {task}; leave it out")
    named = {key: name for key, name in (columns or {}).items() if name is not None}
    if generated_task(data) is not None:
        raise BadInput(f"--data: {data} is generated; copy a recipe (wordorder init demo) and set data.source in it")
    of_data, of_task = (dict((options or {}).get(section, {})) for section in ("data", "task"))
    for section, keys in (("data", of_data), ("task", of_task)):
        for key in sorted(keys.keys() & {*_WRITTEN, *COLUMNS}):
            raise BadInput(f"--set {section}.{key}: init writes this key itself; use its option, or edit the recipe")
    source = _found(data, "data.source")
    other = {} if translations is None else {"target_source": _found(translations, "task.target_source")}
    for key in sorted(named.keys() - _columns_of(task, translations)):
        raise BadInput(
            f"{_option(key)}: {task} reads no such column{' beside --target' * bool(translations)}; leave it out"
        )
    text_column: dict[str, Any] = {key: name for key, name in named.items() if key == "text_column"}
    others = {key: name for key, name in named.items() if key != "text_column"}
    try:
        settings = DataSettings(source=source, **of_data, **text_column)
        size, texts = _measured(settings, task_options({"name": task, **other, **of_task, **others}))
    except BadInput as error:
        raise BadInput([_with_options(fault) for fault in error.faults]) from None
    documents = None if texts is None else len(texts)
    if texts is not None and len(texts) < 3:
        raise BadInput(
            f"--data: {data} is {len(texts)} document{'s' * (len(texts) != 1)}, and training, validation and test take"
            " one each; give more text, or a file for each document, such as 'texts/*.txt'"
        )
    held_out = _held_out(task, documents)
    columns_of_data, columns_of_task = _column_lines(task, translations, named)
    read = columns_of_data + _lines_of(of_data), columns_of_task + _lines_of(of_task)
    text = _text(data, task, target, read, encodings, size, held_out)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, text)
    except OSError as error:
        raise BadInput(f"--out: {target}: cannot be written: {error.strerror}") from None
    try:
        read_recipe(target)
    except BadInput:
        target.unlink()
        raise
    return target


def _columns_of(task: str, translations: str | None) -> set[str]:
    kind, read = TASKS[task], {"text_column"}
    if kind.labels is not None:
        read.add("label_column")
    if kind.translates and translations is None:
        read.add("target_column")
    return read


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _with_options(fault: str) -> str:
    for key in COLUMNS:
        fault = fault.replace(f"data.{key}", _option(key)).replace(f"task.{key}", _option(key))
    return fault


def _found(source: str, name: str) -> str:
    found, faults = find_source(source, name)
    if faults:
        raise BadInput(faults)
    return found


def _measured(data: DataSettings, options: TaskOptions) -> tuple[int, Texts | None]:
    """Return the characters of a source and its texts; of one that is large or elsewhere its bytes, and None."""
    source = data.source
    if source.startswith("hub:"):
        return _MEDIUM, None
    if source == "sotu":
        size = _MEDIUM
    else:
        log = ReadingLog()
        files = [Path(source)] if Path(source).is_file() else find_files("data.source", source, data.format, log)[1]
        for line in log.lines():
            print(printable(line), file=sys.stderr)
        size = sum(file.stat().st_size for file in files if file.exists())  # reading names a link that leads nowhere
    if size > _MOST_READ:
        return size, None
    # files may be packed, or have more in them than texts
    texts = read(data, options)
    return int(texts.numbers("characters").sum()), texts


def _held_out(task: str, documents: int | None) -> float:
    kind = TASKS[task]
    if kind.labels is not None or kind.translates:  # a document is an example
        return 0.05 if documents is None else round(min(_MOST_HELD_OUT, max(0.05, _ENOUGH_ROWS / documents)), 3)
    return 0.1 if documents is not None and documents < _FEW_DOCUMENTS else 0.05


def _lines_of(values: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items())


def _column_lines(task: str, translations: str | None, named: Mapping[str, str]) -> tuple[str, str]:
    """Return the lines of [data] and of [task] that say where texts, labels and translations are."""
    read = _columns_of(task, translations)
    what = {
        "text_column": "the text",
        "label_column": "the class" if TASKS[task].labels == "class" else "the number to predict",
        "target_column": "its translation",
    }
    lines = {
        key: f"{key} = {_quoted(named.get(key, usual))}  # column with {what[key]}\n"
        for key, usual in COLUMNS.items()
        if key in named or (len(read) > 1 and key in read)  # plain text has no columns to name
    }
    of_data = lines.pop("text_column", "")
    if translations is not None:
        lines["target_source"] = (
            f"target_source = {_quoted(translations)}  # its n-th line translates the n-th line of source\n"
        )
    return of_data, "".join(lines.values())


def _text(
    data: str, task: str, target: Path, read: tuple[str, str], encodings: Sequence[str], size: int, fraction: float
) -> str:
    from wordorder.encodings import canonical_name

    kind = TASKS[task]
    sizes = _SIZES[(size > _SMALL) + (size > _MEDIUM)]
    network = "seq2seq" if kind.translates else "decoder" if kind.running_text else "encoder"
    letters = kind.labels is None and not kind.translates and size <= _SMALL
    length = 64 if letters or kind.translates else 128
    if letters:
        tokenizer = 'kind = "character"  # little text: letters are learned faster than pieces of words\n'
    else:
        pieces = "wordpiece" if kind.labels is not None else "bpe"
        tokenizer = f'kind = "{pieces}"  # pieces of words, learned from the training texts\n'
        tokenizer += f"vocab_size = {sizes.pieces}  # at most so many different pieces\n"
    sparse = "sparse_prediction = true  # logits at masked places only: faster\n" if kind.masks_tokens else ""
    evaluated = "evaluate_every = 0.2  # validate, and save a checkpoint, five times\n"
    tokens = size * (1 - 2 * fraction) / (1 if letters else _CHARACTERS_PER_PIECE)
    steps, passes = _steps(tokens / (_BATCH * length))
    trained = f"{steps}{evaluated}"
    if kind.labels is not None or kind.translates:
        trained = f'epochs = {sizes.epochs}  # passes over the training texts\nevaluate_every = "epoch"  # '
        trained += "validate and save after each\nkeep_checkpoints = 1  # the best one only\n"
        passes = sizes.epochs
    dropout = 0.1 if passes >= _FEW_PASSES else 0.0
    arms = "".join(
        f'\n[[compare.arms]]\nname = "{re.sub("[^A-Za-z0-9._+-]", "-", name)}"\n"model.encoding" = {_quoted(name)}\n'
        for name in dict.fromkeys(map(canonical_name, encodings or _ARMS[network]))
    )
    named = quote(str(target))
    return f"""# Compare positional encodings on {" ".join(data.split())} ({task}).
#
#   wordorder compare {named} --dry-run    # check this file
#   wordorder data {named}                 # documents, tokens, duplicates
#   wordorder cost {named}                 # parameters and memory of each arm
#   wordorder compare {named}              # train all arms; the report is runs/{target.stem}/report.html
#   wordorder compare {named} --seeds 8    # more seeds in the same folder, for smaller differences
#
# All keys: wordorder list schema. All encodings: wordorder list.
[data]
source = {_quoted(data)}  # a file, folder or glob, or hub:NAME
{read[0]}length = {length}  # tokens of an example
validation_fraction = {fraction}  # share of the documents that chooses the checkpoint
test_fraction = {fraction}  # share of the documents that is scored once, at the end

[task]
name = "{task}"
{read[1]}
[tokenizer]
{tokenizer}
[model]
network = "{network}"
hidden_size = {sizes.hidden_size}  # width
num_hidden_layers = {sizes.layers}
num_attention_heads = {sizes.heads}
max_position_embeddings = {length}  # the longest text, in tokens
hidden_dropout_prob = {dropout}  # 0.0 where the text is read less than three times
attention_probs_dropout_prob = 0.0
{sparse}
[training]
{trained}batch_size = {_BATCH}  # examples of a step
eval_batch_size = 128
learning_rate = {sizes.rate:g}  # of the arms that are not tuned
warmup_steps = 0.06  # share of the steps in which the rate rises
weight_decay = 0.01

[compare]
seeds = 5  # 0 to 4: they find differences of two standard deviations; 3 find large ones only
tune = [{sizes.rate / 2:g}, {sizes.rate:g}, {2 * sizes.rate:g}]  # learning rates tried for each arm before its seeds
tune_encoding = [1, 4]  # times the above, for the parameters of the encoding
workers = 2  # runs at the same time, each on one core
{arms}"""


def _steps(steps_per_pass: float) -> tuple[str, float]:
    needed = max(500, 100 * math.ceil(_PASSES * steps_per_pass / 100))
    steps = min(needed, _MOST_STEPS)
    passes = steps / steps_per_pass
    cost = f"; {_PASSES} take some {needed:,} steps" if needed > steps else ""
    return (
        f"max_steps = {steps}  # optimizer steps of each run: about {passes:.2g} passes over the text{cost}\n",
        passes,
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
