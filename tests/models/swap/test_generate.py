"""Generation by swapped models: token for token the same with every cache, with beams, padded and alone."""

import pytest
import torch
from swapped_models import DECODERS, apart, ids_of, model_of, output_of, padded, swapped
from test_families import is_defined
from transformers import AutoModelForSeq2SeqLM, BertLMHeadModel, DynamicCache, EncoderDecoderCache, StaticCache

from wordorder.errors import BadInput
from wordorder.models.pretrained import CACHE

NAMES = (
    *("none", "rope", "alibi", "tupe-a", "learned", "shaw", "cope", "xpos", "rope*2,none", "rope+fox"),
    *("t5@4,none@6,t5", "model+shaw", "model+fox", "path", "model+path"),
    *("rope+shift", "tupe-a+shift", "rope+shift@4,fox+shift", "pope", "rope+dape", "rope+softmax-sink"),
)
FAST = ("learned", "rope+fox", "model+shaw", "path", "rope+shift")
GREEDY = {"do_sample": False, "max_new_tokens": 8, "min_new_tokens": 8, "pad_token_id": 0}


def written(model, ids, mask=None, **how):
    """The tokens that follow."""
    mask = torch.ones_like(ids) if mask is None else mask
    made = model.generate(ids, attention_mask=mask, disable_compile=True, **{**GREEDY, **how})
    return made[:, ids.shape[1] :].tolist()


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        pytest.param(kind, name, marks=() if name in FAST and kind in ("llama", "gemma2", "gpt2") else pytest.mark.slow)
        for kind in DECODERS
        for name in NAMES
        if is_defined(kind, name)
    ],
)
def test_every_cache_beams_and_padding_give_the_same_tokens(kind, encoding):
    # tied embeddings that are drawn would repeat one token
    model = swapped(kind, encoding, seed=0, fields={"tie_word_embeddings": False})
    texts = ids_of(2, 9)[0], ids_of(2, 9)[1, :6]
    alone = [written(model, text[None])[0] for text in texts]
    assert len({*alone[0], *alone[1]}) > 2
    ids, mask = padded(texts, (2, 5), kind)
    for how in ({}, {"cache_implementation": "static"}, {"use_cache": False}):
        assert written(model, texts[0][None], **how) == alone[:1], how
        assert written(model, ids, mask, **how) == alone, how
    beams = {"num_beams": 3}
    searched = [written(model, text[None], use_cache=False, **beams)[0] for text in texts]
    assert written(model, ids, mask, **beams) == searched
    assert written(model, ids, mask, cache_implementation="static", **beams) == searched


@pytest.mark.parametrize("encoding", ["t5", "rope+fox", "learned", "model+shaw", "fox+shift"])
def test_prompt_lookup_and_embeddings_give_the_same_tokens(encoding):
    model = swapped("llama", encoding, seed=0)
    ids = torch.cat((ids_of(1, 6), ids_of(1, 6)), dim=1)  # whose repetition the lookup tries
    greedy = written(model, ids)
    assert written(model, ids, prompt_lookup_num_tokens=3) == greedy
    embedded = model.get_input_embeddings()(ids)
    made = model.generate(inputs_embeds=embedded, attention_mask=torch.ones_like(ids), **GREEDY)
    assert made.tolist() == greedy


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["t5", "rope+fox", "learned", "model+shaw", "fox+shift", "rope+shift"])
def test_a_cropped_cache_goes_on_from_where_it_was_cropped(encoding):
    model, ids = swapped("llama", encoding), ids_of(1, 12)
    expected = output_of(model, ids, use_cache=False)
    cache = DynamicCache(config=model.config)
    output_of(model, torch.cat((ids[:, :5], ids_of(1, 4, seed=9)), dim=1), cache=cache)
    cache.crop(-4)
    assert apart(output_of(model, ids[:, 5:], cache=cache), expected[:, 5:]) <= 2e-5


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["t5", "rope+fox", "rope+shift"])
@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_a_cache_made_without_the_configuration_is_filled_all_the_same(kind, encoding):
    # without it a cache does not know of windows
    model = swapped(kind, encoding, fields={"sliding_window": 64} if kind == "gemma2" else {})
    ids, cache = ids_of(1, 12), DynamicCache()
    expected = output_of(model, ids, use_cache=False)
    parts = [output_of(model, part, cache=cache) for part in ids.split([5, 1, 6], dim=1)]
    assert apart(torch.cat(parts, dim=1), expected) <= 2e-5


