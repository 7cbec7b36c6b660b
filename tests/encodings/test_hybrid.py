from unittest.mock import patch

import pytest
import torch
from torch.testing import assert_close

from wordorder.encodings import (
    CATALOG,
    Composition,
    LayerKind,
    LayerTerms,
    OnQueriesAndKeys,
    Terms,
    build_encoding,
    names_of,
    pattern_of,
    split_options,
)
from wordorder.encodings.places import Move
from wordorder.errors import BadInput
from wordorder.ops import Contiguous

SIZES = {"width": 24, "heads": 4, "layers": 6, "max_positions": 64, "vocabulary": 40}
D = 6


def build(name, **options):
    return build_encoding(name, **{**SIZES, **options})


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("rope", [("rope",)]),
        ("rope,none", [("rope",), ("none",)]),
        (" rope * 3 , none", [("rope",)] * 3 + [("none",)]),
        ("rope+tupe-a*2,none*1", [("rope", "tupe-a")] * 2 + [("none",)]),
    ],
)
def test_patterns_are_read_part_by_part(name, pattern):
    assert pattern_of(name) == tuple(map(LayerKind, pattern))
    assert names_of(name) == tuple(dict.fromkeys(part for names in pattern for part in names))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("rope@512*2,none", [LayerKind(("rope",), 512)] * 2 + [LayerKind(("none",))]),
        (" RoPE + tupe_a @ 7 * 1 ", [LayerKind(("rope", "tupe-a"), 7)]),
        ("model*2,none@3", [LayerKind(("model",))] * 2 + [LayerKind(("none",), 3)]),
        ("model+fox@999999999", [LayerKind(("model", "fox"), 999_999_999)]),
    ],
)
def test_windows_and_reserved_names_are_read_layer_by_layer(name, kinds):
    assert pattern_of(name, reserved=("model",)) == tuple(kinds)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *((f"rope@{size}", "after '@' comes the window") for size in ("", "0", "-3", "1.5", "x", "10000000000", "4@5")),
        ("rope@512+fox", "at the layer's end"),
        ("@4", "unknown encoding ''"),
        ("rope*2@4", r"after '\*' comes how many layers in a row"),
        ("rope@4*0", r"after '\*' comes how many layers in a row"),
        ("rope,", "unknown encoding ''"),
        ("rope,model", "unknown encoding 'model'"),
        ("t5+T5@3", "names a part twice"),
    ],
)
def test_windows_that_are_no_numbers_are_refused(name, words):
    with pytest.raises(BadInput, match=words):
        pattern_of(name)


@pytest.mark.parametrize(
    ("name", "by_layer"),
    [
        ("rope,none", ["rope", "none"] * 3),
        ("rope*3,none", ["rope", "rope", "rope", "none", "rope", "rope"]),  # cut off where the layers end
        ("t5,rope,none,rope,rope,t5", ["t5", "rope", "none", "rope", "rope", "t5"]),
        ("rope+t5,t5+rope,none", ["rope+t5", "rope+t5", "none"] * 2),
    ],
)
def test_a_pattern_is_repeated_over_the_layers(name, by_layer):
    encoding = build(name)
    for layer, names in enumerate(by_layer):
        assert [type(part) for part in encoding.parts_of(layer)] == [CATALOG[name] for name in names.split("+")]
        assert all(part in encoding.parts.values() for part in encoding.parts_of(layer))
    assert len(encoding.kinds) == len(set(by_layer))


@pytest.mark.parametrize("name", ["rope", "rope,rope", "rope*6", "rope+t5,t5+rope", "learned,learned"])
def test_layers_that_are_all_alike_are_no_hybrid(name):
    encoding = build(name)
    assert len(encoding.kinds) == len(encoding.prepare(Contiguous(5)).kinds) == 1


def test_each_part_is_asked_once_and_serves_all_layers_that_name_it():
    encoding = build("rope+tupe-a,none,tupe-a,rope,shaw,shaw+rope")
    calls = []
    originals = {type(part): (method, getattr(type(part), method)) for part, method in [
        (encoding.parts["rope"], "forward"), (encoding.parts["tupe"], "forward"), (encoding.parts["shaw"], "forward"),
    ]}  # fmt: skip
    patches = [
        patch.object(kind, method, lambda *a, _m=original, _k=kind, **k: (calls.append(_k.__name__), _m(*a, **k))[1])
        for kind, (method, original) in originals.items()
    ]
    for each in patches:
        each.start()
    try:
        order = encoding.prepare(Contiguous(7))
    finally:
        for each in patches:
            each.stop()
    assert sorted(calls) == ["Rotary", "Shaw", "TUPE"]
    layers = [order.layer(index) for index in range(6)]
    assert layers[0].bias is layers[2].bias
    assert layers[0].query_moves == layers[3].query_moves == layers[5].query_moves != ()
    assert layers[1] == Terms(D**-0.5)
    assert [bool(layer.content) for layer in layers] == [False] * 4 + [True] * 2


