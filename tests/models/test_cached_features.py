"""Caches of Hugging Face that hold of a layer with a window the keys of the window, and features beside them."""

import pytest
import torch
from torch.testing import assert_close
from transformers import DynamicCache

from wordorder.errors import BadInput
from wordorder.models import WordOrderDecoderConfig, WordOrderDecoderForCausalLM
from wordorder.models.cached_features import LastRows
from wordorder.networks import initialise

IDS = torch.arange(40).view(2, 20) % 39 + 1
PATTERNS = ["rope@4,none", "none,fox@4", "t5+fox@6,rope@3", "path+fox@4,path"]
OPTIONS = {"max_new_tokens": 30, "do_sample": False, "pad_token_id": 0}


@pytest.fixture(autouse=True)
def few_spare_rows(monkeypatch):
    monkeypatch.setattr(LastRows, "spare", 5)


def model(name):
    config = WordOrderDecoderConfig(
        vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, encoding=name
    )
    network = WordOrderDecoderForCausalLM(config)
    initialise(network, seed=5, std=0.3)
    return network.eval().double()


def held(cache):
    return [0 if layer.keys is None else layer.keys.shape[2] for layer in cache.layers]


@pytest.mark.parametrize("name", PATTERNS)
def test_generate_keeps_the_window_and_writes_the_same(name):
    decoder = model(name)
    plain = decoder.generate(IDS, use_cache=False, **OPTIONS)
    cached = decoder.generate(IDS, return_dict_in_generate=True, **OPTIONS)
    assert torch.equal(cached.sequences, plain)
    windows = [kind.window for kind in map(decoder.model.decoder.encoding.kind_of, range(2))]
    assert held(cached.past_key_values)[:2] == [49 if window is None else window - 1 + 5 for window in windows]
    for row, window in enumerate(held(cached.past_key_values)[2:]):
        assert window in (0, held(cached.past_key_values)[row])
    assert cached.past_key_values.get_seq_length() == 49
    assisted = decoder.generate(IDS[:1], prompt_lookup_num_tokens=3, **OPTIONS)
    assert torch.equal(assisted, plain[:1])


@pytest.mark.parametrize("name", PATTERNS)
def test_beams_and_padding_on_the_left(name):
    decoder, mask = model(name), torch.ones_like(IDS).index_fill(1, torch.arange(3), 0)
    plain, cached = (
        decoder.generate(IDS, attention_mask=mask, num_beams=3, use_cache=use_cache, **OPTIONS)
        for use_cache in (False, True)
    )
    assert torch.equal(plain, cached)


@pytest.mark.parametrize("chunks", [[1] * 20, [2, 1, 9, 1, 7], [17, 3]])
@pytest.mark.parametrize("name", PATTERNS)
def test_steps_of_any_length_read_what_is_read_at_once(name, chunks):
    decoder, cache = model(name), DynamicCache()
    steps = [decoder(ids, past_key_values=cache, use_cache=True).logits for ids in IDS.split(chunks, 1)]
    assert_close(torch.cat(steps, 1), decoder(IDS).logits, rtol=0, atol=1e-10)


def test_tokens_are_taken_back_as_far_as_they_are_held():
    decoder, cache = model("rope@4,none"), DynamicCache()
    decoder(IDS, past_key_values=cache, use_cache=True)
    cache.crop(-5)
    again = decoder(IDS[:, 15:], past_key_values=cache, use_cache=True).logits
    assert_close(again, decoder(IDS).logits[:, 15:], rtol=0, atol=1e-10)
    with pytest.raises(BadInput, match="at most 5 tokens can be taken back from a layer with a window, got 6"):
        cache.crop(-6)
    short = DynamicCache()
    decoder(IDS[:, :7], past_key_values=short, use_cache=True)
    short.crop(-30)
    assert short.get_seq_length() == 0
    decoder(IDS[:, :7], past_key_values=short, use_cache=True)
    short.crop(-6)  # all of them are held yet
    again = decoder(IDS[:, 1:], past_key_values=short, use_cache=True).logits
    assert_close(again, decoder(IDS).logits[:, 1:], rtol=0, atol=1e-10)
    short.reset()
    short.crop(-3)
    assert_close(decoder(IDS, past_key_values=short).logits, decoder(IDS).logits, rtol=0, atol=1e-10)


def test_a_crop_that_broke_off_is_seen():
    decoder, cache = model("none,rope@4"), DynamicCache()
    decoder(IDS, past_key_values=cache, use_cache=True)
    with pytest.raises(BadInput, match="at most 5 tokens"):
        cache.crop(-6)
    with pytest.raises(BadInput, match="hold different numbers of tokens"):
        decoder(IDS[:, 14:], past_key_values=cache, use_cache=True)


def test_a_cache_holds_no_view_of_a_whole_prompt():
    decoder, cache = model("rope@4,none"), DynamicCache()
    decoder(IDS, past_key_values=cache, use_cache=True)
    assert cache.layers[0].keys.untyped_storage().nbytes() == 2 * 4 * 8 * 6 * 8


def test_dropped_keys_are_not_read_where_tokens_have_gaps():
    decoder, cache = model("rope@4,none"), DynamicCache()
    decoder(IDS, past_key_values=cache, use_cache=True)
    gaps = torch.ones(2, 21, dtype=torch.long).index_fill(1, torch.tensor([10]), 0)
    with pytest.raises(BadInput, match="dropped the keys beyond a window"):
        decoder(IDS[:, :1], attention_mask=gaps, past_key_values=cache, use_cache=True)
