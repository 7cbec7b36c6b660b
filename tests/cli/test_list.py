"""`wordorder list` shows the whole catalogue, for people and for machines."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wordorder.cli.app import app
from wordorder.cli.list import PURPOSES, entries
from wordorder.data import TOKENIZER_KINDS
from wordorder.encodings import CATALOG, Encoding, NoEncoding, register_encoding
from wordorder.encodings.synonyms import OTHER_MEANINGS
from wordorder.tasks import TASKS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "mechanisms"


def test_json_holds_every_encoding_with_place_paper_parameters_and_options():
    result = CliRunner().invoke(app, ["list", "--json"])
    assert result.exit_code == 0
    listing = json.loads(result.stdout)
    encodings = {entry["name"]: entry for entry in listing["encodings"]}
    assert sorted(encodings) == sorted(CATALOG)
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


def test_each_encoding_stands_once_under_its_purpose_with_the_year():
    lines = [line.split() for line in CliRunner().invoke(app, ["list"]).stdout.partition("Generated")[0].splitlines()]
    entries_of_catalogue = {entry["name"]: entry for entry in entries()["encodings"]}
    headings = [" ".join(words) for words in lines if " ".join(words) in PURPOSES]
    assert headings == list(PURPOSES)
    for name, entry in entries_of_catalogue.items():
        assert entry["purpose"] in PURPOSES, f"{name}: purpose must be one of PURPOSES in cli/list.py"
        assert entry["year"] in range(2017, 2100), name
        rows = [row for row, words in enumerate(lines) if words[:2] == [name, str(entry["year"])]]
        assert len(rows) == 1, name
        above = [" ".join(words) for words in lines[: rows[0]]]
        assert [line for line in above if line in PURPOSES][-1] == entry["purpose"]


@pytest.mark.usefixtures("registries_as_they_were")
def test_a_class_without_a_purpose_or_paper_comes_last_under_a_heading_of_its_own():
    class Mine(NoEncoding):
        purpose, paper = Encoding.purpose, ""

    register_encoding("mine", Mine)
    last = entries()["encodings"][-1]
    assert (last["name"], last["purpose"], last["year"]) == ("mine", "of your own", None)
    assert re.search(r"of your own\n.*\n.*\n.*\n  mine ", CliRunner().invoke(app, ["list"]).stdout)


def test_a_name_that_means_two_things_says_so_here_and_on_its_page():
    for name, sentence in OTHER_MEANINGS.items():
        shown = " ".join(CliRunner().invoke(app, ["list", name]).stdout.split())
        assert sentence in shown
    for name, paper in (("cope", "2602.05258"), ("pope", "2405.04585")):
        assert paper in OTHER_MEANINGS[name]
        assert paper in (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert "segment-recurrence" in OTHER_MEANINGS["transformer-xl"]
    assert 'memory = "segment-recurrence"' in (DOCS / "transformer-xl.md").read_text(encoding="utf-8")
    assert "same name" not in CliRunner().invoke(app, ["list", "rope"]).stdout


def test_the_advice_of_the_docs_leads_by_the_same_purposes():
    table = (DOCS.parent / "choose.md").read_text(encoding="utf-8").split("\n\n")[2].splitlines()
    assert [row.split(" | ")[0].removeprefix("| ") for row in table[2:]] == list(PURPOSES)
    assert {name for row in table for name in re.findall(r"`([\w-]+)`", row)} <= set(CATALOG)


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
    assert 'data.source = "task:n-back", task.name = "causal-lm" or "classification"' in shown


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
