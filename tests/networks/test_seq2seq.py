import pytest
import torch
from network_cases import FROM_PAPER, IN_ENCODERS, SIZES, assert_gradients_close, padded, seq2seq, texts
from seq2seq_from_paper import translate
from torch.testing import assert_close

from wordorder import ComplexDecoder, Decoder, Encoder, Seq2Seq
from wordorder.networks import KeyValueCache
from wordorder.ops import Contiguous, Packed


def run(network, sources, targets, source_side="right", target_side="right", **options):
    """States of all target tokens in one batch, padding left out."""
    source_ids, source_valid, source_positions = padded(sources, source_side)
    target_ids, target_valid, target_positions = padded(targets, target_side)
    output = network(
        source_ids,
        target_ids,
        source_positions=source_positions,
        target_positions=target_positions,
        source_padding_mask=~source_valid,
        target_padding_mask=~target_valid,
        **options,
    )
    return output.hidden[target_valid]


def one_by_one(network, sources, targets):
    pairs = zip(sources, targets, strict=True)
    return torch.cat([network(source[None], target[None]).hidden[0] for source, target in pairs])


@pytest.mark.parametrize(
    ("share", "sides"), [(True, ("left", "left")), (False, ("right", "left")), (True, ("left", "right"))]
)
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("name", FROM_PAPER)
def test_network_and_every_gradient_match_the_equations(name, placement, share, sides):
    network = seq2seq(name, norm_placement=placement, share_embeddings=share)
    sources, targets = texts(9, 1), texts(4, 11)
    ours = run(network, sources, targets, *sides)
    weights = dict(network.named_parameters())
    style = {"heads": 4, "layers": 2, "encoding": name, "placement": placement}
    pairs = zip(sources, targets, strict=True)
    paper = torch.cat([translate(weights, source, target, **style) for source, target in pairs])
    assert_close(ours, paper, rtol=1e-12, atol=1e-12)
    assert_gradients_close(network, ours, paper, 1e-12)