@pytest.mark.parametrize(
    ("encoding", "what"), [("rope+fox", "what this encoding reads of each key"), ("rope+shift", "the input of layers")]
)
def test_a_cache_that_was_filled_without_gates_or_rows_is_refused(encoding, what):
    cache = DynamicCache(config=model_of("llama").config)
    output_of(model_of("llama"), ids_of(1, 5), cache=cache)
    with pytest.raises(BadInput, match=f"filled without {what}.*; begin with an empty one"):
        output_of(swapped("llama", encoding), ids_of(1, 1), cache=cache)


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["rope+fox", "rope+shift"])
def test_a_cache_that_the_model_made_holds_gates_and_rows(encoding):
    model, ids = swapped("llama", encoding), ids_of(2, 9)
    cache = model(ids[:, :5], use_cache=True)[CACHE]
    expected = output_of(model, ids, use_cache=False)[:, 5:]
    assert apart(output_of(model, ids[:, 5:], cache=cache), expected) <= 2e-5


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
def test_a_body_reads_the_cache_by_its_older_name_too():
    model = swapped("llama", "t5").model
    cache, ids = DynamicCache(config=model.config), ids_of(2, 8)
    parts = [model(part, past_key_values=cache).last_hidden_state for part in ids.split(5, dim=1)]
    assert apart(torch.cat(parts, dim=1), output_of(model, ids)) <= 2e-5


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["learned", "tupe-a"])
def test_a_static_cache_may_be_longer_than_the_table(encoding):
    model = swapped("llama", encoding, max_positions=20)
    ids = ids_of(1, 9)
    assert written(model, ids, cache_implementation="static", max_length=20, max_new_tokens=None) == written(
        model, ids, use_cache=False, max_length=20, max_new_tokens=None
    )
    cache = StaticCache(model.config, max_cache_len=40)
    parts = [output_of(model, part, cache=cache) for part in ids.split([4, 5], dim=1)]
    assert apart(torch.cat(parts, dim=1), output_of(model, ids, use_cache=False)) <= 2e-5


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["none", "rope", "t5", "shaw", "learned", "fox", "shift", "model+tupe-r"])
def test_a_bert_that_is_a_decoder(encoding):
    model = swapped("bert", encoding, BertLMHeadModel, fields={"is_decoder": True})
    ids = ids_of(2, 12)
    expected = output_of(model, ids, use_cache=False)
    changed = ids.clone()
    changed[:, 7:] = ids_of(2, 5, seed=8)
    assert apart(output_of(model, changed, use_cache=False)[:, :7], expected[:, :7]) <= 1e-6
    cache = DynamicCache(config=model.config)
    parts = [output_of(model, part, cache=cache, use_cache=True) for part in ids.split([5, 1, 6], dim=1)]
    assert apart(torch.cat(parts, dim=1), expected) <= 2e-5
    assert written(model, ids) == written(model, ids, use_cache=False)


SEQ2SEQ = (
    "t5",
    "none",
    "rope",
    "alibi",
    "fox",
    "rope+shaw",
    "t5+shift",
    "tupe-r",
    "model",
    "model*2,none",
    "model+fox",
    "t5@4,rope",
)


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        pytest.param(
            kind, name, marks=() if kind == "t5" and name in ("rope+shaw", "fox", "t5+shift") else pytest.mark.slow
        )
        for kind in ("t5", "mt5")
        for name in SEQ2SEQ
    ],
)
def test_encoder_decoders_read_and_write_alike_however_they_are_fed(kind, encoding):
    model = swapped(kind, encoding, AutoModelForSeq2SeqLM, seed=0).double()  # how it is fed decides the rounding
    sources, targets = ids_of(2, 12), ids_of(2, 7, seed=2)
    texts = sources[0], sources[1, :8]
    whole = output_of(model, sources, decoder_input_ids=targets, use_cache=False)
    for starts in ((0, 0), (0, 4), (1, 2)):
        ids, mask = padded(texts, starts, kind)
        rows = output_of(model, ids, attention_mask=mask, decoder_input_ids=targets)
        for row, text, target in zip(rows, texts, targets, strict=True):
            alone = output_of(model, text[None], decoder_input_ids=target[None])
            assert apart(row, alone[0]) <= 1e-10
    encoded = model.get_encoder()(sources)
    cache = EncoderDecoderCache(DynamicCache(config=model.config), DynamicCache(config=model.config))
    steps = [
        output_of(model, encoder_outputs=encoded, decoder_input_ids=part, cache=cache)
        for part in targets.split([3, 1, 1, 2], dim=1)
    ]
    assert apart(torch.cat(steps, dim=1), whole) <= 1e-10

    ids, mask = padded(texts, (0, 4), kind)
    how = {"do_sample": False, "max_new_tokens": 8, "min_new_tokens": 8, "disable_compile": True}
    for more in ({}, {"num_beams": 3}):
        greedy = model.generate(ids, attention_mask=mask, use_cache=False, **how, **more)
        assert torch.equal(model.generate(ids, attention_mask=mask, **how, **more), greedy)
        static = model.generate(ids, attention_mask=mask, cache_implementation="static", **how, **more)
        assert torch.equal(static, greedy)


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["rope+shift", "model+shift"])
def test_neighbours_where_masks_have_four_axes_or_are_longer_than_the_text(encoding):
    model, first, second = swapped("llama", encoding, start="drawn"), ids_of(1, 7), ids_of(1, 5, seed=2)
    ids, position_ids = torch.cat((first, second), dim=1), torch.tensor([[*range(7), *range(5)]])
    alone = output_of(model, second, use_cache=False)
    # texts that a mask with four axes keeps apart
    mask = torch.block_diag(torch.ones(7, 7), torch.ones(5, 5)).bool().tril()[None, None]
    packed = output_of(model, ids, attention_mask=mask, position_ids=position_ids, use_cache=False)
    assert apart(packed[:, 7:], alone) <= 2e-5
    with pytest.raises(BadInput, match="does not say where texts begin: pass position_ids too"):
        model(ids, attention_mask=mask, use_cache=False)
    # padding on the left, in a mask as long as a static cache
    mask = torch.tensor([[0] * 7 + [1] * 13])
    cache = StaticCache(config=model.config, max_cache_len=20)
    assert apart(output_of(model, ids, attention_mask=mask, cache=cache)[:, 7:], alone) <= 2e-5
