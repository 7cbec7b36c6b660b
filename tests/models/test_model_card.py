"""Model cards: metadata that the hub reads, code that loads the folder, and names from data that stay names."""

import json
import re

import pytest
from huggingface_hub import ModelCard
from saved_folder import save

from wordorder.encodings import CATALOG
from wordorder.models.model_card import PIPELINES, code, write_card

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
    write_card(tmp_path, title="tiny", summary="Nothing.")
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


def test_scores_become_results_with_their_split_and_counts_do_not(tmp_path):
    config = {"model_type": "wordorder-encoder", "architectures": ["WordOrderEncoderForMaskedLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_card(
        tmp_path,
        title="tiny",
        summary="Nothing.",
        data="hub:owner/set",
        scores={
            "validation": {"loss": 1.5},
            "test": {"loss": 2.0, "accuracy": 0.25, "tokens": 1234, "optimistic": True},
        },
    )
    card = ModelCard.load(tmp_path / "README.md")
    found = {(r.dataset_split, r.metric_type): r.metric_value for r in card.data.eval_results}
    assert found == {("validation", "loss"): 1.5, ("test", "loss"): 2.0, ("test", "accuracy"): 0.25}
    assert card.data.datasets == ["owner/set"]
    assert "| test | `accuracy` | 0.25 | 1,234 tokens |" in card.text


def test_names_from_data_break_no_table_and_no_metadata(tmp_path):
    config = {
        "model_type": "wordorder-encoder",
        "architectures": ["WordOrderEncoderForSequenceClassification"],
        "id2label": {"0": EVIL, "1": "``` x"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_card(tmp_path, title=EVIL, summary=f"On {code(EVIL)}.", data=EVIL, scores={"test": {"loss": 1.0}})
    card = ModelCard.load(tmp_path / "README.md")  # its metadata end where they should
    assert card.data.library_name == "wordorder"
    assert card.data.eval_results[0].dataset_name == EVIL
    outside = re.sub(r"`[^`]*`", "", re.sub(r"(?s)```.*?```", "", card.text))
    for harm in ("<script>", "](", "*bold", "[a", "://"):
        assert harm not in outside, harm
    assert len([line for line in outside.splitlines() if line.startswith("#")]) == 4
    assert all(line.count("|") in (0, 3, 5) for line in outside.splitlines() if line.startswith("|"))


def test_every_ending_of_a_class_has_an_auto_class():
    import transformers

    assert all(hasattr(transformers, auto) for _, auto in PIPELINES.values())
