import json
import os
import struct

import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from wordorder import ComplexOrderEmbedding
from wordorder.papers.complex_order import load_word_vectors

WORDS = {"<pad>": 0, "the": 1, "ice cream": 2, "tea": 3}
GLOVE = "the 1 2 3\n. . . 7 7 7\nunseen 9 9 9\nice cream 4 -5 6e-1\nthe 0 0 0\n"


def write(folder, text, name="vectors.txt"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def loaded(path, words=WORDS, width=3):
    embedding = ComplexOrderEmbedding(4, width, padding_idx=0)
    before = embedding.amplitude.detach().clone()
    found = load_word_vectors(embedding, path, words)
    return embedding.amplitude.detach(), before, found


@pytest.mark.parametrize("header", ["", "5 3\n"])
def test_text_vectors_are_read_and_missing_words_keep_their_draw(header, tmp_path):
    amplitude, before, found = loaded(write(tmp_path, header + GLOVE))
    assert_close(amplitude[1], torch.tensor([1.0, 2.0, 3.0]))  # the first of two
    assert_close(amplitude[2], torch.tensor([4.0, -5.0, 0.6]))
    assert torch.equal(amplitude[[0, 3]], before[[0, 3]])
    assert sorted(found.ids.tolist()) == [1, 2]
    assert found.missing == 2


def test_a_word_that_begins_a_longer_one_is_not_mistaken_for_it(tmp_path):
    amplitude, before, _ = loaded(write(tmp_path, "the 1 2 3\n. 5 5 5\n. . . 7 7 7\n"), {".": 3, "the": 1})
    assert_close(amplitude[3], torch.tensor([5.0, 5.0, 5.0]))
    amplitude, before, found = loaded(write(tmp_path, "the 1 2 3\na 5 5 5\n. . . 7 7 7\n"), {".": 3, "the": 1})
    assert torch.equal(amplitude[3], before[3])
    assert found.missing == 1


def test_safetensors_by_words_or_by_token_id(tmp_path):
    rows = torch.arange(12.0).reshape(4, 3)
    save_file({"vectors": rows}, tmp_path / "a.safetensors", metadata={"words": json.dumps(["tea", "x", "the", "tea"])})
    amplitude, before, found = loaded(tmp_path / "a.safetensors")
    assert_close(amplitude[3], rows[0])
    assert_close(amplitude[1], rows[2])
    assert torch.equal(amplitude[[0, 2]], before[[0, 2]])
    assert found.missing == 2
    save_file({"vectors": rows.bfloat16(), "bias": torch.zeros(3)}, tmp_path / "b.safetensors")
    amplitude, _, found = loaded(tmp_path / "b.safetensors", None)
    assert_close(amplitude, rows)
    assert found.missing == 0


def test_a_failed_load_changes_nothing(tmp_path):
    embedding = ComplexOrderEmbedding(4, 3)
    before = embedding.amplitude.detach().clone()
    with pytest.raises(ValueError, match="NaN"):
        load_word_vectors(embedding, write(tmp_path, "the 1 2 3\ntea nan 1 1\n"), WORDS)
    assert torch.equal(embedding.amplitude, before)


def tensors(folder, metadata=None, **parts):
    save_file(parts, folder / "v.safetensors", metadata=metadata)
    return folder / "v.safetensors"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: f / "nothing.txt", "there is no file"),
        (lambda f: write(f, "the 1 2\nof 3 4\n"), "line 1: a word and 2 numbers, but the embedding has 3"),
        (lambda f: write(f, "the 1 2 3 4\n"), "line 1: a word and 4 numbers, but the embedding has 3"),
        (lambda f: write(f, "2 300\nthe 1 2 3\n"), "300 channels, but the embedding has 3"),
        (lambda f: write(f, "the 1 2 3\nof 1 1 1\ntea 1 2\n"), "line 3: 'tea' has 2 numbers, not 3"),
        (lambda f: write(f, "the 1 2 3\nof 1 1 1\ntea 1 2 3 4\n"), "line 3: 'tea' has 4 numbers, not 3"),
        (lambda f: write(f, "the 1 2 3\nof 1 1 1\ntea 1 x 2\n"), "line 3: what follows 'tea' is not all numbers"),
        (lambda f: write(f, "the 1 nan 3\n"), "line 1: the vector of 'the' holds NaN"),
        (lambda f: write(f, "the 1 2 3\ntea 1 inf 3\n"), "line 2: the vector of 'tea' holds NaN or infinity"),
        (lambda f: write(f, "der 1 2 3\ndie 1 2 3\n"), "none of the 4 words"),
        (lambda f: write(f, ""), "none of the 4 words"),
        (lambda f: write(f, b"1 3\nthe " + struct.pack("<3f", 1, 2, 3)), "binary"),
        (lambda f: write(f, b"not a tensor file", "x.safetensors"), "not a readable safetensors file"),
        (lambda f: tensors(f, a=torch.zeros(4, 5)), "5 channels, but the embedding has 3"),
        (lambda f: tensors(f, a=torch.zeros(9, 3)), "9 rows and no words"),
        (lambda f: tensors(f, a=torch.zeros(4, 3), b=torch.zeros(4, 3)), "one tensor with two axes, got 2: a, b"),
        (lambda f: tensors(f, a=torch.full((4, 3), torch.nan)), "token id 0 holds NaN"),
        (lambda f: tensors(f, {"words": '["a"]'}, a=torch.zeros(4, 3)), "4 rows, but its metadata names 1"),
        (lambda f: tensors(f, {"words": '["a"]'}, a=torch.zeros(1, 3)), "none of the 4 words"),
        (lambda f: tensors(f, {"words": "the, tea"}, a=torch.zeros(2, 3)), "must be a JSON list, got 'the, tea'"),
        (lambda f: tensors(f, {"words": '{"the": 0}'}, a=torch.zeros(1, 3)), "'words' must be a JSON list"),
    ],
)
def test_wrong_files_are_named(make, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        loaded(make(tmp_path))


def test_wrong_calls_are_named(tmp_path):
    path = write(tmp_path, GLOVE)
    with pytest.raises(ValueError, match="pass words"):
        loaded(path, None)
    named = tensors(tmp_path, {"words": '["the"]'}, a=torch.zeros(1, 3))
    for file in (path, named):
        with pytest.raises(ValueError, match=r"token ids in 0 .. 3, got 4"):
            loaded(file, {"the": 4})
    with pytest.raises(ValueError, match="amplitude='full'"):
        load_word_vectors(ComplexOrderEmbedding(4, 3, amplitude="dimension-sharing"), path, WORDS)


@pytest.mark.parametrize(
    ("size", "begin", "words"),
    [
        (2**40, b"", "is binary"),
        (2**40, b"the 1 2 3\n", "is binary"),
        (0, b"the 1 2 3\nthe" + b" 1" * 2**20, "line 2 has"),
    ],
)
def test_a_line_without_end_is_not_read_whole(size, begin, words, tmp_path):
    path = write(tmp_path, begin)
    if size:
        os.truncate(path, size)  # sparse: zeros that take no room on the disk
    with pytest.raises(ValueError, match=words):
        loaded(path)


def test_names_of_rows_that_are_nested_without_end_are_no_list(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"vectors": torch.zeros(2, 3)}, path, metadata={"words": "[" * 100_000})
    with pytest.raises(ValueError, match="must be a JSON list"):
        loaded(path)
