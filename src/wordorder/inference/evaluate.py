"""Compute the exact scores of a saved model on any data."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from wordorder.errors import BadInput
from wordorder.inference.saved_model import (
    best_device,
    data_settings,
    load_model,
    load_tokenizer_of,
    remembers,
    saved_options,
)
from wordorder.streams import printable
from wordorder.tasks import TASKS, Task, TaskOptions
from wordorder.tasks.causal_lm import CausalLMOptions
from wordorder.tasks.translation import TARGETS, TranslationOptions
from wordorder.training.loop.progress import quiet_libraries
from wordorder.training.recipe.sections import SOURCES, find_source, is_named, with_sources, with_targets

if TYPE_CHECKING:
    from wordorder.data import DataSettings, PreparedData
    from wordorder.tasks.scores import NextTokenTally

SPLITS = ("train", "validation", "test")
CONTEXTS = ("segment", "sliding", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The context that a causal language model is scored with; every token is predicted once in any case."""

    kind: Literal["segment", "sliding", "memory"] | None = None
    """Kind of context. "segment": each segment by itself, so that its first token is predicted from one token.
    "sliding": windows of a segment's length that advance by `stride`, each by itself; only the new tokens of each are
    scored. "memory": segments in lanes, with the memory carried through. None: "memory" for a model that has one, else
    "segment"."""
    stride: int | None = None
    """Tokens by which a sliding window advances; every token has at least length - stride + 1 tokens before it (fewer
    at the beginning of a stream), at length / stride times the cost. None: half of the length."""
    memory_length: int | None = None
    """Slots of the memory, for kind "memory"; None: as in training."""
    lanes: int | None = None
    """Lanes that the text is divided into, for kind "memory"; each begins without memory. None: task.eval_lanes."""
    length: int | None = None
    """Tokens of a segment or window; None: as in training."""

    def resolved(self, *, task: Task[Any], remembers: bool) -> "Context":
        """Check the context against the model, and return it with the kind filled in.

        Raises:
            BadInput: the task has no context, the model no memory, or an option belongs to another kind.
        """
        if not task.running_text:
            if self == Context():
                return self
            raise BadInput(
                f"context, stride, lanes, length and memory length are for causal language models, not for {task.name}"
            )
        kind = self.kind or ("memory" if remembers else "segment")
        faults: list[str] = []
        if kind not in CONTEXTS:
            faults.append(f"context must be one of {', '.join(CONTEXTS)}, got {kind!r}")
        if kind == "memory" and not remembers:
            faults.append("context memory: the model has no memory; take context segment or sliding")
        owners = {"stride": "sliding", "memory_length": "memory", "lanes": "memory"}
        for name, owner in owners.items():
            value = getattr(self, name)
            if value is not None and kind != owner:
                faults.append(f"{name.replace('_', ' ')} is for context {owner}, not for {kind}; leave it out")
        for name in (*owners, "length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                faults.append(f"{name.replace('_', ' ')} must be at least 1, got {value}")
        if faults:
            raise BadInput(faults)
        return replace(self, kind=kind)

    def in_options(self, options: TaskOptions, *, remembers: bool) -> TaskOptions:
        """Return the options that this context needs; a decoder with a memory always reads lanes."""
        if not isinstance(options, CausalLMOptions):
            return options
        if remembers and not options.in_lanes:
            options = options.having(packing="lanes")
        return options if self.lanes is None else options.having(eval_lanes=self.lanes)


def evaluate_model_dir(
    model_dir: str | Path,
    data: "DataSettings | str",
    *,
    split: Literal["train", "validation", "test", "all"] | None = None,
    batch_size: int = 32,
    target: str | None = None,
    num_beams: int | None = None,
    context: Context | None = None,
    changes: "Mapping[str, Mapping[str, Any]] | None" = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    started: Callable[[int, str], None] = lambda examples, split: None,
) -> dict[str, Any]:
    """Compute the exact scores of a saved model: sums over all predictions, divided once.

    Args:
        model_dir: holds the model and its tokenizer, as a run saves them.
        data: what to score on; a string is a source, read with the settings of the run that the model belongs to (its
            recipe.toml lies beside the folder), so that the same source gives the same test split. The run's own
            validation and test files belong to its own source; another source is read without them.
        split: which part of the source; "all" scores the whole of it, undivided, for data that the model has not been
            trained on. None: "test" of the run's own source, or of `data` that is no string, else "all".
        batch_size: examples at a time; changes speed and memory, not the scores.
        target: for translation, the file whose lines translate those of the source; None where the source is that of
            the run, or has both in columns.
        num_beams: for translation, beams of the search; 1 is greedy; None: those of the model's run.
        context: for causal language models, what they know when they predict a token; None: what `Context` has where
            nothing is said.
        changes: "data" and "task" -> keys of these sections by which the source is read otherwise than the run's, such
            as delimiter. The first is for a source that is a string.
        progress: for translation, called with the number of sentences translated and in all.
        started: called once with the number of examples and the split, after all checks and before the first is scored.

    Returns:
        The task's scores, see `TokenTally`, `CausalTally`, `AnswerTally`, `ClassTally`, `NumberTally` and
        `TranslationTally`; for translation also bleu_signature, which says how bleu was computed. Pairs that are longer
        than data.length are cut, not left out, in every split. Where the run's own source is scored, and its
        data.protocol let the test part choose the checkpoint, optimistic (True) stands beside them. For running text in
        lanes, and where a context is given: context, length, and stride or memory_length and lanes.

    Raises:
        BadInput: there is no such model, its recipe.toml cannot be read, or the data is wrong, has no such split, or
            has classes that the model does not know, or the context is not one for this model.
    """

    from wordorder.data import TokenizerConfig
    from wordorder.data.reading_log import LEAKS
    from wordorder.data.settings import BEST_ON_TEST
    from wordorder.models import check_length, longest_text, takes_any_length
    from wordorder.models.saved_folder import check_tokenizer
    from wordorder.tasks import prepare
    from wordorder.tasks.beam_search import Search, Translator, check_beams, translate_examples
    from wordorder.tasks.scores import NextTokenTally, TranslationTally, bleu_signature, score
    from wordorder.training.loop.carried_memory import has_memory

    folder = Path(model_dir)
    usual = "test" if not isinstance(data, str) or _is_own(folder, data) else "all"
    split = split or usual
    options = saved_options(folder, (changes or {}).get("task"))
    task = TASKS[options.name]
    for name, value in (("num_beams", num_beams), ("target", target)):
        if value is not None and not task.translates:
            raise BadInput(f"{name} is for translation; {folder} holds a model for {task.name}")
    data, options = _complete(folder, data, options, target, (changes or {}).get("data", {}))
    # another source has lost the protocol of the run's
    beside: dict[str, Any] = {"optimistic": True} if data.protocol == BEST_ON_TEST else {}
    if isinstance(options, TranslationOptions):
        options = options.having(truncate=True)
        beside["bleu_signature"] = bleu_signature(options.bleu_tokenizer)  # first: sacrebleu may not be there
    with quiet_libraries():
        context = (context or Context()).resolved(task=task, remembers=remembers(folder))
        model = load_model(folder, memory_length=context.memory_length, segment_length=context.length)
        if num_beams is not None:
            check_beams(model.config, num_beams)
        options = context.in_options(options, remembers=has_memory(model.config))
        segment = None if takes_any_length(model.config) else getattr(model.config, "segment_length", None)
        length = context.length or data.length or segment or longest_text(model.config)
        check_length(model.config, length, with_memory=context.kind in (None, "memory"))
        in_lanes = options.in_lanes
        if data.generated is not None and task.running_text and not in_lanes and context != Context(kind="segment"):
            raise BadInput(
                f"context: each example of {data.source} is read whole, by itself; leave context, stride and length out"
            )
        window = length if in_lanes else length - 1  # after [CLS], which begins all other segments
        if context.stride is not None and context.stride > window:
            raise BadInput(
                f"stride must lie between 1 and the length of a segment, {window}, got {context.stride}; lower it, or"
                " raise the length"
            )
        tokenizer = TokenizerConfig(kind="existing", path=str(folder))
        check_tokenizer(load_tokenizer_of(folder), model.config, folder)
        prepared = prepare(data.having(length=length), options, tokenizer, seed=data.seed, whole=split == "all")
        for line in prepared.log.lines(but=(LEAKS,)):  # which the run has said
            print(printable(line), file=sys.stderr)
        classes = list(model.config.id2label.values()) if task.labels == "class" else []
        collate = _with_the_models_classes(prepared, model.config.label2id) if classes else prepared.collate
        parts = _parts(prepared, split)
        started(sum(map(len, parts)), split)
        device = best_device()
        model = model.to(device).eval()
        tally = task.tally(device, options, classes=classes, examples=parts)
        if isinstance(tally, NextTokenTally) and (in_lanes or context != Context(kind="segment")):
            return {**_score_in_context(model, parts, prepared, context, tally, batch_size), **beside}
        score(model, _batches(parts, collate, batch_size, units=tally.needs_units), tally, device=device)
        if not isinstance(tally, TranslationTally):
            return {**tally.scores(), **beside}
        assert isinstance(options, TranslationOptions)
        search = Search(num_beams=num_beams or options.beams, max_length=options.max_target_length or length + 1)
        translator = Translator(model, prepared.tokenizer, search)
        done = 0
        for part in parts:
            for translations, references in translate_examples(
                translator, part, range(len(part)), collate=collate, batch_size=batch_size, device=device
            ):
                tally.add_translations(translations, references)
                done += len(translations)
                progress(done, sum(map(len, parts)))
        return {**tally.scores(), **beside}


def _batches(
    parts: Sequence[Any], collate: Callable[[list[Any]], Any], batch_size: int, *, units: bool
) -> Iterator[Mapping[str, Any]]:
    """Yield the batches of all parts, with their units, counted through all parts, where they are needed."""
    import numpy as np
    import torch
    from torch.utils.data import DataLoader

    from wordorder.tasks.scores import UNITS

    before = 0
    for part in parts:
        index = 0
        for batch in DataLoader(part, batch_size=batch_size, collate_fn=collate):
            rows, width = batch["input_ids"].shape
            of_batch = {UNITS: torch.as_tensor(part.units_of(np.arange(index, index + rows), width) + before)}
            index += rows
            yield {**batch, **of_batch} if units else batch
        before += len(part.unit_documents) if units else 0


def _score_in_context(
    model: Any,
    parts: Sequence[Any],
    prepared: "PreparedData",
    context: Context,
    tally: "NextTokenTally",
    batch_size: int,
) -> dict[str, Any]:
    from torch.utils.data import DataLoader

    from wordorder.data import CollateLanes, RunningText
    from wordorder.training.loop.carried_memory import score_running_text

    tokenizer: Any = prepared.tokenizer
    collate, carries = CollateLanes(padding=tokenizer.pad_token_id), context.kind == "memory"
    how: dict[str, Any] = {"context": context.kind}
    for part in parts:
        in_lanes = isinstance(part, RunningText)
        text = part if in_lanes else part.text
        stride = text.length if context.kind == "segment" else context.stride or max(1, text.length // 2)
        if carries:
            streams = ((lanes, lanes.rows) for lanes in text.scoring_lanes(most=batch_size))
        else:  # in training, segments that are no lanes begin with [CLS]
            start_id = None if in_lanes else tokenizer.cls_token_id
            streams = iter([(text.windows(stride, start_id=start_id), batch_size)])
        for dataset, rows in streams:
            batches = DataLoader(dataset, batch_size=rows, collate_fn=collate)
            score_running_text(model, batches, tally, device=model.device, carries=carries)
        how["length"] = text.length
        if carries:
            how |= {"memory_length": model.config.memory_length, "lanes": sum(s.rows for s in text.scoring_lanes())}
        elif context.kind == "sliding":
            how["stride"] = stride
    return {**tally.scores(), **how}


def _is_own(folder: Path, source: str) -> bool:
    """Tell whether a source is that of the model's run, however its path is written."""
    trained_on = data_settings(folder).get("source")
    if trained_on is None or is_named(trained_on) or is_named(source):
        return trained_on == source
    return len({Path(find_source(path, "source")[0]).resolve() for path in (trained_on, source)}) == 1


def _complete(
    folder: Path, data: "DataSettings | str", options: TaskOptions, target: str | None, changes: Mapping[str, Any]
) -> "tuple[DataSettings, TaskOptions]":
    """Return the settings of the run for a source, with the files found, and the options that go with them."""
    from wordorder.data import DataSettings
    from wordorder.data.readers import READERS, format_of
    from wordorder.data.settings import CROSS_VALIDATION

    if isinstance(data, str):
        settings = data_settings(folder)
        if not _is_own(folder, data) or target is not None:
            # folds and limits divide the run's own source; another one is scored as it is
            other = {*SOURCES, *CROSS_VALIDATION, "limit_documents"}
            if (kind := format_of(Path(data))) is not None and not READERS[kind].delimited:
                other |= {"columns", "delimiter", "quoting"}
            settings = {name: value for name, value in settings.items() if name not in other}
            if isinstance(options, TranslationOptions):
                options = options.having(**{**dict.fromkeys(TARGETS), "target_source": target})
        settings |= {**changes, "source": data}
        data = DataSettings(**settings)
    data, faults = with_sources(data)
    options, more = with_targets(options)
    if faults or more:
        raise BadInput([*faults, *more])
    return data, options


def _parts(prepared: "PreparedData", split: str) -> list[Any]:
    parts = {name: part for name in SPLITS if (part := getattr(prepared, name)) is not None}
    if split == "all":
        # validation and test are one part under a protocol that has no validation of its own
        return list({id(part): part for part in parts.values()}.values())
    if split not in parts:
        raise BadInput(f"the data has no {split} split; valid: {', '.join(parts)}, all")
    return [parts[split]]


def _with_the_models_classes(prepared: "PreparedData", ids: Mapping[str, int]) -> Callable[[list[Any]], Any]:
    """Return a collator that gives the model's class ids: the data may lack a class, or have another order."""
    import torch

    unknown = [name for name in prepared.label_names if name not in ids]
    if unknown:
        raise BadInput(
            f"the data has classes that the model does not know: {', '.join(unknown)}; it knows: {', '.join(ids)}"
        )
    table = torch.tensor([ids[name] for name in prepared.label_names])

    def collate(examples: list[Any]) -> Any:
        batch = prepared.collate(examples)
        return {**batch, "labels": table[batch["labels"]]}

    return collate