@pytest.mark.parametrize("name", IN_ENCODERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shapes_and_dtypes(name, dtype):
    network = seq2seq(name, dtype=dtype, std=0.02, decoder_layers=3)
    output = network(torch.randint(40, (2, 9)), torch.randint(40, (2, 5)))
    assert output.hidden.shape == (2, 5, 24)
    assert output.source.shape == (2, 9, 24)
    assert output.hidden.dtype == dtype
    assert output.hidden.isfinite().all()


@pytest.mark.parametrize("name", IN_ENCODERS)
@pytest.mark.parametrize(("source_side", "target_side"), [("left", "right"), ("right", "left")])
def test_padding_and_order_of_a_batch_change_nothing(name, source_side, target_side):
    network, sources, targets = seq2seq(name), texts(9, 1, 5), texts(3, 8, 1)
    alone = one_by_one(network, sources, targets)
    assert_close(run(network, sources, targets, source_side, target_side), alone, rtol=1e-10, atol=1e-10)
    backwards = run(network, sources[::-1], targets[::-1], source_side, target_side)
    assert_close(backwards, one_by_one(network, sources[::-1], targets[::-1]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", IN_ENCODERS)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_token_by_token_equals_all_at_once(name, dtype, bound):
    network, target = seq2seq(name, dtype=dtype).eval(), torch.randint(40, (2, 13))
    source, valid, positions = padded(texts(9, 4), "left")
    whole = network(source, target, source_positions=positions, source_padding_mask=~valid)
    cache, parts = KeyValueCache(), []
    for t, token in enumerate(target.split(1, dim=1)):
        encoded = whole.source if t == 0 else None
        parts.append(network.step(token, cache, source=encoded, source_padding_mask=~valid))
    assert_close(torch.cat(parts, 1), whole.hidden, rtol=0, atol=bound * whole.hidden.abs().max().item())


@pytest.mark.parametrize("name", IN_ENCODERS)
def test_no_target_token_sees_what_comes_after_it_and_all_see_the_source(name):
    network, source, target = seq2seq(name), torch.randint(40, (1, 7)), torch.randint(40, (1, 9))
    before = network(source, target).hidden
    changed = target.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 40
    assert_close(network(source, changed).hidden[:, :4], before[:, :4], rtol=0, atol=1e-14)
    other = source.clone()
    other[:, -1] = (other[:, -1] + 1) % 40
    assert not torch.isclose(network(other, target).hidden, before).all(-1).any()


@pytest.mark.parametrize("name", IN_ENCODERS)
def test_packed_pairs_equal_separate_ones(name):
    network, sources, targets = seq2seq(name), texts(7, 1, 12), texts(2, 6, 5)
    packed = [
        Packed(
            torch.cat([torch.arange(len(text)) for text in side])[None],
            torch.cat([torch.full((len(text),), i) for i, text in enumerate(side)])[None],
        )
        for side in (sources, targets)
    ]
    together = network(
        torch.cat(sources)[None], torch.cat(targets)[None], source_positions=packed[0], target_positions=packed[1]
    )
    assert_close(together.hidden[0], one_by_one(network, sources, targets), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["none", "rope", "t5", "shaw", "alibi"])
def test_cross_attention_knows_no_positions(name):
    network = seq2seq(name)
    source, target = torch.randn(1, 9, 24, dtype=torch.float64), torch.randint(40, (1, 5))
    mixed = source[:, torch.randperm(9)]
    here, there = (network.decoder(target, source=states).hidden for states in (source, mixed))
    assert_close(here, there, rtol=1e-12, atol=1e-12)
    moved = network.decoder(target, Contiguous(5, 30), source=source).hidden
    assert_close(moved, here, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", IN_ENCODERS)
def test_fast_backend_equals_the_reference(name):
    network, sources, targets = seq2seq(name), texts(17, 40), texts(33, 8)
    fast, slow = (run(network, sources, targets, backend=backend) for backend in (None, "reference"))
    assert_close(fast, slow, rtol=1e-12, atol=1e-12)
    assert_gradients_close(network, fast, slow, 1e-12)


def test_shared_embeddings_are_one_table():
    shared, apart = seq2seq("rope"), seq2seq("rope", share_embeddings=False)
    assert shared.decoder.embedding is shared.encoder.embedding
    assert apart.decoder.embedding.weight is not apart.encoder.embedding.weight
    count = [sum(p.numel() for p in network.parameters()) for network in (shared, apart)]
    assert count[1] - count[0] == 40 * 24


def test_shared_waves_are_held_once():
    shared, apart = (seq2seq("complex-order", share_embeddings=share) for share in (True, False))
    assert shared.decoder.embedding is shared.encoder.embedding
    assert shared.decoder.encoding.replacement is None
    assert apart.decoder.encoding.replacement is apart.decoder.embedding
    assert apart.decoder.embedding is not apart.encoder.embedding


def test_vocabularies_may_differ_where_nothing_is_shared():
    network = Seq2Seq(Encoder(30, **SIZES), Decoder(50, cross_attention=True, **SIZES), share_embeddings=False)
    assert network(torch.full((1, 3), 29), torch.full((1, 4), 49)).hidden.shape == (1, 4, 24)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradient_checkpointing_changes_nothing(checkpointing):
    network, source, target = seq2seq("tupe-r").train(), texts(5)[0][None], texts(7)[0][None]
    weights = list(network.parameters())
    plain = torch.autograd.grad(network(source, target).hidden.pow(2).sum(), weights)
    network.encoder.gradient_checkpointing = network.decoder.gradient_checkpointing = checkpointing
    for ours, reference in zip(
        torch.autograd.grad(network(source, target).hidden.pow(2).sum(), weights), plain, strict=True
    ):
        assert_close(ours, reference, rtol=0, atol=0)


def test_weights_on_the_source_on_request():
    network = seq2seq("tupe-r")
    source, valid, _ = padded(texts(6, 3), "right")
    encoded, cache = network.encoder(source, key_padding_mask=~valid).hidden, KeyValueCache()
    for states in (encoded, None):
        output = network.decoder(
            torch.randint(40, (2, 4)),
            source=states,
            source_padding_mask=~valid,
            cache=cache,
            return_attentions=True,
        )
        assert [weights.shape for weights in output.cross_attentions] == [(2, 4, 4, 6)] * 2
        for weights in output.cross_attentions:
            assert_close(weights.sum(-1), torch.ones(2, 4, 4, dtype=torch.float64))
            assert (weights[1, ..., 3:] == 0).all()


NONE = torch.zeros(1, 4, dtype=torch.bool)


def masked(**masks):
    return seq2seq("rope")(torch.zeros(1, 3).long(), torch.zeros(1, 4).long(), **masks)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Seq2Seq(Encoder(9), Decoder(9)), "cross_attention=True"),
        (lambda: Seq2Seq(Encoder(9, width=8), Decoder(9, cross_attention=True)), "same channels, got 8 and 256"),
        (
            lambda: Seq2Seq(Encoder(9, width=8), ComplexDecoder(9, width=8, cross_attention=True)),
            "one is complex and the other real; take ComplexEncoder with ComplexDecoder",
        ),
        (lambda: Seq2Seq(Encoder(9), Decoder(8, cross_attention=True)), "one vocabulary, got 9 and 8"),
        (
            lambda: seq2seq("rope")(
                torch.zeros(1, 3).long(),
                torch.zeros(1, 3).long(),
                target_positions=Packed(*torch.zeros(2, 1, 3).long()),
            ),
            "both be Packed or neither",
        ),
        (
            lambda: masked(source_padding_mask=NONE[:, :2]),
            r"source_padding_mask must be bool \(.*\) = \(1, 3\), .* \(1, 2\)",
        ),
        (
            lambda: masked(target_padding_mask=NONE.long()),
            r"target_padding_mask must be bool .* got torch.int64 \(1, 4\)",
        ),
    ],
)
def test_wrong_arguments_are_named(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()
