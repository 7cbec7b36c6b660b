import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

import wordorder.models as models
from wordorder import BadInput, ComplexDecoder, ComplexEncoder
from wordorder.ops.complex import Pair, split

SIZES = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2}
HEADS = [
    (models.WordOrderEncoderForMaskedLM, AutoModelForMaskedLM),
    (models.WordOrderEncoderForSequenceClassification, None),
    (models.WordOrderEncoderForTokenClassification, None),
    (models.WordOrderEncoderForQuestionAnswering, None),
    (models.WordOrderDecoderForCausalLM, AutoModelForCausalLM),
    (models.WordOrderSeq2SeqForConditionalGeneration, AutoModelForSeq2SeqLM),
]


def build(kind, encoding="complex-order", **options):
    torch.manual_seed(1)
    settings = {**SIZES, **TOKENS, "encoding": encoding, "complex_valued": True, "complex_options": options or None}
    return kind(kind.config_class(**settings)).eval()


def inputs(model, ids):
    return {"input_ids": ids, "decoder_input_ids": ids} if model.config.is_encoder_decoder else {"input_ids": ids}


@pytest.mark.parametrize("options", [{}, {"shared_weights": True, "scores": "modulus", "read_out": "real-part"}])
@pytest.mark.parametrize(("kind", "auto"), HEADS)
def test_every_head_trains_and_is_saved_and_loaded(kind, auto, options, tmp_path):
    model, ids = build(kind, **options), torch.randint(3, 50, (2, 7))
    output = model(**inputs(model, ids))
    first = output.logits if "logits" in output else output.start_logits
    first.float().square().mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    model.save_pretrained(tmp_path)
    again = (auto or kind).from_pretrained(tmp_path).eval()
    assert type(again) is kind
    output = again(**inputs(again, ids))
    assert_close(output.logits if "logits" in output else output.start_logits, first, rtol=0, atol=0)
    networks = [module for module in again.modules() if isinstance(module, ComplexEncoder | ComplexDecoder)]
    assert networks
    assert all(network.options.shared_weights is bool(options) for network in networks)


@pytest.mark.parametrize("encoding", ["complex-order", "complex-vanilla+t5"])
@pytest.mark.parametrize("kind", [models.WordOrderDecoderForCausalLM, models.WordOrderSeq2SeqForConditionalGeneration])
def test_generation_with_a_cache_equals_generation_without(kind, encoding):
    model, ids = build(kind, encoding), torch.randint(3, 50, (2, 6))
    settings = {"max_new_tokens": 6, "do_sample": False, "num_beams": 2}
    with_cache, without = (model.generate(ids, use_cache=cache, **settings) for cache in (True, False))
    assert torch.equal(with_cache, without)


def test_tied_output_layer_reads_the_amplitudes():
    model = build(models.WordOrderEncoderForMaskedLM)
    tied = model.get_output_embeddings().weight
    assert tied is model.get_input_embeddings().weight
    assert tied.shape == (50, 24)
    waves: Pair = split(model.get_input_embeddings()(torch.tensor([[5]]), torch.tensor([[3]])))
    assert_close(torch.hypot(*waves)[0, 0], tied[5].abs())


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"encoding": "tupe-r", "complex_valued": True}, "needs complex embeddings, got encoding 'tupe-r'"),
        ({"complex_valued": True, "complex_options": {"share": 1}}, "known: shared_weights, scores, bias"),
        ({"complex_valued": True, "complex_options": {"scores": "x"}}, "one of 'real-part', 'modulus', got 'x'"),
        ({"complex_valued": True, "complex_options": {"read_out": "none"}}, "heads read real numbers"),
        ({"complex_options": {"shared_weights": True}}, "set complex_valued = true"),
    ],
)
def test_bad_configurations(fields, fault):
    with pytest.raises(BadInput, match=fault):
        models.WordOrderEncoderConfig(**{**SIZES, "encoding": "complex-order", **fields})
