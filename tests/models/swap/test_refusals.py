"""What is refused, with the remedy; and a refused model is left as it was."""

import pytest
import torch
import transformers as hf
from swapped_models import SIZES, apart, body_of, config_of, drawn, ids_of, model_of, output_of, swapped
from torch import nn

from wordorder.errors import BadInput
from wordorder.models import FAMILIES, swap_encoding
from wordorder.models.pretrained import CACHE


def traces(model):
    """What a swap would change of a model, beside its outputs."""
    return {
        "weights": {name: (tensor.data_ptr(), tensor.device) for name, tensor in model.state_dict().items()},
        "modules": [(name, type(module)) for name, module in model.named_modules()],
        "configurations": [type(getattr(module, "config", None)) for module in model.modules()],
        "attention": [
            getattr(getattr(module, "config", None), "_attn_implementation", None) for module in model.modules()
        ],
        "hooks": [(len(module._forward_pre_hooks), len(module._forward_hooks)) for module in model.modules()],
    }


def bert_with_cross_attention():
    return hf.BertLMHeadModel(config_of("bert", is_decoder=True, add_cross_attention=True))


def quantised():
    model = model_of("llama")
    layer = model.model.layers[0].mlp.up_proj
    layer.weight = nn.Parameter(layer.weight.data.to(torch.int8), requires_grad=False)
    return model


def narrow_opt():
    return hf.OPTModel(config_of("opt", word_embed_proj_dim=16))


def with_adapters():
    peft = pytest.importorskip("peft", reason="peft is not installed; it comes with the extra peft")
    model = model_of("llama")
    peft.inject_adapter_in_model(peft.LoraConfig(target_modules=["q_proj"]), model)
    return model


def on_two_devices():
    model = model_of("llama")
    model.model.layers[1].to("meta")
    return model


def without_layers():
    return hf.LlamaModel(config_of("llama", num_hidden_layers=0))


