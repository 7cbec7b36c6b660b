"""Streamed examples: every text once an epoch, the same after a kill, shared out between processes without a gap."""

import gzip
import json
import random

import pytest
import torch

from wordorder.data import Sharing
from wordorder.errors import BadInput, RunFailed

KINDS = {
    "sentences": {"packing": "full-sentences"},
    "across": {"packing": "full-sentences-across-documents"},
    "contiguous": {"packing": "contiguous"},
    "causal": {"task": "causal-lm"},
    "lanes": {"task": "causal-lm", "packing": "lanes"},
    "documents": {"task": "causal-lm", "packing": "lanes", "reset_memory": "documents"},
}
kinds = pytest.mark.parametrize("kind", KINDS)
SHARING = {"batch": 3, "accumulation": 2, "steps": 400}


def plain(example):
    return {name: value.tolist() for name, value in example.items()}


def read(examples, numbers):
    return [plain(examples[(0, number)]) for number in numbers]


def own_numbers(sharing):
    numbers = []
    for number in range(len(sharing)):
        try:
            sharing.own(number)
        except IndexError:
            continue
        numbers.append(number)
    return numbers


@pytest.mark.slow
@kinds
def test_what_follows_a_state_is_what_would_have_followed(streamed, kind):
    sharing, draw = Sharing(**SHARING), random.Random(1)
    whole = streamed(**KINDS[kind]).train.examples(sharing)
    expected = read(whole, range(len(sharing)))
    for _ in range(6):
        at = draw.randrange(len(sharing) - 40)
        first = streamed(**KINDS[kind]).train.examples(sharing)
        read(first, range(at))
        ahead = min(len(sharing), at + draw.randrange(7))  # the loader is ahead of what has been trained
        read(first, range(at, ahead))
        state = json.loads(json.dumps(first.state_dict()))
        second = streamed(**KINDS[kind]).train.examples(sharing)
        second.load_state_dict(state)
        assert read(second, range(at, at + 40)) == expected[at : at + 40]
        places = [place for place, _ in state["places"]]
        assert at - max(place for place in places if place <= at) < 150, "the places are not near"


@kinds
def test_any_example_can_be_asked_for_again(streamed, kind):
    sharing = Sharing(**SHARING)
    examples = streamed(**KINDS[kind]).train.examples(sharing)
    expected = read(examples, range(600))
    for number in (599, 3, 250, 251, 0):
        assert plain(examples[number]) == expected[number]


def texts_of(folder):
    lines = []
    for path in sorted((folder / "text").iterdir()):
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
            lines += file
    return [json.loads(line)["text"] for line in lines]


@kinds
def test_behind_a_state_lies_what_was_there(streamed, kind):
    """A state was taken when the loader was far ahead; whoever asks for less gets it, also of the same data set."""
    sharing = Sharing(**SHARING)
    examples = streamed(**KINDS[kind]).train.examples(sharing)
    expected = read(examples, range(600))
    state = json.loads(json.dumps(examples.state_dict()))
    newest = state["places"][-1][0]
    for number in (newest - 1, newest - 6, newest - 7, newest):
        examples.load_state_dict(state)
        assert plain(examples[number]) == expected[number]
        other = streamed(**KINDS[kind]).train.examples(sharing)
        other.load_state_dict(state)
        assert plain(other[number]) == expected[number]


