"""Word order in somebody else's network is that of `Encoder` and `Decoder`, and cannot be used in a wrong way."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from own_network import OwnNetwork
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import wordorder
from wordorder import Decoder, Encoder, Positional
from wordorder.encodings import CATALOG
from wordorder.errors import BadInput
from wordorder.networks import KeyValueCache, initialise
from wordorder.ops import Contiguous, Packed

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


IN_DECODERS = [name for name, causal in DEFINED if causal]


@pytest.mark.parametrize("encoding", [*IN_DECODERS, "rope@3,none", "t5*1,rope@2"])
def test_a_network_of_ones_own_writes_token_by_token_with_a_cache(encoding):
    network = OwnNetwork(encoding, vocabulary=V, causal=True, **SIZES).double().eval()
    shaken(network)
    ids = torch.randint(V, (2, 9))
    whole = network(ids)
    for cuts in ([1] * 9, [4, 1, 3, 1], [9]):
        cache = network.positional.cache()
        parts = [network(piece, cache=cache) for piece in ids.split(cuts, 1)]
        assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-10)
        assert cache.length == 9


@pytest.mark.parametrize("encoding", ["rope", "tupe-r", "learned", "sinusoidal+t5", "none"])
@pytest.mark.parametrize("typed", [True, False])
def test_rows_padded_on_the_left_go_on_from_a_cache(encoding, typed):
    network = OwnNetwork(encoding, vocabulary=V, causal=True, **SIZES).double().eval()
    shaken(network)
    ids, padding = torch.randint(V, (2, 9)), torch.zeros(2, 9, dtype=torch.bool)
    padding[1, :3] = True
    alone = network(ids[1:, 3:])
    cache, parts, first = network.positional.cache(), [], 0
    for piece in ids.split([5, 1, 3], 1):
        last = first + piece.shape[1]
        where = Contiguous(piece.shape[1], first - padding.sum(1))
        where = where if typed else where.index_BT().clamp(min=0)
        parts.append(network(piece, padding[:, :last], where, cache))
        first = last
    assert_close(torch.cat(parts, 1)[1:, 3:], alone, rtol=0, atol=1e-10)
    cache.reorder(torch.tensor([1, 1]))
    token = torch.randint(V, (1, 1)).expand(2, 1)
    both = network(
        token,
        padding[[1, 1]].new_zeros(2, 10).index_fill(1, torch.arange(3), True),
        Contiguous(1, torch.tensor([6, 6])),
        cache,
    )
    assert_close(both, network(torch.cat((ids[1:, 3:], token[:1]), 1))[:, -1:].expand_as(both), rtol=0, atol=1e-10)


def test_a_cache_is_refused_where_it_cannot_be():
    with pytest.raises(BadInput, match="a cache is for causal networks"):
        Positional("rope", **SIZES).cache()
    positional = Positional("rope", **SIZES, causal=True)
    x, cache = torch.randn(2, 3, 16), positional.cache()
    with pytest.raises(BadInput, match="a cache knows where its keys stand"):
        positional.prepare(x, positions=torch.arange(3), key_positions=torch.arange(3), cache=cache)
    order = positional.prepare(x, cache=cache)
    with pytest.raises(BadInput, match="k must have batch 2 and 3 tokens, as prepared"):
        order.attend(0, torch.randn(2, 2, 3, 8), torch.randn(2, 2, 4, 8), torch.randn(2, 2, 4, 8))
    for layer in range(2):
        order.attend(layer, *torch.randn(3, 2, 2, 3, 8))
    for again in (0, 1):  # the same layer twice, or a step that nobody prepared
        with pytest.raises(BadInput, match=f"layer {again} holds 3 earlier tokens in the cache, and 0 were there"):
            order.attend(again, *torch.randn(3, 2, 2, 3, 8))
    assert cache.length == 3
    with pytest.raises(BadInput, match="cache holds 2 rows, got 1"):
        positional.prepare(x[:1], cache=cache)
    with pytest.raises(BadInput, match=r"cache must be one of positional\.cache"):
        positional.prepare(x, cache=[])
    with pytest.raises(BadInput, match="a cache is for causal networks"):
        Positional("rope", **SIZES).prepare(x, cache=cache)
    packed = Packed(torch.zeros(2, 1, dtype=torch.long), torch.zeros(2, 1, dtype=torch.long))
    with pytest.raises(BadInput, match="several texts are packed"):
        positional.prepare(x[:, :1], positions=packed, cache=cache)


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
        (
            lambda: prepared(tokens=1).attend(0, heads(tokens=1)[0], *heads(tokens=4)[1:]),
            "call prepare once per forward, with a cache by cache=positional.cache",
        ),
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
        (
            lambda: Positional("rope", **SIZES).prepare(torch.randn(2, 1, 16), key_positions=torch.arange(7)),
            "pass positions too",
        ),
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


@pytest.mark.parametrize("encoding", ["learned", "sinusoidal+t5"])
def test_prepare_warns_once_where_nobody_ever_embeds(encoding):
    positional, x = Positional(encoding, **SIZES), torch.randn(2, 7, 16)
    with pytest.warns(UserWarning, match=r"write x = positional.embed\(x\)"):
        positional.prepare(x)
    positional.prepare(x)


def test_a_body_whose_embeddings_come_from_elsewhere_compiles_without_a_break():
    positional = Positional("learned", width=16, heads=2, layers=1, max_positions=8)
    x, heads = torch.randn(2, 5, 16), torch.randn(2, 2, 5, 8)

    @torch.compile(backend="eager", fullgraph=True)
    def body(x):
        return positional.prepare(x).attend(0, heads, heads, heads)

    assert body(x).shape == heads.shape


def test_embed_may_be_compiled_and_prepare_not():
    positional, x = Positional("learned", **SIZES), torch.randn(2, 7, 16)
    embed = torch.compile(positional.embed, backend="eager")
    for _ in range(2):
        positional.prepare(embed(x))


def attended(positional, x, **positions):
    q_BHTD = x.unflatten(-1, (2, 8)).transpose(1, 2)
    attention = positional.prepare(x, **positions)
    return x + attention.attend(0, q_BHTD, q_BHTD, q_BHTD).transpose(1, 2).flatten(2)


def two_towers(positional, x, other):
    a, b = x(), other()
    return [attended(positional, a), attended(positional, b)]


def checkpointed(positional, x, other):
    return [checkpoint(lambda y: attended(positional, y), each(), use_reentrant=False) for each in (x, other)]


def doubled_batch(positional, x, other):
    return list(attended(positional, torch.cat((x(), other()))).chunk(2))


def computed_before(positional, x, other):
    embedded = {"a": x(), "b": other()}
    return [attended(positional, embedded[name]) for name in ("a", "b", "a")][1:][::-1]


def in_threads(positional, x, other):
    with ThreadPoolExecutor(2) as threads:
        return [threads.submit(attended, positional, each()).result() for each in (x, other)]


def shorter(positional, x, other):
    places = torch.arange(7)
    return [attended(positional, each()[:, :7], positions=places) for each in (x, other)]


PROGRAMS = [two_towers, checkpointed, doubled_batch, computed_before, in_threads]
ENCODINGS = ["rope", "t5", "tupe-r", "learned", "sinusoidal", "complex-order", "complex-vanilla+alibi"]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("program", [*PROGRAMS, shorter])
def test_the_same_program_runs_with_every_encoding(program, encoding):
    positional = Positional(encoding, **SIZES, vocabulary=V, causal=True).double()
    ids = torch.randint(1, V, (2, 2, 9), generator=torch.Generator().manual_seed(1))
    words = torch.randn(V, 16, dtype=torch.float64)

    def embedder(row):
        if positional.embedding is None:
            return lambda: positional.embed(words[ids[row]]).requires_grad_()
        return lambda: positional.embed(input_ids=ids[row])

    one_by_one = [attended(positional, embedder(row)()) for row in (0, 1)]
    for ours, alone in zip(program(positional, embedder(0), embedder(1)), one_by_one, strict=True):
        assert_close(ours, alone[:, : ours.shape[1]], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_prepare_within_what_is_computed_again(encoding):
    """`prepare` runs again in the backward pass, long after the last `embed`."""
    positional = Positional(encoding, **SIZES, vocabulary=V, causal=True).double()
    ids = torch.randint(1, V, (2, 2, 9))
    table = None if positional.embedding is not None else torch.randn(V, 16, dtype=torch.float64)

    def gradients(run):
        embedded = [positional.embed(input_ids=row) if table is None else positional.embed(table[row]) for row in ids]
        leaves = [x.detach().requires_grad_() for x in embedded]
        total = sum(run(lambda x: attended(positional, x), leaf).square().sum() for leaf in leaves)
        return torch.autograd.grad(total, leaves)

    assert_close(gradients(partial(checkpoint, use_reentrant=False)), gradients(lambda f, x: f(x)))


@pytest.mark.parametrize(("encoding", "causal"), DEFINED)
def test_checkpointed_blocks_have_the_same_gradients(encoding, causal):
    network = shaken(OwnNetwork(encoding, vocabulary=V, causal=causal, **SIZES))
    ids, upstream = torch.randint(1, V, (2, 9)), torch.randn(2, 9, 16, dtype=torch.float64)

    def gradients():
        network.zero_grad()
        (network(ids) * upstream).sum().backward()
        return {name: parameter.grad for name, parameter in network.named_parameters()}

    expected = gradients()
    for block in network.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    assert_close(gradients(), expected)
    assert any(gradient is not None for gradient in expected.values())


def test_blocks_that_the_other_checkpointing_computes_again_are_told_the_remedy():
    network = OwnNetwork("t5", vocabulary=V, causal=True, **SIZES)
    for block in network.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=True)
    with pytest.warns(UserWarning, match="pass it use_reentrant=False"):
        output = network(torch.randint(1, V, (2, 9)))
    with pytest.raises(RuntimeError, match="second time"):
        output.sum().backward()


@pytest.mark.parametrize("encoding", ["rope", "t5", "tupe-r", "shaw", "transformer-xl", "learned"])
def test_heads_may_be_wider_than_their_share_of_the_network(encoding):
    """Heads of 8 channels over a width of 12, as in a network of width 16: queries and keys alone decide."""
    sizes = {**SIZES, "width": 12}
    wide, narrow = Positional(encoding, **SIZES), Positional(encoding, **sizes, head_dim=8)
    q, k, v = torch.randn(3, 2, 2, 7, 8)
    if encoding == "learned":
        assert_close(
            narrow.prepare(narrow.embed(torch.zeros(2, 7, 12))).attend(1, q, k, v), wordorder.attention(q, k, v)
        )
        return
    narrow.encoding.load_state_dict(wide.encoding.state_dict())
    expected = wide.prepare(torch.zeros(2, 7, 16)).attend(1, q, k, v)
    assert_close(narrow.prepare(torch.zeros(2, 7, 12)).attend(1, q, k, v), expected)


def test_a_width_that_heads_do_not_divide_needs_their_channels():
    with pytest.raises(ValueError, match="or pass head_dim"):
        Positional("rope", **{**SIZES, "width": 15})
    with pytest.raises(ValueError, match="head_dim must be positive"):
        Positional("rope", **SIZES, head_dim=0)


def test_what_reads_the_input_of_layers_is_handed_it():
    positional, (q, k, v), x = (
        Positional("rope,fox", **SIZES, causal=True),
        torch.randn(3, 2, 2, 7, 8),
        torch.randn(2, 7, 16),
    )
    prepared = positional.prepare(x)
    prepared.attend(0, q, k, v)
    with pytest.raises(BadInput, match=r"pass attend\(layer, q, k, v, x=x\)"):
        prepared.attend(1, q, k, v)
    with pytest.raises(BadInput, match=r"2 rows of 7 tokens, got \(2, 6, 16\)"):
        prepared.attend(1, q, k, v, x=x[:, :6])
    where = torch.arange(7)
    some = positional.prepare(x[:, 4:], positions=where[4:], key_positions=where)
    with pytest.raises(BadInput, match="pass a cache in place of key_positions"):
        some.attend(1, q[:, :, 4:], k, v, x=x[:, 4:])


class HeadScale(nn.Module):
    """A temperature for each head, a float32 parameter: its products are float32 under autocast."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(2, 1, 1))

    def forward(self, x):
        return x * self.factor


