"""The one encoder, and tokens in the cache: mapped, checked, and encoded again only where something is missing."""

import os
import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wordorder.data import Text, Texts, TokenizerConfig, load_tokenizer, tokens
from wordorder.data.examples.lanes import RunningText
from wordorder.data.tokens import encode_column, encode_texts, encoder_of, sentence_borders, tokens_of
from wordorder.errors import BadInput

TEXTS = [f"Text {number} says this. And that " + "again " * number for number in range(60)] + ["", "Ends.\n\nHere"]
HARD = [
    'He came. "I saw!" She won? yes. Mr. Smith.',
    "A title\n\nThe text, e.g. this.  Two  spaces. \u00c9t\u00e9 na\u00efve.\n \nEnd",
    "\u4f60\u597d\u3002\u518d\u89c1\uff01 mixed with words. \U0001f600 Emoji!",
    "[MASK] in the [SEP] corpus. [CLS] Again.",
    " . . . A. B. c. \t\n\n\n D",
]
ROWS = np.arange(len(TEXTS))


@pytest.fixture
def tokenizer(tmp_path):
    return load_tokenizer(TokenizerConfig(kind="byte"), [], cache_dir=tmp_path)


@pytest.fixture
def calls(monkeypatch):
    """The number of texts that each call encoded."""
    counts, original = [], tokens._encode

    def counting(texts, *rest, **options):
        counts.append(len(texts))
        return original(texts, *rest, **options)

    monkeypatch.setattr(tokens, "_encode", counting)
    return counts


def encode(tokenizer, folder, *, sentences=True, texts=TEXTS, **options):
    rows = np.arange(len(texts))
    table = Texts.of(map(Text, texts))
    return encode_column(table, "text", rows, tokenizer, sentences=sentences, cache_dir=folder, **options)


def same(one, other):
    arrays = [(getattr(one, name), getattr(other, name)) for name in ("ids", "starts", "sentence_ends")]
    return one.unknown == other.unknown and all(np.array_equal(mine, others) for mine, others in arrays)


def slowly(text, encoder):
    """Sentence by sentence, as the rules say: ids, and the end of each sentence."""
    borders = [0, *sentence_borders(text), len(text)]
    ids, ends = [], []
    for start, end in pairwise(borders):
        ids += encoder.encode(text[start:end], add_special_tokens=False).ids
        ends.append(len(ids))
    return ids, sorted(set(ends) - {0})


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "byte", "character", "word"])
@pytest.mark.parametrize("lowercase", [False, True])
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_whole_texts_are_encoded_as_their_sentences(tmp_path_factory, kind, lowercase, data):
    folder = tmp_path_factory.getbasetemp() / "tokenizers"
    config = TokenizerConfig(kind=kind, vocab_size=400, lowercase=lowercase)
    tokenizer = load_tokenizer(config, [*HARD, *TEXTS], cache_dir=folder)
    text = "".join(data.draw(st.lists(st.sampled_from([*HARD, *TEXTS[:3], " ", "\n"]), min_size=1, max_size=4)))
    (encoded,) = encode_texts([text], tokenizer, sentences=True)
    ids, ends = slowly(text, encoder_of(tokenizer))
    assert encoded.ids.tolist() == ids
    assert encoded.sentence_ends.tolist() == ends
    assert encode_texts([text], tokenizer)[0].ids.tolist() == ids


def test_a_long_text_is_encoded_in_pieces_of_whole_sentences(tokenizer, monkeypatch):
    text = " ".join(TEXTS)
    (whole,) = encode_texts([text], tokenizer, sentences=True)
    monkeypatch.setattr(tokens, "_LONGEST", 100)
    assert len(tokens._pieces(text)) > 20
    (pieces,) = encode_texts([text], tokenizer, sentences=True)
    assert whole.ids.tolist() == pieces.ids.tolist()
    assert whole.sentence_ends.tolist() == pieces.sentence_ends.tolist()


def test_tokens_are_those_of_the_texts_with_a_separator_after_each(tokenizer, tmp_path):
    found = encode(tokenizer, tmp_path)
    encoded = encode_texts(TEXTS, tokenizer, sentences=True)
    assert [found.document(number).tolist() for number in range(len(found))] == [one.ids.tolist() for one in encoded]
    assert found.ids.tolist() == [
        token for one in encoded if len(one.ids) for token in (*one.ids.tolist(), tokenizer.sep_token_id)
    ]
    assert found.sizes.tolist() == [len(one.ids) for one in encoded]
    ends = [int(start + end) for start, one in zip(found.starts, encoded, strict=False) for end in one.sentence_ends]
    assert found.sentence_ends.tolist() == ends
    assert found.ids.dtype == np.uint16
    assert encode(tokenizer, tmp_path, sentences=False).sentence_ends is None


