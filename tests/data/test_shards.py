"""Encoded documents in shards: mapped, checked, and encoded again only where something is missing."""

from pathlib import Path

import numpy as np
import pytest

from wordorder.data import TokenizerConfig, load_tokenizer
from wordorder.data.examples import encode as encoding
from wordorder.data.examples.encode import EncodedDocuments, encode_documents, read_shard, write_shard

TEXTS = [f"Text {number} says this. And that " + "again " * number for number in range(60)]


@pytest.fixture
def tokenizer(tmp_path):
    return load_tokenizer(TokenizerConfig(kind="byte"), [], cache_dir=tmp_path)


@pytest.fixture
def encoded_texts(monkeypatch):
    """Shards of about 1,000 characters; returns how many texts were encoded by each call."""
    calls, original = [], encoding._encode
    monkeypatch.setattr(encoding, "SHARD", 1000)
    monkeypatch.setattr(encoding, "_encode", lambda texts, *rest: calls.append(len(texts)) or original(texts, *rest))
    return calls


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in EncodedDocuments.__slots__)


def test_shards_together_are_the_whole(tmp_path, tokenizer, encoded_texts, monkeypatch):
    parts = encode_documents(TEXTS, tokenizer, cache_dir=tmp_path)
    assert len(encoded_texts) > 5
    assert sum(encoded_texts) == len(TEXTS)
    again = encode_documents(TEXTS, tokenizer, cache_dir=tmp_path)
    assert sum(encoded_texts) == len(TEXTS), "nothing is encoded twice"
    monkeypatch.setattr(encoding, "SHARD", 10**9)
    whole = encode_documents(TEXTS, tokenizer, cache_dir=None)
    assert same(parts, whole)
    assert same(again, whole)


def test_interrupted_encoding_goes_on_where_it_stopped(tmp_path, tokenizer, encoded_texts, monkeypatch):
    with monkeypatch.context() as patch:
        counting = encoding._encode

        def broken(texts, *rest):
            if len(encoded_texts) == 3:
                raise KeyboardInterrupt
            return counting(texts, *rest)

        patch.setattr(encoding, "_encode", broken)
        with pytest.raises(KeyboardInterrupt):
            encode_documents(TEXTS, tokenizer, cache_dir=tmp_path)
    done = sum(encoded_texts)
    encoded_texts.clear()
    encode_documents(TEXTS, tokenizer, cache_dir=tmp_path)
    assert sum(encoded_texts) == len(TEXTS) - done


def test_a_text_that_changes_costs_its_shard(tmp_path, tokenizer, encoded_texts):
    encode_documents(TEXTS, tokenizer, cache_dir=tmp_path)
    encoded_texts.clear()
    changed = [*TEXTS[:20], TEXTS[20].replace("this", "thus"), *TEXTS[21:]]
    encode_documents(changed, tokenizer, cache_dir=tmp_path)
    assert len(encoded_texts) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"ids": np.zeros((50, 1), np.int32)},
        {"document_starts": np.array(2)},
        {"more": np.zeros(1, np.int32)},
    ],
)
def test_a_shard_of_other_arrays_is_none(tmp_path, changed):
    from safetensors.numpy import save_file

    arrays = {"ids": np.zeros(50, np.int32), "sentence_starts": np.array([0, 50]), "document_starts": np.array([0, 1])}
    for content, sound in ((arrays, True), (arrays | changed, False)):
        checksum = encoding._checksum(content[name] for name in arrays)
        save_file(content, tmp_path / "shard.safetensors", metadata={"blake2b": checksum})
        found = read_shard(tmp_path / "shard.safetensors", documents=1, vocabulary=50)
        assert (found is not None) is sound


def test_a_shard_is_mapped_and_any_changed_byte_is_seen(tmp_path):
    written = EncodedDocuments(
        ids=np.arange(50, dtype=np.int32),
        sentence_starts=np.array([0, 10, 50]),
        document_starts=np.array([0, 1, 1, 2]),
    )
    path = tmp_path / "shard.safetensors"
    write_shard(path, written)
    found = read_shard(path, documents=3, vocabulary=50)
    assert found is not None
    assert same(found, written)
    assert not found.ids.flags.writeable
    if (maps := Path("/proc/self/maps")).exists():
        assert str(path) in maps.read_text(), "mapped, not read"
    assert read_shard(path, documents=2, vocabulary=50) is None
    assert read_shard(path, documents=3, vocabulary=49) is None
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x04
        path.write_bytes(damaged)
        again = read_shard(path, documents=3, vocabulary=50)
        assert again is None or same(again, written), place
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        assert read_shard(path, documents=3, vocabulary=50) is None
    assert read_shard(tmp_path / "none", documents=3, vocabulary=50) is None


def test_no_documents_at_all(tmp_path, tokenizer):
    for _ in range(2):
        assert len(encode_documents([], tokenizer, cache_dir=tmp_path)) == 0
