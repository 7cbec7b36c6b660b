"""Adapters, offloading, quantised weights and wrappers act on the modules of every encoding and memory."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.testing import assert_close
from transformers import BertConfig, BertForMaskedLM

from wordorder import Decoder, Encoder, LookAheadMemory, SegmentRecurrence, Seq2Seq
from wordorder.encodings import CATALOG
from wordorder.errors import BadInput
from wordorder.inspection import inspect_model
from wordorder.models import build_config, build_model, swap_encoding
from wordorder.papers.tupe.figure_2 import word_position_correlations

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

SIZES = {
    "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 32, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
MEMORIES = {
    "none": {},
    "segment-recurrence": {"memory": "segment-recurrence", "memory_length": 4, "segment_length": 5},
    "look-ahead": {"memory": "look-ahead", "memory_length": 4, "segment_length": 5},
}
MEMORY_OF = {
    name: "segment-recurrence" if "right" in kind.refused_in else "look-ahead"
    for name, kind in CATALOG.items()
    if "decoder" not in kind.refused_in
}
CASES = [
    (name, memory)
    for name in MEMORY_OF
    for memory in ("none", MEMORY_OF[name])
    if memory == "none" or "memory" not in CATALOG[name].refused_in
]
every = pytest.mark.parametrize(("encoding", "memory"), CASES)


def decoder(encoding, memory="none", **fields):
    """A decoder whose weights are all far from 0, so that no part of it is hidden."""
    torch.manual_seed(0)
    config = build_config("decoder", encoding=encoding, **{**SIZES, **MEMORIES[memory], **fields})
    model = build_model(config, "causal-lm", seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape)
    return model.eval()


def ids(batch=2, length=5):
    return torch.randint(3, 30, (batch, length), generator=torch.Generator().manual_seed(length))


def logits(model):
    """Logits of two segments where there is a memory, else of one text."""
    first = model(input_ids=ids())
    if getattr(first, "memory", None) is None:
        return first.logits
    return torch.cat((first.logits, model(input_ids=ids(length=3), memory=first.memory).logits), dim=1)


@every
def test_lora_on_every_module_acts_and_learns(encoding, memory):
    peft = pytest.importorskip("peft")
    model = decoder(encoding, memory, tie_word_embeddings=False)
    before = logits(model)
    modules = dict(model.named_modules())
    targets = [name for name, module in modules.items() if isinstance(module, nn.Linear | nn.Embedding)]
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=targets, init_lora_weights=True)).eval()
    assert_close(logits(adapted), before)  # B = 0: nothing is added yet
    logits(adapted).square().sum().backward()
    zero = {name: p for name, p in adapted.named_parameters() if p.requires_grad}
    assert [name for name, p in zero.items() if p.grad is None] == []
    with torch.no_grad():
        for parameter in zero.values():
            parameter.normal_(std=0.5)
    for name in targets if encoding == "rope" else [name for name in targets if "encoding." in name]:
        layer = adapted.get_submodule(f"base_model.model.{name}")
        moved = logits(adapted)
        layer.scaling["default"] *= 3  # the adapter of this module alone
        assert not torch.equal(logits(adapted), moved), name
        layer.scaling["default"] /= 3


@every
def test_weights_that_are_loaded_as_modules_are_called_give_the_same(encoding, memory):
    accelerate = pytest.importorskip("accelerate")
    model = decoder(encoding, memory)
    offloaded = accelerate.cpu_offload(copy.deepcopy(model), execution_device="cpu")
    with torch.no_grad():
        for _ in range(2):
            assert torch.equal(logits(offloaded), logits(model))


class Int8Linear(nn.Module):
    """A linear layer whose weight is held in 8 bits, with a scale for each output, as bitsandbytes has it."""

    dtype, largest = torch.int8, 127

    def __init__(self, linear):
        super().__init__()
        scale_O1 = linear.weight.abs().amax(1, keepdim=True) / self.largest
        weight = linear.weight / scale_O1
        weight = (weight if self.dtype.is_floating_point else weight.round()).to(self.dtype)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.scale_O1, self.bias = nn.Parameter(scale_O1.detach()), linear.bias

    def exact(self):
        return self.scale_O1 * self.weight.to(self.scale_O1.dtype)

    def forward(self, x):
        return nn.functional.linear(x, self.exact().to(x.dtype), self.bias)


class Float8Linear(Int8Linear):
    """The same, as torchao's weights in float8."""

    dtype, largest = torch.float8_e4m3fn, 448


