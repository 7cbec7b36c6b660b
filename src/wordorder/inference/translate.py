"""Translate with a model that a run saved."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wordorder.errors import BadInput
from wordorder.inference.saved_run import data_settings, search_settings

_SHOWN = 60  # characters of a text that a message quotes


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
            had, generation_max_length or data.length + 1, or else max_position_embeddings + 1.
        progress: called with the number of sentences done and in all.

    Raises:
        BadInput: the folder holds no translation model, a text or max_length is beyond its position table, or there
            are too many beams.
    """
    import torch

    from wordorder.inference.saved_model import load_model, load_tokenizer_of, task_of
    from wordorder.models import check_length
    from wordorder.models.hub.saved_folder import check_tokenizer
    from wordorder.tasks.beam_search import Search, Translator, check_beams
    from wordorder.training.runs.quiet import quiet_libraries

    task = task_of(model_dir)
    if not task.translates:
        raise BadInput(f"{model_dir}: the model was trained for {task.pipeline}, it cannot do translation")
    with quiet_libraries():
        model, tokenizer = load_model(model_dir), load_tokenizer_of(model_dir)
        check_tokenizer(tokenizer, model.config, Path(model_dir))
        beams, longest = search_settings(model_dir)
        length = int(data_settings(model_dir).get("length") or model.config.max_position_embeddings)
        longest = max_length or longest or length + 1
        check_length(model.config, longest - 1)
        check_beams(model.config, beams if num_beams is None else num_beams)
        ids = source_ids(tokenizer, texts)
        _check_lengths(model.config, texts, ids)
        device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        device = device or torch.device("cpu")
        search = Search(num_beams=beams if num_beams is None else num_beams, max_length=longest)
        translator = Translator(model.to(device).eval(), tokenizer, search)
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


def source_ids(tokenizer: Any, texts: Sequence[str], *, strip: bool = True) -> list[list[int]]:
    """Encode each text as `[CLS] text [SEP]`, exactly as in training.

    A special token's name inside a text is encoded as the characters that it is.
    """
    from tokenizers import Tokenizer

    from wordorder.data.examples.encode import split_sentences

    encoder: Any = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    encoder.no_padding()
    encoder.no_truncation()
    encoder.encode_special_tokens = True
    ids: list[list[int]] = []
    for text in texts:
        # by sentences, as `encode_documents` does: a tokeniser may join what stands on both sides of their border
        parts = encoder.encode_batch(split_sentences(text.strip() if strip else text), add_special_tokens=False)
        inner = [token for part in parts for token in part.ids]
        ids.append([tokenizer.cls_token_id, *inner, tokenizer.sep_token_id])
    return ids


def _check_lengths(config: Any, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> None:
    """Refuse texts that are longer than the model's learned position table, if it has one."""
    from wordorder.models import check_length

    faults: list[str] = []
    for text, row in zip(texts, ids, strict=True):
        try:
            check_length(config, len(row))
        except BadInput:
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            limit = config.max_position_embeddings
            faults.append(f"text has {len(row)} tokens, the model takes at most {limit}; shorten it: {shown!r}")
    if faults:
        raise BadInput(faults)
