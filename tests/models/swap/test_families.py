"""Every family with every kind of encoding: however a text is fed to the model, it computes the same."""

import pytest
import torch
from swapped_models import (
    DECODERS,
    ENCODERS,
    apart,
    drawn,
    how_of,
    ids_of,
    model_of,
    output_of,
    padded,
    positions_of,
    swapped,
)
from transformers import AutoModel, AutoModelForCausalLM, DynamicCache

from wordorder.errors import BadInput
from wordorder.models import FAMILIES, swap_encoding

NAMES = (
    *("model", "none", "rope", "rope-yarn", "xpos", "alibi", "t5", "kerple", "fire", "sandwich", "tupe-a", "tupe-r"),
    *("untied-sum", "learned", "sinusoidal", "shaw", "transformer-xl", "deberta", "cope", "fox", "path", "pope"),
    *("learned+t5", "rope+shaw", "rope+alibi", "rope+fox", "rope*2,none", "alibi,shaw,none"),
    *("rope@4,none@3,rope", "t5@4,t5@3,t5", "fox@5", "model@4*2,model", "model*2,none", "model+tupe-r,none"),
    *("model+t5", "model+shaw", "model+fox", "model+path", "shift", "rope+shift", "tupe-a+shift,fox+shift"),
    *("model+shift", "pope,rope@4", "rope+dape,pope@4", "dape", "softmax-sink"),
)
FAST = ("learned+t5", "rope+fox", "model+shaw", "rope+shift", "model+shift")
ADDED = ("t5", "fire", "tupe-a", "tupe-r", "shaw", "cope", "deberta", "transformer-xl", "learned", "fox", "shift")
ADDED += ("path", "tupe-a+t5", "shaw+fox")
"""What can stand beside "model" and start at 0."""

BOUND = 2e-5
"""Of outputs that are about 4 in size, in float32."""


def is_defined(kind, encoding):
    """Whether a family takes an encoding; test_refusals.py has those that it refuses."""
    family = FAMILIES[kind]
    causal_only = kind in ENCODERS and any(name in encoding for name in ("xpos", "cope", "path"))
    without_some = family.table is not None and "model" in encoding and encoding.endswith(",none")
    second_table = family.table is not None and encoding == "model+learned"
    return not (causal_only or without_some or second_table)


def cells(names):
    return [(kind, name) for kind in (*DECODERS, *ENCODERS) for name in names if is_defined(kind, name)]


def marked(cells, fast):
    return [pytest.param(*cell, marks=() if cell[-1] in fast else pytest.mark.slow) for cell in cells]


def counts_columns(kind, encoding):
    """Whether the positions are the model's own and count columns, padding included, unless ids are given."""
    return kind in ("gpt2", "bert") and "model" in encoding


def in_parts(model, ids, sizes, mask=None):
    """The output of a text that is fed in parts, to a cache."""
    cache, outputs, read = DynamicCache(config=model.config), [], 0
    for part in ids.split(sizes, dim=1):
        read += part.shape[1]
        more = {}
        if mask is not None:
            more = {
                "attention_mask": mask[:, :read],
                "position_ids": positions_of(mask)[:, read - part.shape[1] : read],
            }
        outputs.append(output_of(model, part, cache=cache, use_cache=True, **more))
    return torch.cat(outputs, dim=1)


def differences(model, kind, encoding):
    """How far each way of feeding two texts is from each text alone, in one piece."""
    one = {"use_cache": False} if kind in DECODERS else {}
    texts = ids_of(2, 12)[0], ids_of(2, 12)[1, :8]
    alone = [output_of(model, text[None], **one)[0] for text in texts]

    def largest(outputs, starts):
        pairs = zip(outputs, starts, alone, strict=True)
        return max(apart(row[start : start + len(text)], text) for row, start, text in pairs)

    apart_by = {}
    for way, starts in {"padded on the left": (2, 6), "padded on both sides": (0, 3)}.items():
        ids, mask = padded(texts, starts, kind)
        ids_too = {"position_ids": positions_of(mask)} if counts_columns(kind, encoding) else {}
        apart_by[way] = largest(output_of(model, ids, attention_mask=mask, **one, **ids_too), starts)
    if kind not in DECODERS:
        return apart_by
    apart_by["token by token"] = apart(in_parts(model, texts[0][None], 1)[0], alone[0])
    apart_by["in parts"] = apart(in_parts(model, texts[0][None], [5, 1, 4, 2])[0], alone[0])
    ids, mask = padded(texts, (2, 6), kind)
    apart_by["padded and in parts"] = largest(in_parts(model, ids, [8, 1, 1, 3, 1], mask), (2, 6))
    if FAMILIES[kind].packs:
        row, positions = torch.cat(texts)[None], torch.cat((torch.arange(12), torch.arange(8)))[None]
        packed = output_of(model, row, position_ids=positions, **one)[0].split([12, 8])
        apart_by["packed"] = largest(packed, (0, 0))
    return apart_by