class PackedLinear(Int8Linear):
    """The same, whose weight is a method, as in torch.ao's dynamic quantisation."""

    def __init__(self, linear):
        nn.Module.__init__(self)
        held = Int8Linear(linear)
        self.packed, self.scale_O1, self.bias = held.weight, held.scale_O1, held.bias

    def weight(self):
        return self.packed

    def exact(self):
        return self.scale_O1 * self.packed


@pytest.mark.parametrize("kind", [Int8Linear, Float8Linear, PackedLinear])
@every
def test_weights_in_8_bits_change_no_more_than_their_rounding(encoding, memory, kind):
    model = decoder(encoding, memory, tie_word_embeddings=False)
    quantised = copy.deepcopy(model)
    for name, module in list(quantised.named_modules()):
        if type(module) is nn.Linear:
            replaced = kind(module)
            model.get_submodule(name).weight.data.copy_(replaced.exact())
            quantised.set_submodule(name, replaced)
    assert_close(logits(quantised), logits(model), rtol=1e-4, atol=1e-4)


class Around(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.inner = module

    def forward(self, *arguments, **keywords):
        return self.inner(*arguments, **keywords)


NETWORKS = {
    "encoder": lambda: Encoder(30, width=16, layers=2, heads=2, encoding="rope"),
    "decoder": lambda: Decoder(30, width=16, layers=2, heads=2, encoding="t5"),
    "recurrence": lambda: Decoder(30, width=16, layers=2, heads=2, encoding="rope", memory=SegmentRecurrence(4)),
    "look-ahead": lambda: Decoder(30, width=16, layers=2, heads=2, encoding="rope", memory=LookAheadMemory(4)),
    "model": lambda: decoder("tupe-r").model.decoder,
}
WRAPPERS = {
    "compiled": lambda layer: torch.compile(layer, backend="eager"),
    "checkpointed": checkpoint_wrapper,
    "own": Around,
}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_layers_may_be_wrapped(network, wrapper):
    plain = NETWORKS[network]().eval()
    wrapped = copy.deepcopy(plain)
    for index, layer in enumerate(wrapped.layers):
        wrapped.layers[index] = WRAPPERS[wrapper](layer)
    expected, found = (network(ids(), return_attentions=True) for network in (plain, wrapped))
    assert_close(found.hidden, expected.hidden)
    assert_close(found.attentions, expected.attentions)
    found.hidden.sum().backward()


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_an_encoder_with_wrapped_layers_is_inspected(wrapper):
    encoder = Encoder(30, width=16, layers=2, heads=2, encoding="tupe-r", max_positions=9).eval()
    maps = inspect_model(encoder, 9).maps["sum"].map.values_HNN
    for index, layer in enumerate(encoder.layers):
        encoder.layers[index] = WRAPPERS[wrapper](layer)
    assert_close(inspect_model(encoder, 9).maps["sum"].map.values_HNN, maps)
    with pytest.raises(BadInput, match=r"a tool has wrapped .* take the model without it"):
        word_position_correlations(encoder, 9)


@pytest.mark.parametrize("encoding", ["rope", "complex-order"])
def test_a_tied_head_of_offloaded_or_wrapped_embeddings(encoding):
    accelerate = pytest.importorskip("accelerate")
    options = {"encoding_options": {"complex-order": {"as_real": "real-part"}}} if encoding == "complex-order" else {}
    network = Decoder(30, width=16, layers=2, heads=2, encoding=encoding, tied_head=True, **options).eval()
    expected = network(ids()).logits
    offloaded = accelerate.cpu_offload(copy.deepcopy(network), execution_device="cpu")
    with torch.no_grad():
        if encoding == "complex-order":
            with pytest.raises(BadInput, match="offloaded: leave it in place"):
                offloaded(ids())
            return
        for _ in range(2):
            assert torch.equal(offloaded(ids()).logits, expected)
    network.embedding = nn.Sequential(network.embedding, nn.Dropout(0.1)).eval()
    assert torch.equal(network(ids()).logits, expected)


def test_halves_may_share_wrapped_embeddings():
    sizes = {"width": 16, "layers": 1, "heads": 2, "encoding": "rope"}
    encoder, target = Encoder(30, **sizes), Decoder(30, cross_attention=True, **sizes)
    plain = Seq2Seq(copy.deepcopy(encoder), copy.deepcopy(target)).eval()
    encoder.embedding = Around(encoder.embedding)
    shared = Seq2Seq(encoder, target).eval()
    assert shared.decoder.embedding is encoder.embedding
    assert_close(shared(ids(), ids()).hidden, plain(ids(), ids()).hidden)
    with pytest.raises(ValueError, match="one vocabulary, got 30 and 31"):
        Seq2Seq(encoder, Decoder(31, cross_attention=True, **sizes))


@pytest.mark.parametrize("encoding", ["rope", "learned", "complex-order"])
def test_token_embeddings_may_be_wrapped(encoding):
    peft = pytest.importorskip("peft")
    replaces = encoding == "complex-order"
    settings = [peft.LoraConfig(target_modules=["qkv"], modules_to_save=["embedding"])]
    if not replaces:
        settings += [
            peft.LoraConfig(target_modules=["embedding", "qkv"]),
            peft.LoraConfig(target_modules=["qkv"], trainable_token_indices={"embedding": [3, 4]}),
            peft.TrainableTokensConfig(target_modules=["embedding"], token_indices=[3, 4]),
        ]
    for setting in settings:
        model = decoder(encoding, tie_word_embeddings=False).double()
        expected = logits(model)
        adapted = peft.get_peft_model(model, setting).eval()
        assert_close(logits(adapted), expected)
        # word by word with a cache, and packed: positions must reach a wrapped table of waves
        cache, steps = None, []
        for token in ids().unbind(1):
            output = adapted(input_ids=token[:, None], past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            steps.append(output.logits)
        assert_close(torch.cat(steps, 1), expected)
        packed = adapted(input_ids=ids().view(1, -1), position_ids=torch.arange(5).repeat(2)[None]).logits
        assert_close(packed.view(2, 5, -1), expected)
    if not replaces:
        model = decoder(encoding, tie_word_embeddings=False)
        expected = logits(model)
        model.set_input_embeddings(nn.Sequential(model.get_input_embeddings(), nn.Dropout(0.1)))
        assert_close(logits(model.eval()), expected)


@pytest.mark.parametrize("encoding", ["shaw", "cope", "learned", "t5"])
def test_tables_and_whole_encodings_may_be_saved_by_adapters(encoding):
    peft = pytest.importorskip("peft")
    for kind in (nn.Embedding, CATALOG[encoding]):
        model = decoder(encoding)
        expected = logits(model)
        names = [n for n, m in model.named_modules() if isinstance(m, kind) and ".encoding." in n]
        adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["qkv"], modules_to_save=names)).eval()
        assert_close(logits(adapted), expected)
        copies = [p for n, p in adapted.named_parameters() if "modules_to_save" in n]
        assert copies
        with torch.no_grad():
            for parameter in copies:
                parameter += torch.randn(parameter.shape)
        assert not torch.allclose(logits(adapted), expected)


@pytest.mark.parametrize("memory", [SegmentRecurrence(4), LookAheadMemory(4)])
def test_a_memory_made_under_inference_mode_enters_training(memory):
    network = Decoder(
        30, width=16, layers=2, heads=2, encoding="rope", memory=memory, dropout=0.0, attention_dropout=0.0
    )
    with torch.inference_mode():
        state = network(ids()).memory
    made_with_gradients = network(ids()).memory
    outputs = [network(ids(length=3), memory=given).hidden for given in (state, made_with_gradients)]
    assert_close(outputs[0], outputs[1])
    gradients = [torch.autograd.grad(output.square().sum(), list(network.parameters())) for output in outputs]
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("encoding", ["model+tupe-r", "t5", "rope+fox", "learned"])
def test_a_swapped_model_may_be_offloaded(encoding):
    accelerate = pytest.importorskip("accelerate")
    sizes = {name: SIZES[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")}
    host = BertForMaskedLM(BertConfig(**sizes, intermediate_size=32, max_position_embeddings=20))
    model = swap_encoding(host, encoding).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
        offloaded = accelerate.cpu_offload(copy.deepcopy(model), execution_device="cpu")
        assert torch.equal(offloaded(ids()).logits, model(ids()).logits)
