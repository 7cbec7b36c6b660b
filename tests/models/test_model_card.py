"""Model cards: metadata that the hub reads, code that loads the folder, and text from data that does nothing."""

import json
import re

import pytest
from huggingface_hub import ModelCard
from saved_folder import save

from wordorder.encodings import CATALOG
from wordorder.models.hub.model_card import PIPELINES, CardFacts, card_text, code, fenced, plain, write_card

EVIL = "<script>alert(1)</script> | [a](http://b) ![x](y) `code` \n# heading\n---\n*bold*"


@pytest.mark.parametrize(
    ("network", "task", "fields", "tag"),
    [
        ("encoder", "masked-lm", {"encoding": "tupe-r"}, "fill-mask"),
        ("encoder", "classification", {"encoding": "tupe-a"}, "text-classification"),
        ("encoder", "token-classification", {"encoding": "rope"}, "token-classification"),
        ("encoder", "question-answering", {"encoding": "t5"}, "question-answering"),
        ("decoder", "causal-lm", {"encoding": "alibi", "memory": "look-ahead", "memory_length": 4}, "text-generation"),
        ("seq2seq", "translation", {"encoding": "sinusoidal"}, "translation"),
    ],
)
def test_the_card_loads_the_folder_that_it_lies_in(tmp_path, network, task, fields, tag):
    folder = save(tmp_path, network, task, **fields)
    write_card(tmp_path, CardFacts(title="tiny", summary="Nothing."))
    card = ModelCard.load(tmp_path / "README.md")
    assert (card.data.library_name, card.data.pipeline_tag) == ("wordorder", tag)
    assert {"wordorder", f"wordorder-{network}", fields["encoding"]} <= set(card.data.tags)
    assert ("look-ahead" in card.data.tags) == (network == "decoder")
    assert card.data.datasets is None
    (block,) = re.findall(r"```python\n(.*?)```", card.text, flags=re.DOTALL)
    names = {}
    exec(compile(block.replace("path/to/this/folder", folder), "card", "exec"), names)
    assert type(names["model"]).__name__ == json.loads((tmp_path / "config.json").read_text())["architectures"][0]
    assert names["tokenizer"]("the union")["input_ids"][0] == 2
    assert ("longest text" in card.text) == CATALOG[fields["encoding"]].bounded


def test_scores_become_results_with_their_split_and_counts_do_not():
    facts = CardFacts(
        title="tiny",
        summary="Nothing.",
        data="owner/set",
        datasets=("owner/set",),
        scores={
            "validation": {"loss": 1.5},
            "test": {"loss": 2.0, "accuracy": 0.25, "tokens": 1234, "optimistic": True},
        },
    )
    text = card_text({"model_type": "wordorder-encoder", "architectures": ["WordOrderEncoderForMaskedLM"]}, facts)
    card = ModelCard(text)
    found = {(r.dataset_split, r.metric_type): r.metric_value for r in card.data.eval_results}
    assert found == {("validation", "loss"): 1.5, ("test", "loss"): 2.0, ("test", "accuracy"): 0.25}
    assert card.data.datasets == ["owner/set"]
    assert "| test | `accuracy` | 0.25 | 1,234 tokens |" in text


def test_text_from_data_is_shown_and_does_nothing():
    config = {
        "model_type": "wordorder-encoder",
        "architectures": ["WordOrderEncoderForSequenceClassification"],
        "id2label": {"0": EVIL, "1": "``` x"},
    }
    facts = CardFacts(title=EVIL, summary=f"On {code(EVIL)}.", data=EVIL, scores={"test": {"loss": 1.0}},
                      sections=[("Recipe", fenced(f"a\n```\n{EVIL}", "toml"))], untested=[plain(EVIL)])  # fmt: skip
    text = card_text(config, facts)
    card = ModelCard(text)  # its metadata end where they should
    assert card.data.library_name == "wordorder"
    assert card.data.eval_results[0].dataset_name == EVIL
    body = card.text
    told = re.sub(r"(?s)````toml.*?````", "", body)  # nothing in a block of code means anything
    told = re.sub(r"(?s)(`+)(?!`).*?(?<!`)\1(?!`)", "", told)  # nor in a span
    told = re.sub(r"\\[\\`*_\[\]#|~:]", "", told)  # nor does what is escaped
    for harm in ("<script>", "](", "*bold", "[a", "://", "\n---\n"):
        assert harm not in told, harm
    headings = [line for line in told.splitlines() if line.startswith("#")]
    assert len(headings) == 6
    assert all(line.count("|") in (0, 3, 5) for line in told.splitlines())


def test_every_ending_of_a_class_has_an_auto_class():
    import transformers

    assert all(hasattr(transformers, auto) for _, auto in PIPELINES.values())