def test_every_kind_has_its_own_content_scale():
    encoding = build("rope,tupe-a,rope+tupe-a,none")
    order = encoding.prepare(Contiguous(5))
    assert isinstance(order, LayerTerms)
    untied, tied = (2 * D) ** -0.5, D**-0.5
    assert [order.layer(index).scale for index in range(6)] == [tied, untied, untied, tied, tied, untied]
    assert encoding.scales == (tied, untied, untied, tied)


@pytest.mark.parametrize("name", ["shaw,none,shaw+t5", "rope,shaw", "none*5,shaw", "shaw*2,none"])
def test_tables_by_layer_are_held_for_the_layers_that_use_them(name):
    encoding = build(name)
    shaw = encoding.parts["shaw"]
    using = [layer for layer in range(6) if shaw in encoding.parts_of(layer)]
    assert len(shaw.tables) == len(using)
    order, q, k = encoding.prepare(Contiguous(5)), torch.randn(1, 4, 5, D), torch.randn(1, 4, 5, D)
    plain = shaw(Contiguous(5), Contiguous(5))
    for table, layer in enumerate(using):
        (term,) = order.layer(layer).content
        assert_close(term.scores(q, k, 0.5, None), plain.layer(table).scores(q, k, 0.5, None))


def test_an_encoding_with_two_sides_is_turned_ahead_in_every_layer():
    order = build("transformer-xl,rope").prepare(Contiguous(5)).right_only()
    assert [term.all_right for layer in (0, 2, 4) for term in order.layer(layer).content] == [True] * 3
    assert order.layer(1).content == ()


@pytest.mark.parametrize("name", ["tupe-a", "rope+tupe-a", "shaw", "t5"])
def test_names_of_parameters_are_those_of_the_plain_stack(name):
    plain, hybrid = build(name).state_dict(), build(f"{name},none").state_dict()
    halved = {key for key in plain if not key.startswith("parts.shaw.tables") or int(key.split(".")[3]) < 3}
    assert set(hybrid) == halved
    assert all(hybrid[key].shape == plain[key].shape for key in hybrid)


def test_variants_of_one_family_may_take_turns():
    encoding = build("tupe-a,tupe-r,rope,rope-ntk")
    assert [type(part) for part in encoding.parts.values()] == [
        CATALOG[name] for name in ("tupe-a", "tupe-r", "rope", "rope-ntk")
    ]
    assert list(encoding.parts) == ["tupe", "tupe-r", "rope", "rope-ntk"]
    biases = [encoding.prepare(Contiguous(9)).layer(layer).bias for layer in range(4)]
    assert_close(biases[0].dense(), encoding.parts["tupe"](Contiguous(9), Contiguous(9)).dense())
    assert_close(biases[1].dense(), encoding.parts["tupe-r"](Contiguous(9), Contiguous(9)).dense())
    assert biases[2:] == [None, None]
    assert split_options("rope,rope-ntk", {"rope-ntk": {"base": 5e5}}) == {"rope": {}, "rope-ntk": {"base": 5e5}}


def test_a_variant_that_comes_first_does_not_take_the_place_of_its_namesake():
    for name in ("kerple-power,kerple", "kerple,kerple-power"):
        encoding = build(name)
        first, second = name.split(",")
        kinds = [type(encoding.parts_of(layer)[0]) for layer in range(6)]
        assert kinds == [CATALOG[first], CATALOG[second]] * 3
        assert list(encoding.parts) == [first, second]
    assert list(build("kerple-power").parts) == ["kerple"]


def test_options_are_given_by_name_and_shared():
    encoding = build("rope,rope+t5,none", options={"rope": {"base": 500.0}, "t5": {"buckets": 8}})
    assert encoding.parts["rope"].base == 500.0
    assert encoding.parts["t5"].buckets == 8
    assert sum("t5" in key for key in encoding.state_dict()) == 1


