"""Writing on token by token."""

import re
from itertools import islice
from pathlib import Path

import pytest
import torch

from wordorder import Decoder, LookAheadMemory
from wordorder.errors import BadInput
from wordorder.models import build_config, build_model, stream_tokens

PAGE = Path(__file__).parents[2] / "docs" / "generation.md"
SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.3,
    "max_position_embeddings": 16,
}
MEMORY = {"memory": "look-ahead", "memory_length": 7, "segment_length": 5}


def build(**fields):
    return build_model(build_config("decoder", **{**SIZES, "encoding": "rope", **fields}), "causal-lm", seed=2).eval()


@pytest.mark.parametrize("fields", [{}, MEMORY, {**MEMORY, "memory": "segment-recurrence"}])
def test_the_tokens_are_those_of_generate(fields):
    model, x = build(**fields), torch.randint(40, (1, 6))
    greedy = model.generate(x, max_new_tokens=20, do_sample=False)[0, 6:].tolist()
    assert list(stream_tokens(model, x, max_new_tokens=20, temperature=0)) == greedy
    for draws in ({}, {"temperature": 0.6, "top_k": 12, "top_p": 0.9}, {"top_p": 1.0, "temperature": 2.0}):
        torch.manual_seed(5)
        drawn = model.generate(x, max_new_tokens=20, do_sample=True, **{"top_k": 0, **draws})[0, 6:].tolist()
        torch.manual_seed(11)
        state = torch.get_rng_state()
        assert list(stream_tokens(model, x, max_new_tokens=20, seed=5, **draws)) == drawn
        assert torch.equal(state, torch.get_rng_state())  # a seed of its own
        torch.manual_seed(5)
        assert list(stream_tokens(model, x, max_new_tokens=20, **draws)) == drawn


def test_it_stops_at_the_end_and_goes_on_from_a_memory():
    model, x = build(**MEMORY), torch.randint(40, (1, 10))
    free = list(stream_tokens(model, x, max_new_tokens=20, temperature=0))
    end = free[7]
    assert list(stream_tokens(model, x, temperature=0, stop={end})) == free[: free.index(end) + 1]
    assert list(islice(stream_tokens(model, x, temperature=0), 20)) == free
    state = model(x[:, 5:], memory=model(x[:, :5]).memory).memory
    one = torch.tensor([free[:1]])
    assert list(stream_tokens(model, one, temperature=0, memory=state, max_new_tokens=19)) == free[1:]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: Decoder(40, width=16, layers=1, heads=2),
            r"a Decoder; .* \.model\.decoder, .*cache=KeyValueCache\(\)",
        ),
        (
            lambda: Decoder(40, width=16, layers=1, heads=2, memory=LookAheadMemory(4)),
            "a Decoder; .* open_segment and read_segment",
        ),
        (lambda: build().model, "a WordOrderDecoderModel; build or load one"),
        (lambda: torch.nn.Linear(2, 2), "a Linear; build or load one"),
        (lambda: "a folder", "a str; build or load one"),
    ],
)
def test_a_model_of_another_class_is_refused_with_the_remedy(make, told):
    with pytest.raises(BadInput, match="^model must be a WordOrderDecoderForCausalLM, got " + told):
        stream_tokens(make(), torch.randint(40, (1, 3)))


def test_a_decoder_s_weights_are_streamed_from_where_the_error_sends_them():
    model, x = build(), torch.randint(40, (1, 6))
    decoder = Decoder(40, width=32, layers=2, heads=4, encoding="rope")
    model.model.decoder.load_state_dict(decoder.state_dict())
    wrapped = torch.nn.Sequential(model)
    wrapped.config, wrapped.device, wrapped.forward = model.config, model.device, model.forward
    expected = list(stream_tokens(model, x, max_new_tokens=5, temperature=0))
    assert list(stream_tokens(wrapped, x, max_new_tokens=5, temperature=0)) == expected


def test_nothing_of_it_reaches_whoever_asks_for_the_tokens():
    model, x = build(**MEMORY), torch.randint(40, (1, 3))
    for _ in stream_tokens(model, x, max_new_tokens=2):
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
    model(x).logits.sum().backward()


def test_a_table_of_positions_bounds_the_text_unless_there_is_a_memory():
    model, x = build(encoding="learned"), torch.randint(40, (1, 6))
    assert len(list(stream_tokens(model, x, max_new_tokens=11))) == 11  # the last one is not read
    with pytest.raises(BadInput, match=r"12 new tokens after a prompt of 6 do not fit .* at most 11, shorten"):
        stream_tokens(model, x, max_new_tokens=12)
    with pytest.raises(BadInput, match=r"any number of new tokens .* 'learned': max_position_embeddings=16"):
        stream_tokens(model, x)
    assert len(list(islice(stream_tokens(build(encoding="learned", **MEMORY), x), 40))) == 40
    assert len(list(islice(stream_tokens(build(encoding="none"), x), 40))) == 40


def test_the_coldest_draws_are_the_likeliest_tokens():
    model, x = build(), torch.randint(40, (1, 6))
    likeliest = list(stream_tokens(model, x, max_new_tokens=8, temperature=0))
    for temperature in (1e-25, 1e-40, 1e-300):
        assert list(stream_tokens(model, x, max_new_tokens=8, temperature=temperature)) == likeliest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -0.5}, "temperature must not be negative, got -0.5"),
        ({"temperature": float("nan")}, "temperature must not be negative, got nan"),
        ({"top_k": 0}, "top_k must be positive, got 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
        ({"memory": object()}, "memory was given, but this model has memory='none'; leave it out"),
        ({"max_new_tokens": 0}, "max_new_tokens must be positive, got 0"),
        ({"input_ids": torch.zeros(2, 3).long()}, r"one prompt \(1, tokens\), one token at least, got \(2, 3\)"),
        ({"input_ids": "hello"}, r"input_ids must be one prompt \(1, tokens\), one token at least, got a str"),
        ({"input_ids": torch.zeros(1, 0).long()}, r"one token at least, got \(1, 0\)"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_read(arguments, message):
    arguments = {"input_ids": torch.zeros(1, 3).long(), **arguments}
    with pytest.raises(BadInput, match=message):
        stream_tokens(build(), **arguments)


def test_the_code_of_the_page_runs():
    names = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL):
        exec(code, names)  # a later piece goes on from the names of an earlier one
    assert {"cache", "state", "token"} <= set(names)
