"""Tensors that a network cannot compute with are refused by name where they enter, and all others are let through."""

from functools import cache, partial

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from wordorder import Decoder, Encoder, Positional, SegmentRecurrence
from wordorder.encodings import CATALOG
from wordorder.errors import BadInput
from wordorder.models import build_config, build_model
from wordorder.networks import KeyValueCache, Seq2Seq

SIZES = {"width": 16, "layers": 2, "heads": 2, "max_positions": 32}
HF = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "pad_token_id": 0}
MEMORY = {"memory": "segment-recurrence", "memory_length": 4, "segment_length": 8}
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def ids():
    return torch.randint(3, 30, (2, 5))


def readers():
    """Calls that take ids or embeddings, of plain networks and of Hugging Face models."""
    decoder = Decoder(30, **SIZES)
    remembers = Decoder(30, memory=SegmentRecurrence(4), **SIZES)
    heads = {
        "encoder": build_model(build_config("encoder", **HF), "masked-lm", seed=0),
        "decoder": build_model(build_config("decoder", **HF), "causal-lm", seed=0),
        "documents": build_model(build_config("encoder", **HF, **MEMORY, num_labels=3), "classification", seed=0),
    }
    return {
        "plain encoder": Encoder(30, **SIZES),
        "plain decoder": decoder,
        "with a cache": lambda *x, **y: decoder(*x, **y, cache=KeyValueCache()),
        "with a memory": remembers,
        "a step of a segment": lambda x=None, **y: remembers.read_segment(remembers.open_segment(), x, **y),
        **heads,
        "with types": lambda x=None, **y: heads["encoder"](x, token_type_ids=torch.zeros(2, 5).long(), **y),
    }


@pytest.mark.parametrize("name", readers())
def test_a_list_or_an_array_is_named_with_the_remedy(name):
    read, words = readers()[name], r"must be a tensor \(batch, tokens\), got {}; make it one, as with torch\.tensor"
    with pytest.raises(BadInput, match="input_ids " + words.format("list")):
        read(ids().tolist())
    with pytest.raises(BadInput, match="input_ids " + words.format("ndarray")):
        read(ids().numpy())
    with pytest.raises(BadInput, match="inputs_embeds " + words.format("ndarray")):
        read(inputs_embeds=torch.randn(2, 5, 16).numpy())


def test_other_readers_name_a_list_too():
    with pytest.raises(BadInput, match="source_ids must be a tensor"):
        Seq2Seq(Encoder(30, **SIZES), Decoder(30, cross_attention=True, **SIZES))(ids().tolist(), ids())
    positional = Positional("complex-order", vocabulary=30, **SIZES)
    with pytest.raises(BadInput, match="input_ids must be a tensor"):
        positional.embed(input_ids=ids().tolist())
    with pytest.raises(BadInput, match="x must be a tensor"):
        positional.prepare(torch.randn(2, 5, 16).numpy())


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("encoding", [name for name, kind in CATALOG.items() if "decoder" not in kind.refused_in])
def test_embeddings_of_another_dtype_than_the_weights(encoding, norm):
    decoder = Decoder(30, encoding=encoding, norm=norm, **SIZES)
    for weights in DTYPES:
        decoder.to(weights)
        for dtype in DTYPES:
            x = torch.randn(2, 5, 16).to(dtype)
            if dtype == weights:
                assert decoder(inputs_embeds=x).hidden.dtype == dtype
                continue
            with pytest.raises(BadInput, match=rf"inputs_embeds is {dtype}, .* weights are {weights}.*\.to\("):
                decoder(inputs_embeds=x)


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning")  # of torch, for its speed
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_under_autocast_embeddings_may_be_wider_than_the_weights(weights):
    decoder = Decoder(30, encoding="rope", norm="rms", **SIZES).to(weights)
    with torch.autocast("cpu", torch.bfloat16):
        assert decoder(inputs_embeds=torch.randn(2, 5, 16)).hidden.isfinite().all()


class Narrow(nn.Linear):
    """A map that computes in the dtype of its weights and returns that of its input, as quantised ones do."""

    def forward(self, input):
        return super().forward(input.to(self.weight.dtype)).to(input.dtype)


def test_maps_of_another_kind_may_compute_in_another_dtype():
    decoder = Decoder(30, encoding="rope", norm="rms", **SIZES).to(torch.bfloat16)
    for module in decoder.modules():
        if type(module) is nn.Linear:
            module.__class__ = Narrow
        elif isinstance(module, nn.RMSNorm):
            module.float()
    assert decoder(inputs_embeds=torch.randn(2, 5, 16)).hidden.dtype == torch.float32


