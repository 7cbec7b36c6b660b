"""Check how long a text may be, and generate for as long as wanted: with a memory in bounded space and steady time."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Collection, Iterator
from itertools import count
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import (
    LogitsProcessorList,
    PreTrainedConfig,
    PreTrainedModel,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from wordorder.encodings import CATALOG, names_in, names_of
from wordorder.errors import BadInput
from wordorder.memory import MemoryState
from wordorder.models.configuration import WordOrderDecoderConfig
from wordorder.models.decoder import WordOrderDecoderForCausalLM
from wordorder.models.hosts import MODEL
from wordorder.models.pretrained import CACHE
from wordorder.models.swap.families import FAMILIES
from wordorder.networks import Decoder


def takes_any_length(config: PreTrainedConfig) -> bool:
    """Tell whether a model's heads read texts of any length, whatever its encoding: in segments, with a memory."""
    return getattr(config, "reads_documents", False) and getattr(config, "memory", "none") != "none"


def longest_text(config: PreTrainedConfig) -> int:
    """Return the longest text in tokens that the model was made for; only a learned table is a limit."""
    longest, family = config.max_position_embeddings, FAMILIES.get(config.model_type)
    if family is None:
        return longest
    if family.ids_after_padding:  # RoBERTa counts positions from here on
        longest -= (config.pad_token_id or 0) + 1
    added, bounded = _swapped(config)["max_positions"], _bounded(config)
    if added is None or not bounded:
        return longest
    return min(longest, added) if MODEL in bounded else added


def _swapped(config: Any) -> dict[str, Any]:
    """Return the encoding of a model of transformers, and max_positions of its tables, None where not swapped."""
    return getattr(config, "wordorder", None) or {"encoding": MODEL, "max_positions": None}


def _bounded(config: Any) -> list[str]:
    """Return the names of the encodings of a model, its own input positions among them, that have a table."""
    family = FAMILIES.get(config.model_type)
    names = names_of(config.encoding) if family is None else names_in(_swapped(config)["encoding"])
    tables = [MODEL] if family is not None and family.table is not None and MODEL in names else []
    return tables + [name for name in names if name in CATALOG and CATALOG[name].bounded]


def check_length(config: PreTrainedConfig, length: int, *, with_memory: bool = True) -> None:
    """Refuse texts that `check_positions` refuses, but not for heads that read documents of any length.

    Of another model with a memory the length is that of a segment, beside which the memory stands, unless
    ``with_memory`` is False.
    """
    if not takes_any_length(config):
        slots = getattr(config, "memory_length", None) if with_memory else None
        check_positions(config, length, slots=slots or 0)


def check_positions(config: PreTrainedConfig, length: int, *, slots: int = 0) -> None:
    """Refuse more tokens at a time than the model's table has positions for, beside the slots of a memory.

    Raises:
        BadInput: names the limit and the remedy.
    """
    limit, bounded = longest_text(config), _bounded(config)
    if not bounded or length <= limit - slots:
        return
    taken = f", of which memory_length={slots} are the memory's" if slots else ""
    # a model's own table has the length that it was trained with
    remedy = "" if MODEL in bounded else "raise model.max_position_embeddings or "
    raise BadInput(
        f"length {length} is longer than the position table of encoding {'+'.join(bounded)!r}:"
        f" max_position_embeddings={limit}{taken}; {remedy}lower data.length"
    )


Choose = Callable[[Tensor], Tensor]

_COLDEST = 1e-30  # below it logits would overflow, and nothing but the likeliest token is drawn long before


def stream_tokens(
    model: Any,
    input_ids: Tensor,
    *,
    max_new_tokens: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    stop: Collection[int] = (),
    memory: MemoryState | None = None,
) -> Iterator[int]:
    """Yield the tokens that a language model writes after a prompt, one by one, as soon as each is drawn.

    With a memory neither space nor time per token grows with the text; without one all keys are kept, and both grow.
    transformers' own ``generate`` gives the same tokens, but keeps and copies all of them at every step.

    Args:
        model: a `WordOrderDecoderForCausalLM`, a language model of transformers whose encoding can be swapped, or a
            wrapper of one such as peft's; in evaluation mode, or its dropout is at work.
        input_ids: the prompt, long (1, T) with T at least 1.
        max_new_tokens: stop after so many; None = never.
        temperature: the logits are divided by it; 0 = always the likeliest token.
        top_k: draw from so many of the likeliest tokens only; None = from all.
        top_p: draw from the likeliest tokens that have this probability together (nucleus sampling), above 0.
        seed: of the draws; None = torch's own generator.
        stop: tokens after which the text ends; the one that ends it is given too.
        memory: what an earlier text left, for a model with a memory.

    Raises:
        BadInput: the model is of another class, an argument is out of range, a memory is given to a model without one,
            or the text would outgrow the model's table of positions.
    """
    _check_model(model)
    shape = tuple(input_ids.shape) if isinstance(cast("object", input_ids), Tensor) else None
    if shape is None or len(shape) != 2 or shape[0] != 1 or not shape[1]:
        got = shape or f"a {type(input_ids).__name__}; pass token ids"  # a text, say
        raise BadInput(f"input_ids must be one prompt (1, tokens), one token at least, got {got}")
    if max_new_tokens is not None and max_new_tokens < 1:
        raise BadInput(f"max_new_tokens must be positive, got {max_new_tokens}")
    if memory is not None and getattr(model.config, "memory", "none") == "none":
        raise BadInput("memory was given, but this model has memory='none'; leave it out")
    check_room(model.config, input_ids.shape[1], max_new_tokens)
    choose = _chooser(model.device, temperature, top_k, top_p, seed)
    steps = count() if max_new_tokens is None else range(max_new_tokens)
    return _write(model, input_ids.to(model.device), steps, choose, frozenset(stop), memory)


