"""`wordorder list` shows the whole catalogue, for people and for machines."""

import json

from typer.testing import CliRunner

from wordorder.cli.app import app
from wordorder.data import TOKENIZER_KINDS
from wordorder.encodings import CATALOG
from wordorder.tasks import TASKS


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