def test_a_hook_may_cast_the_input_of_a_layer():
    decoder = Decoder(30, encoding="rope", **SIZES)
    decoder.encoding.register_forward_pre_hook(lambda module, given: None)
    with pytest.raises(RuntimeError, match="dtype"):  # torch's own error, since the hook casts nothing
        decoder(inputs_embeds=torch.randn(2, 5, 16).double())


@pytest.mark.parametrize("encoding", ["none", "learned", "rope", "t5", "complex-order"])
def test_ids_without_values_are_for_networks_without_values(encoding):
    decoder, there = Decoder(30, encoding=encoding, **SIZES), ids().to("meta")
    with pytest.raises(BadInput, match=r"input_ids is on the meta device.*make it with values"):
        decoder(there)
    with pytest.raises(BadInput, match="inputs_embeds is on the meta device"):
        decoder(inputs_embeds=torch.randn(2, 5, 16, device="meta"))
    assert decoder.to("meta")(there).hidden.is_meta
    assert decoder(inputs_embeds=torch.randn(2, 5, 16, device="meta")).hidden.is_meta


@cache
def masked():
    """Calls that take a padding mask, by the mask's name, with the mask as it is meant there."""
    padding = torch.arange(5).expand(2, 5) == 4
    seq2seq = Seq2Seq(Encoder(30, **SIZES), Decoder(30, cross_attention=True, **SIZES))
    reads = {f"{name} {kind}": (read, "key_padding_mask", padding) for kind in CATALOG for name, read in plain(kind)}
    for name, read in readers().items():
        word = "attention_mask" if name in ("encoder", "decoder", "documents", "with types") else "key_padding_mask"
        reads[name] = (partial(read, ids()), word, ~padding if word == "attention_mask" else padding)
    for side in ("source", "target"):
        reads[f"of the {side}"] = (partial(seq2seq, ids(), ids()), f"{side}_padding_mask", padding)
    return reads


def plain(kind):
    """Yield calls of networks with this encoding that lack a mask only."""
    if "encoder" not in CATALOG[kind].refused_in:
        yield "encoder", partial(Encoder(30, encoding=kind, **SIZES), ids())
        yield "own network", partial(Positional(kind, vocabulary=30, **SIZES).prepare, torch.randn(2, 5, 16))
    if "decoder" not in CATALOG[kind].refused_in:
        yield "decoder", partial(Decoder(30, encoding=kind, **SIZES), ids())


@pytest.mark.filterwarnings("ignore:.*embed was never called:UserWarning")
@pytest.mark.parametrize("name", masked())
def test_masks_that_are_sparse_or_without_values_are_named_with_the_remedy(name):
    read, word, mask = masked()[name]
    with pytest.raises(BadInput, match=rf"{word} must be a dense tensor, got torch.sparse_coo; take {word}\.to_dense"):
        read(**{word: mask.to_sparse()})
    with pytest.raises(BadInput, match=rf"{word} is on the meta device.*make it with values"):
        read(**{word: mask.to("meta")})
    read(**{word: mask})


@pytest.mark.parametrize("name", readers())
def test_sparse_ids_and_embeddings_are_named_with_the_remedy(name):
    read = readers()[name]
    with pytest.raises(BadInput, match=r"input_ids must be a dense tensor, got torch.sparse_coo; take input_ids\.to"):
        read(ids().to_sparse())
    with pytest.raises(BadInput, match=r"inputs_embeds must be a dense tensor"):
        read(inputs_embeds=torch.randn(2, 5, 16).to_sparse())


def test_position_ids_without_values_turn_no_rows():
    model = readers()["encoder"]
    with pytest.raises(BadInput, match="position_ids is on the meta device"):
        model(ids(), position_ids=torch.arange(5, device="meta")[None])


def test_a_mask_without_values_is_for_networks_without_values():
    padding = torch.zeros(2, 5, dtype=torch.bool, device="meta")
    assert Encoder(30, **SIZES).to("meta")(ids().to("meta"), key_padding_mask=padding).hidden.is_meta
    model = readers()["encoder"].to("meta")
    assert model(ids().to("meta"), attention_mask=~padding).logits.is_meta


def test_compiled_exported_and_fake_networks_take_embeddings():
    encoder, x = Encoder(30, encoding="t5", **SIZES).eval(), torch.randn(2, 5, 16)
    whole = torch.compile(encoder, backend="eager", fullgraph=True)
    torch.testing.assert_close(whole(inputs_embeds=x).hidden, encoder(inputs_embeds=x).hidden)
    model = build_model(build_config("encoder", **HF), "masked-lm", seed=0).eval()
    exported = torch.export.export(model, (), {"inputs_embeds": x}).module()
    torch.testing.assert_close(exported(inputs_embeds=x).logits, model(inputs_embeds=x).logits)
    with FakeTensorMode():
        fake = Encoder(30, encoding="t5", **SIZES)
        assert fake(inputs_embeds=torch.randn(2, 5, 16)).hidden.shape == (2, 5, 16)
