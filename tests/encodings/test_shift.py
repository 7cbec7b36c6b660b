"""Token shift against its equation, one number at a time, in networks of every kind."""

import pytest
import torch
from attention_cases import assert_reads_alike_however_it_is_fed, hidden_in_segments, small_network
from torch import nn
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from wordorder import Decoder, Encoder, MultiheadAttention, SegmentRecurrence
from wordorder.encodings import TokenShift, build_encoding
from wordorder.encodings.shift import TokenShiftTerm
from wordorder.errors import BadInput
from wordorder.models import WordOrderDecoderConfig, WordOrderDecoderForCausalLM
from wordorder.networks import check_encoding, initialise
from wordorder.ops import Contiguous, Packed

WIDTH, LAYERS = 6, 2
KINDS = [(reach, bidirectional) for reach in (1, 2, 3) for bidirectional in (False, True)]


def drawn(module, std=0.4):
    """Every weight away from 0, the same in every run; shift starts with zeros."""
    for name, parameter in module.named_parameters():
        generator = torch.Generator().manual_seed(len(name))
        parameter.data = std * torch.randn(parameter.shape, generator=generator).type_as(parameter)
    return module


def built(reach, bidirectional):
    return drawn(TokenShift(WIDTH, layers=LAYERS, reach=reach, bidirectional=bidirectional).double())


def from_equation(x, weights, reach, bidirectional, text=None):
    """h_t + sum of w_m h_(t - m), number by number; ``text`` says of each row of x, (T, C), in which text it stands.

    ``weights`` are rows m = 1 .. reach, then -1 .. -reach.
    """
    numbers = []
    for t in range(len(x)):
        for channel in range(x.shape[1]):
            number = x[t, channel]
            for m in [*range(1, reach + 1), *(range(-reach, 0) if bidirectional else ())]:
                row = m - 1 if m > 0 else reach - m - 1
                if 0 <= t - m < len(x) and (text is None or text[t - m] == text[t]):
                    number = number + weights[row, channel] * x[t - m, channel]
            numbers.append(number)
    return torch.stack(numbers).view_as(x)


def changed(encoding, x, positions, layer=1):
    """The input of a layer with what the encoding adds."""
    return x + encoding(positions, positions).layer(layer).added(x)


@pytest.mark.parametrize(("reach", "bidirectional"), KINDS)
@pytest.mark.parametrize("tokens", [1, 2, 11])
@pytest.mark.parametrize("packed", [False, True])
def test_output_and_every_gradient_match_the_equation(tokens, reach, bidirectional, packed):
    encoding, x = built(reach, bidirectional), torch.randn(2, tokens, WIDTH, dtype=torch.float64, requires_grad=True)
    texts = torch.tensor([[0, 0, 0, 4, 4, 4, 4, 1, 7, 7, 7], [3, 1, 1, 1, 1, 0, 0, 0, 0, 0, 2]])[:, :tokens]
    positions = Packed(torch.zeros_like(texts), texts) if packed else Contiguous(tokens)
    ours = changed(encoding, x, positions)
    slow = torch.stack(
        [
            from_equation(row, encoding.weight[1], reach, bidirectional, text if packed else None)
            for row, text in zip(x, texts, strict=True)
        ]
    )
    assert_close(ours, slow, rtol=0, atol=1e-13)
    upstream = torch.randn_like(slow)
    of_x, of_weight = torch.autograd.grad(ours, (x, encoding.weight), upstream)
    expected = torch.autograd.grad(slow, (x, encoding.weight), upstream, allow_unused=True, materialize_grads=True)
    assert_close((of_x, of_weight), expected, rtol=0, atol=1e-12)
    assert (of_weight[0] == 0).all()


@pytest.mark.parametrize("kind", [Encoder, Decoder])
@pytest.mark.parametrize("side", ["left", "right"])
def test_in_a_network_attention_reads_what_the_equation_gives_with_every_gradient(kind, side):
    options = {"width": 24, "layers": 2, "heads": 4, "dropout": 0.0}
    network = drawn(kind(40, encoding="rope+shift", **options)).double()
    read, projected = [], []
    for layer in network.layers:
        layer.attention.register_forward_pre_hook(lambda _, args: read.append(args[0]))
        layer.attention.qkv.register_forward_pre_hook(lambda _, args: projected.append(args[0]))
    tokens = slice(4, 11) if side == "left" else slice(0, 7)
    padding = torch.ones(2, 11, dtype=torch.bool)
    padding[0], padding[1, tokens] = False, False
    where = Contiguous(11, torch.tensor([0, -4 if side == "left" else 0]))
    network(torch.randint(40, (2, 11)), where, key_padding_mask=padding)
    weight, reach = network.encoding.parts["shift"].weight, 3 if kind is Decoder else 1
    for layer in range(2):
        for row, of_text in ((0, slice(0, 11)), (1, tokens)):
            x, ours = read[layer], projected[layer][row, of_text]
            slow = from_equation(x[row, of_text], weight[layer], reach, kind is Encoder)
            assert_close(ours, slow, rtol=0, atol=1e-12)
            upstream = torch.randn_like(slow)
            found, expected = (torch.autograd.grad(y, (x, weight), upstream, retain_graph=True) for y in (ours, slow))
            assert_close(found, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("reach", "bidirectional"), [(3, False), (2, True)])
