"""Word order in somebody else's network is that of `Encoder` and `Decoder`, and cannot be used in a wrong way."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from own_network import OwnNetwork
from torch.testing import assert_close

from wordorder import Decoder, Encoder, Positional
from wordorder.encodings import CATALOG
from wordorder.errors import BadInput
from wordorder.networks import initialise
from wordorder.ops import Contiguous

V, SIZES = 30, {"width": 16, "layers": 2, "heads": 2, "max_positions": 32}
NAMES = [*CATALOG, "learned+t5", "rope+tupe-a", "complex-order+alibi", "tupe-r,none"]
KIND = {False: ("encoder", Encoder), True: ("decoder", Decoder)}
DEFINED = [(n, c) for n in NAMES for c in KIND if KIND[c][0] not in getattr(CATALOG.get(n), "refused_in", {})]


def shaken(network):
    """Weights with every bias, norm and table moved off its initial value."""
    initialise(network, seed=5, std=0.3)
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    return network.double().eval()


def own_of(theirs, encoding, causal, options=None):
    """The network of nn.Linear layers with the weights of ours."""
    own = OwnNetwork(encoding, vocabulary=V, causal=causal, options=options, **SIZES).double().eval()
    own.positional.encoding.load_state_dict(theirs.encoding.state_dict())
    (own.positional.embedding if own.words is None else own.words).load_state_dict(theirs.embedding.state_dict())
    own.norm.load_state_dict(theirs.final_norm.state_dict())
    for mine, layer in zip(own.blocks, theirs.layers, strict=True):
        mine.qkv.load_state_dict(layer.attention.qkv.state_dict())
        mine.out.load_state_dict(layer.attention.out.state_dict())
        mine.norm1.load_state_dict(layer.attention_norm.state_dict())
        mine.norm2.load_state_dict(layer.feedforward_norm.state_dict())
        mine.up.load_state_dict(layer.feedforward.up.state_dict())
        mine.down.load_state_dict(layer.feedforward.down.state_dict())
    return own


@pytest.mark.parametrize(("encoding", "causal"), DEFINED)
def test_outputs_and_gradients_are_those_of_our_networks(encoding, causal):
    theirs = shaken(KIND[causal][1](V, encoding=encoding, dropout=0.0, attention_dropout=0.0, **SIZES))
    own, ids = own_of(theirs, encoding, causal), torch.randint(1, V, (2, 9))
    names = dict(own.positional.encoding.named_parameters())
    for padding in (None, "right", "left"):
        valid, positions = torch.ones(2, 9, dtype=torch.bool), None
        if padding is not None:
            valid[1, slice(6, 9) if padding == "right" else slice(0, 3)] = False
        if padding == "left":
            positions = Contiguous(9, torch.tensor([0, -3]))
        mask = None if padding is None else ~valid
        expected, found = theirs(ids, positions, key_padding_mask=mask).hidden, own(ids, mask, positions)
        place = f"padding {padding}"
        assert_close(found[valid], expected[valid], rtol=1e-10, atol=1e-10, msg=lambda text, at=place: f"{at}: {text}")
        upstream = torch.randn_like(expected[valid])
        for network, output in ((theirs, expected), (own, found)):
            network.zero_grad()
            output[valid].backward(upstream)
        for name, parameter in theirs.encoding.named_parameters():
            assert (parameter.grad is None) == (names[name].grad is None), place
            if parameter.grad is not None:
                assert_close(names[name].grad, parameter.grad, rtol=1e-9, atol=1e-10)


def test_an_option_counts_and_tupe_can_untie_cls():
    options = {"cls": "position-0"}
    theirs = shaken(Encoder(V, encoding="tupe-r", encoding_options=options, **SIZES))
    ids = torch.randint(1, V, (2, 9))
    assert_close(own_of(theirs, "tupe-r", False, options)(ids), theirs(ids).hidden, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("encoding", "causal"), DEFINED)
def test_everything_follows_the_device_of_x(encoding, causal):
    with torch.device("meta"):
        own = OwnNetwork(encoding, vocabulary=V, causal=causal, **SIZES)
        ids = torch.zeros(2, 9, dtype=torch.long)
        mask = torch.zeros(2, 9, dtype=torch.bool)
        assert own(ids, mask).device.type == "meta"


@pytest.mark.parametrize("encoding", ["rope", "t5", "tupe-r", "shaw", "learned"])
def test_keys_of_a_cache(encoding):
    """The last token alone, with the keys of all, finds what it found among all of them."""
    positional = Positional(encoding, **SIZES, causal=True)
    whole = positional.embed(torch.randn(2, 7, 16))
    q, k, v = torch.randn(3, 2, 2, 7, 8)
    expected = positional.prepare(whole).attend(0, q, k, v)[:, :, 6:]
    x = positional.embed(torch.randn(2, 1, 16), positions=torch.tensor([6]))
    order = positional.prepare(x, positions=torch.tensor([6]), key_positions=torch.arange(7))
    assert_close(order.attend(0, q[:, :, 6:], k, v), expected)


def test_dropout_is_for_training_alone():
    positional = Positional("rope", **SIZES, dropout=0.5)
    x, (q, k, v) = torch.randn(2, 7, 16), torch.randn(3, 2, 2, 7, 8)
    torch.manual_seed(0)
    first, second = (positional.prepare(x).attend(0, q, k, v) for _ in range(2))
    assert not torch.allclose(first, second)
    positional.eval()
    assert_close(positional.prepare(x).attend(0, q, k, v), positional.prepare(x).attend(0, q, k, v))


def test_a_compiled_network_gives_the_same():
    own = OwnNetwork("learned+t5", vocabulary=V, causal=True, **SIZES).eval()
    ids = torch.randint(V, (2, 9))
    compiled = torch.compile(own, backend="eager")
    assert_close(compiled(ids), own(ids))


def test_weights_are_the_network_s():
    own = OwnNetwork("tupe-r", vocabulary=V, causal=False, **SIZES)
    assert any(name.startswith("positional.encoding.parts.tupe.") for name in own.state_dict())
    other = OwnNetwork("tupe-r", vocabulary=V, causal=False, **SIZES)
    other.load_state_dict(own.state_dict())
    ids = torch.randint(V, (2, 9))
    assert_close(other(ids), own(ids))


def prepared(encoding="rope", tokens=7, **fields):
    positional = Positional(encoding, **{**SIZES, **fields})
    return positional.prepare(positional.embed(torch.randn(2, tokens, positional.width)))


def heads(batch=2, count=2, tokens=7, channels=8, **fields):
    return tuple(torch.randn(batch, count, tokens, channels, **fields) for _ in range(3))


@pytest.mark.parametrize(
    ("misuse", "said"),
    [
        (lambda: Positional("learned", **SIZES).prepare(torch.randn(2, 7, 16)), r"write x = positional.embed\(x\)"),
        (lambda: Positional("sinusoidal+t5", **SIZES).prepare(torch.randn(2, 7, 16)), "embed was not called since"),
        (lambda: Positional("complex-order", **SIZES, vocabulary=V).embed(torch.randn(2, 7, 16)), "input_ids=ids"),
        (lambda: Positional("complex-order", **SIZES), "pass vocabulary"),
        (lambda: Positional("rope", **SIZES).embed(input_ids=torch.zeros(2, 7).long()), r"pass embed\(x\)"),
        (lambda: Positional("rope", **SIZES).embed(), r"pass embed\(x\)"),
        (lambda: Positional("rope", **SIZES).embed(torch.randn(2, 7, 8)), "width=16"),
        (lambda: Positional("rope", **SIZES).prepare(torch.zeros(2, 7, 16).long()), "floating point"),
        (lambda: Positional("cope", **SIZES), "not defined for encoder"),
        (lambda: Positional("tupr-r", **SIZES), "did you mean 'tupe-r'"),
        (lambda: Positional("rope", **{**SIZES, "heads": 3}), "multiple of heads"),
        (lambda: prepared().attend(2, *heads()), "between 0 and 1"),
        (lambda: prepared().attend(-1, *heads()), "between 0 and 1"),
        (lambda: prepared("rope,none").attend(*heads(), 0), "index of the layer"),
        (lambda: prepared().attend(0, *heads(tokens=6)), "7 tokens"),
        (lambda: prepared().attend(0, *heads(batch=3)), "batch 2"),
        (lambda: prepared().attend(0, *(x.transpose(1, 2) for x in heads())), "heads, tokens, channels"),
        (lambda: prepared().attend(0, *heads(count=4, channels=4)), "2 heads of 8 channels"),
        (lambda: prepared().attend(0, *heads(dtype=torch.float64)), "torch.float64"),
        (lambda: prepared().attend(0, *heads(device="meta")), "is on meta"),
        (lambda: prepared("learned", tokens=33), "max_positions"),
        (lambda: prepared().attend(0, *torch.randn(3, 2, 7, 16)), r"unflatten\(-1, \(-1, 8\)\)"),
        (lambda: prepared().attend(0, heads()[0], heads(channels=4)[1], heads()[2]), "k must have heads"),
        (lambda: prepared(heads=4, width=32).attend(0, *(heads(count=4)[0], *heads(count=3)[1:])), "that divide 4"),
        (lambda: prepared(heads=4, width=32).attend(0, heads(count=4)[0], heads()[1], heads(count=1)[2]), "as k, 2"),
        (lambda: Positional("rope", **SIZES)(torch.randn(2, 7, 16)), "a Positional is not called itself"),
    ],
)
def test_misuse_is_one_clear_error(misuse, said):
    with pytest.raises(ValueError, match=said):
        misuse()


@pytest.mark.parametrize(
    ("mask", "remedy"),
    [
        ([[False] * 7] * 2, "got list; make it a tensor"),
        (torch.zeros(2, 7), "pass attention_mask == 0"),
        (torch.zeros(2, 6, dtype=torch.bool), "one value for each token"),
        (torch.zeros(7, dtype=torch.bool), "one value for each token"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask, remedy):
    with pytest.raises(BadInput, match=rf"key_padding_mask must be bool \(batch, tokens\) = \(2, 7\).*{remedy}"):
        Positional("rope", **SIZES).prepare(torch.randn(2, 7, 16), key_padding_mask=mask)


def test_positions_go_to_embed_and_prepare():
    positional, places = Positional("learned", **SIZES), torch.arange(5, 12)
    x = positional.embed(torch.randn(2, 7, 16), positions=places)
    with pytest.raises(BadInput, match="the same positions"):
        positional.prepare(x)
    x = positional.embed(x, positions=places)
    with pytest.raises(BadInput, match="the same positions"):
        positional.prepare(x, positions=torch.arange(9, 16))
    positional.prepare(positional.embed(x, positions=places), positions=places)


def test_a_second_forward_pass_that_forgets_to_embed_is_refused():
    positional, x = Positional("learned", **SIZES), torch.randn(2, 7, 16)
    positional.prepare(positional.embed(x))
    with pytest.raises(BadInput, match="not called since the last prepare"):
        positional.prepare(x)


def test_embed_may_be_compiled_and_prepare_not():
    positional, x = Positional("learned", **SIZES), torch.randn(2, 7, 16)
    embed = torch.compile(positional.embed, backend="eager")
    for _ in range(2):
        positional.prepare(embed(x))


def test_another_length_than_was_embedded_is_refused():
    positional = Positional("learned", **SIZES)
    positional.embed(torch.randn(2, 7, 16))
    with pytest.raises(BadInput, match=r"embed was called on \(2, 7\), but x has \(2, 8\)"):
        positional.prepare(torch.randn(2, 8, 16))


def test_threads_that_share_a_positional_do_not_disturb_each_other():
    positional = Positional("sinusoidal", width=16, heads=2, layers=1)

    def read(tokens):
        for _ in range(100):
            x = positional.embed(torch.zeros(2, tokens, 16))
            positional.prepare(x)
        return tokens

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(read, range(5, 13))) == list(range(5, 13))
    with pytest.raises(BadInput, match="embed was not called since the last prepare"):
        positional.prepare(torch.zeros(2, 5, 16))
