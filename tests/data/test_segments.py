"""Packing against a slow statement of its rules, and classification pieces."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wordorder.data.examples.encode import EncodedDocuments, split_sentences
from wordorder.data.examples.segments import AcrossDocuments, Contiguous, WholeSentences, cut_in_pieces
from wordorder.tasks.classification import label_names

CLS, SEP = 2, 3


def encoded(documents):
    """Encode documents given as lists of sentence lengths; token ids count up from 10."""
    sentences = [length for document in documents for length in document]
    return EncodedDocuments(
        ids=np.arange(10, 10 + sum(sentences), dtype=np.int32),
        sentence_starts=np.concatenate([[0], np.cumsum(sentences, dtype=np.int64)]).astype(np.int64),
        document_starts=np.concatenate([[0], np.cumsum([len(d) for d in documents], dtype=np.int64)]).astype(np.int64),
    )


def examples(segments):
    return [segments.ids[a:b].tolist() for a, b in zip(segments.starts[:-1], segments.starts[1:], strict=True)]


def slow_full_sentences(documents, length):
    out, token = [], 10
    for document in documents:
        open_segment = []
        for size in document:
            sentence = list(range(token, token + size))
            token += size
            if len(open_segment) + size > length - 2 and open_segment:
                out.append(open_segment)
                open_segment = []
            while len(sentence) > length - 2:
                out.append(sentence[: length - 2])
                sentence = sentence[length - 2 :]
            open_segment = open_segment + sentence
        if open_segment:
            out.append(open_segment)
    return [[CLS, *segment, SEP] for segment in out]


corpora = st.lists(st.lists(st.integers(0, 25), min_size=1, max_size=12), min_size=1, max_size=6)


@given(corpora, st.integers(8, 20))
def test_full_sentences_as_the_rules_say(documents, length):
    segments = WholeSentences(length=length, cls_id=CLS, sep_id=SEP).pack(encoded(documents))
    assert examples(segments) == slow_full_sentences(documents, length)
    assert segments.lengths.sum() == len(segments.ids)
    assert (segments.lengths <= length).all()


def slow_across_documents(documents, length):
    """Sentence after sentence; a document's last one has [SEP] after it, with which no segment ends twice."""
    out, token, open_segment = [], 10, []
    for document in documents:
        filled = [number for number, size in enumerate(document) if size]
        for number, size in enumerate(document):
            sentence = [*range(token, token + size), *([SEP] if number == max(filled, default=None) else [])]
            token += size
            if len(open_segment) + len(sentence) > length - 2 and open_segment:
                out.append(open_segment)
                open_segment = []
            while len(sentence) > length - 2:
                out.append(sentence[: length - 2])
                sentence = sentence[length - 2 :]
            open_segment = open_segment + sentence
    trimmed = [segment[:-1] if segment[-1:] == [SEP] else segment for segment in [*out, open_segment]]
    return [[CLS, *segment, SEP] for segment in trimmed if segment]


@given(corpora, st.integers(8, 20))
def test_sentences_across_documents_as_the_rules_say(documents, length):
    segments = AcrossDocuments(length=length, cls_id=CLS, sep_id=SEP).pack(encoded(documents))
    assert examples(segments) == slow_across_documents(documents, length)
    assert (segments.lengths <= length).all()
    ordinary = segments.ids[(segments.ids != CLS) & (segments.ids != SEP)]
    assert ordinary.tolist() == list(range(10, 10 + sum(map(sum, documents))))  # no token is lost


@given(corpora, st.integers(8, 20))
def test_contiguous_segments_are_full_and_in_order(documents, length):
    segments = Contiguous(length=length, cls_id=CLS, sep_id=SEP).pack(encoded(documents))
    running, token = [], 10
    for document in documents:
        running += [*range(token, token + sum(document)), SEP]
        token += sum(document)
    rows = [running[i : i + length - 1] for i in range(0, len(running), length - 1)]
    assert examples(segments) == [[CLS, *row] for row in rows if len(row) == length - 1]