def test_lower_precisions_round_each_product_and_sum_at_most(dtype, reach, bidirectional):
    """Whatever the order of the sum: an error of half a step for each operation, of the sum of magnitudes."""
    encoding = built(reach, bidirectional).to(dtype)
    x, upstream = (torch.randn(2, 5, WIDTH).to(dtype).requires_grad_() for _ in range(2))
    positions = Contiguous(5)
    ours = encoding(positions, positions).layer(1).added(x)
    assert ours.dtype == dtype
    leaves = [leaf.detach().double().requires_grad_() for leaf in (x, encoding.weight)]

    def exact(x, weight, upstream):
        rows = torch.stack([from_equation(row, weight[1], reach, bidirectional) for row in x])
        added = rows - x
        return [added, *torch.autograd.grad(added, (x, weight), upstream)]

    found = [ours, *torch.autograd.grad(ours, (x, encoding.weight), upstream)]
    sizes = exact(*(leaf.detach().abs().requires_grad_() for leaf in leaves), upstream.double().abs())
    operations = [2 * 2 * reach, 2 * 2 * reach, 2 * 2 * 5]
    for y, expected, size, count in zip(found, exact(*leaves, upstream.double()), sizes, operations, strict=True):
        assert y.dtype == dtype
        bound = count * (torch.finfo(dtype).eps / 2 * size + 2.0**-25)  # and half of float16's smallest step
        assert ((y.double() - expected).abs() <= bound).all()


@pytest.mark.parametrize(("plain", "with_shift"), [("none", "shift"), ("rope", "rope+shift"), ("t5", "shift+t5")])
@pytest.mark.parametrize("kind", [Encoder, Decoder])
def test_a_new_network_is_the_one_without_it_and_learns_from_there(kind, plain, with_shift):
    options = {"width": 24, "layers": 2, "heads": 4, "dropout": 0.0}
    first, second = (kind(40, encoding=name, **options).eval() for name in (plain, with_shift))
    for network in (first, second):
        initialise(network, seed=3, std=0.3)
    part, ids = second.encoding.parts["shift"], torch.randint(40, (2, 9))
    assert part.zero_init_parameters()[0] is part.weight
    assert not part.weight.any()
    assert torch.equal(first(ids).hidden, second(ids).hidden)
    second(ids).hidden.square().sum().backward()
    assert (part.weight.grad != 0).any(dim=-1).all()


def test_what_was_learned_is_saved_and_loaded(tmp_path):
    config = WordOrderDecoderConfig(
        vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, encoding="rope+shift"
    )
    model = drawn(WordOrderDecoderForCausalLM(config)).eval()
    model.save_pretrained(tmp_path)
    ids = torch.randint(3, 40, (2, 9))
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert again.model.decoder.encoding.parts["shift"].weight.any()
    assert torch.equal(again(ids).logits, model(ids).logits)


def test_defaults_are_the_papers_in_decoders_and_one_neighbour_on_each_side_in_encoders():
    sizes = {"width": 24, "heads": 4, "layers": 2, "max_positions": 8}
    for use, options, shape in (
        ("decoder", {}, (2, 3, 24)),
        ("encoder", {}, (2, 2, 24)),
        ("decoder", {"reach": 1}, (2, 1, 24)),
        ("encoder", {"reach": 2}, (2, 4, 24)),
        ("encoder", {"bidirectional": False}, (2, 3, 24)),
    ):
        part = build_encoding("shift", use=use, options=options, **sizes).parts["shift"]
        assert part.weight.shape == shape
    with pytest.raises(BadInput, match=r"shift\.bidirectional=True shows a decoder what comes next; leave it out"):
        build_encoding("shift", use="decoder", options={"bidirectional": True}, **sizes)
    with pytest.raises(BadInput, match=r"not defined for cross-attention.*of two texts"):
        build_encoding("shift", use="cross-attention", **sizes)


