"""transformers' pipelines on saved models: nothing but the folder's name and `import wordorder.models`."""

import pytest
import torch
from saved_folder import save
from transformers import pipeline
from transformers.pipelines import SUPPORTED_TASKS

import wordorder.models  # the one line that a user writes too  # noqa: F401

TEXTS = ["the union is strong", "congress will meet again in winter and people ask for peace", "war"]


def close(one, other):
    assert one == pytest.approx(other, abs=1e-6)


def test_fill_mask_in_batches_with_padding_as_alone(tmp_path):
    pipe = pipeline("fill-mask", save(tmp_path, "encoder", "masked-lm", encoding="tupe-r"), device="cpu")
    texts = [text.replace(text.split()[-1], "[MASK]") for text in TEXTS]
    together = pipe(texts, batch_size=3, top_k=3)
    for text, found in zip(texts, together, strict=True):
        alone = pipe(text, top_k=3)
        assert [guess["token_str"] for guess in found] == [guess["token_str"] for guess in alone]
        close([guess["score"] for guess in found], [guess["score"] for guess in alone])


@pytest.mark.parametrize("network", ["encoder", "classifier"])
def test_text_classification_gives_every_class_its_name(tmp_path, network):
    fields = {"encoding": "tupe-a"} if network == "encoder" else {"encoding": "complex-order"}
    names = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    folder = save(tmp_path, network, "classification", **names, **fields)
    pipe = pipeline("text-classification", folder, device="cpu")
    together = pipe(TEXTS, batch_size=3, top_k=None)
    for text, found in zip(TEXTS, together, strict=True):
        alone = {answer["label"]: answer["score"] for answer in pipe(text, top_k=None)}
        assert {answer["label"] for answer in found} == {"no", "yes"}
        close({answer["label"]: answer["score"] for answer in found}, alone)


def test_a_classifier_with_memory_reads_long_texts_in_batches(tmp_path):
    memory = {"encoding": "alibi", "memory": "look-ahead", "memory_length": 4, "segment_length": 4}
    pipe = pipeline("text-classification", save(tmp_path, "encoder", "classification", **memory), device="cpu")
    together = pipe(TEXTS, batch_size=3)
    for text, found in zip(TEXTS, together, strict=True):
        assert found["label"] == pipe(text)[0]["label"]
        close(found["score"], pipe(text)[0]["score"])


def test_token_classification_names_words(tmp_path):
    labels = {0: "O", 1: "B-X"}
    folder = save(
        tmp_path, "encoder", "token-classification", encoding="tupe-a", id2label=labels, label2id={"O": 0, "B-X": 1}
    )
    pipe = pipeline("token-classification", folder, device="cpu", ignore_labels=[])
    for text, found in zip(TEXTS, pipe(TEXTS, batch_size=3), strict=True):
        assert [entity["word"] for entity in found] == text.split()
        close([float(entity["score"]) for entity in found], [float(entity["score"]) for entity in pipe(text)])


def test_question_answering_is_gone_from_transformers_and_three_lines_do_it(tmp_path):
    assert {"question-answering", "translation", "text2text-generation", "summarization"}.isdisjoint(SUPPORTED_TASKS)
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    folder = save(tmp_path, "encoder", "question-answering", encoding="tupe-r")
    model, tokenizer = AutoModelForQuestionAnswering.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    questions, passages = ["will people ask", "is union strong"], ["people ask for peace", "the union is strong again"]
    batch = tokenizer(questions, passages, padding=True, return_tensors="pt")
    with torch.no_grad():
        found = model(**batch)
        for row, pair in enumerate(zip(questions, passages, strict=True)):
            alone = model(**tokenizer(*pair, return_tensors="pt"))
            width = alone.start_logits.shape[1]
            torch.testing.assert_close(found.start_logits[row, :width], alone.start_logits[0], rtol=0, atol=1e-6)
            torch.testing.assert_close(found.end_logits[row, :width], alone.end_logits[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("network", "task", "fields"),
    [
        ("encoder", "masked-lm", {"encoding": "tupe-r"}),
        (
            "decoder",
            "causal-lm",
            {"encoding": "alibi", "memory": "look-ahead", "memory_length": 4, "segment_length": 8},
        ),
    ],
)
def test_feature_extraction_is_that_of_each_text_alone(tmp_path, network, task, fields):
    pipe = pipeline("feature-extraction", save(tmp_path, network, task, **fields), device="cpu", return_tensors=True)
    for text, found in zip(TEXTS, pipe(TEXTS, batch_size=3), strict=True):
        alone = pipe(text)
        torch.testing.assert_close(found[:, : alone.shape[1]], alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("memory", ["none", "segment-recurrence", "look-ahead"])
def test_text_generation_writes_past_its_segments(tmp_path, memory):
    fields = {} if memory == "none" else {"memory": memory, "memory_length": 4, "segment_length": 4}
    pipe = pipeline("text-generation", save(tmp_path, "decoder", "causal-lm", encoding="alibi", **fields), device="cpu")
    told = {"do_sample": False, "max_new_tokens": 12, "add_special_tokens": False}
    pipe.tokenizer.padding_side = "left"
    together = pipe(TEXTS, batch_size=3, **told)
    for text, found in zip(TEXTS, together, strict=True):
        assert found[0]["generated_text"].startswith(text)
        assert found == pipe(text, **told)


def test_translation_is_gone_too_and_generate_does_it(tmp_path):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    folder = save(tmp_path, "seq2seq", "translation", encoding="sinusoidal")
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    written = model.generate(**tokenizer(TEXTS, padding=True, return_tensors="pt"), num_beams=2, max_length=9)
    for text, found in zip(TEXTS, written, strict=True):
        alone = model.generate(**tokenizer(text, return_tensors="pt"), num_beams=2, max_length=9)[0]
        assert tokenizer.decode(found, skip_special_tokens=True) == tokenizer.decode(alone, skip_special_tokens=True)
