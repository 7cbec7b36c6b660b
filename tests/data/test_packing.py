"""Packing against a slow statement of its rules, and classification pieces."""

from itertools import pairwise

import numpy as np
import pytest
from documents import tokens_with
from hypothesis import given
from hypothesis import strategies as st

from wordorder.data import TokenizerConfig, load_tokenizer
from wordorder.data.packing import (
    Spans,
    across_documents,
    containing,
    documents_of,
    pairs,
    pieces,
    running,
    whole_sentences,
)
from wordorder.data.tokens import sentence_borders
from wordorder.tasks.classification import label_names
from wordorder.tasks.task import labelled_spans

CLS, SEP = 2, 3


def examples(spans):
    return [spans[number].tolist() for number in range(len(spans))]


def framed(side):
    """[CLS] span [SEP], with the arithmetic of the lengths checked."""
    spans = Spans(sides=(side,), before=(CLS,), after=(SEP,))
    assert spans.lengths.tolist() == [len(row) for row in examples(spans)]
    return spans


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
    spans = framed(whole_sentences(tokens_with(documents), room=length - 2))
    assert examples(spans) == slow_full_sentences(documents, length)
    assert (spans.lengths <= length).all()


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
    spans = framed(across_documents(tokens_with(documents), room=length - 2))
    assert examples(spans) == slow_across_documents(documents, length)
    assert (spans.lengths <= length).all()
    ordinary = [token for row in examples(spans) for token in row if token > SEP]
    assert ordinary == list(range(10, 10 + sum(map(sum, documents))))  # no token is lost


@given(corpora, st.integers(8, 20), st.booleans())
def test_running_text_is_cut_into_full_spans_in_order(documents, room, keep_last):
    text, token = [], 10
    for document in documents:
        text += [*range(token, token + sum(document)), *([SEP] if sum(document) else [])]
        token += sum(document)
    rows = [text[i : i + room] for i in range(0, len(text), room)]
    side = running(tokens_with(documents), room=room, keep_last=keep_last)
    spans = Spans(sides=(side,), before=(CLS,))
    assert examples(spans) == [[CLS, *row] for row in rows if keep_last or len(row) == room]


def test_rows_are_padded_on_the_right():
    side = whole_sentences(tokens_with([[6, 6], [2]]), room=6)
    ids, present = framed(side).rows(np.array([2, 0]), padding=0)
    assert ids.tolist() == [[CLS, 22, 23, SEP, 0, 0, 0, 0], [CLS, *range(10, 16), SEP]]
    assert present.sum(axis=1).tolist() == [4, 8]


@given(corpora, st.integers(8, 20), st.integers(0, 60), st.sampled_from([1, 7, 100]))
def test_spans_that_hold_a_token_are_found(documents, room, first, block):
    tokens = tokens_with(documents)
    wanted = np.arange(int(tokens.ids.max(initial=SEP)) + 1) >= first + 10
    for pack in (whole_sentences, across_documents):
        side = pack(tokens, room=room)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("wordorder.data.packing._BLOCK", block)
            expected = [bool(wanted[side.ids(number)].any()) for number in range(len(side.first))]
            assert containing(side, wanted).tolist() == expected


@given(corpora, st.integers(8, 20))
def test_a_span_belongs_to_the_document_that_it_begins_in(documents, room):
    tokens = tokens_with(documents)
    owner = np.repeat(np.arange(len(documents)), [sum(document) for document in documents])
    for side in (whole_sentences(tokens, room=room), across_documents(tokens, room=room)):
        first = [next(token for token in side.ids(number) if token > SEP) for number in range(len(side.first))]
        assert documents_of(side).tolist() == [int(owner[token - 10]) for token in first]


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
    borders = [0, *sentence_borders(text), len(text)]
    assert [text[start:end] for start, end in pairwise(borders)] == sentences


def slow_pieces(tokens, room, most, truncate):
    starts = [0, *(start for start in range(room, len(tokens), room) if len(tokens) - start >= room / 4)]
    starts = starts[:1] if truncate else starts
    if most is not None and len(starts) > most:
        starts = [starts[(2 * i + 1) * len(starts) // (2 * most)] for i in range(most)]
    return [tokens[start : start + room] for start in starts]


@given(
    st.lists(st.integers(0, 70), min_size=1, max_size=6),
    st.integers(1, 20),
    st.none() | st.integers(1, 5),
    st.booleans(),
)
def test_long_documents_are_cut_in_pieces_with_their_owner(sizes, room, most, truncate):
    tokens = tokens_with([[size] for size in sizes])
    side, owners = pieces(tokens, room=room, most=most, truncate=truncate)
    expected = [
        (owner, piece)
        for owner in range(len(sizes))
        for piece in slow_pieces(tokens.document(owner).tolist(), room, most, truncate)
    ]
    assert [(int(owner), side.ids(number).tolist()) for number, owner in enumerate(owners)] == expected


def test_a_piece_without_a_token_is_what_stands_for_nothing():
    side, _ = pieces(tokens_with([[2], [0]]), room=4, most=None, truncate=False)
    assert examples(Spans(sides=(side,), nothing=1)) == [[10, 11], [1]]
    assert examples(framed(side)) == [[CLS, 10, 11, SEP], [CLS, SEP]]


@pytest.mark.parametrize(
    ("between", "first", "second", "kept"),
    [
        *((1, *sizes) for sizes in ((2, 2, (2, 2)), (9, 2, (3, 2)), (2, 9, (2, 3)), (9, 9, (2, 3)))),
        *((2, *sizes) for sizes in ((9, 2, (2, 2)), (9, 9, (2, 2)), (1, 9, (1, 3)), (1, 1, (1, 1)))),
    ],
)
def test_pairs_fit_by_shortening_the_longer(between, first, second, kept):
    sides = pairs(tokens_with([[first]]), tokens_with([[second]]), room=8 - 2 - between)
    spans = Spans(sides=sides, before=(CLS,), between=(SEP,) * between, after=(SEP,))
    a, b = ([*range(10, 10 + count)] for count in kept)
    assert examples(spans) == [[CLS, *a, *[SEP] * between, *b, SEP]]


def test_pairs_have_their_borders_though_the_tokenizer_adds_none(tmp_path):
    tokenizer = load_tokenizer(TokenizerConfig(kind="byte", add_special_tokens=False), [], cache_dir=tmp_path)
    options = {"length": 16, "max_pieces": None, "truncate": False}
    spans, owners = labelled_spans(tokenizer, tokens_with([[2], [1]]), tokens_with([[1], [3]]), **options)
    assert examples(spans) == [[CLS, 10, 11, SEP, 10, SEP], [CLS, 12, SEP, 11, 12, 13, SEP]]
    assert owners.tolist() == [0, 1]
    spans, _ = labelled_spans(tokenizer, tokens_with([[2], [1]]), None, **options)
    assert examples(spans) == [[10, 11], [12]]


def test_label_names_are_ordered_by_value_or_alphabet():
    assert label_names({"10", "9", "-1"}) == ("-1", "9", "10")
    assert label_names({"b", "a", "10"}) == ("10", "a", "b")
    assert label_names({"--1", "1"}) == ("--1", "1")