def test_rows_are_padded_on_the_right():
    segments = WholeSentences(length=8, cls_id=CLS, sep_id=SEP).pack(encoded([[6, 6], [2]]))
    ids, present = segments.rows(np.array([2, 0]), padding=0)
    assert ids.tolist() == [[CLS, 22, 23, SEP, 0, 0, 0, 0], [CLS, *range(10, 16), SEP]]
    assert present.sum(axis=1).tolist() == [4, 8]
    assert examples(segments.only(segments.containing(np.arange(30) >= 16))) == examples(segments)[1:]


@given(st.text())
def test_sentences_joined_are_the_text(text):
    assert "".join(split_sentences(text)) == text


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ('He came. "I saw!" She won? yes.', ["He came.", ' "I saw!"', " She won? yes."]),
        ("A title\n\nThe text, e.g. this", ["A title", "\n\nThe text, e.g. this"]),
        ("\u4f60\u597d\u3002\u518d\u89c1\uff01", ["\u4f60\u597d\u3002", "\u518d\u89c1\uff01"]),
        ("Mr. Smith", ["Mr.", " Smith"]),  # a known limit
    ],
)
def test_sentence_borders(text, sentences):
    assert split_sentences(text) == sentences


def test_long_documents_are_cut_in_pieces_with_their_owner():
    documents = encoded([[20], [3], [13]])
    segments, owners = cut_in_pieces(documents, None, length=8, max_pieces=None, cls_id=CLS, sep_id=SEP)
    assert owners.tolist() == [0, 0, 0, 0, 1, 2, 2]
    rows = examples(segments)
    assert rows[0] == [CLS, *range(10, 16), SEP]
    assert rows[3] == [CLS, 28, 29, SEP]
    assert rows[6] == [CLS, *range(39, 45), SEP]  # the 13th token alone is less than a quarter of a piece


def test_max_pieces_are_spread_evenly():
    segments, owners = cut_in_pieces(encoded([[60]]), None, length=8, max_pieces=2, cls_id=CLS, sep_id=SEP)
    assert owners.tolist() == [0, 0]
    assert [row[1] for row in examples(segments)] == [10 + 2 * 6, 10 + 7 * 6]


@pytest.mark.parametrize(("first", "second", "kept"), [(2, 2, (2, 2)), (9, 2, (3, 2)), (2, 9, (2, 3)), (9, 9, (2, 3))])
def test_pairs_fit_by_shortening_the_longer(first, second, kept):
    documents, pairs = encoded([[first]]), encoded([[second]])
    segments, _ = cut_in_pieces(documents, pairs, length=8, max_pieces=None, cls_id=CLS, sep_id=SEP)
    a, b = ([*range(10, 10 + count)] for count in kept)
    assert examples(segments) == [[CLS, *a, SEP, *b, SEP]]


@pytest.mark.parametrize("truncate", [False, True])
def test_a_long_text_is_cut_in_pieces_or_at_its_end(truncate):
    documents = encoded([[20], [3]])
    segments, owners = cut_in_pieces(
        documents, None, length=8, max_pieces=None, truncate=truncate, cls_id=CLS, sep_id=SEP
    )
    assert owners.tolist() == ([0, 1] if truncate else [0, 0, 0, 0, 1])
    assert examples(segments)[0] == [CLS, *range(10, 16), SEP]


@pytest.mark.parametrize(("first", "second", "kept"), [(9, 2, (2, 2)), (9, 9, (2, 2)), (1, 9, (1, 3)), (1, 1, (1, 1))])
def test_two_separators_stand_between_texts_where_the_tokeniser_writes_two(first, second, kept):
    segments, _ = cut_in_pieces(
        encoded([[first]]), encoded([[second]]), length=8, max_pieces=None, cls_id=CLS, sep_id=SEP, separators=2
    )
    a, b = ([*range(10, 10 + count)] for count in kept)
    assert examples(segments) == [[CLS, *a, SEP, SEP, *b, SEP]]


def test_label_names_are_ordered_by_value_or_alphabet():
    assert label_names({"10", "9", "-1"}) == ("-1", "9", "10")
    assert label_names({"b", "a", "10"}) == ("10", "a", "b")
    assert label_names({"--1", "1"}) == ("--1", "1")
