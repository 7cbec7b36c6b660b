import gzip
import json
import math

import numpy as np
import pytest
import torch

from wordorder.comparison.probes.minimal_pairs import ALL, MinimalPairs
from wordorder.comparison.probes.probe import CannotProbe
from wordorder.errors import BadInput


def write(path, rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def pair(good, bad, phenomenon="order", paradigm="p"):
    return {"sentence_good": good, "sentence_bad": bad, "linguistics_term": phenomenon, "UID": paradigm}


def prefers(trained_tokens):
    """A bigram model that expects the next number of a word after a word."""

    def logits(ids):
        found = torch.zeros(*ids.shape, 45)
        for b, row in enumerate(ids.tolist()):
            for t, token in enumerate(row):
                if token in trained_tokens:
                    found[b, t, trained_tokens[token]] = 5.0
        return found

    return logits


@pytest.fixture
def bigrams(make_trained, made):
    trained = make_trained("causal-lm", made(lambda ids: torch.zeros(*ids.shape, 45)))
    ids = trained.prepared.tokenizer.get_vocab()
    trained.model.logits = prefers({ids[f"w{n}"]: ids[f"w{n + 1}"] for n in range(39)})
    return trained


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_a_bigram_model_prefers_what_it_expects(bigrams, tmp_path, ending):
    rows = (
        [pair("w1 w2 w3", "w1 w3 w2")] * 3 + [pair("w5 w4", "w4 w5", "agreement", "q")] + [pair("w7", "w9", "x", "r")]
    )
    probe = MinimalPairs(source=write(tmp_path / f"pairs{ending}", rows))
    found = {row["x"]: (row["value"], row["pairs"]) for row in probe.measure(bigrams).rows}
    assert found == {ALL: (3.5 / 5, 5), "agreement": (0.0, 1), "order": (1.0, 3), "x": (0.5, 1)}


def test_log_probability_is_the_sum_over_the_tokens(bigrams):
    from wordorder.comparison.probes.minimal_pairs import _log_probability

    ids = np.array(bigrams.prepared.tokenizer("w1 w2 w9")["input_ids"][1:-1])
    expected, other = 5 - math.log(math.exp(5) + 44), -math.log(math.exp(5) + 44)
    assert _log_probability(bigrams, [ids])[0] == pytest.approx(-math.log(45) + expected + other, rel=1e-6)


def test_pseudo_log_likelihood_masks_one_token_at_a_time(make_trained, tiny_masked_model):
    from wordorder.comparison.probes.minimal_pairs import _pseudo_log_likelihood

    model = tiny_masked_model("sinusoidal")
    trained = make_trained("masked-lm", model, length=16)
    sentence = np.array([9, 30, 11, 9])
    total = 0.0
    with torch.no_grad():
        for place in range(4):
            ids = torch.tensor([[2, *sentence.tolist(), 3]])
            ids[0, place + 1] = 4
            total += float(model(input_ids=ids).logits[0, place + 1].double().log_softmax(-1)[sentence[place]])
        assert _pseudo_log_likelihood(trained, [sentence])[0] == pytest.approx(total, rel=1e-5)


def test_a_model_without_positions_guesses_between_two_orders(make_trained, tiny_masked_model, tmp_path):
    trained = make_trained("masked-lm", tiny_masked_model("none"), length=16)
    source = write(tmp_path / "p.jsonl", [pair("w1 w2 w3 w4", "w4 w2 w1 w3"), pair("w8 w9 w20", "w9 w8 w20")])
    with torch.no_grad():
        assert MinimalPairs(source=source).measure(trained).rows[0]["value"] == 0.5
    other = make_trained("masked-lm", tiny_masked_model("sinusoidal"), length=16)
    with torch.no_grad():
        assert MinimalPairs(source=source).measure(other).rows[0]["value"] != 0.5


def test_pairs_of_each_paradigm_are_drawn_the_same_way_each_time(tmp_path):
    rows = [pair(f"w{n}", f"w{n + 1}", paradigm=name) for name in "ab" for n in range(30)]
    source = write(tmp_path / "p.jsonl", rows)
    drawn = MinimalPairs(source=source, pairs_per_paradigm=5).pairs()
    assert len(drawn) == 10
    assert drawn == MinimalPairs(source=source, pairs_per_paradigm=5).pairs()
    assert drawn != MinimalPairs(source=source, pairs_per_paradigm=5, seed=1).pairs()
    assert [p.good for p in drawn[:5]] != [p.good for p in drawn[5:]]
    assert len(MinimalPairs(source=source, pairs_per_paradigm=500).pairs()) == 60


def test_long_sentences_and_pairs_that_look_the_same_are_named(bigrams, tmp_path):
    rows = [pair("w1 w2", "w2 w1"), pair("w1 " * 8, "w2"), pair("unknown", "neither")]
    found = MinimalPairs(source=write(tmp_path / "p.jsonl", rows)).measure(bigrams)
    assert found.rows[0]["pairs"] == 2
    assert found.rows[0]["value"] == 0.75
    assert found.notes == [
        "1 of 3 pairs have a sentence of more than 7 tokens.",
        "1 pairs look the same to the tokeniser; each counts as half right.",
    ]
    with pytest.raises(CannotProbe, match="every pair has a sentence of more than the 7 tokens"):
        MinimalPairs(source=write(tmp_path / "q.jsonl", rows[1:2])).measure(bigrams)


def test_files_that_are_no_pairs_are_refused(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match=r"source: 'nowhere.jsonl' must name a file that ends in .jsonl or .jsonl.gz"):
        MinimalPairs(source="nowhere.jsonl").pairs()
    source = write(tmp_path / "p.jsonl", [{"good": "a", "sentence_bad": "b", "UID": "u"}])
    with pytest.raises(BadInput, match=r"row 1 has no text in 'sentence_good', 'linguistics_term'; it has good, "):
        MinimalPairs(source=source).pairs()
    assert MinimalPairs(source=source, good="good", phenomenon="UID").pairs()[0].phenomenon == "u"
    monkeypatch.setenv("WORDORDER_DATA", str(tmp_path))
    assert MinimalPairs(source="p.jsonl", good="good", phenomenon="UID").pairs()


def test_a_model_reads_the_sentence_and_scores_its_words_alone(make_trained, made, tmp_path):
    probe = MinimalPairs(source=write(tmp_path / "pairs.jsonl", [pair("w1 w2 w3", "w3 w2")]))
    for task, reads in (("causal-lm", [["w3", "w2"], ["w1", "w2", "w3"]]), ("masked-lm", None)):
        model = made(lambda ids: torch.zeros(*ids.shape, 45))
        trained = make_trained(task, model)
        probe.measure(trained)
        tokenizer = trained.prepared.tokenizer
        seen = [tokenizer.convert_ids_to_tokens(row) for batch in model.seen for row in batch.tolist()]
        if reads:  # the last word is predicted and not read
            assert [[token for token in row if token != "[PAD]"] for row in seen] == [
                ["[CLS]", *words[:-1]] for words in reads
            ]
        else:
            assert len(seen) == 5  # once for each word, and not for [CLS] and [SEP]
            assert all(row[0] == "[CLS]" and row.count("[MASK]") == 1 and "[SEP]" in row for row in seen)