def _check_model(model: object) -> None:
    """Refuse a model that is no language model with this package's configuration, caches and output."""
    if isinstance(model, nn.Module):
        fits = any(isinstance(part, WordOrderDecoderForCausalLM) or _is_host(part) for part in model.modules())
    else:  # a wrapper that is called as the model is
        fits = isinstance(getattr(model, "config", None), WordOrderDecoderConfig)
    if fits:
        return
    remedy = "build or load one, as with build_model(build_config('decoder', ...), 'causal-lm', seed=0)"
    if isinstance(model, Decoder):
        step = "cache=KeyValueCache()" if model.memory is None else "open_segment and read_segment"
        remedy = (
            "a network in plain torch has no output layer and no configuration. Build one of the same sizes and load"
            f" the decoder's state_dict into its .model.decoder, or write the loop with an output layer and {step}"
        )
    raise BadInput(f"model must be a WordOrderDecoderForCausalLM, got a {type(model).__name__}; {remedy}")


def _is_host(part: nn.Module) -> bool:
    """Tell whether a module is a language model of transformers whose encoding can be swapped."""
    family = FAMILIES.get(part.config.model_type) if isinstance(part, PreTrainedModel) else None
    return family is not None and family.causal and cast("Any", part).can_generate()


def _write(
    model: Any, input_ids: Tensor, steps: Any, choose: Choose, stop: Collection[int], memory: MemoryState | None
) -> Iterator[int]:
    cache = None
    for _ in steps:
        with torch.no_grad():  # not around the loop: whoever asks for tokens would be in it between two of them
            before = {"memory": memory} if cache is None else {CACHE: cache}
            output = model(input_ids, use_cache=True, logits_to_keep=1, **before)
            cache = output[CACHE]
            input_ids = choose(output.logits[:, -1])
        token = int(input_ids)
        yield token
        if token in stop:
            return


def _chooser(
    device: torch.device, temperature: float, top_k: int | None, top_p: float | None, seed: int | None
) -> Choose:
    """Return a function that draws a token (1, 1) by logits (1, V)."""
    if not temperature >= 0:  # what is no number is refused too
        raise BadInput(f"temperature must not be negative, got {temperature}; 0 takes the likeliest token")
    if top_k is not None and top_k < 1:
        raise BadInput(f"top_k must be positive, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise BadInput(f"top_p must be above 0 and at most 1, got {top_p}")
    if temperature < _COLDEST:
        return lambda logits: logits.argmax(-1, keepdim=True)
    warpers = LogitsProcessorList()
    if temperature != 1:
        warpers.append(TemperatureLogitsWarper(float(temperature)))
    if top_k is not None:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p is not None and top_p < 1:
        warpers.append(TopPLogitsWarper(float(top_p)))
    generator = None if seed is None else torch.Generator(device).manual_seed(seed)
    no_ids: Any = None  # these warpers look at scores alone

    def draw(logits: Tensor) -> Tensor:
        scores: Tensor = warpers(no_ids, logits.float())
        return torch.multinomial(scores.softmax(-1), 1, generator=generator)

    return draw


def check_room(config: Any, prompt: int, max_new_tokens: int | None) -> None:
    """Refuse a text that would outgrow a table of positions; with a memory, none does."""
    bounded = _bounded(config)
    if getattr(config, "memory", "none") != "none" or not bounded:
        return
    room = longest_text(config) - prompt + 1  # the last token that is written is not read
    if max_new_tokens is None or max_new_tokens > room:
        raise BadInput(
            f"{'any number of' if max_new_tokens is None else max_new_tokens} new tokens after a prompt of {prompt} do"
            f" not fit the position table of encoding {'+'.join(bounded)!r}: max_position_embeddings="
            f"{longest_text(config)}; ask for at most {max(room, 0)}, shorten the prompt, or take a model with a memory"
        )
