"""A streamed corpus of many small files in every format, each of whose documents has a word of its own."""

import gzip
import json
import random

import pytest

from wordorder.data import DataConfig, TokenizerConfig, prepare

WORDS = "the state of our union is strong and we thank all people for their work today".split()


def document(number):
    draw = random.Random(number)
    return " ".join([f"doc{number}", *(draw.choice(WORDS) for _ in range(draw.randint(5, 60)))]) + "."


def write_jsonl(path, numbers):
    lines = "".join(json.dumps({"text": document(n)}) + "\n" for n in numbers)
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())


@pytest.fixture(scope="session")
def streamed_corpus(tmp_path_factory):
    """Five files of 40 documents, and a validation file."""
    folder = tmp_path_factory.mktemp("streamed")
    (folder / "text").mkdir()
    for file in range(5):
        ending = ".jsonl.gz" if file == 3 else ".jsonl"
        write_jsonl(folder / "text" / f"part-{file}{ending}", range(40 * file, 40 * file + 40))
    write_jsonl(folder / "valid.jsonl", range(1000, 1010))
    return folder


@pytest.fixture
def streamed(streamed_corpus, tmp_path, monkeypatch):
    """Prepare the corpus as a stream of small groups and blocks."""
    import wordorder.data.streaming.blocks as blocks
    import wordorder.data.streaming.texts as texts

    monkeypatch.setattr(texts, "GROUP", 2000)
    monkeypatch.setattr(blocks, "BLOCK", 1500)

    def make(*, seed=0, tokenizer="byte", cache=tmp_path / "cache", **fields):
        fields = {
            "source": str(streamed_corpus / "text"),
            "validation_source": str(streamed_corpus / "valid.jsonl"),
            "task": "masked-lm",
            "length": 32,
            "streaming": True,
            "shuffle_buffer": 7,
            **fields,
        }
        if fields.get("packing") == "lanes":
            fields["shuffle_buffer"] = 1024
        return prepare(
            DataConfig(**fields), TokenizerConfig(kind=tokenizer, vocab_size=500), seed=seed, cache_dir=cache
        )

    return make
