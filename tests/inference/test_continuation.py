"""Tokens as readable text, as they come."""

import pytest
from transformers import TextIteratorStreamer, TextStreamer, pipeline

from wordorder.data import TokenizerConfig, load_tokenizer
from wordorder.errors import BadInput
from wordorder.inference.continuation import Continuation, Readable
from wordorder.models import build_config, build_model

TEXT = "The people don't go home. Why? 'Tis late: 10,000 €, naïve 😀 café — über alles. " * 12
KINDS = ["byte", "bpe", "wordpiece", "word", "character", "whitespace"]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    return {
        kind: load_tokenizer(TokenizerConfig(kind=kind, vocab_size=320), [TEXT], cache_dir=folder) for kind in KINDS
    }


def save(folder, tokenizer, **fields):
    """A model that nobody trained, with its tokenizer."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16}
    known = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    ends = {"bos_token_id": tokenizer.sep_token_id, "eos_token_id": tokenizer.sep_token_id}
    fields = {"encoding": "rope", "initializer_range": 0.3, **sizes, **known, **ends, **fields}
    build_model(build_config("decoder", **fields), "causal-lm", seed=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model_dir(tokenizers, tmp_path_factory):
    memory = {"memory": "look-ahead", "memory_length": 8, "segment_length": 6}
    return save(tmp_path_factory.mktemp("model"), tokenizers["byte"], **memory)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [0, 1, 30])
def test_the_pieces_are_the_text(kind, start, tokenizers):
    tokenizer = tokenizers[kind]
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    readable = Readable(tokenizer, ids[:start])
    pieces = [readable.add(token) for token in ids[start:]]
    written = "".join([*pieces, readable.rest()])
    assert tokenizer.decode(ids[:start]) + written == tokenizer.decode(ids)
    assert "\N{REPLACEMENT CHARACTER}" not in written
    assert len(readable._tokens) <= 32
    # what comes, comes soon: a token later, or when its character is whole
    assert max(map(len, pieces)) < 20


def test_broken_characters_are_shown_once_and_hold_nothing_up(tokenizers):
    tokenizer = tokenizers["byte"]
    ids = [tokenizer(chr(0x20AC), add_special_tokens=False)["input_ids"][n] for n in (0, 1, 0, 0, 1, 2, 0)]
    readable = Readable(tokenizer, [])
    shown = [readable.add(token) for token in ids]
    assert "€" not in "".join(shown[:6])  # which the next token could still draw to itself
    assert "€" in shown[6]
    assert "".join(shown) + readable.rest() == tokenizer.decode(ids)
    readable = Readable(tokenizer, [])
    assert len("".join(readable.add(ids[0]) for _ in range(100))) == 99


def test_what_is_written_is_what_generate_writes(model_dir):
    writer = Continuation(model_dir)
    steps = list(writer.write("The state", max_new_tokens=40, temperature=0, stop_at_end=False))
    ids = writer.prompt_ids("The state")
    assert ids[0].tolist() == [3, *writer.tokenizer("The state", add_special_tokens=False)["input_ids"]]
    writer.model.generation_config.eos_token_id = None
    expected = writer.model.generate(ids, max_new_tokens=40, do_sample=False)[0, ids.shape[1] :].tolist()
    assert [step.token for step in steps] == [*expected, None]
    if not writer.ends & set(expected):
        assert "".join(step.text for step in steps) == writer.tokenizer.decode(expected, skip_special_tokens=True)


def test_seeds_repeat_a_text(model_dir):
    writer = Continuation(model_dir)
    one, same, other = (
        [step.token for step in writer.write("a", max_new_tokens=30, seed=seed, top_p=0.95)] for seed in (1, 1, 2)
    )
    assert one == same != other


def test_where_a_text_ends(model_dir, monkeypatch):
    writer = Continuation(model_dir)
    a, end = writer.prompt_ids("a")[0, 1].item(), writer.tokenizer.sep_token_id
    tokens = iter([a, end, a, a])
    monkeypatch.setattr("wordorder.models.stream_tokens", lambda *_, stop, **__: tokens if not stop else iter([a, end]))
    ended = list(writer.write("b"))
    assert [(step.text, step.ended) for step in ended if step.text or step.ended] == [("a", True)]
    going_on = "".join(step.text for step in writer.write("b", stop_at_end=False))
    assert going_on == "a\n\naa"


def test_beams_stop_at_the_end_without_padding(model_dir):
    writer = Continuation(model_dir)
    found = writer.search("The state", max_new_tokens=12, beams=3)
    ids = writer.prompt_ids("The state")
    settings = {"num_beams": 3, "max_new_tokens": 12, "pad_token_id": 0, "eos_token_id": 3}
    expected = writer.model.generate(ids, **settings)[0, ids.shape[1] :].tolist()
    tokens = [step.token for step in found[:-1]]
    assert tokens == expected[: len(tokens)]
    assert len(tokens) == 12 or tokens[-1] == 3
    assert len(writer.search("The state", max_new_tokens=12, beams=3, stop_at_end=False)) == 13


def test_what_cannot_be_written(tokenizers, tmp_path):
    startless = Continuation(save(tmp_path / "a", tokenizers["byte"], bos_token_id=None, eos_token_id=None))
    with pytest.raises(BadInput, match="the prompt is empty, and the model does not say"):
        startless.write("")
    assert startless.ends == frozenset()
    bounded = Continuation(save(tmp_path / "b", tokenizers["byte"], encoding="learned"))
    for write in (bounded.write, lambda prompt, **most: bounded.search(prompt, beams=2, **most)):
        with pytest.raises(BadInput, match=r"20 new tokens after a prompt of 4 do not fit .* at most 13"):
            write("abc", max_new_tokens=20)
    with pytest.raises(BadInput, match="holds no model"):
        Continuation(tmp_path)
    (tmp_path / "b" / "tokenizer.json").unlink()
    with pytest.raises(BadInput, match="b: holds no tokenizer that can be read"):
        Continuation(tmp_path / "b")


def test_transformers_streamers_and_pipeline(model_dir, capsys):
    writer = Continuation(model_dir)
    ids = writer.prompt_ids("The state")
    streamer = TextIteratorStreamer(writer.tokenizer, skip_prompt=True)
    settings = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    written = writer.model.generate(ids, streamer=streamer, **settings)
    text = writer.tokenizer.decode(written[0, ids.shape[1] :])
    assert "".join(streamer) == text
    writer.model.generate(ids, streamer=TextStreamer(writer.tokenizer, skip_prompt=True), **settings)
    assert capsys.readouterr().out == text + "\n"
    pipe = pipeline("text-generation", model=str(model_dir), device="cpu")
    found = pipe("The state", add_special_tokens=False, return_full_text=False, max_new_tokens=8, do_sample=False)
    alone = writer.model.generate(ids[:, 1:], **settings)[0, ids.shape[1] - 1 :]
    assert found[0]["generated_text"] == writer.tokenizer.decode(alone, skip_special_tokens=True)
