import pytest
import torch
from torch.testing import assert_close

from wordorder import attention
from wordorder.encodings import (
    CATALOG,
    Encoding,
    OnScoresByInput,
    build_encoding,
    canonical_name,
    names_of,
    options_of,
    pattern_of,
    split_options,
)
from wordorder.errors import BadInput
from wordorder.ops import Contiguous

SIZES = {"width": 24, "heads": 4, "layers": 2, "max_positions": 64, "vocabulary": 40}


@pytest.mark.parametrize("name", CATALOG)
def test_every_entry_says_what_it_is(name):
    encoding = CATALOG[name]
    assert issubclass(encoding, Encoding)
    assert "https://arxiv.org/abs/" in encoding.paper or name == "relative-logits"  # of which there is code alone
    assert encoding.__doc__
    assert encoding.place != "nowhere" or name == "none"
    assert all(default is not ... for default in options_of(encoding).values())


@pytest.mark.parametrize("name", CATALOG)
def test_parts_of_the_cost_add_up(name):
    encoding = build_encoding(name, **SIZES, use="decoder")
    held = sum(parameter.numel() for parameter in encoding.parameters())
    if encoding.replacement is not None:  # held by the network; the words' own table is no cost of word order
        held += sum(p.numel() for p in encoding.replacement.parameters()) - encoding.replacement.weight.numel()
    assert sum(encoding.cost_parts().values()) == held


@pytest.mark.parametrize("name", ["complex-order", "complex-vanilla", "complex-order+t5", "rope+complex-order"])
def test_what_replaces_the_embeddings_is_left_to_the_network(name):
    encoding = build_encoding(name, **SIZES, padding_idx=3)
    assert encoding.replacement.padding_idx == 3
    assert encoding.replacement.weight.shape == (40, 24)
    assert not any("amplitude" in key for key in encoding.state_dict())
    assert build_encoding("rope", **SIZES).replacement is None
    pair = build_encoding(name, **SIZES, complex_valued=True).replacement
    assert pair(torch.zeros(1, 2).long(), Contiguous(2)).shape == (1, 2, 24)
    assert pair.weight.shape == (40, 12)


def test_terms_of_a_composition_add_up():
    both = build_encoding("t5+alibi", **SIZES)
    order = both.prepare(Contiguous(7)).layer(0)
    alone = [part(Contiguous(7), Contiguous(7)).dense() for part in both.parts.values()]
    assert_close(order.bias.dense(), alone[0] + alone[1])
    learned = build_encoding("learned+t5", **SIZES)
    x = torch.randn(2, 7, 24)
    assert_close(learned.embed(x, Contiguous(7)), x + learned.parts["learned"].table.weight[:7])
    assert learned.prepare(Contiguous(7)).layer(0).bias is not None


def test_options_are_flat_for_one_and_nested_for_several():
    assert split_options("t5", {"buckets": 8}) == {"t5": {"buckets": 8}}
    assert split_options("t5", {"t5": {"buckets": 8}}) == {"t5": {"buckets": 8}}
    assert split_options("learned+t5", {"t5": {"buckets": 8}}) == {"learned": {}, "t5": {"buckets": 8}}
    assert build_encoding("learned+t5", **SIZES, options={"t5": {"buckets": 8}}).parts["t5"].buckets == 8


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("rpoe", None, ["unknown encoding 'rpoe'; did you mean 'rope'", "? `wordorder list` shows all"]),
        ("learned+ALiBee", None, ["unknown encoding 'ALiBee'; did you mean 'alibi'"]),
        ("", None, ["unknown encoding ''; `wordorder list` shows all"]),
        ("t5+t5", None, ["twice"]),
        ("tupe-a+tupe-r", None, ["two variants of tupe"]),
        ("complex-order", {"frequency": "none"}, ["complex-order.frequency must be one of 'full'"]),
        ("complex-order", {"phase": 2}, ["complex-order.phase must be true or false or one of 'full'"]),
        ("complex-order", {"vocabulary": 3}, ["no option 'vocabulary'"]),
        ("t5", {"size": 3, "depth": 2}, ["no option 'size'", "no option 'depth'", "buckets"]),
        ("learned+t5", {"buckets": 8}, ["not a part", 'options go by part: {"learned": {...}, "t5": {...}}']),
        ("learned+t5", {"t5": 8}, ["must be a table"]),
        ("t5", {"buckets": 3.5, "max_distance": "far"}, ["t5.buckets must be an integer", "t5.max_distance must be"]),
        ("tupe-a", {"projection_bias": "no", "cls": "first"}, ["must be true or false", "'position-0', 'none'"]),
    ],
)
def test_wrong_names_and_options_are_listed(name, options, words):
    with pytest.raises(BadInput) as error:
        build_encoding(name, **SIZES, options=options)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("written", "name"),
    [("RoPE", "rope"), ("TUPE_R", "tupe-r"), ("Learned+ALiBi", "learned+alibi"), ("RoPE*3, None", "rope*3, none")],
)
def test_names_are_read_in_the_spelling_of_papers(written, name):
    assert canonical_name(written) == name
    assert canonical_name("rpoe+T5") == "rpoe+t5"
    assert pattern_of(written) == pattern_of(name)
    assert names_of(written) == names_of(name)


