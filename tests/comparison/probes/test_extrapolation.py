import math
from statistics import mean

import numpy as np
import pytest
import torch

from wordorder.comparison.probes.extrapolation import ALL, BEYOND, Extrapolation
from wordorder.comparison.probes.probe import CannotProbe

V = 45


def by_position(input_ids):
    """Logits whose loss says where a token stands, and nothing else: [PAD], never the answer, takes ever more."""
    logits = torch.zeros(*input_ids.shape, V)
    logits[..., 0] = torch.arange(input_ids.shape[1]) / 10
    return logits


def loss_at(position):
    return math.log(V - 1 + math.exp(position / 10))


@pytest.mark.parametrize(("packing", "unit"), [("segments", 7), ("lanes", 8)])
def test_causal_losses_are_means_over_the_positions_of_windows(make_trained, made, packing, unit):
    trained = make_trained("causal-lm", made(by_position), packing=packing)
    found = Extrapolation(factors=(2, 4), tokens=5 * 4 * unit).measure(trained)
    rows = {(row["x"], row["group"]): row for row in found.rows}
    assert list(rows) == [(8, ALL), (16, ALL), (16, BEYOND), (32, ALL), (32, BEYOND)]
    for factor in (1, 2, 4):
        row = rows[8 * factor, ALL]
        assert row["tokens"] == 5 * 4 * unit
        assert row["loss"] == pytest.approx(mean(map(loss_at, range(factor * unit))), rel=1e-6)
        assert row["value"] == pytest.approx(math.exp(row["loss"]))
    for factor in (2, 4):
        row = rows[8 * factor, BEYOND]
        assert row["loss"] == pytest.approx(mean(map(loss_at, range(unit, factor * unit))), rel=1e-6)


def test_windows_begin_as_in_training_and_have_no_token_twice(make_trained, made):
    model = made(by_position)
    trained = make_trained("causal-lm", model, words=50)
    Extrapolation(factors=(2,), tokens=28).measure(trained)
    cls = trained.prepared.tokenizer.cls_token_id
    text = np.insert(trained.prepared.reported.ids, len(trained.prepared.reported.ids), 3)
    first = [row.tolist() for batch in model.seen for row in batch if len(row) == 7]
    second = [row.tolist() for batch in model.seen for row in batch if len(row) == 14]
    assert all(row[0] == cls for row in (*first, *second))
    starts = [
        int(np.flatnonzero([text[s : s + 13].tolist() == row[1:] for s in range(len(text))])[0]) for row in second
    ]
    assert np.diff(starts).tolist() == [42]  # spread over the text of 91 tokens: six pieces of 14, the first and fourth
    assert [row[1:] for row in first] == [text[s : s + 6].tolist() for start in starts for s in (start, start + 7)]


def test_masked_words_are_the_same_at_every_length(make_trained, made):
    model = made(by_position)
    trained = make_trained("masked-lm", model)
    rows = Extrapolation(factors=(2, 4), tokens=200).measure(trained).rows
    counts = {row["tokens"] for row in rows if row["group"] == ALL}
    assert len(counts) == 1
    pieces = {}
    for batch in model.seen:
        assert (batch[:, 0] == 2).all()
        assert (batch[:, -1] == 3).all()
        pieces.setdefault(batch.shape[1], []).append(batch[:, 1:-1].reshape(-1))
    assert sorted(pieces) == [8, 14, 26]  # six words a unit: never more than the length says
    short, middle, long = (torch.cat(found) for _, found in sorted(pieces.items()))
    assert torch.equal(short, middle)
    assert torch.equal(short, long)
    assert (short == trained.prepared.tokenizer.mask_token_id).any()
    # [CLS] stands before the first word, so the words beyond the training length stand at places 7 to 24
    beyond = next(row for row in rows if row["x"] == 32 and row["group"] == BEYOND)
    model.logits = lambda ids: by_position(ids) * ((torch.arange(ids.shape[1]) < 7) * 100 + 1)[:, None]
    again = Extrapolation(factors=(2, 4), tokens=200).measure(trained).rows
    assert next(row for row in again if row["x"] == 32 and row["group"] == BEYOND) == beyond