@pytest.mark.parametrize("use", ["encoder", "decoder"])
@pytest.mark.parametrize("reach", [1, 2])
def test_every_check_of_an_encoding_finds_nothing(use, reach):
    findings = check_encoding("shift", use=use, options={"reach": reach})
    assert {finding.kind for finding in findings} == {"information"}
    assert any("word order is visible" in finding.message for finding in findings)


@pytest.mark.parametrize("encoding", ["shift", "none+shift,rope", "rope+shift", "shift@3,none", "fox+shift"])
def test_caches_padding_and_packing(encoding):
    assert_reads_alike_however_it_is_fed(drawn(small_network(Decoder, encoding)))


def test_a_window_is_as_wide_for_keys_which_have_read_what_is_before_it():
    network, ids = drawn(small_network(Decoder, "shift@3", layers=1)), torch.randint(1, 30, (1, 12))
    other = ids.clone()
    other[0, 2] = ids[0, 2] % 28 + 1
    same = (network(ids).hidden == network(other).hidden).all(-1)[0]
    assert same.tolist() == [t < 2 or t > 2 + 2 + 3 for t in range(12)]


@pytest.mark.parametrize("encoding", ["shift@4", "rope+shift@4"])
def test_segments_are_one_text_where_slots_reach_as_far_as_window_and_shift(encoding):
    plain = drawn(small_network(Decoder, encoding))
    network = small_network(Decoder, encoding, memory=SegmentRecurrence(3 + 3))
    network.load_state_dict(plain.state_dict())
    ids = torch.randint(1, 30, (2, 23))
    assert_close(hidden_in_segments(network, ids, [5, 1, 7, 10]), plain(ids).hidden, rtol=0, atol=1e-10)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("float_mask", [True, False])
def test_torchs_attention_with_it_equals_a_changed_input_with_every_gradient(causal, float_mask):
    ours = drawn(MultiheadAttention(12, 2, batch_first=True, encoding="shift", causal=causal)).double()
    theirs = nn.MultiheadAttention(12, 2, batch_first=True).double()
    theirs.load_state_dict({name: w for name, w in ours.state_dict().items() if "encoding" not in name})
    x = torch.randn(2, 9, 12).double().requires_grad_()
    padding = torch.arange(9)[None] >= torch.tensor([[9], [6]])
    mask = torch.zeros(2, 9).double().masked_fill(padding, -torch.inf) if float_mask else padding
    weight, reach = ours.encoding.parts["shift"].weight, 3 if causal else 1
    rows = x.masked_fill(padding[..., None], 0)
    input_BTC = torch.stack([from_equation(row, weight[0], reach, not causal) for row in rows])
    hidden = torch.ones(9, 9).triu(1).bool() if causal else None
    expected = theirs(input_BTC, input_BTC, input_BTC, key_padding_mask=padding, attn_mask=hidden)[0][~padding]
    output = ours(x, x, x, key_padding_mask=mask)[0][~padding]
    assert_close(output, expected, rtol=0, atol=1e-12)
    upstream = torch.randn_like(output)
    found, slow = (torch.autograd.grad(y, (x, weight), upstream) for y in (output, expected))
    assert_close(found, slow, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["width", "layers", "reach"])
def test_sizes_out_of_range_are_named(name):
    with pytest.raises(ValueError, match=f"{name} must be positive, got 0"):
        TokenShift(**{"width": 8, "layers": 1, name: 0})


@pytest.mark.parametrize("vectorize", [False, True])
def test_a_jacobian_and_second_derivatives_are_those_of_the_sum(vectorize):
    shift = TokenShift(3, layers=1, reach=2, bidirectional=True).double()
    nn.init.normal_(shift.weight)
    term = shift(Contiguous(4), Contiguous(4))
    x = torch.randn(1, 4, 3, dtype=torch.float64, requires_grad=True)
    jacobian = torch.autograd.functional.jacobian(term.added, x, vectorize=vectorize).view(4, 3, 4, 3)
    for t in range(4):
        for r in range(4):
            weight = shift.weight[0, shift.steps.index(t - r)] if t - r in shift.steps else torch.zeros(3)
            assert_close(jacobian[t, :, r], torch.diag(weight).double())
    assert torch.autograd.gradgradcheck(lambda x, w: TokenShiftTerm(w, shift.steps, ()).added(x), (x, shift.weight))
