"""Fill masks, classify texts, give numbers and translate with a model that a run saved."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wordorder.data.settings import generated_task
from wordorder.errors import BadInput
from wordorder.inference.saved_model import (
    best_device,
    data_settings,
    load_model,
    load_tokenizer_of,
    saved_options,
    task_of,
)
from wordorder.tasks.regression import RegressionOptions
from wordorder.tasks.task import LabelledOptions
from wordorder.tasks.translation import TranslationOptions
from wordorder.training.loop.progress import quiet_libraries

_BATCH = 32
_SHOWN = 60  # characters of a text that a message quotes


def fill_mask(model_dir: str | Path, texts: Sequence[str], *, top_k: int = 5) -> list[list[dict[str, Any]]]:
    """Return the likeliest tokens for the mask in each text.

    Args:
        model_dir: holds a masked language model with its tokenizer.
        texts: each holds the tokenizer's mask token once or more, in any letter case.
        top_k: how many tokens for each mask; of a smaller vocabulary all.

    Returns:
        For each text the masks in order, flattened: dicts of mask (its number in the text), token, score (probability).

    Raises:
        BadInput: the folder holds no masked language model, or a text has no mask token or is too long for the model.
    """
    import torch

    from wordorder.data.tokens import encode_texts

    _check_call(texts, top_k)
    with quiet_libraries():
        model, tokenizer = _loaded(model_dir, "fill-mask")
        if tokenizer.mask_token_id is None:
            raise BadInput(f"{model_dir}: the tokenizer has no mask token, which marks what is to be filled")
        mask = re.compile(re.escape(tokenizer.mask_token), re.IGNORECASE)  # people write [mask]
        faults = [
            f"text has no {tokenizer.mask_token}, the token to fill: {text!r}"
            for text in texts
            if not mask.search(text)
        ]
        if faults:
            raise BadInput(faults)
        # the mask of a byte-level tokenizer takes the space before it
        takes_space = tokenizer.backend_tokenizer.get_added_tokens_decoder()[tokenizer.mask_token_id].lstrip
        rows: list[list[int]] = []
        for text in texts:
            *before, last = mask.split(text)
            parts = encode_texts([*(part.rstrip() if takes_space else part for part in before), last], tokenizer)
            inner = [token for part in parts for token in (*part.ids.tolist(), tokenizer.mask_token_id)][:-1]
            rows.append([tokenizer.cls_token_id, *inner, tokenizer.sep_token_id])
        _check_lengths(model.config, texts, map(len, rows))
        results: list[list[dict[str, Any]]] = []
        for row in rows:
            ids = torch.tensor([row], device=model.device)
            places = (ids[0] == tokenizer.mask_token_id).nonzero()[:, 0]
            with torch.no_grad():
                scores = model(input_ids=ids).logits[0, places].float().softmax(-1)
            best = scores.topk(min(top_k, scores.shape[-1]))
            results.append(
                [
                    {"mask": number, "token": tokenizer.decode([token]), "score": score}
                    for number, (likeliest, tokens) in enumerate(
                        zip(best.values.tolist(), best.indices.tolist(), strict=True)
                    )
                    for score, token in zip(likeliest, tokens, strict=True)
                ]
            )
        return results


def classify(
    model_dir: str | Path, texts: Sequence[str], *, pairs: Sequence[str] | None = None, top_k: int | None = None
) -> list[list[dict[str, Any]]]:
    """Return the classes of each text, or pair of texts, likeliest first.

    Args:
        model_dir: holds a sequence classifier with its tokenizer.
        texts: what to classify; a text longer than data.length is cut in pieces, whose log-probabilities are averaged,
            or at its end, as for training; of a pair the longer one is cut first.
        pairs: the second text of each, for a model of pairs.
        top_k: how many classes for each text; None gives all.

    Returns:
        For each text a list of dicts: label, score (probability).

    Raises:
        BadInput: the folder holds no classifier, or pairs are missing, too many, or given to a model of single texts.
    """
    _check_call(texts, top_k)
    with quiet_libraries():
        model, tokenizer = _loaded(model_dir, "text-classification")
        scores = _outputs(model_dir, model, tokenizer, texts, pairs).softmax(-1)
        names: Mapping[int, str] = model.config.id2label
        best = scores.topk(min(top_k or scores.shape[-1], scores.shape[-1]))
        return [
            [{"label": names[number], "score": score} for score, number in zip(likeliest, numbers, strict=True)]
            for likeliest, numbers in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]


def regress(
    model_dir: str | Path, texts: Sequence[str], *, pairs: Sequence[str] | None = None
) -> list[list[dict[str, Any]]]:
    """Return the predicted number for each text, or pair of texts, on the scale of the training labels.

    Args:
        model_dir: holds a model of a regression task with its tokenizer; where the recipe of its run lies beside the
            folder, its task.label_scale is taken out again.
        texts: as for `classify`, and so are pairs.

    Returns:
        For each text a list of one dict: value.

    Raises:
        BadInput: the folder holds no such model, or pairs are missing, too many, or given to a model of single texts.
    """
    _check_call(texts)
    options = saved_options(model_dir)
    scale = options.label_scale if isinstance(options, RegressionOptions) else 1.0
    with quiet_libraries():
        model, tokenizer = _loaded(model_dir, "text-regression")
        if model.config.num_labels > 1:
            raise BadInput(f"{model_dir}: the model predicts {model.config.num_labels} numbers, not one")
        values = _outputs(model_dir, model, tokenizer, texts, pairs)[:, 0].tolist()
    return [[{"value": scale * value}] for value in values]


def translate(
    model_dir: str | Path,
    texts: Sequence[str],
    *,
    num_beams: int | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[str]:
    """Translate each text by beam search.

    Args:
        model_dir: holds a translation model with its tokenizer.
        texts: sentences of the source language; white space around them is left out, and of nothing comes nothing.
        num_beams: translations that are followed at the same time; 1 is greedy search; None: as in the model's run.
        batch_size: sentences at a time; changes speed and memory alone.
        max_length: most tokens of a translation, with the start token and the end; None: what the model's run
            had, max_target_length or data.length + 1, or else max_position_embeddings + 1.
        progress: called with the number of sentences done and in all.

    Raises:
        BadInput: the folder holds no translation model, a text or max_length is beyond its position table, or there
            are too many beams.
    """
    from wordorder.models import check_length
    from wordorder.models.saved_folder import check_tokenizer
    from wordorder.tasks.beam_search import Search, Translator, check_beams

    _check_call(texts)
    if batch_size < 1:
        raise BadInput(f"batch_size must be positive, got {batch_size}")
    task = task_of(model_dir)
    if not task.translates:
        raise BadInput(f"{model_dir}: the model was trained for {task.pipeline}, it cannot do translation")
    with quiet_libraries():
        model, tokenizer = load_model(model_dir), load_tokenizer_of(model_dir)
        check_tokenizer(tokenizer, model.config, Path(model_dir))
        options = saved_options(model_dir)
        assert isinstance(options, TranslationOptions)
        beams = options.beams if num_beams is None else num_beams
        length = int(data_settings(model_dir).get("length") or model.config.max_position_embeddings)
        if max_length is not None:
            _check_longest(model.config, max_length)
        longest = max_length or options.max_target_length or length + 1
        check_length(model.config, longest - 1)
        check_beams(model.config, beams)
        ids = source_ids(tokenizer, texts)
        _check_lengths(model.config, texts, map(len, ids))
        device = best_device()
        translator = Translator(model.to(device).eval(), tokenizer, Search(num_beams=beams, max_length=longest))
        # about the same length in a batch, so that little is padded; of nothing nothing is made
        order = sorted((n for n, text in enumerate(texts) if text.strip()), key=lambda number: len(ids[number]))
        found = [""] * len(texts)
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            padded = tokenizer.pad({"input_ids": [ids[number] for number in batch]}, return_tensors="pt")
            answers = translator(padded["input_ids"].to(device), padded["attention_mask"].to(device))
            for number, answer in zip(batch, answers, strict=True):
                found[number] = answer
            progress(min(start + batch_size, len(order)), len(order))
        return found


def write_answers(model_dir: str | Path, texts: Sequence[str]) -> list[str]:
    """Write the answer to each text by greedy search, after `[CLS] text [SEP]`, up to the next [SEP].

    Args:
        model_dir: holds a causal language model of a generated task that reads each text by itself, with its tokenizer
            and, beside the folder, the recipe of its run.
        texts: as the task writes them.

    Raises:
        BadInput: the folder holds no such model, or a text leaves no room for an answer.
    """
    import torch

    from wordorder.data.generated import GENERATED
    from wordorder.models.saved_folder import check_tokenizer

    _check_call(texts)
    settings, task = data_settings(model_dir), _generated_task(model_dir)
    if task is None:
        raise BadInput(f"{model_dir}: the model was not trained to answer a generated task (data.source task:NAME)")
    with quiet_libraries():
        model, tokenizer = load_model(model_dir), load_tokenizer_of(model_dir)
        check_tokenizer(tokenizer, model.config, Path(model_dir))
        words = GENERATED[task].answers
        one_token = bool(words) and all(len(ids) == 3 for ids in source_ids(tokenizer, words))
        model = model.to(best_device()).eval()
        found, length = list[str](), int(settings["length"])
        for text, ids in zip(texts, source_ids(tokenizer, texts), strict=True):
            room = length - len(ids)
            if room < 1:
                raise BadInput(f"text has {len(ids)} tokens, data.length is {length}; shorten it: {text[:_SHOWN]!r}")
            new = model.generate(
                torch.tensor([ids], device=model.device),
                do_sample=False,
                num_beams=1,
                max_new_tokens=1 if one_token else room,
                eos_token_id=tokenizer.sep_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )[0, len(ids) :]
            found.append(tokenizer.decode(new, skip_special_tokens=True).strip())
        return found


def _generated_task(model_dir: str | Path) -> str | None:
    settings = data_settings(model_dir)
    return None if saved_options(model_dir).in_lanes else generated_task(str(settings.get("source")))


def source_ids(tokenizer: Any, texts: Sequence[str], *, strip: bool = True) -> list[list[int]]:
    """Encode each text as `[CLS] text [SEP]`, exactly as in training.

    A special token's name inside a text is encoded as the characters that it is.
    """
    from wordorder.data.tokens import encode_texts

    encoded = encode_texts([text.strip() if strip else text for text in texts], tokenizer)
    return [[tokenizer.cls_token_id, *one.ids.tolist(), tokenizer.sep_token_id] for one in encoded]


def unknown_in(tokenizer: Any, texts: Sequence[str]) -> str:
    """Return a sentence where more than a few tokens of the texts are [UNK], or "" where none needs to be said."""
    from wordorder.tasks.preparation import unknown_note

    if tokenizer.mask_token is not None:
        mask = re.compile(re.escape(tokenizer.mask_token), re.IGNORECASE)
        texts = [mask.sub("", text) for text in texts]
    ids = [token for row in source_ids(tokenizer, texts) for token in row[1:-1]]
    # None, which no token is, where the tokenizer has no [UNK]
    return unknown_note({"text": ids.count(tokenizer.unk_token_id) / max(1, len(ids))}, finished=True)


def _check_call(texts: Sequence[str], top_k: int | None = None) -> None:
    """Refuse one text in place of a list, whose letters would be read as texts, and no answers at all."""
    if isinstance(texts, str):
        raise BadInput(f"texts must be a list of texts, got one: {texts[:_SHOWN]!r}; write [text]")
    if top_k is not None and top_k < 1:
        raise BadInput(f"top_k must be positive, got {top_k}")


def _check_longest(config: Any, max_length: int) -> None:
    from wordorder.models import check_length, longest_text

    if max_length < 1:
        raise BadInput(f"max_length must be positive, got {max_length}")
    try:
        check_length(config, max_length - 1)
    except BadInput:
        most = longest_text(config) + 1
        raise BadInput(f"max_length must be at most {most} for the model's position table, got {max_length}") from None


def _outputs(
    model_dir: str | Path, model: Any, tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None
) -> Any:
    """Return the outputs for each text, (texts, classes): log-probabilities, or a number; of its pieces the mean.

    Long texts are cut in pieces, or at their end, as for training and evaluation; without the recipe of its run an
    encoder with a memory reads them whole.
    """
    import torch

    from wordorder.data.examples.collate import Collate
    from wordorder.data.tokens import encode_texts, tokens_of
    from wordorder.models import longest_text, takes_any_length
    from wordorder.tasks.task import labelled_spans

    settings, options = data_settings(model_dir), saved_options(model_dir)
    assert isinstance(options, LabelledOptions)
    learned_pairs = options.pair_column is not None
    if settings and learned_pairs != (pairs is not None):
        kind = "pairs: give a second text for each" if learned_pairs else "single texts: give no second ones"
        raise BadInput(f"{model_dir}: the model was trained on {kind}")
    if pairs is not None and len(pairs) != len(texts):
        raise BadInput(f"{len(texts)} texts and {len(pairs)} second texts: give one for each")
    sides = [
        tokens_of((one.ids for one in encode_texts(side, tokenizer)), tokenizer.sep_token_id)
        for side in (texts, pairs)
        if side is not None
    ]
    _check_not_empty(tokenizer, sides[0].sizes.tolist())
    length = settings.get("length")
    if length is None and takes_any_length(model.config):
        length = 4 + sum(int(side.sizes.max(initial=1)) for side in sides)
    length = int(length or longest_text(model.config))
    spans, owners = labelled_spans(
        tokenizer,
        sides[0],
        sides[1] if pairs is not None else None,
        length=length,
        max_pieces=options.max_pieces,
        truncate=options.truncate,
    )
    collate = Collate(padding=tokenizer.pad_token_id, longest=length)
    sums = torch.zeros(len(texts), model.config.num_labels)
    # about the same length in a batch, so that little is padded
    order = np.argsort(spans.lengths, kind="stable")
    for numbers in (order[start : start + _BATCH] for start in range(0, len(order), _BATCH)):
        rows = [{"input_ids": torch.as_tensor(spans[int(number)]), "labels": torch.tensor(0)} for number in numbers]
        batch = {name: value.to(model.device) for name, value in collate(rows).items() if name != "labels"}
        with torch.no_grad():
            logits = model(**batch).logits.float().reshape(len(rows), -1)
        logits = logits if logits.shape[1] == 1 else logits.log_softmax(-1)
        sums.index_add_(0, torch.as_tensor(owners[numbers]), logits.cpu())
    return sums / torch.as_tensor(np.bincount(owners, minlength=len(texts)))[:, None]


def _check_not_empty(tokenizer: Any, sizes: Sequence[int]) -> None:
    """Refuse texts without a token where the tokenizer adds none: the network would read nothing at all."""
    from wordorder.data.tokenizers import adds_special_tokens

    empty = [str(number) for number, size in enumerate(sizes, start=1) if not size]
    if empty and not adds_special_tokens(tokenizer):
        raise BadInput(
            f"text {', '.join(empty[:20])} has no tokens, and this model's tokenizer adds none of its own; leave it out"
        )


def answer(
    model_dir: str | Path, texts: Sequence[str], *, pairs: Sequence[str] | None = None, top_k: int = 5
) -> list[list[dict[str, Any]]]:
    """Return the model's predictions for each text.

    See `fill_mask`, `classify`, `regress`, `translate`, and `write_answers` for language models of generated tasks.

    Args:
        pairs: the second text of each, for a model of pairs.
        top_k: how many answers for each mask or text; a number is one answer, and so is a translation.

    Raises:
        BadInput: the folder holds no model that can do it, or the texts are not what it takes.
    """
    task = task_of(model_dir)
    if task.running_text and pairs is None and _generated_task(model_dir) is not None:
        return [[{"answer": text}] for text in write_answers(model_dir, texts)]
    if task.running_text:
        raise BadInput(
            f"{model_dir}: the model goes on with a text; it neither fills masks nor classifies nor translates;"
            " use wordorder generate"
        )
    if task.translates:
        if pairs is not None:
            raise BadInput(f"{model_dir}: the model translates single texts; give no second ones")
        return [[{"translation": text}] for text in translate(model_dir, texts)]
    if task.labels == "number":
        return regress(model_dir, texts, pairs=pairs)
    if task.labels == "class":
        return classify(model_dir, texts, pairs=pairs, top_k=top_k)
    if pairs is not None:
        raise BadInput(f"{model_dir}: the model fills masks, in single texts; give no second ones")
    return fill_mask(model_dir, texts, top_k=top_k)


def _loaded(model_dir: str | Path, pipeline: str) -> tuple[Any, Any]:
    """Return the model, for predictions, and its tokenizer; `pipeline` is what transformers calls its task."""
    from wordorder.models.saved_folder import check_tokenizer

    trained_for = task_of(model_dir).pipeline
    if trained_for != pipeline:
        raise BadInput(f"{model_dir}: the model was trained for {trained_for}, it cannot do {pipeline}")
    tokenizer, model = load_tokenizer_of(model_dir), load_model(model_dir)
    check_tokenizer(tokenizer, model.config, Path(model_dir))
    return model.to(best_device()).eval(), tokenizer


def _check_lengths(config: Any, texts: Sequence[str], lengths: Iterable[int]) -> None:
    from wordorder.models import check_length, longest_text

    faults: list[str] = []
    for text, length in zip(texts, lengths, strict=True):
        try:
            check_length(config, length)
        except BadInput:
            limit = longest_text(config)
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            faults.append(f"text has {length} tokens, the model takes at most {limit}; shorten it: {shown!r}")
    if faults:
        raise BadInput(faults)