def test_a_second_run_maps_what_the_first_one_wrote(tokenizer, tmp_path, calls):
    first = encode(tokenizer, tmp_path)
    assert sum(calls) == len(TEXTS)
    second = encode(tokenizer, tmp_path)
    assert sum(calls) == len(TEXTS)
    assert same(first, second)
    assert not second.ids.flags.writeable
    if (maps := Path("/proc/self/maps")).exists():
        assert str(second.path) in maps.read_text()
    copy = pickle.loads(pickle.dumps(second))  # as a worker of another process gets it
    assert copy.path == second.path
    assert same(copy, second)
    assert len(pickle.dumps(second)) < 1000


def test_a_changed_byte_or_a_cut_file_is_encoded_again(tokenizer, tmp_path, calls):
    path = encode(tokenizer, tmp_path).path
    whole, expected = path.read_bytes(), encode(tokenizer, tmp_path / "other")
    for damaged in (whole[:-1], b"", whole[:-8], whole[:100] + b"\x7f" + whole[101:]):
        calls.clear()
        path.write_bytes(damaged)
        assert same(encode(tokenizer, tmp_path), expected)
        assert sum(calls) == len(TEXTS)
        assert path.read_bytes() == whole
    path.with_suffix(".json").write_text("{")
    calls.clear()
    encode(tokenizer, tmp_path)
    assert sum(calls) == len(TEXTS)


def test_shards_together_are_the_whole_and_are_gone_at_the_end(tokenizer, tmp_path, monkeypatch):
    whole = encode(tokenizer, tmp_path / "one")
    monkeypatch.setattr(tokens, "_SHARD", 1000)
    reports = list[tuple[int, int]]()
    assert same(encode(tokenizer, tmp_path / "two", progress=lambda *numbers: reports.append(numbers)), whole)
    assert len(reports) > 1
    assert reports == sorted(reports)
    assert {total for _, total in reports} == {len(TEXTS)} == {reports[-1][0]}
    assert len(list((tmp_path / "two" / "tokens").iterdir())) == 2  # the file and its note


def test_a_run_that_was_killed_goes_on_with_the_shard_that_it_had_begun(tokenizer, tmp_path, calls, monkeypatch):
    monkeypatch.setattr(tokens, "_SHARD", 1000)
    with monkeypatch.context() as patch:
        counting = tokens._encode

        def killed(texts, *rest, **options):
            if len(calls) == 3:
                raise KeyboardInterrupt
            return counting(texts, *rest, **options)

        patch.setattr(tokens, "_encode", killed)
        with pytest.raises(KeyboardInterrupt):
            encode(tokenizer, tmp_path)
    done = sum(calls)
    assert done
    calls.clear()
    encode(tokenizer, tmp_path)
    assert sum(calls) == len(TEXTS) - done
    assert not [path for path in (tmp_path / "tokens").iterdir() if path.name.startswith(".")]


def test_another_separator_is_another_file(tokenizer, tmp_path):
    first = encode(tokenizer, tmp_path)
    tokenizer.sep_token = "[MASK]"
    second = encode(tokenizer, tmp_path)
    assert first.ids[first.ends[0]] == 3
    assert second.ids[second.ends[0]] == 4


def test_what_is_damaged_in_a_folder_that_cannot_be_written_is_not_used(tokenizer, tmp_path, monkeypatch):
    first = encode(tokenizer, tmp_path)
    expected = first.ids.tolist()
    content = first.path.read_bytes()
    first.path.write_bytes(bytes(100) + content[100:])
    made = tokens.new_file.__wrapped__.__globals__["mkstemp"]

    def refuse(**options):
        if "dir" in options:
            raise PermissionError(13, "Permission denied")
        return made()

    monkeypatch.setattr("wordorder.data.cache.mkstemp", refuse)
    with pytest.warns(UserWarning, match="cannot cache"):
        assert encode(tokenizer, tmp_path).ids.tolist() == expected


def test_running_text_is_sent_to_another_process_by_its_file(tokenizer, tmp_path):
    text = RunningText(encode(tokenizer, tmp_path), length=16, characters=1, words=1)
    assert len(pickle.dumps(text)) < len(text.ids)
    assert pickle.loads(pickle.dumps(text)).ids.tolist() == text.ids.tolist()


def test_a_cache_that_is_deleted_while_a_run_reads_it_is_named(tokenizer, tmp_path):
    sent = pickle.dumps(encode(tokenizer, tmp_path))
    for path in (tmp_path / "tokens").iterdir():
        path.unlink()
    with pytest.raises(BadInput, match="is gone: the cache must stay while a run reads it"):
        pickle.loads(sent)


def test_what_a_killed_run_left_is_removed_a_day_later(tokenizer, tmp_path):
    path = encode(tokenizer, tmp_path).path
    old, young = (path.with_name(f".{path.name}.{name}") for name in ("old", "young"))
    for left in (old, young):
        left.write_bytes(b"half")
    os.utime(old, (0, 0))
    path.unlink()
    encode(tokenizer, tmp_path)
    assert [left.exists() for left in (old, young)] == [False, True]


def test_tokens_in_memory():
    found = tokens_of([[5, 6], [], [7]], 3)
    assert found.ids.tolist() == [5, 6, 3, 7, 3]
    assert (found.starts.tolist(), found.sizes.tolist()) == ([0, 3, 3, 5], [2, 0, 1])
    assert len(found) == 3