@torch.no_grad()
@pytest.mark.parametrize(("kind", "encoding"), marked(cells(NAMES), FAST))
def test_a_text_is_read_alike_however_it_is_fed_and_after_a_folder(kind, encoding, tmp_path):
    model = swapped(kind, encoding, seed=0)
    apart_by = differences(model, kind, encoding)
    assert {way: by for way, by in apart_by.items() if not by <= BOUND} == {}
    model.save_pretrained(tmp_path)
    again = (AutoModelForCausalLM if kind in DECODERS else AutoModel).from_pretrained(tmp_path, **how_of(kind)).eval()
    again = again.encoder if kind == "t5" else again  # the Auto class of T5 gives both stacks
    assert apart(output_of(again, ids_of(2, 12)), output_of(model, ids_of(2, 12))) == 0


def calls_of(kind):
    """A text alone, and padded rows as the plain model takes them."""
    ids, mask = padded(ids_of(2, 9), (1, 4), kind)
    return {"alone": ({"input_ids": ids_of(2, 12)}, None), "padded": ({"input_ids": ids, "attention_mask": mask}, mask)}


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "encoding"), marked(cells(["model", *(f"model+{name}" for name in ADDED)]), ("model", "model+t5"))
)
def test_beside_the_models_positions_new_terms_start_at_0(kind, encoding):
    plain, model = model_of(kind), swapped(kind, encoding, draw=False, seed=0)
    for call, mask in calls_of(kind).values():
        seen = slice(None) if mask is None else mask.bool()
        assert apart(output_of(model, **call)[seen], output_of(plain, **call)[seen]) <= 1e-5


@torch.no_grad()
@pytest.mark.parametrize("kind", [kind for kind in (*DECODERS, *ENCODERS) if FAMILIES[kind].rotary])
def test_rope_with_the_models_base_is_the_models_own(kind):
    # other heads have other bases by kind of layer, or are rotated in part
    fields = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0}}
    if kind in ("gemma3_text", "modernbert"):
        own = {"rope_type": "default", "rope_theta": 500.0}
        fields = {"rope_parameters": {"full_attention": own, "sliding_attention": own}}
    plain = model_of(kind)
    config = plain.config.to_dict() | fields
    config = type(plain.config)(**{name: value for name, value in config.items() if name != "partial_rotary_factor"})
    plain = drawn(type(plain)(config)).eval()
    before = output_of(plain, ids_of(2, 12))
    model = swap_encoding(plain, "rope", options={"base": 500.0})
    assert apart(output_of(model, ids_of(2, 12)), before) <= 1e-5


@torch.no_grad()
@pytest.mark.parametrize("kind", ["opt", "bert", "roberta", "modernbert"])
def test_texts_that_would_see_each_other_are_refused(kind):
    model = swapped(kind, "t5")
    positions = torch.cat((torch.arange(5), torch.arange(7)))[None]
    with pytest.raises(BadInput, match=r"begin anew within a row.*give each text a row"):
        output_of(model, ids_of(1, 12), position_ids=positions)


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["model,none", "none,model"])
def test_a_t5_loses_its_bias_in_the_layers_that_are_to_be_without(encoding):
    output = output_of(swapped("t5", encoding), ids_of(2, 12))
    for other in (model_of("t5"), swapped("t5", "none")):
        assert apart(output, output_of(other, ids_of(2, 12))) > 1e-3
