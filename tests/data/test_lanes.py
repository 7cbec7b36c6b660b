"""Running text in lanes and windows: every token is predicted once, by the row that read what stands before it."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from documents import settings, tokens_with
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader

from wordorder.data import EpochOrder, TokenizerConfig
from wordorder.data.examples.collate import CollateLanes
from wordorder.data.examples.lanes import Lanes, RunningText
from wordorder.errors import BadInput
from wordorder.tasks import prepare

CLS, SEP = 2, 3
SIZES = st.lists(st.integers(0, 25), min_size=1, max_size=8).filter(any)


def text_of(sizes, length=5, **options):
    """A text whose tokens are all different, but for [SEP]."""
    total = sum(sizes)
    return RunningText(
        tokens_with([[size] for size in sizes]), length=length, characters=2 * total, words=total, **options
    )


def documents_of(sizes):
    borders = [0, *np.cumsum(sizes).tolist()]
    return [[*range(10 + a, 10 + b), SEP] for a, b in pairwise(borders) if a < b]  # of no token nothing is read


def streams_read(lanes, epoch=0):
    """What each lane reads and predicts, cut where its memory is reset: (row, inputs, labels, segment lengths)."""
    found = []
    for row in range(lanes.rows):
        for step in range(lanes.steps):
            example = lanes[(epoch, step * lanes.rows + row)]
            if example["memory_reset"]:
                found.append((row, [], [], []))
            elif len(example["input_ids"]):
                assert found[-1][0] == row, "a lane goes on that never began"
            found[-1][1].extend(example["input_ids"].tolist())
            found[-1][2].extend(example["shift_labels"].tolist())
            found[-1][3].append(len(example["input_ids"]))
    return found


@given(SIZES, st.integers(1, 4), st.integers(1, 9), st.integers(0, 3), st.booleans())
def test_one_stream_is_read_once_in_equal_lanes_each_token_from_the_one_before(sizes, rows, length, epoch, roll):
    text = text_of(sizes, length)
    running = [token for document in documents_of(sizes) for token in document]
    lanes = Lanes(text, rows=rows, seed=7 if roll else None)
    read = streams_read(lanes, epoch)
    assert [row for row, *_ in read] == list(range(rows))
    labels = [label for _, _, labels, _ in read for label in labels]
    inputs = [token for _, inputs, _, _ in read for token in inputs]
    turned = next(k for k in range(len(running)) if running[k:] + running[:k] == labels)
    assert roll or turned == 0
    assert inputs == [running[turned - 1], *labels[:-1]]
    sizes_of_lanes = [len(labels) for *_, labels, _ in read]
    assert max(sizes_of_lanes) - min(sizes_of_lanes) <= 1
    for _, _, labels, pieces in read:
        full = len(labels) // length
        assert pieces[:full] == [length] * full
        assert sum(pieces[full:]) == len(labels) % length


@given(SIZES, st.integers(1, 4), st.integers(1, 9), st.integers(0, 3), st.booleans())
def test_documents_go_whole_into_lanes_and_begin_without_memory(sizes, rows, length, epoch, shuffled):
    lanes = Lanes(text_of(sizes, length, by_document=True), rows=rows, seed=7 if shuffled else None)
    read = streams_read(lanes, epoch)
    assert Counter(tuple(labels) for *_, labels, _ in read) == Counter(map(tuple, documents_of(sizes)))
    assert all(inputs == [SEP, *labels[:-1]] for _, inputs, labels, _ in read)
    segments = Counter()
    for row, *_, pieces in read:
        segments[row] += sum(1 for piece in pieces if piece)
    longest = max(-(-(size + 1) // length) for size in sizes)
    total = sum(-(-(size + 1) // length) for size in sizes)
    # greedy: when the last stream went into the longest lane, no other lane had less
    assert lanes.steps == max(segments.values()) <= total / rows + longest
    if not shuffled and rows == 1:
        assert [labels for *_, labels, _ in read] == documents_of(sizes)


def test_each_epoch_turns_the_text_or_shuffles_its_documents():
    for options in ({}, {"by_document": True}):
        text = text_of([9, 14, 3, 20, 7, 11, 8, 2], **options)
        orders = [
            [tuple(labels) for *_, labels, _ in streams_read(Lanes(text, rows=2, seed=seed), epoch)]
            for seed, epoch in ((0, 0), (0, 1), (0, 2), (1, 0), (0, 0))
        ]
        assert orders[0] == orders[4]
        assert len(set(map(tuple, orders))) == 4
        assert len({tuple(sorted(order)) for order in orders}) == (1 if options else 4)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("by_document", [False, True])
def test_rows_of_micro_batches_and_processes_have_one_lane_each(workers, by_document):
    """What accelerate gives to each of three processes that accumulate two batches of two rows."""
    batch, accumulation, world = 2, 2, 3
    text = text_of([40, 7, 22, 31, 9, 1, 18, 26, 33, 12, 5, 21, 17, 8], 4, by_document=by_document)
    rows = batch * accumulation * world
    lanes = text.training_lanes(rows, seed=3)
    order = EpochOrder(len(lanes), seed=3, shuffle=False)
    order.set_epoch(1)
    found = {}
    for rank in range(world):
        share = BatchSamplerShard(BatchSampler(order, batch, drop_last=False), world, rank)
        loader = DataLoader(
            lanes,
            batch_sampler=share,
            collate_fn=CollateLanes(padding=0),
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        )
        batches = list(loader)
        assert len(batches) == lanes.steps * accumulation
        for number, micro in enumerate(batches):
            mask = micro.get("attention_mask", torch.ones_like(micro["input_ids"]))
            for row in range(batch):
                lane = found.setdefault((number % accumulation, rank, row), [])
                lane += micro["shift_labels"][row][mask[row].bool()].tolist()
                assert (micro["shift_labels"][row] == -100).equal(mask[row] == 0)
    expected = [[] for _ in range(rows)]
    for row, _, labels, _ in streams_read(lanes, 1):
        expected[row] += labels
    assert [found[key] for key in sorted(found)] == expected


def test_shares_of_scoring_lanes_are_the_lanes_and_short_texts_have_fewer():
    text = text_of([50, 30, 20], 10, eval_lanes=4)
    (whole,) = text.scoring_lanes()
    shares = [text.scoring_lanes(slice(rank, None, 3)) for rank in range(3)]
    assert [share[0].rows for share in shares] == [2, 1, 1]
    read = {row: labels for row, _, labels, _ in streams_read(whole)}
    for rank, (share,) in enumerate(shares):
        assert [labels for *_, labels, _ in streams_read(share)] == [read[lane] for lane in range(rank, 4, 3)]
    assert [labels[0] for labels in read.values()] == [10, 35, 60, 86]  # not turned
    assert text_of([25], 10, eval_lanes=4).scoring_lanes()[0].rows == 2
    assert text_of([3], 10, eval_lanes=4).scoring_lanes()[0].rows == 1
    assert text_of([60, 50], 10, eval_lanes=4, by_document=True).scoring_lanes()[0].rows == 2
    assert text_of([3], 10, eval_lanes=4).scoring_lanes(slice(1, None, 2)) == []


@given(SIZES, st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_windows_predict_each_token_once_with_enough_before_it(sizes, length, stride, by_document):
    text = text_of(sizes, length, by_document=by_document)
    stride = min(stride, length)
    windows = text.windows(stride)
    predicted = []
    for index in range(len(windows)):
        example = windows[index]
        inputs, labels = example["input_ids"].tolist(), example["shift_labels"].tolist()
        assert len(inputs) <= length
        new = next(place for place, label in enumerate(labels) if label != -100)
        assert -100 not in labels[new:]
        assert inputs[new + 1 :] == labels[new:-1]
        begins = inputs[0] == SEP if by_document else not predicted
        assert begins or new >= length - stride or (stride == length and new == 0)
        predicted += labels[new:]
    assert predicted == [token for document in documents_of(sizes) for token in document]
    if not by_document:
        total = sum(sizes) + sum(map(bool, sizes))
        assert len(windows) == 1 + max(0, -(-(total - length) // stride))
    marked = text.windows(stride, start_id=CLS)
    assert all(int(marked[index]["input_ids"][0]) == CLS for index in range(len(marked)))
    assert torch.equal(marked[0]["shift_labels"], windows[0]["shift_labels"])


def test_a_stride_out_of_range_is_refused():
    for stride in (0, 6):
        with pytest.raises(ValueError, match=f"stride must lie between 1 and the length of a segment, 5, got {stride}"):
            text_of([20]).windows(stride)


def test_texts_that_are_too_short_for_the_lanes_are_refused():
    with pytest.raises(BadInput, match=r"21 tokens, less than a segment of data.length 5 for each of 5 lanes"):
        text_of([20]).training_lanes(5, seed=0)
    with pytest.raises(BadInput, match=r"2 documents, which cannot go whole into 3 lanes .* task.reset_memory=never"):
        text_of([50, 50], by_document=True).training_lanes(3, seed=0)
    assert text_of([24]).training_lanes(5, seed=0).steps == 1


def test_ended_lanes_and_batches_of_ended_lanes_are_padding():
    lanes = Lanes(text_of([12, 1], 4, by_document=True), rows=2)
    batch = CollateLanes(padding=9)([lanes[4], lanes[5]])
    assert batch["input_ids"].tolist() == [[17, 18, 19, 20], [9, 9, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1] * 4, [0] * 4]
    assert "memory_reset" not in batch
    batch = CollateLanes(padding=9)([lanes[5]])
    assert (batch["input_ids"].tolist(), batch["attention_mask"].tolist()) == ([[9]], [[0]])
    assert CollateLanes(padding=9)([lanes[0], lanes[1]])["memory_reset"].tolist() == [True, True]


def test_prepared_lanes_hold_the_whole_split(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"text": f"Text number {number}. " + "It goes on and on. " * (number % 5 + 1)} for number in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    data, options = settings(source=str(path), task="causal-lm", length=16, packing="lanes", eval_lanes=3)
    prepared = prepare(data, options, TokenizerConfig(kind="byte"), seed=0, cache_dir=tmp_path / "cache")
    counts = prepared.statistics["train"]
    assert len(prepared.train.ids) == counts["tokens"] + counts["documents"]
    assert (prepared.train.characters, prepared.train.words) == (counts["characters"], counts["words"])
    assert counts["segments"] == -(-len(prepared.train.ids) // 16)
    assert (prepared.train.ids == prepared.tokenizer.sep_token_id).sum() == counts["documents"]
    (lanes,) = prepared.validation.scoring_lanes()
    batch = prepared.collate([lanes[0], lanes[1], lanes[2]])
    assert batch["input_ids"].shape == (3, 16)
    assert batch["input_ids"][0, 0] == prepared.tokenizer.sep_token_id


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"task": "masked-lm", "packing": "lanes"},
            "task.packing: unknown value 'lanes'; valid values: full-sentences, .*, contiguous$",
        ),
        (
            {"task": "translation", "packing": "lanes"},
            "task.packing is only for tasks masked-lm and causal-lm, not for translation",
        ),
        (
            {"packing": "lanes", "reset_memory": "sometimes"},
            "task.reset_memory: unknown value 'sometimes'",
        ),
        ({"packing": "lanes", "eval_lanes": 0}, "task.eval_lanes: must be at least 1"),
        ({"packing": "lanes", "roll": 1}, "task.roll: must be true or false, got 1"),
        ({"reset_memory": "documents"}, "task.reset_memory is only for task.packing lanes"),
        ({"roll": False}, "task.roll is only for task.packing lanes"),
        ({"eval_lanes": 2}, "task.eval_lanes is only for task.packing lanes"),
    ],
)
def test_options_of_lanes_that_do_not_fit(options, words):
    with pytest.raises(BadInput, match=words):
        settings(**{"source": "sotu", "task": "causal-lm", **options})


def test_a_packing_that_does_not_exist_is_one_fault_and_not_said_to_be_for_another_task():
    with pytest.raises(BadInput, match=r"^task.packing: unknown value 'lane'; did you mean 'lanes'\? .*, lanes$"):
        settings(source="sotu", task="causal-lm", packing="lane")