KNOWN = r"must be a model of transformers, of one of the types llama, qwen2.*t5, mt5"
GPTJ = {"vocab_size": 20, "n_embd": 16, "n_layer": 1, "n_head": 2, "rotary_dim": 4}
CASES = {
    "deberta-v2": (lambda: hf.DebertaV2Model(hf.DebertaV2Config(**SIZES)), "t5", {}, f"'deberta-v2'.*{KNOWN}"),
    "gpt-j": (lambda: hf.GPTJModel(hf.GPTJConfig(**GPTJ)), "t5", {}, f"GPTJModel .*'gptj'.*{KNOWN}"),
    "swapped twice": (lambda: swapped("llama", "t5"), "alibi", {}, "swapped already, for 't5'; load the model anew"),
    "quantised": (quantised, "t5", {}, "quantised; swap its encoding first"),
    "adapters": (with_adapters, "t5", {}, "holds adapters; swap its encoding first"),
    "cross-attention": (bert_with_cross_attention, "t5", {}, "BertLMHeadModel has cross-attention"),
    "two devices": (on_two_devices, "t5", {}, "weights are on cpu, meta; swap its encoding on one device"),
    "no layers": (without_layers, "t5", {}, "LlamaModel has no layers"),
    "replaced table": (lambda: model_of("llama"), "complex-order", {}, "replaces the token table"),
    "beside": (lambda: model_of("bert"), "model+complex-vanilla", {}, "replaces the token table"),
    "cope in an encoder": (lambda: model_of("bert"), "cope", {}, "'cope' is not defined for encoder"),
    "xpos in an encoder": (lambda: model_of("t5"), "rope,xpos", {}, "'xpos' is not defined for encoder"),
    "no zero": (lambda: model_of("llama"), "model+alibi", {}, "'alibi' has no weights that make it 0.*start='drawn'"),
    "zero of rope": (lambda: model_of("llama"), "rope", {"start": "zero"}, "'rope' has no weights that make it 0"),
    "no zero of kerple": (lambda: model_of("llama"), "model+dape", {}, "'dape' has no weights that make it 0"),
    "two rotations": (
        lambda: model_of("llama"),
        "rope,model+pope",
        {"start": "drawn"},
        "'pope' is not defined beside the rotation of LlamaModel: its magnitudes",
    ),
    "some layers": (lambda: model_of("gpt2"), "model*2,none", {}, "name 'model' in all layers, or in none"),
    "two tables": (lambda: model_of("bert"), "model+learned", {}, "BertModel has a learned table already"),
    "long pattern": (lambda: model_of("llama"), "rope*3,none", {}, "a pattern of 4 layers, the model has 3"),
    "narrow": (narrow_opt, "learned", {}, "acts on embeddings, which are 16 wide in this model and 32 in its layers"),
    "no copy": (lambda: model_of("llama"), "learned", {"start": "copy"}, "LlamaModel has none to copy"),
    "no copy of t5": (lambda: model_of("gpt2"), "t5", {"start": "copy"}, "GPT2Model has none to copy"),
    "copy beside": (lambda: model_of("t5"), "t5+alibi", {"start": "copy"}, "has none to copy"),
    "rows": (lambda: model_of("gpt2"), "learned", {"start": "copy", "max_positions": 9}, "max_positions must be 64 to"),
    "start": (lambda: model_of("llama"), "t5", {"start": "none"}, "start must be 'drawn', 'zero', 'copy' or None"),
    "unknown": (lambda: model_of("llama"), "model+t6", {}, "unknown encoding 't6'"),
    "two variants": (lambda: model_of("llama"), "rope+rope-yarn", {}, "two variants of rope"),
    "twice": (lambda: model_of("llama"), "t5+t5", {}, "names a part twice"),
    "no window": (lambda: model_of("llama"), "rope@", {}, "after '@' comes the window of a layer in tokens"),
    "window inside": (lambda: model_of("llama"), "rope@512+fox", {}, "at the layer's end"),
    "window alone": (lambda: model_of("llama"), "@4", {}, "unknown encoding ''"),
    "option": (lambda: model_of("llama"), "t5", {"options": {"bucket": 9}}, "no option 'bucket'"),
    "option of another": (lambda: model_of("llama"), "t5", {"options": {"shaw": {}}}, "shaw"),
    "value": (lambda: model_of("bert"), "t5", {"options": {"buckets": 7}}, "buckets must be even"),
    "options of model": (lambda: model_of("llama"), "model", {"options": {"base": 9.0}}, "base"),
    "rows of a table": (lambda: model_of("llama"), "learned", {"max_positions": -1}, "max_positions must be positive"),
    "no name": (lambda: model_of("llama"), 3, {}, "encoding must be a name, got 3"),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # DeBERTa of some versions
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_is_refused_and_the_model_is_left_as_it_was(case):
    make, encoding, how, words = CASES[case]
    model = make()
    before = traces(model)
    with pytest.raises(BadInput, match=words):
        swap_encoding(model, encoding, **how)
    assert traces(model) == before


def test_a_refused_model_computes_what_it_did():
    model = model_of("t5", hf.AutoModelForSeq2SeqLM)
    call = {"input_ids": ids_of(2, 12), "decoder_input_ids": ids_of(2, 5)}
    with torch.no_grad():
        expected = output_of(model, **call)
        with pytest.raises(BadInput, match="'cope' is not defined for encoder"):  # the decoder would take it
            swap_encoding(model, "cope")
        assert apart(output_of(model, **call), expected) == 0
        swap_encoding(model, "alibi")


@pytest.mark.parametrize("thing", [nn.Linear(2, 2), None, "meta-llama/Llama"])
def test_what_is_no_model_of_transformers_is_refused(thing):
    with pytest.raises(BadInput, match=f"model is a {type(thing).__name__} .*{KNOWN}"):
        swap_encoding(thing, "t5")


def test_every_family_is_named():
    with pytest.raises(BadInput) as error:
        swap_encoding(nn.Linear(2, 2), "t5")
    assert [kind for kind in FAMILIES if kind not in str(error.value)] == []


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert"])
def test_attention_that_is_changed_afterwards_would_drop_the_terms(kind):
    model = swapped(kind, "t5")
    expected = output_of(model, ids_of(1, 5)).detach()
    for attention in ("eager", "sdpa"):
        model.set_attn_implementation(attention)
        with pytest.raises(
            BadInput, match=f"attn_implementation is '{attention}' now.*encoding 't5'; set it to 'wordorder'"
        ):
            model(ids_of(1, 5))
    model.set_attn_implementation("wordorder")
    assert apart(output_of(model, ids_of(1, 5)).detach(), expected) == 0
    rotated = swapped("llama", "rope*2,none")  # whose terms are where every function sees them
    expected = output_of(rotated, ids_of(1, 5)).detach()
    rotated.set_attn_implementation("eager")
    assert apart(output_of(rotated, ids_of(1, 5)).detach(), expected) <= 1e-5


def test_a_plain_model_with_our_attention_says_that_nothing_was_swapped():
    swapped("llama", "t5")  # makes the name known
    plain = model_of("llama")
    plain.set_attn_implementation("wordorder")
    with pytest.raises(BadInput, match=r"was handed no terms of an encoding: swap the model's encoding"):
        plain(ids_of(1, 5))


@pytest.mark.parametrize("encoding", ["t5", "rope+fox"])
def test_a_layer_alone_is_refused(encoding):
    model = swapped("llama", encoding)
    x = torch.randn(1, 5, 32)
    angles = model.model.rotary_emb(x, torch.arange(5)[None])
    with pytest.raises(BadInput, match=r"handed no terms.*not one of its layers"):
        model.model.layers[0](x, position_embeddings=angles)
    with pytest.raises(BadInput, match=r"handed no terms.*not one of its layers"):
        model.model.forward(input_ids=ids_of(1, 5))  # which calls no hook


def test_sinks_and_paged_caches_are_refused():
    model = swapped("llama", "t5")
    for name in {"s_aux", "sinks", "cache"} - {CACHE}:
        with pytest.raises(BadInput, match=f"does not compute {name}, which LlamaAttention asks for"):
            model(ids_of(1, 5), use_cache=False, **{name: object()})


def test_a_cache_of_another_make_is_refused():
    class Paged:
        def get_seq_length(self):
            return 0

    with pytest.raises(BadInput, match="does not read a Paged; take a DynamicCache or StaticCache"):
        output_of(swapped("llama", "t5"), ids_of(1, 5), cache=Paged())


def test_texts_longer_than_the_table_are_refused_and_others_are_not():
    with pytest.raises(ValueError, match="max_positions=8"):
        swapped("llama", "learned", max_positions=8)(ids_of(1, 9))
    with pytest.raises(ValueError, match="max_positions=64"):
        swapped("roberta", "tupe-a")(ids_of(1, 65))
    for kind in ("bert", "roberta", "gpt2", "opt"):  # whose own tables end at 64
        assert output_of(swapped(kind, "alibi"), ids_of(1, 90)).isfinite().all()


def test_output_attentions_are_those_of_eager_attention():
    plain = model_of("bert")
    plain.set_attn_implementation("eager")
    expected = plain(ids_of(2, 9), output_attentions=True).attentions
    model = swapped("bert", "model+t5", draw=False)
    ours = model(ids_of(2, 9), output_attentions=True).attentions
    assert len(ours) == 3
    assert max(apart(a.detach(), b.detach()) for a, b in zip(ours, expected, strict=True)) <= 1e-6
    drawn(model, only="wordorder.")
    moved = model(ids_of(2, 9), output_attentions=True)
    assert apart(moved.attentions[0].detach(), expected[0].detach()) > 0.01
    assert apart(moved.attentions[0].sum(-1).detach(), torch.ones(2, 4, 9)) <= 1e-5
    states = model(ids_of(2, 9), output_hidden_states=True).hidden_states
    assert len(states) == 4


def test_the_tables_that_are_replaced_leave_no_memory():
    model = swapped("gpt2", "none", draw=False)
    assert not any("wpe" in name for name, _ in model.named_parameters())
    assert sum(p.numel() for p in body_of(model).wordorder.parameters()) == 0


def test_attention_that_was_chosen_and_cannot_add_terms_is_named():
    model = model_of("llama")
    model.set_attn_implementation("flex_attention")
    with pytest.warns(UserWarning, match="'t5' adds terms to attention, which 'flex_attention' cannot"):
        swap_encoding(model, "t5")


def test_attention_that_was_chosen_stays_where_an_encoding_needs_none_of_ours():
    model = model_of("llama")
    model.set_attn_implementation("flex_attention")
    swap_encoding(model, "none")
    assert model.config._attn_implementation == "flex_attention"