@pytest.mark.parametrize("norm", [HeadScale(), nn.LayerNorm(8)], ids=["scale of heads", "layer norm"])
def test_queries_and_keys_may_be_wider_than_values_under_autocast(norm):
    positional, x, project = Positional("t5", **SIZES), torch.randn(2, 7, 16), nn.Linear(16, 48)
    with torch.autocast("cpu", torch.bfloat16):
        q, k, v = project(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        q, k = norm(q).float(), norm(k).float()
        prepared = positional.prepare(x)
        found, cast = prepared.attend(0, q, k, v), prepared.attend(0, q.bfloat16(), k.bfloat16(), v)
        assert found.dtype == torch.bfloat16
        assert torch.equal(found, cast)
        alone = wordorder.attention(q, k, v)
        assert torch.equal(alone, wordorder.attention(q.bfloat16(), k.bfloat16(), v))
    with pytest.raises(ValueError, match="one dtype"):
        wordorder.attention(q, k, v)


COUNTING = ["learned", "sinusoidal", "tupe-a", "untied-sum", "complex-order", "fire"]


@pytest.mark.parametrize("encoding", [*COUNTING, "rope", "t5", "complex-vanilla", "none"])
def test_padding_on_the_left_is_not_counted_in_silence(encoding):
    ids, padding = torch.randint(1, V, (2, 6)), torch.zeros(2, 6, dtype=torch.bool)
    padding[1, :2] = True
    positional = Positional(encoding, **SIZES, vocabulary=V)
    embedded = {"x": torch.randn(2, 6, 16)} if positional.embedding is None else {"input_ids": ids}
    x = positional.embed(**embedded)
    networks = [kind(V, encoding=encoding, **SIZES) for kind in (Encoder, Decoder)]
    calls = [lambda **at: positional.prepare(x, key_padding_mask=padding, **at)]
    calls += [lambda n=n, **at: n(ids, key_padding_mask=padding, **at) for n in networks]
    calls += [lambda **at: networks[1](ids, key_padding_mask=padding, cache=KeyValueCache(), **at)]
    for call in calls:
        call(positions=Contiguous(6, torch.tensor([0, -2])))
        if encoding in COUNTING:
            with pytest.raises(BadInput, match=r"pass positions=Contiguous\(T, offset\)"):
                call()
        else:
            call()
    if encoding in COUNTING:  # what is traced cannot be looked at; it looks as it runs
        compiled = torch.compile(networks[0], backend="aot_eager")
        compiled(ids, key_padding_mask=padding.flip(1))
        with pytest.raises(RuntimeError, match=r"pass positions=Contiguous\(T, offset\)"):
            compiled(ids, key_padding_mask=padding)
    right, nothing = padding.flip(1), padding | torch.tensor([[False], [True]])
    for mask in (right, nothing):  # tokens from the first column on, or none at all
        networks[0](ids, key_padding_mask=mask)


@pytest.mark.parametrize(
    ("name", "given"),
    [("positions", {"positions": 1}), ("key_positions", {"positions": torch.arange(1), "key_positions": 2})],
)
def test_a_number_is_no_position(name, given):
    positional = Positional("rope", width=8, heads=2, layers=1)
    with pytest.raises(BadInput, match=rf"^{name} must be a tensor, such as torch.arange\(first, end\), got \d$"):
        positional.prepare(torch.randn(1, 1, 8), **given)


def test_a_class_in_place_of_a_name_is_told_how_to_get_one():
    with pytest.raises(BadInput, match=r"encoding must be a name.*register_encoding"):
        Positional(torch.nn.Linear, width=8, heads=2, layers=1)