@pytest.mark.parametrize("name", ["learned+rope,learned", "learned,learned+t5", "complex-order+rope,complex-order"])
def test_what_acts_on_embeddings_acts_once_before_the_first_layer(name):
    encoding, plain = build(name), build(name.split("+")[0].split(",")[0])
    assert len(encoding.kinds) == 2
    assert (encoding.replacement is None) == (plain.replacement is None)
    if encoding.replacement is None:
        x = torch.randn(2, 7, 24)
        assert_close(encoding.embed(x, Contiguous(7)), x + encoding.parts["learned"].table.weight[:7])
    else:
        assert not any("amplitude" in key for key in encoding.state_dict())
        encoding.drop_replacement()
        assert encoding.replacement is None
    assert encoding.prepare(Contiguous(7)).kind_of_layer == (0, 1, 0, 1, 0, 1)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("rope,rpoe", None, ["unknown encoding 'rpoe'", "did you mean 'rope'", "join several with '+'", "with ','"]),
        ("rope,", None, ["unknown encoding ''"]),
        (
            "rope,none,t5,alibi,rope,none,t5",
            None,
            ["a pattern of 7 layers", "the network has 6", "shorten the pattern"],
        ),
        ("rope*6,none", None, ["a pattern of 7 layers"]),
        ("rope*0,none", None, ["'rope*0,none'", "1 .. 999", "got '0'"]),
        ("rope*-1", None, ["got '-1'"]),
        ("rope*many", None, ["how many layers in a row", "got 'many'"]),
        ("rope*99999999999999999999", None, ["1 .. 999"]),
        ("rope*2*3", None, ["got '2*3'"]),
        ("rope,t5+t5", None, ["twice"]),
        ("rope,tupe-a+tupe-r", None, ["two variants of tupe"]),
        ("learned,rope", None, ["'learned' acts on embeddings", "before the first layer", "in every part"]),
        ("rope,rope+sinusoidal", None, ["'sinusoidal' acts on embeddings"]),
        ("complex-order,rope", None, ["'complex-order' acts on embeddings, replacing the table", "in every part"]),
        ("rope,none", {"base": 5.0}, ["encoding_options.base: not a part", '{"rope": {...}, "none": {...}}']),
        ("rope,none", {"rope": {"size": 1}}, ["rope has no option 'size'"]),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_reason(name, options, words):
    with pytest.raises(BadInput) as error:
        build(name, options=options)
    for word in words:
        assert word in str(error.value)


def test_a_part_that_is_not_defined_for_a_use_is_refused_wherever_it_stands():
    with pytest.raises(BadInput, match=r"'tupe-a' is not defined for cross-attention"):
        build("rope,tupe-a", use="cross-attention")
    with pytest.raises(BadInput, match=r"tupe-a.cls='position-0' has no meaning"):
        build("rope,tupe-a", with_memory=True, looks_right=True, options={"tupe-a": {"cls": "position-0"}})


def test_cost_counts_a_shared_part_once():
    hybrid, plain = build("rope+tupe-a,tupe-a,none"), build("tupe-a")
    assert sum(hybrid.cost_parts().values()) == sum(p.numel() for p in hybrid.parameters())
    assert hybrid.cost_parts() == plain.cost_parts()


class Doubled(Move):
    """Multiply by 2 to the number of the layer and the power of the encoding."""

    def __init__(self, power, layer=0):
        self.factor = 2.0 ** (power * layer)
        self.power = power

    def layer(self, index):
        return Doubled(self.power, index)

    def apply(self, x_BHTD):
        return x_BHTD * self.factor


class OfQueries(OnQueriesAndKeys):
    def forward(self, query, key, *, dtype=torch.float32, device=None):
        return Doubled(1), None


class OfKeys(OnQueriesAndKeys):
    def forward(self, query, key, *, dtype=torch.float32, device=None):
        return None, Doubled(3)


def test_moves_of_one_side_alone_know_their_layer():
    layers = [LayerKind(names) for names in (("q", "k"), ("k",), ("q",), ("q", "k"))]
    terms = Composition({"q": OfQueries(), "k": OfKeys()}, layers, head_dim=2).prepare(3)
    ones = torch.ones(1, 1, 3, 2)
    of_queries = [terms.layer(layer).move_queries(ones)[0, 0, 0, 0].item() for layer in range(4)]
    of_keys = [terms.layer(layer).move_keys(ones)[0, 0, 0, 0].item() for layer in range(4)]
    assert of_queries == [1, 1, 2, 4]  # of the first, second and third layer that has it
    assert of_keys == [1, 8, 1, 64]


def test_labels_tell_two_of_one_class_apart():
    options = {"rope:near": {"base": 100.0}, "rope:far": {"base": 1e6}}
    encoding = build("rope:near@4*2,ROPE:far", options=options)
    assert list(encoding.parts) == ["rope_near", "rope_far"]
    assert [part.base for part in encoding.parts.values()] == [100.0, 1e6]
    assert [kind.names for kind in encoding.kinds] == [("rope_near",), ("rope_far",)]
    terms = encoding.prepare(6)
    for layer, base in ((0, 100.0), (1, 100.0), (2, 1e6)):
        (rotation,) = terms.layer(layer).query_moves
        (expected,) = build("rope", options={"base": base}).prepare(6).layer(0).query_moves
        assert_close(rotation.cos_B1TK, expected.cos_B1TK, rtol=0, atol=0)
    two_tables = build("t5:a,t5:b")
    assert {name for name, _ in two_tables.named_parameters()} == {"parts.t5_a.table.weight", "parts.t5_b.table.weight"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rope:", "after ':' comes a label"),
        ("rope:a-b", "a label of letters, digits and '_'"),
        ("rope:a+rope:b", "two variants of rope"),
        ("roqe:a", "unknown encoding 'roqe:a'; did you mean .*'rope'"),
    ],
)
def test_labels_of_another_form_are_refused(name, words):
    with pytest.raises(BadInput, match=words):
        build(name)
