"""`wordorder list` shows the whole catalogue, for people and for machines."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import app
from wordorder.cli.list import entries
from wordorder.data import TOKENIZER_KINDS
from wordorder.encodings import CATALOG
from wordorder.encodings.synonyms import OTHER_MEANINGS
from wordorder.tasks import TASKS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "mechanisms"


def test_json_holds_every_encoding_with_place_paper_parameters_and_options():
    result = CliRunner().invoke(app, ["list", "--json"])
    assert result.exit_code == 0
    listing = json.loads(result.stdout)
    encodings = {entry["name"]: entry for entry in listing["encodings"]}
    assert list(encodings) == list(CATALOG)
    for name, entry in encodings.items():
        assert entry["place"] == CATALOG[name].place
        assert "https://" in entry["paper"], name
        assert entry["summary"], name
    assert encodings["tupe-r"]["options"]["reset"] == "paper"
    # Two projections with biases: 2 x (768^2 + 768), as the paper counts them.
    assert encodings["tupe-a"]["parameters"]["tupe projections"] == 1_181_184
    assert listing["tasks"] == list(TASKS)
    assert listing["tokenizers"] == list(TOKENIZER_KINDS)


def test_the_table_names_every_encoding_and_corpus():
    text = CliRunner().invoke(app, ["list"]).stdout
    for name in (*CATALOG, *TASKS, "sotu", "hub:NAME", "learned+t5"):
        assert name in text


def test_a_name_that_means_two_things_says_so_here_and_on_its_page():
    for name, sentence in OTHER_MEANINGS.items():
        shown = " ".join(CliRunner().invoke(app, ["list", name]).stdout.split())
        assert sentence in shown
    assert "2602.05258" in OTHER_MEANINGS["cope"]
    assert "2602.05258" in (DOCS / "cope.md").read_text(encoding="utf-8")
    assert "segment-recurrence" in OTHER_MEANINGS["transformer-xl"]
    assert 'memory = "segment-recurrence"' in (DOCS / "transformer-xl.md").read_text(encoding="utf-8")
    assert "same name" not in CliRunner().invoke(app, ["list", "rope"]).stdout


def test_one_encoding_is_shown_by_its_name_in_any_spelling():
    for name in ("tupe-r", "TUPE-R", "Tupe_R"):
        shown = CliRunner().invoke(app, ["list", name])
        assert shown.exit_code == 0
        text = " ".join(shown.stdout.split())
        assert text.startswith("tupe-r: Add the terms of TUPE-A")
        for part in ("Paper: Ke et al. 2021, https://arxiv.org/abs/2006.15595", "Acts on: scores", "1,576,320"):
            assert part in text
        assert "max_distance 128 from here on all distances share a bucket" in text
        assert "Not in cross-attention: positions of a source and a target" in text
        assert "Works in: encoders, decoders, memory, look-ahead memory" in text
        assert "Longest text: max_position_embeddings" in text
    fox = " ".join(CliRunner().invoke(app, ["list", "fox"]).stdout.split())
    assert "Works in: encoders, decoders, memory Not in cross-attention: it sums the gates" in fox
    rope = CliRunner().invoke(app, ["list", "RoPE"]).stdout
    assert "Parameters at the sizes of BERT-Base: none" in rope
    assert "Longest text: any" in rope
    assert json.loads(CliRunner().invoke(app, ["list", "rope", "--json"]).stdout)["options"] == {
        "base": 10000.0,
        "share": 1.0,
        "share_of": "channels",
        "interleaved": False,
    }


def test_a_generated_task_is_shown_as_a_recipe_names_it():
    shown = " ".join(CliRunner().invoke(app, ["list", "task:n-back"]).stdout.split())
    assert "n-back: What is the word 4 before the last one?" in shown
    assert 'data.source = "task:n-back", data.task = "causal-lm" or "classification"' in shown


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("roap", "roap: no encoding and no generated task; did you mean 'rope', "),
        ("nope", "nope: no encoding and no generated task; did you mean 'none', 'rope'"),
        ("relative", "did you mean 't5', 'shaw', 'transformer-xl', 'deberta', 'relative-logits'? "),
        ("Sliding_Window", "did you mean 'rope@512'? "),
        ("zzzz", "zzzz: no encoding and no generated task; `wordorder list` shows all"),
        ("masked-lm", "is one of the tasks"),
    ],
)
def test_an_unknown_name_has_the_nearest_ones(name, said):
    result = CliRunner().invoke(app, ["list", name])
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr) < 200


def test_a_suggested_window_is_shown_as_its_encoding():
    assert CliRunner().invoke(app, ["list", "rope@512"]).stdout.startswith("rope: ")


def test_every_option_of_an_encoding_has_a_meaning():
    without = [
        (entry["name"], option)
        for entry in entries()["encodings"]
        for option in entry["options"]
        if option not in entry["meanings"]
    ]
    assert without == []
