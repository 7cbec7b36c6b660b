from dataclasses import replace

import numpy as np
import pytest
import torch

from wordorder.comparison.probes.probe import CannotProbe
from wordorder.comparison.probes.shuffled_windows import (
    WHOLE,
    ShuffledWindows,
    fixed_tokens,
    shuffled_order,
    word_starts,
)
from wordorder.data import TokenizerConfig, load_tokenizer

TEXT = "The unbelievable states, however, are strong; peace returns."


def tokens_of(kind, tmp_path):
    config = TokenizerConfig(kind=kind, vocab_size=300 if kind == "bpe" else 60)
    tokenizer = load_tokenizer(config, ["the states are strong peace " * 30, TEXT], cache_dir=tmp_path)
    return tokenizer, np.array(tokenizer(TEXT + " " + TEXT)["input_ids"])


def pieces(tokenizer, ids, starts):
    words, names = [], tokenizer.convert_ids_to_tokens(ids.tolist())
    for number, name in zip(ids, names, strict=True):
        if starts[number] or not words or words[-1] in (["[CLS]"], ["[SEP]"]) or name == "[SEP]":
            words.append([name])
        else:
            words[-1].append(name)
    return ["".join(word) for word in words]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "byte", "character", "word", "whitespace"])
@pytest.mark.parametrize("window", [2, 5, None])
def test_words_move_whole_within_their_windows_and_special_tokens_stay(kind, window, tmp_path):
    tokenizer, ids = tokens_of(kind, tmp_path)
    starts, fixed = word_starts(tokenizer), fixed_tokens(tokenizer)
    places = shuffled_order(ids, starts, fixed, window=window, seed=0, index=3)
    assert sorted(places.tolist()) == list(range(len(ids)))
    shuffled = ids[places]
    assert (shuffled[0], shuffled[-1]) == (ids[0], ids[-1])
    before, after = pieces(tokenizer, ids, starts), pieces(tokenizer, shuffled, starts)
    size = len(before) if window is None else window
    if kind in ("wordpiece", "word", "whitespace"):
        for start in range(1, len(before) - 1, size):
            part = slice(start, min(start + size, len(before) - 1))
            assert sorted(before[part]) == sorted(after[part])
    assert before != after
    assert 14 <= len(before) <= 40, "words, and neither letters nor sentences"


def test_the_order_is_a_function_of_seed_text_and_window(tmp_path):
    tokenizer, ids = tokens_of("wordpiece", tmp_path)
    flags = word_starts(tokenizer), fixed_tokens(tokenizer)
    first = shuffled_order(ids, *flags, window=4, seed=0, index=0).tolist()
    assert first == shuffled_order(ids, *flags, window=4, seed=0, index=0).tolist()
    others = [(4, 1, 0), (4, 0, 1), (None, 0, 0)]
    assert all(first != shuffled_order(ids, *flags, window=w, seed=s, index=i).tolist() for w, s, i in others)


def test_an_encoder_without_positions_does_not_notice(make_trained, tiny_masked_model):
    probe = ShuffledWindows(windows=(2, 8), tokens=400)
    with torch.no_grad():
        none = probe.measure(make_trained("masked-lm", tiny_masked_model("none"), length=16)).rows
        rope = probe.measure(make_trained("masked-lm", tiny_masked_model("sinusoidal"), length=16)).rows
    assert [row["x"] for row in none] == ["2 words", "8 words", WHOLE]
    assert max(abs(row["value"]) for row in none) < 1e-5
    assert min(abs(row["value"]) for row in rope) > 1e-3
    assert none[0]["loss_as_written"] > 0


def test_masks_move_with_their_words(make_trained, made):
    model = made(lambda ids: torch.zeros(*ids.shape, 45))
    trained = make_trained("masked-lm", model, length=16)
    ShuffledWindows(windows=(4,), tokens=60).measure(trained)
    rows = [sorted(row.tolist()) for batch in model.seen for row in batch]
    texts = len(rows) // 3
    assert rows[:texts] == rows[texts : 2 * texts] == rows[2 * texts :]
    assert not torch.equal(model.seen[0], model.seen[-1])


def test_a_causal_model_that_knows_what_follows_loses_what_shuffling_breaks(make_trained, made):
    def successor(ids):
        logits = torch.zeros(*ids.shape, 45)
        return logits.scatter_(-1, ((ids + 1) % 45)[..., None], 6.0)

    trained = make_trained("causal-lm", made(successor), words=100, length=11)
    reported = replace(trained.prepared.reported, ids=5 + np.arange(140) % 40)
    trained = replace(trained, prepared=replace(trained.prepared, reported=reported))
    rows = ShuffledWindows(windows=(2, 4), tokens=40).measure(trained).rows
    assert rows[0]["loss_as_written"] < 1.0
    values = [row["value"] for row in rows]
    assert 0.5 < values[0] < values[1] < values[2]


def test_accuracy_lost_by_a_classifier_of_the_first_word(make_trained, made):
    labels = {}

    def first_words_or_a(ids):
        return torch.stack(
            [torch.tensor([0.0, 1.0] if labels.get(tuple(row[1:4].tolist())) == 1 else [1.0, 0.0]) for row in ids]
        )

    trained = make_trained("classification", made(first_words_or_a), words=200, texts=40, length=12)
    test = trained.prepared.test
    pieces_ = [test[n] for n in range(len(test))]
    labels.update({tuple(piece["input_ids"][1:4].tolist()): int(piece["labels"]) for piece in pieces_})
    # the first four pieces of every text are the same, whatever its class
    rows = ShuffledWindows(windows=(2,), tokens=10**6).measure(trained).rows
    assert rows[0]["accuracy_as_written"] > 0.8
    assert rows[-1]["accuracy"] < 0.65
    assert rows[-1]["value"] == pytest.approx(rows[0]["accuracy_as_written"] - rows[-1]["accuracy"])


def test_options_out_of_range():
    with pytest.raises(ValueError, match="windows must be different whole numbers of at least 2"):
        ShuffledWindows(windows=(2, 2))
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        ShuffledWindows(seed=-1)


def test_which_tokens_are_a_word_is_told_by_what_was_written_not_by_its_mask(make_trained, made, monkeypatch):
    """A mask that stands for a piece of a word does not begin one."""
    from wordorder.comparison.probes import shuffled_windows

    asked = []

    def order(ids, starts, fixed, **options):
        asked.append(ids.tolist())
        return shuffled_order(ids, starts, fixed, **options)

    monkeypatch.setattr(shuffled_windows, "shuffled_order", order)
    trained = make_trained("masked-lm", made(lambda ids: torch.zeros(*ids.shape, 45)), mask_probability=0.5)
    ShuffledWindows(windows=(2,), tokens=64).measure(trained)
    assert asked
    assert all(trained.prepared.tokenizer.mask_token_id not in ids for ids in asked)


def test_a_memory_that_reads_several_segments_is_not_measured_as_one_window(make_trained, made):
    model = made(lambda ids: torch.zeros(*ids.shape, 45))
    model.config.memory = "segment-recurrence"
    trained = make_trained("causal-lm", model, words=500, packing="lanes")
    ShuffledWindows(tokens=300).measure(trained)  # data.length is one segment
    trained.recipe.segment_length = 4
    with pytest.raises(CannotProbe, match=r"data\.length 8 in segments of 4 tokens with its memory"):
        ShuffledWindows(tokens=300).measure(trained)
