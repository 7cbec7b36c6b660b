"""An unknown name is answered with those that the field calls so, and with those of like spelling."""

import pytest

from wordorder import Encoder
from wordorder.encodings import CATALOG, names_of
from wordorder.encodings.synonyms import OTHER_MEANINGS, SYNONYMS, did_you_mean
from wordorder.errors import BadInput


def test_every_synonym_leads_to_a_name_that_is_there_and_is_none_itself():
    for name, synonyms in SYNONYMS.items():
        assert set(names_of(name)) <= set(CATALOG)
        for synonym in synonyms.split():
            assert synonym not in CATALOG
            assert repr(name) in did_you_mean(synonym, CATALOG)
    assert set(OTHER_MEANINGS) <= set(CATALOG)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("rotary", "'rope'"),
        ("Rotary_Embedding", "'rope'"),
        ("rotary:near", "'rope'"),
        ("relative", "'t5', 'shaw', 'transformer-xl', 'deberta', 'relative-logits'"),
        ("nope", "'none', 'rope', 'pope', 'cope'"),
        ("sliding-window", "'rope@512'"),
        ("forgetting", "'fox'"),
        ("token-shift", "'shift'"),
        ("off-by-one", "'softmax-sink'"),
        ("absolute", "'sinusoidal', 'learned'"),
        ("yarn", "'rope-yarn'"),
        ("scalable-softmax", "'log-n'"),
        ("roap", "'rope', 'rope-ntk', 'dape', 'cope'"),
    ],
)
def test_names_by_synonym_stand_before_names_by_spelling(written, meant):
    assert did_you_mean(written, CATALOG) == f"did you mean {meant}? "


def test_what_is_like_nothing_has_no_suggestion():
    assert did_you_mean("zzzz", CATALOG) == did_you_mean("", CATALOG) == ""


@pytest.mark.parametrize("encoding", ["rotary", "learned+rotary", "none,Rotary"])
def test_a_network_suggests_rope_for_rotary(encoding):
    with pytest.raises(BadInput, match=r"(?i)unknown encoding 'rotary'; did you mean 'rope'[?] "):
        Encoder(20, width=8, layers=2, heads=2, encoding=encoding)
