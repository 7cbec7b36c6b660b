"""BERT's tokenizers give token_type_ids, which nothing here reads: zeros pass, others are refused, on every model."""

import pytest
import torch
from saved_folder import SIZES, SPECIAL, WORDS
from transformers import BertTokenizerFast, pipeline

from wordorder.errors import BadInput
from wordorder.models import build_config, build_model

TEXTS = ["the union is strong", "people ask for peace again in winter"]
REFUSED = r"token_type_ids must be 0, got 1: .* no segment embeddings.*return_token_type_ids=False"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    file = tmp_path_factory.mktemp("bert") / "vocab.txt"
    file.write_text("\n".join(SPECIAL + WORDS), encoding="utf-8")
    return BertTokenizerFast(str(file))


def model_of(network, task, **fields):
    known = {"vocab_size": len(SPECIAL) + len(WORDS), "pad_token_id": 0, **SIZES, **fields}
    if network in ("decoder", "seq2seq"):
        known |= {"bos_token_id": 2, "eos_token_id": 3}
    if network == "seq2seq":
        known |= {"decoder_start_token_id": 2}
    return build_model(build_config(network, **known), task, seed=3).eval()


@pytest.mark.parametrize("memory", [{}, {"memory": "look-ahead", "memory_length": 4, "segment_length": 4}])
@pytest.mark.parametrize("task", ["masked-lm", "classification", "token-classification", "question-answering"])
def test_encoders_take_what_a_bert_tokenizer_gives(tokenizer, task, memory):
    assert_zeros_alone_pass(model_of("encoder", task, **memory), tokenizer)


@pytest.mark.parametrize(("network", "task"), [("decoder", "causal-lm"), ("classifier", "classification")])
def test_decoders_and_classifiers_too(tokenizer, network, task):
    assert_zeros_alone_pass(model_of(network, task, encoding="learned"), tokenizer)


def test_translators_too(tokenizer):
    assert_zeros_alone_pass(model_of("seq2seq", "translation"), tokenizer, decoder_input_ids=torch.tensor([[2]] * 2))


def assert_zeros_alone_pass(model, tokenizer, **more):
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert not batch["token_type_ids"].any()
    assert tokenizer.unk_token_id not in batch["input_ids"]
    bare = {name: ids for name, ids in batch.items() if name != "token_type_ids"}
    for called in (model, model.base_model):
        with torch.no_grad():
            torch.testing.assert_close(called(**batch, **more)[0], called(**bare, **more)[0], rtol=0, atol=0)
        pairs = tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")
        with pytest.raises(BadInput, match=REFUSED):
            called(**pairs, **more)
        with pytest.raises(BadInput, match=r"token_type_ids must be a tensor .* got list"):
            called(**{**batch, "token_type_ids": [[0, 0]]}, **more)
        for wrong in (torch.zeros(7, dtype=torch.long), batch["token_type_ids"][:, 1:], batch["token_type_ids"][:1]):
            with pytest.raises(BadInput, match=r"token_type_ids must be \(batch, tokens\) = \(2, \d+\), got"):
                called(**{**batch, "token_type_ids": wrong}, **more)


@pytest.mark.parametrize(("network", "task"), [("decoder", "causal-lm"), ("seq2seq", "translation")])
def test_generation_takes_them(tokenizer, network, task):
    model, batch = model_of(network, task), tokenizer(TEXTS[:1], return_tensors="pt")
    assert model.generate(**batch, max_new_tokens=2).shape[0] == 1
    with pytest.raises(BadInput, match=REFUSED):
        model.generate(**{**batch, "token_type_ids": torch.ones_like(batch["input_ids"])}, max_new_tokens=2)
    with pytest.raises(BadInput, match=r"token_type_ids must be \(batch, tokens\)"):
        model.generate(**{**batch, "token_type_ids": torch.zeros(7, dtype=torch.long)}, max_new_tokens=2)


def test_pipelines_with_a_bert_tokenizer(tokenizer):
    fill = pipeline("fill-mask", model=model_of("encoder", "masked-lm"), tokenizer=tokenizer, device="cpu")
    assert len(fill("the union is [MASK]", top_k=2)) == 2
    for network in ("encoder", "classifier"):
        classify = pipeline(
            "text-classification", model=model_of(network, "classification"), tokenizer=tokenizer, device="cpu"
        )
        assert len(classify(TEXTS)) == 2


def test_a_compiled_model_does_not_read_them(tokenizer):
    model, batch = model_of("encoder", "masked-lm"), tokenizer(TEXTS[:1], return_tensors="pt")
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(**batch).logits, model(**batch).logits)
