"""Write model cards: the README.md beside a saved model, with what it is, how it scored and how it is loaded."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from wordorder.durable import write_text
from wordorder.encodings import CATALOG

CARD = "README.md"

PIPELINES: dict[str, tuple[str, str]] = {
    "ForMaskedLM": ("fill-mask", "AutoModelForMaskedLM"),
    "ForSequenceClassification": ("text-classification", "AutoModelForSequenceClassification"),
    "ForTokenClassification": ("token-classification", "AutoModelForTokenClassification"),
    "ForQuestionAnswering": ("question-answering", "AutoModelForQuestionAnswering"),
    "ForCausalLM": ("text-generation", "AutoModelForCausalLM"),
    "ForConditionalGeneration": ("translation", "AutoModelForSeq2SeqLM"),
    "Model": ("feature-extraction", "AutoModel"),
}
"""The hub's name of a task, and the Auto class that loads the model, by the end of the name of the model's class."""

_TOLD = 200  # characters of one piece of text from data that a card shows
_COUNTS = ("tokens", "examples")  # among scores: how many predictions they are of, no metric


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """Facts for a card beside those of the model's own config.json. Texts are Markdown: see `code` and `plain`."""

    title: str
    """The first heading, as it comes: it is escaped here."""
    summary: str
    data: str | None = None
    """The data that the scores are of, for the card's metadata; None where nothing was scored."""
    datasets: tuple[str, ...] = ()
    """Names of data sets on the hub, and of nothing else: the hub makes links of them."""
    scores: Mapping[str, Mapping[str, Any]] | None = None
    """Metric -> value, by split."""
    sections: Sequence[tuple[str, str]] = ()
    """Heading and text, in order; they come after the scores."""
    untested: Sequence[str] = ()
    """Sentences on what was not tested, one each."""


def write_card(folder: Path, facts: CardFacts) -> None:
    """Write README.md beside a saved model, in the place of an earlier one."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_text(folder / CARD, card_text(config, facts))


def card_text(config: Mapping[str, object], facts: CardFacts) -> str:
    """Return the text of a card: metadata as the hub reads it, then Markdown."""
    body = [f"# {plain(facts.title)}", facts.summary, "## What it is", _table(("", ""), _about(config))]
    if facts.scores:
        body += ["## Scores", _scores(facts.scores)]
    body += ["## How to load it", _loading(config)]
    for heading, text in facts.sections:
        body += [f"## {heading}", text]
    if facts.untested:
        body += ["## What it was not tested for", "\n".join(f"- {line}" for line in facts.untested)]
    return f"---\n{_metadata(config, facts)}\n---\n\n" + "\n\n".join(body) + "\n"


def code(text: object) -> str:
    """Return text from data as Markdown that only shows it: no link, no HTML, no row of a table; long text is cut."""
    shown = _one_line(text) or " "
    shown = shown if len(shown) <= _TOLD else f"{shown[:_TOLD]}..."
    fence = _fence(shown, 1)
    space = " " if shown[0] == "`" or shown[-1] == "`" else ""
    return f"{fence}{space}{shown}{space}{fence}".replace("|", "\\|")


def plain(text: object) -> str:
    """Return a sentence with names from data in it as Markdown that only shows it."""
    return re.sub(r"([\\`*_\[\]#|~:])", r"\\\1", html.escape(_one_line(text), quote=False))


def fenced(text: str, language: str) -> str:
    """Return a block of code that nothing in the text can end."""
    fence = _fence(text, 3)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _one_line(text: object) -> str:
    return "".join(c if c.isprintable() else " " for c in str(text))


def _fence(text: str, least: int) -> str:
    return "`" * max(least, 1 + max((len(run) for run in re.findall("`+", text)), default=0))


def task_of_architecture(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the hub's name of a model's task, and the Auto class that loads it."""
    name = str((config.get("architectures") or ["Model"])[0])
    return next(found for ending, found in PIPELINES.items() if name.endswith(ending) or ending == "Model")


def _metadata(config: Mapping[str, object], facts: CardFacts) -> str:
    tag = task_of_architecture(config)[0]
    names = [str(config.get(name)) for name in ("model_type", "encoding", "memory")]
    kind = "regression" if config.get("problem_type") == "regression" else tag
    results = [
        EvalResult(
            task_type=tag,
            dataset_type=facts.datasets[0] if facts.datasets else "local",
            dataset_name=facts.data or "local data",
            dataset_split=split,
            metric_type=metric,
            metric_name=f"{split} {metric}",
            metric_value=value,
        )
        for split, found in (facts.scores or {}).items()
        for metric, value in _metrics(found)
    ]
    data: Any = ModelCardData(
        library_name="wordorder",
        pipeline_tag=tag,
        tags=list(dict.fromkeys(["wordorder", *(n for n in names if n not in ("None", "none")), kind])),
        datasets=list(facts.datasets) or None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        model_name=facts.title,
        eval_results=results or None,
    )
    return data.to_yaml()


def _metrics(scores: Mapping[str, object]) -> list[tuple[str, float]]:
    numbers = [(name, value) for name, value in scores.items() if isinstance(value, int | float)]
    return [(name, value) for name, value in numbers if name not in _COUNTS and not isinstance(value, bool)]


def _scores(scores: Mapping[str, Mapping[str, object]]) -> str:
    rows = [
        (split, code(metric), f"{value:.6g}", _count(found))
        for split, found in scores.items()
        for metric, value in _metrics(found)
    ]
    return _table(("split", "metric", "value", "over"), rows)


def _count(scores: Mapping[str, object]) -> str:
    return next((f"{scores[name]:,} {name}" for name in _COUNTS if name in scores), "")


def _about(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("class", code((config.get("architectures") or [config.get("model_type")])[0]))]
    shown = {"encoding": "encoding", "encoding_options": "its options", "memory": "memory"}
    shown |= {"memory_length": "slots of memory", "segment_length": "tokens of a segment"}
    shown |= {"max_position_embeddings": "longest text, tokens", "vocab_size": "vocabulary"}
    shown |= {"hidden_size": "channels", "num_hidden_layers": "layers", "num_attention_heads": "heads"}
    without = ["memory_length" if config.get("memory") in (None, "none") else "max_position_embeddings"]
    encodings = [CATALOG.get(name) for name in re.split(r"[+,*\s]+", str(config.get("encoding")))]
    if not any(encoding is not None and encoding.bounded for encoding in encodings):
        without.append("max_position_embeddings")
    found = [(title, config.get(name)) for name, title in shown.items() if name not in without]
    rows += [(title, code(value)) for title, value in found if value not in (None, {}, [])]
    labels: Mapping[str, Any] = config.get("id2label") or {}
    if "Classification" in str(config.get("architectures")) and config.get("problem_type") != "regression":
        rows.append(("classes", ", ".join(code(name) for name in list(labels.values())[:50])))
    return rows


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _loading(config: Mapping[str, object]) -> str:
    _, auto = task_of_architecture(config)
    return f"""Install `wordorder[models]` first; no code is taken from this folder.

```python
from transformers import {auto}, AutoTokenizer

import wordorder.models  # makes transformers' Auto classes and pipelines know the model

folder = "path/to/this/folder"  # or the name of its repository on the hub
model = {auto}.from_pretrained(folder).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
```"""