def test_what_replaces_the_embeddings_needs_a_vocabulary_and_a_place():
    sizes = {key: value for key, value in SIZES.items() if key != "vocabulary"}
    with pytest.raises(BadInput, match="pass vocabulary"):
        build_encoding("complex-order", **sizes)
    with pytest.raises(BadInput, match=r"not defined for cross-attention.*token embeddings"):
        build_encoding("complex-order", **SIZES, use="cross-attention")
    with pytest.raises(ValueError, match="only one encoding can replace"):
        build_encoding("complex-order+complex-vanilla", **SIZES)


def test_a_memory_that_looks_ahead_shows_keys_to_the_right_in_decoders_too():
    t5 = {
        right: build_encoding("t5", **SIZES, use="decoder", with_memory=True, looks_right=right)
        .parts["t5"]
        .bidirectional
        for right in (False, True)
    }
    assert t5 == {False: False, True: True}
    options = {"bidirectional": False}
    built = build_encoding("t5", **SIZES, use="decoder", with_memory=True, looks_right=True, options=options)
    assert not built.parts["t5"].bidirectional


@pytest.mark.parametrize("right", [False, True])
def test_with_a_memory_position_0_is_no_cls(right):
    memory = {"with_memory": True, "looks_right": right}
    assert build_encoding("tupe-a", **SIZES, options={"cls": "position-0"}).parts["tupe"].cls == "position-0"
    assert build_encoding("tupe-a", **SIZES, **memory).parts["tupe"].cls == "none"
    assert build_encoding("tupe-a", **SIZES, **memory, options={"cls": "none"}).parts["tupe"].cls == "none"
    with pytest.raises(BadInput, match=r"tupe-a.cls='position-0' has no meaning.*leave cls out"):
        build_encoding("tupe-a", **SIZES, **memory, options={"cls": "position-0"})


def test_tables_on_embeddings_are_read_in_the_window_and_sines_in_the_text():
    both = build_encoding("learned+sinusoidal", **SIZES)
    x, text, window = torch.randn(1, 7, 24), Contiguous(7, 1000), Contiguous(7, 5)
    expected = x + both.parts["learned"].table.weight[5:12]
    assert_close(both.embed(x, text, window), both.parts["sinusoidal"](expected, text))
    with pytest.raises(ValueError, match="max_positions=64"):
        both.embed(x, text)


@pytest.mark.parametrize("name", [name for name, kind in CATALOG.items() if not issubclass(kind, OnScoresByInput)])
def test_the_order_is_where_positions_are_or_else_the_parameters(name):
    """On torch's meta device, which stands in for a GPU: nothing of another device can meet what is there."""
    use = "decoder" if "encoder" in CATALOG[name].refused_in else "encoder"
    encoding = build_encoding(name, **SIZES, use=use).to("meta")
    q = torch.empty(2, 4, 7, 6, device="meta")
    given = [torch.arange(7, device="meta"), Contiguous(7, torch.zeros(2, dtype=torch.long, device="meta"))]
    if name in ("transformer-xl", "shift"):  # the first reads which distances occur, the second refuses gaps
        del given[0]
    if list(encoding.parameters()):
        given.append(Contiguous(7))
    for positions in given:
        assert attention(q, q, q, encoding.prepare(positions).layer(0), backend="reference").device.type == "meta"
    assert attention(q, q, q, encoding.prepare(Contiguous(7), device=q.device).layer(0)).device.type == "meta"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"use": "Decoder"}, "use must be one of encoder, decoder, cross-attention, got 'Decoder'"),
        ({"with_memory": "look-ahead"}, "with_memory must be True or False, got 'look-ahead'"),
        ({"heads": 0}, "heads must be positive, got 0"),
        ({"heads": 3}, "width must be a multiple of heads, got 64 and 3"),
        ({"options": {"base": float("nan")}}, "base must be greater than 1, got nan"),
        ({"options": {"base": float("inf")}}, "base must be greater than 1 and finite, got inf"),
        ({"name": "rope-yarn", "options": {"factor": float("nan")}}, "factor must be at least 1, got nan"),
    ],
)
def test_wrong_sizes_uses_and_numbers_are_named(given, words):
    with pytest.raises(ValueError, match=words):
        build_encoding(**{"name": "rope", "width": 64, "heads": 4, "layers": 1, "max_positions": 8, **given})


@pytest.mark.parametrize("name", ["shaw", "t5", "shaw,t5"])
def test_layers_are_counted_from_0(name):
    order = build_encoding(name, width=32, heads=4, layers=2, max_positions=8).prepare(5)
    order.layer(1)
    for index in (-1, *([2] if "," in name else [])):
        with pytest.raises(BadInput, match=f"index must .*, got {index}"):
            order.layer(index)