def test_a_learned_table_cannot(make_trained, made):
    model = made(by_position)
    model.config.encoding = "learned"
    with pytest.raises(CannotProbe, match="position table of encoding 'learned'"):
        Extrapolation().measure(make_trained("causal-lm", model))


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm", "classification"])
def test_a_table_that_is_longer_than_training_is_read_to_its_end(make_trained, made, task):
    classes = task == "classification"
    model = made((lambda ids: torch.zeros(len(ids), 2)) if classes else by_position)
    trained = make_trained(task, model, texts=40 if classes else 1)
    free = Extrapolation(factors=(2, 4), tokens=200, texts=40).measure(trained)
    model.config.encoding, model.config.max_position_embeddings = "learned", 16
    found = Extrapolation(factors=(2, 4), tokens=200, texts=40).measure(trained)
    assert found.rows == [row for row in free.rows if row["x"] <= 16]  # the same texts as arms without a table
    assert {row["x"] for row in found.rows} == {8, 16}
    assert "measured up to 2 times the training length: " in found.notes[-1]
    assert "'learned'" in found.notes[-1]


def test_lengths_beyond_the_text_are_left_out_and_named(make_trained, made):
    trained = make_trained("causal-lm", made(by_position), words=60)
    found = Extrapolation().measure(trained)
    assert max(row["x"] for row in found.rows) == 8 * 8
    assert found.notes == ["Lengths of 16 times that of training are left out: the text has 101 tokens in all."]
    short = make_trained("causal-lm", made(by_position), words=60, length=64)
    with pytest.raises(CannotProbe, match="less than twice the training length"):
        Extrapolation().measure(short)


def test_classified_texts_are_the_long_ones_and_read_up_to_the_length(make_trained, made):
    def says_b_beyond_20(input_ids):
        return torch.stack([torch.zeros(len(input_ids)), (input_ids != 0).sum(1) - 20.5], dim=1)

    trained = make_trained("classification", made(says_b_beyond_20), words=15, texts=40, max_pieces=1, length=16)
    found = Extrapolation(factors=(2, 4, 8)).measure(trained)
    rows = [(row["x"], row["value"], row["texts"]) for row in found.rows]
    assert rows == [(16, 0.5, 40), (32, 0.5, 40), (64, 0.5, 40)]
    assert "no text is so long" in found.notes[1]
    lengths = {batch.shape[1] for batch in trained.model.seen}
    assert lengths == {16, 30, 57}
    few = make_trained("classification", made(says_b_beyond_20), words=20, texts=8, max_pieces=1, length=16)
    with pytest.raises(CannotProbe, match="only 8 of 8 texts"):
        Extrapolation().measure(few)
    # the length before one that is measured must not hold every text already, whatever the factors are
    assert [row["x"] for row in Extrapolation(factors=(8,)).measure(trained).rows] == [16, 128]
    assert [row["x"] for row in Extrapolation(factors=(3, 5, 7)).measure(trained).rows] == [16, 48, 80]


def test_a_memory_grows_and_segments_stay(make_trained, tmp_path):
    from wordorder.inference.saved_model import load_model
    from wordorder.models import build_config, build_model

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    memory = {"memory": "segment-recurrence", "memory_length": 8, "segment_length": 8}
    config = build_config("decoder", vocab_size=45, max_position_embeddings=8, encoding="rope", **sizes, **memory)
    build_model(config, "causal-lm", seed=0).save_pretrained(tmp_path / "model")
    model = load_model(tmp_path / "model").eval()
    trained = make_trained("causal-lm", model, packing="lanes")
    with torch.no_grad():
        rows = Extrapolation(factors=(2, 4), tokens=128).measure(trained).rows
    assert [row["x"] for row in rows] == [16, 32, 64]
    assert {row["tokens"] for row in rows} == {128}
    # all of a piece's 64 tokens within reach is the same as reading it at once
    from wordorder.comparison.probes.texts import blocks, causal_windows, mean_loss, text_of, token_losses

    whole = blocks(text_of(trained), 64, 128)
    with torch.no_grad():
        at_once = mean_loss(token_losses(trained, [causal_windows(trained, block, 64)[0] for block in whole]))
    assert rows[-1]["loss"] == pytest.approx(at_once, rel=1e-5)
    assert abs(rows[0]["loss"] - at_once) > 1e-5


def test_options_out_of_range():
    with pytest.raises(ValueError, match="factors must be different whole numbers of at least 2, got \\[1, 2\\]"):
        Extrapolation(factors=(1, 2))
    with pytest.raises(ValueError, match="tokens must be at least 1"):
        Extrapolation(tokens=0)