@pytest.mark.parametrize("world", [1, 2, 8])
def test_what_is_passed_over_is_counted_once_in_all_epochs_and_processes(streamed, streamed_corpus, tmp_path, world):
    texts = texts_of(streamed_corpus)
    held_out = [*texts[5::10], *(text.upper() for text in texts[3::25])]
    (tmp_path / "valid.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in held_out))
    states = []
    for rank in range(world):
        stream = streamed(validation_source=str(tmp_path / "valid.jsonl")).train
        blocks = stream.blocks.for_process(rank, world)
        for epoch in range(3):
            position = blocks.start(epoch)
            while (block := blocks.read(position)) is not None:
                position = block.after
        states.append(stream.log.state_dict())
    found = stream.log.merged(states)
    assert (found.number("copies"), found.number("leaks")) == (20, 8)


def test_rows_of_the_hub_that_cannot_be_read_are_counted_for_each_process(streamed, streamed_corpus, monkeypatch):
    datasets = pytest.importorskip("datasets")
    rows = [{"text": text if number % 7 else number} for number, text in enumerate(texts_of(streamed_corpus)[:98])]

    def load(name, configuration, *, split, streaming):
        def give():
            yield from rows

        return datasets.IterableDataset.from_generator(give)

    monkeypatch.setattr(datasets, "load_dataset", load)
    for world in (1, 2):
        states = []
        for rank in range(world):
            stream = streamed(source="hub:some/corpus", skip_unreadable=True).train
            blocks = stream.blocks.for_process(rank, world)
            position = blocks.start(0)
            while (block := blocks.read(position)) is not None:
                position = block.after
            states.append(stream.log.state_dict())
        assert stream.log.merged(states).number("unreadable") == 14


def names_in(tokenizer, ids):
    return [token for token in tokenizer.convert_ids_to_tokens(ids) if token.startswith("doc")]


NAMES = {"tokenizer": "word", "tokenizer_documents": 500}


@pytest.mark.parametrize("world", [1, 2, 3, 8, 11])
def test_processes_have_different_texts_and_together_all(streamed, world):
    """With 8 processes there are fewer files than processes, so that they share out blocks."""
    data = streamed(**NAMES)
    for epoch in (0, 3):
        found = []
        for rank in range(world):
            blocks = data.train.blocks.for_process(rank, world)
            position = blocks.start(epoch)
            while (block := blocks.read(position)) is not None:
                found += names_in(data.tokenizer, block.encoded.ids.tolist())
                position = block.after
        assert sorted(found) == sorted(f"doc{number}" for number in range(200))


@kinds
def test_no_example_of_a_process_is_another_ones(streamed, kind):
    """For the first steps, within an epoch; which examples a process is asked for is what the sampler deals out."""
    found = []
    for rank in range(3):
        sharing = Sharing(batch=2, accumulation=2, steps=5, rank=rank, world=3)
        numbers = own_numbers(sharing)
        assert [number // 2 % 3 for number in numbers] == [rank] * 20
        data = streamed(**{**NAMES, **KINDS[kind]})
        examples, own = data.train.examples(sharing), set()
        for number in numbers:
            example = examples[(0, number)]
            ids = example.get("shift_labels", example.get("labels"))
            own.update(names_in(data.tokenizer, torch.where(ids == -100, example["input_ids"], ids).tolist()))
        assert len(own) > 5
        found += own
    assert len(found) == len(set(found))


@pytest.mark.parametrize("kind", ["lanes", "documents"])
def test_lanes_go_on_where_they_were(streamed, kind):
    """Every token of a lane is predicted from the one before it; memory is reset where a text begins."""
    sharing = Sharing(batch=2, accumulation=2, steps=60)
    data = streamed(**KINDS[kind])
    examples, sep = data.train.examples(sharing), data.tokenizer.sep_token_id
    assert sharing.rows == 4
    for lane in range(4):
        before, first = None, True
        for step in range(60):
            example = plain(examples[step * 4 + lane])
            assert example["memory_reset"] == (first if kind == "lanes" else before in (None, sep))
            assert example["input_ids"] == [sep if before is None else before, *example["shift_labels"][:-1]]
            before, first = example["shift_labels"][-1], False
            assert len(example["shift_labels"]) == 32 or (kind == "documents" and before == sep)


@pytest.mark.parametrize("kind", ["lanes", "documents"])
def test_pieces_of_a_segment_are_the_segment(streamed, kind):
    one = streamed(**KINDS[kind]).train.examples(Sharing(batch=2, accumulation=2, steps=30))
    sharing = Sharing(batch=2, accumulation=8, steps=30, parts=4)
    pieces = streamed(**KINDS[kind]).train.examples(sharing)
    assert sharing.rows == 4
    for step in range(30):
        for lane in range(4):
            whole = plain(one[step * 4 + lane])
            parts = [plain(pieces[(step * 4 + part) * 4 + lane]) for part in range(4)]
            for name in ("input_ids", "shift_labels"):
                assert [token for part in parts for token in part[name]] == whole[name]
            assert [part["memory_reset"] for part in parts] == [whole["memory_reset"], False, False, False]


def test_order_and_masks_depend_on_seed_and_epoch(streamed):
    sharing = Sharing(**SHARING)
    one, same, other = (read(streamed(seed=seed).train.examples(sharing), range(900)) for seed in (0, 0, 1))
    assert one == same
    assert one != other
    assert other == read(streamed(seed=1).train.examples(sharing), range(900))


def test_another_source_is_refused(streamed, streamed_corpus, tmp_path):
    state = streamed().train.examples(Sharing(**SHARING)).state_dict()
    copy = tmp_path / "other"
    copy.mkdir()
    for path in (streamed_corpus / "text").iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "part-0.jsonl").write_text((copy / "part-0.jsonl").read_text().replace("strong", "string"))
    with pytest.raises(RunFailed, match="the streamed source is not the one of the checkpoint"):
        streamed(source=str(copy)).train.examples(Sharing(**SHARING)).load_state_dict(state)


def test_too_little_text_for_all_processes_ends_with_a_reason(streamed, streamed_corpus):
    sharing = Sharing(batch=1, accumulation=1, steps=50, rank=499, world=500)
    with pytest.raises(BadInput, match="too little text in epoch 0 for each of 500 processes"):
        streamed().train.examples(sharing)[499]


@pytest.mark.parametrize("kind", ["sentences", "lanes"])
def test_a_second_run_encodes_nothing_and_a_damaged_shard_is_encoded_again(streamed, kind, tmp_path, monkeypatch):
    import wordorder.data.examples.encode as encode

    calls, original = [], encode._encode
    monkeypatch.setattr(encode, "_encode", lambda *arguments: calls.append(1) or original(*arguments))
    sharing = Sharing(batch=3, accumulation=1, steps=100)
    expected = read(streamed(**KINDS[kind]).train.examples(sharing), range(300))
    assert len(calls) > 5
    calls.clear()
    assert read(streamed(**KINDS[kind]).train.examples(sharing), range(300)) == expected
    assert not calls
    shard = next((tmp_path / "cache" / "encoded").iterdir())
    content = bytearray(shard.read_bytes())
    content[-9] ^= 1
    shard.write_bytes(content)
    assert read(streamed(**KINDS[kind]).train.examples(sharing), range(300)) == expected
    assert len(calls) <= 2


def test_a_data_set_of_datasets_is_streamed_and_goes_on_exactly(streamed, streamed_corpus, monkeypatch):
    datasets = pytest.importorskip("datasets")
    files = [(streamed_corpus / "text" / f"part-{file}.jsonl").read_text() for file in (0, 1, 2, 4)]
    rows = [json.loads(line) for file in files for line in file.splitlines()]

    def load(name, configuration, *, split, streaming):
        assert (name, configuration, split, streaming) == ("some/corpus", None, "train", True)
        return datasets.Dataset.from_list(rows).to_iterable_dataset(num_shards=6)

    monkeypatch.setattr(datasets, "load_dataset", load)
    for kind in ("sentences", "lanes"):
        fields = {**KINDS[kind], "source": "hub:some/corpus"}
        sharing = Sharing(batch=2, accumulation=1, steps=300)
        expected = read(streamed(**fields).train.examples(sharing), range(600))
        for at in (37, 411):
            first = streamed(**fields).train.examples(sharing)
            read(first, range(at))
            second = streamed(**fields).train.examples(sharing)
            second.load_state_dict(json.loads(json.dumps(first.state_dict())))
            assert read(second, range(at, at + 60)) == expected[at : at + 60]
