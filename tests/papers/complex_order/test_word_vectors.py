import os
import struct

import pytest
import torch
from torch.testing import assert_close

from wordorder.encodings import ComplexOrder, ComplexOrderEmbedding
from wordorder.papers.complex_order import load_word_vectors

WORDS = {"<pad>": 0, "the": 1, "ice cream": 2, "tea": 3}
GLOVE = "the 1 2 3\n. . . 7 7 7\nunseen 9 9 9\nice cream 4 -5 6e-1\nthe 0 0 0\n"


def write(folder, text, name="vectors.txt"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def loaded(path, words=WORDS, width=3):
    embedding = ComplexOrder(width, vocabulary=4, padding_idx=0)
    before = embedding.weight.detach().clone()
    found = load_word_vectors(embedding, path, words)
    return embedding.weight.detach(), before, found


@pytest.mark.parametrize("header", ["", "5 3\n"])
def test_text_vectors_are_read_and_missing_words_keep_their_draw(header, tmp_path):
    amplitude, before, found = loaded(write(tmp_path, header + GLOVE))
    assert_close(amplitude[1], torch.tensor([1.0, 2.0, 3.0]))  # the first of two
    assert_close(amplitude[2], torch.tensor([4.0, -5.0, 0.6]))
    assert torch.equal(amplitude[[0, 3]], before[[0, 3]])
    assert found == 2


def test_a_word_that_begins_a_longer_one_is_not_mistaken_for_it(tmp_path):
    amplitude, before, _ = loaded(write(tmp_path, "the 1 2 3\n. 5 5 5\n. . . 7 7 7\n"), {".": 3, "the": 1})
    assert_close(amplitude[3], torch.tensor([5.0, 5.0, 5.0]))
    amplitude, before, found = loaded(write(tmp_path, "the 1 2 3\na 5 5 5\n. . . 7 7 7\n"), {".": 3, "the": 1})
    assert torch.equal(amplitude[3], before[3])
    assert found == 1


def test_a_failed_load_changes_nothing(tmp_path):
    embedding = ComplexOrderEmbedding(4, 3)
    before = embedding.amplitude.detach().clone()
    with pytest.raises(ValueError, match="NaN"):
        load_word_vectors(embedding, write(tmp_path, "the 1 2 3\ntea nan 1 1\n"), WORDS)
    assert torch.equal(embedding.amplitude, before)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: f / "nothing.txt", "there is no file"),
        (lambda f: write(f, "the 1 2\nof 3 4\n"), "line 1: 'the' has 2 numbers, but the embedding has 3"),
        (lambda f: write(f, "the 1 2 3 4\n"), "line 1: 'the' has 4 numbers, but the embedding has 3"),
        (lambda f: write(f, "2 300\nthe 1 2 3\n"), "300 channels, but the embedding has 3"),
        (lambda f: write(f, "the 1 2 3\nof 1 1 1\ntea 1 2\n"), "line 3: 'tea' has 2 numbers"),
        (lambda f: write(f, "the 1 2 3\nof 1 1 1\ntea 1 2 3 4\n"), "line 3: 'tea' has 4 numbers"),
        (lambda f: write(f, "the 1 2 3\nof 1 1 1\ntea 1 x 2\n"), "line 3: what follows 'tea' is not all numbers"),
        (lambda f: write(f, "the 1 nan 3\n"), "line 1: the vector of 'the' holds NaN"),
        (lambda f: write(f, "the 1 2 3\ntea 1 inf 3\n"), "line 2: the vector of 'tea' holds NaN or infinity"),
        (lambda f: write(f, "der 1 2 3\ndie 1 2 3\n"), "none of the 4 words"),
        (lambda f: write(f, ""), "none of the 4 words"),
        (lambda f: write(f, b"1 3\nthe " + struct.pack("<3f", 1, 2, 3)), "binary"),
    ],
)
def test_wrong_files_are_named(make, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        loaded(make(tmp_path))


def test_token_ids_without_a_row_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"token ids in 0 .. 3, got 4"):
        loaded(write(tmp_path, GLOVE), {"the": 4})


def test_amplitudes_of_complex_embeddings_are_loaded(tmp_path):
    embedding = ComplexOrderEmbedding(4, 3)
    assert load_word_vectors(embedding, write(tmp_path, GLOVE), WORDS) == 2
    assert_close(embedding.amplitude.detach()[1], torch.tensor([1.0, 2.0, 3.0]))


def test_shared_amplitudes_have_no_row_per_word(tmp_path):
    embedding = ComplexOrderEmbedding(4, 3, amplitude="dimension-sharing")
    with pytest.raises(ValueError, match="amplitude='full'"):
        load_word_vectors(embedding, write(tmp_path, GLOVE), WORDS)


@pytest.mark.parametrize(
    ("size", "begin", "words"),
    [
        (2**40, b"", "is binary"),
        (2**40, b"the 1 2 3\n", "is binary"),
        (0, b"the 1 2 3\nthe" + b" 1" * 2**20, "line 2 is binary or too long"),
    ],
)
def test_a_line_without_end_is_not_read_whole(size, begin, words, tmp_path):
    path = write(tmp_path, begin)
    if size:
        os.truncate(path, size)  # sparse: zeros that take no room on the disk
    with pytest.raises(ValueError, match=words):
        loaded(path)
