"""Reading and writing with a `SegmentCache`: token by token as segment by segment, beams, padding, refusals."""

import copy
import math

import pytest
import torch
from torch.testing import assert_close
from transformers import DynamicCache

from wordorder.memory import MEMORIES
from wordorder.models import SegmentCache, build_config, build_model

SEGMENT, SLOTS, VOCABULARY = 5, 7, 50
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "initializer_range": 0.3,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": SLOTS + SEGMENT,
    "memory_length": SLOTS,
    "segment_length": SEGMENT,
    "tie_word_embeddings": False,
}
EXACT = {"rtol": 0, "atol": 1e-10}
OPTIONS = {"look-ahead": {"full": True}, "first-tokens": {"first": 2}, "compressive": {"rate": 2}}
ENCODINGS = ["rope", "transformer-xl", "t5", "tupe-r", "learned", "complex-order", "rope+tupe-a"]


def build(memory="look-ahead", encoding="rope", dtype=torch.float64, **fields):
    config = build_config("decoder", **{**SIZES, "memory": memory, "encoding": encoding, **fields})
    return build_model(config, "causal-lm", seed=1).to(dtype).eval()


def ids(batch=2, length=23):
    return torch.randint(VOCABULARY, (batch, length))


@torch.no_grad()
def by_segments(model, x, cuts=None, memory=None):
    """Logits and memory of a text that is read in whole segments, as in training."""
    logits = []
    for piece in x.split(SEGMENT if cuts is None else cuts, dim=1):
        output = model(piece, memory=memory)
        memory = output.memory
        logits.append(output.logits)
    return torch.cat(logits, dim=1), memory


@torch.no_grad()
def by_cache(model, x, pieces, **given):
    """Logits of the same text read in pieces through a cache, and the cache."""
    cache = given.pop("cache", None) or SegmentCache(model.config)
    mask, logits, end = given.pop("attention_mask", None), [], 0
    for piece in x.split(pieces, dim=1):
        end += piece.shape[1]
        seen = None if mask is None else mask[:, :end]
        output = model(piece, attention_mask=seen, past_key_values=cache, **given)
        assert output.past_key_values is cache
        logits.append(output.logits)
    return torch.cat(logits, dim=1), cache


def assert_same_memory(ours, expected, **tolerance):
    assert_close(dict(ours.slots), dict(expected.slots), **(tolerance or EXACT))


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_token_by_token_as_segment_by_segment(encoding, memory):
    x = ids()
    for layers in (1, 2, 3):
        model = build(memory, encoding, num_hidden_layers=layers)
        expected, left = by_segments(model, x)
        prompts = (1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT + 2)
        for prompt in prompts if layers == 2 else prompts[-1:]:
            ours, cache = by_cache(model, x, [prompt, *[1] * (23 - prompt)])
            assert_close(ours, expected, **EXACT)
            assert cache.get_seq_length() == 23
            assert_same_memory(cache.fold(), left)
        ours, _ = by_cache(model, x, [4, 11, 8])
        assert_close(ours, expected, **EXACT)


@pytest.mark.parametrize("memory", MEMORIES)
def test_in_single_precision_too(memory):
    model, x = build(memory, "tupe-r", torch.float32, initializer_range=0.1), ids()
    ours, _ = by_cache(model, x, [6, *[1] * 17])
    assert_close(ours, by_segments(model, x)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("slots", [3, SEGMENT, 40])
def test_memory_shorter_as_long_and_longer_than_a_segment(slots, memory):
    options = OPTIONS.get(memory, {"same_length": True})
    model, x = build(memory, memory_length=slots, memory_options=options), ids()
    ours, cache = by_cache(model, x, [7, *[1] * 16])
    expected, left = by_segments(model, x)
    assert_close(ours, expected, **EXACT)
    assert_same_memory(cache.fold(), left)


def test_the_memory_that_is_folded_is_that_of_whole_segments():
    model, x = build(), ids()
    _, cache = by_cache(model, x[:, :4], [4])
    assert cache.memory is None
    _, cache = by_cache(model, x[:, 4:13], [9], cache=cache)
    assert_same_memory(cache.memory, by_segments(model, x[:, :10])[1])
    assert (cache.room, cache.batch_size, cache.get_max_length(), len(cache)) == (2, 2, -1, 3)
    assert repr(cache) == "SegmentCache(13 tokens read: 7 slots of memory, 3 in the open segment)"
    assert not cache.is_compileable
    cache.reset()
    assert (cache.memory, cache.get_seq_length(), cache.batch_size) == (None, 0, -1)
    assert_close(by_cache(model, x, [23], cache=cache)[0], by_segments(model, x)[0], **EXACT)


@pytest.mark.parametrize("encoding", ["rope", "learned", "sinusoidal", "complex-order", "tupe-r"])
def test_going_on_from_a_memory(encoding):
    model, x = build(encoding=encoding), ids()
    whole, _ = by_segments(model, x)
    state = by_segments(model, x[:, :10])[1]
    cache = SegmentCache.from_memory(state, model.config)
    assert_close(by_cache(model, x[:, 10:], [1, 12], cache=cache)[0], whole[:, 10:], **EXACT)
    assert cache.get_seq_length() == 13
    begun = model(x[:, 10:12], memory=state, use_cache=True)
    assert isinstance(begun.past_key_values, SegmentCache)
    assert_close(begun.logits, whole[:, 10:12], **EXACT)
    written = model.generate(x[:, 10:], memory=state, max_new_tokens=8, do_sample=False)
    assert torch.equal(written, model.generate(x, max_new_tokens=8, do_sample=False)[:, 10:])


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("encoding", ["rope", "t5", "transformer-xl", "learned", "sinusoidal", "complex-order"])
def test_left_padding(encoding, memory):
    model, x = build(memory, encoding), ids(3)
    padding = [0, 2 * SEGMENT, 3]
    mask = torch.stack([torch.arange(23) >= n for n in padding]).long()
    x = x.where(mask.bool(), 0)
    ours, cache = by_cache(model, x, [16, *[1] * 7], attention_mask=mask)
    # padding of whole segments: the row is cut where it would be alone
    assert_close(ours[1:2, 10:], by_segments(model, x[1:2, 10:])[0], **EXACT)
    # other padding: as if its first segment were shorter
    alone, left = by_segments(model, x[2:, 3:], cuts=[2, 5, 5, 5, 3])
    assert_close(ours[2:, 3:], alone, **EXACT)
    assert_close(ours[:1], by_segments(model, x[:1])[0], **EXACT)
    assert cache.segment.tokens_BT is None
    state = cache.fold()
    if memory != "compressive":  # where rows hold different numbers of slots, since their groups end elsewhere
        assert state.valid_BM is None
    assert state.position.tolist() == [23, 13, 20]
    assert_same_memory(state.reorder(torch.tensor([2])).last(left.length), left)


def test_padding_inside_the_text_is_refused():
    model, x = build(), ids(1, 6)
    for mask in ([1, 1, 0, 1, 1, 1], [1, 1, 1, 1, 1, 0]):
        with pytest.raises(ValueError, match=r"padded on the left alone|pad each row on the left alone"):
            model(x, attention_mask=torch.tensor([mask]), use_cache=True)
    cache = by_cache(model, x, [6])[1]
    with pytest.raises(ValueError, match=r"\(1, 7\), the 6 tokens of the cache included, got \(1, 1\)"):
        model(x[:, :1], attention_mask=torch.ones(1, 1), past_key_values=cache)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("held", [3, 10, 13])
def test_rows_are_reordered_selected_and_repeated(held, memory):
    model, x = build(memory), ids(3)
    mask = (torch.arange(23) >= torch.tensor([[0], [2], [6]])).long()
    cache = by_cache(model, x[:, :held], [2, held - 2], attention_mask=mask[:, :held])[1]
    for change, index in (
        (lambda c: c.reorder_cache(torch.tensor([2, 2, 0])), [2, 2, 0]),
        (lambda c: c.batch_select_indices(torch.tensor([1])), [1]),
        (lambda c: c.batch_repeat_interleave(2), [0, 0, 1, 1, 2, 2]),
    ):
        ours = copy.deepcopy(cache)
        change(ours)
        assert ours.batch_size == len(index)
        fresh = by_cache(model, x[index, :held], [held], attention_mask=mask[index, :held])[1]
        rest = mask[index]
        for kept in (ours, fresh):  # twice, so that what was joined is joined again
            kept.reorder_cache(torch.arange(len(index)))
        steps = [
            torch.cat(
                [
                    model(x[index, t : t + 1], attention_mask=rest[:, : t + 1], past_key_values=kept).logits
                    for t in range(held, 23)
                ],
                dim=1,
            )
            for kept in (ours, fresh)
        ]
        assert_close(*steps, **EXACT)
        assert_same_memory(ours.fold(), fresh.fold())


def from_scratch(model, x):
    """Log-probabilities of the next token, without a cache."""
    return by_segments(model, x)[0][:, -1].log_softmax(-1)


def slow_beams(model, x, width, steps):
    """Beam search that reads every text from its beginning at every step."""
    beams = [(0.0, x)]
    for _ in range(steps):
        grown = []
        for score, text in beams:
            for token, more in enumerate(from_scratch(model, text)[0].tolist()):
                grown.append((score + more, torch.cat((text, torch.tensor([[token]])), dim=1)))
        beams = sorted(grown, key=lambda beam: -beam[0])[:width]
    return beams


@pytest.mark.parametrize("memory", MEMORIES)
def test_beam_search_is_that_of_scores_from_scratch(memory):
    model, x = build(memory, num_hidden_layers=2), ids(1, 4)
    found = model.generate(
        x, max_new_tokens=9, num_beams=3, num_return_sequences=3, return_dict_in_generate=True, output_scores=True
    )
    expected = slow_beams(model, x, 3, 9)
    for (score, text), ours, ours_score in zip(expected, found.sequences, found.sequences_scores, strict=True):
        assert torch.equal(ours, text[0])
        assert math.isclose(9 * float(ours_score), score, rel_tol=1e-5)
    assert found.sequences.shape == (3, 13)
    assert isinstance(found.past_key_values, SegmentCache)


def test_wide_beams_find_the_best_of_all_texts():
    model = build(vocab_size=4, num_hidden_layers=2, segment_length=2, memory_length=3)
    x = torch.tensor([[1, 2, 3]])
    texts = torch.cartesian_prod(*[torch.arange(4)] * 3)
    whole = torch.cat((x.expand(64, -1), texts), dim=1)
    logits = torch.cat([by_segments(model, row[None], cuts=2)[0] for row in whole]).log_softmax(-1)
    scores = logits[:, 2:5].gather(2, texts[..., None]).sum((1, 2))
    found = model.generate(x, max_new_tokens=3, num_beams=16, num_return_sequences=4)
    assert torch.equal(found[:, 3:], texts[scores.argsort(descending=True)[:4]])


@pytest.mark.parametrize("memory", MEMORIES)
def test_greedy_one_beam_and_a_loop_from_scratch_agree(memory):
    model, x = build(memory), ids(2, 4)
    greedy = model.generate(x, max_new_tokens=16, do_sample=False)
    text = x
    for _ in range(16):
        text = torch.cat((text, from_scratch(model, text).argmax(-1, keepdim=True)), dim=1)
    assert torch.equal(greedy, text)
    beam = model.generate(x, max_new_tokens=16, num_beams=2, num_return_sequences=1)
    # width 1 through the search itself, which transformers takes for num_beams > 1 only
    assert beam.shape == greedy.shape
    one = [slow_beams(model, row[None], 1, 16)[0][1] for row in x]
    assert torch.equal(torch.cat(one), greedy)


def test_sampling_draws_from_what_is_read_from_scratch():
    model, x = build(), ids(2, 4)
    torch.manual_seed(3)
    ours = model.generate(x, max_new_tokens=12, do_sample=True, top_p=0.8, temperature=0.7, num_return_sequences=2)
    torch.manual_seed(3)
    text = x.repeat_interleave(2, dim=0)
    for _ in range(12):
        logits = by_segments(model, text)[0][:, -1].float() / 0.7
        ordered, order = logits.sort(descending=False)
        out = ordered.softmax(-1).cumsum(-1) <= 1 - 0.8
        out[:, -1:] = False
        drawn = logits.masked_fill(out.scatter(1, order, out), float("-inf")).softmax(-1).multinomial(1)
        text = torch.cat((text, drawn), dim=1)
    assert torch.equal(ours, text)


def test_a_text_ends_at_its_end():
    model, x = build(), ids(2, 4)
    free = model.generate(x, max_new_tokens=12, do_sample=False)
    end = int(free[0, 8])
    ended = model.generate(x, max_new_tokens=12, do_sample=False, eos_token_id=end, pad_token_id=0)
    first = free[0, 4:].tolist().index(end)
    assert ended[0, 4 : 5 + first].tolist() == free[0, 4 : 5 + first].tolist()
    assert not ended[0, 5 + first :].any()


def test_prompts_of_unequal_lengths_are_continued_as_alone():
    model, x = build(encoding="learned"), ids(2, 2 * SEGMENT + 3)
    mask = torch.ones_like(x)
    mask[1, : 2 * SEGMENT] = 0
    both = model.generate(x * mask, attention_mask=mask, max_new_tokens=9, do_sample=False, pad_token_id=0)
    alone = model.generate(x[1:, 2 * SEGMENT :], max_new_tokens=9, do_sample=False)
    assert torch.equal(both[1:, 2 * SEGMENT :], alone)
    beams = model.generate(x * mask, attention_mask=mask, max_new_tokens=9, num_beams=3, pad_token_id=0)
    alone = model.generate(x[1:, 2 * SEGMENT :], max_new_tokens=9, num_beams=3)
    assert torch.equal(beams[1:, 2 * SEGMENT :], alone)


def test_a_given_memory_is_shared_by_beams_and_drawn_texts():
    model, x = build(), ids(2, 14)
    state = by_segments(model, x[:, :10])[1]
    for way in ({"num_beams": 3}, {"do_sample": True, "num_return_sequences": 2}):
        torch.manual_seed(0)
        ours = model.generate(x[:, 10:], memory=state, max_new_tokens=7, **way)
        torch.manual_seed(0)
        assert torch.equal(ours, model.generate(x, max_new_tokens=7, **way)[:, 10:])
    assert state.batch == 2


def test_a_cache_can_be_written_on_with():
    model, x = build(), ids(1, 8)
    whole = model.generate(x, max_new_tokens=12, do_sample=False)
    cache = SegmentCache(model.config)
    part = model.generate(x, max_new_tokens=5, do_sample=False, past_key_values=cache)
    again = model.generate(part, max_new_tokens=7, do_sample=False, past_key_values=cache)
    assert torch.equal(again, whole)
    assert cache.get_seq_length() == 19


def test_what_else_a_model_gives():
    model, x = build(), ids()
    expected = by_segments(model, x)[0]
    with torch.no_grad():
        output = model(x, use_cache=True, logits_to_keep=3, output_hidden_states=True)
        assert_close(output.logits, expected[:, -3:], **EXACT)
        assert len(output.hidden_states) == 4
        assert all(states.shape == (2, 23, 32) for states in output.hidden_states)
        assert_close(model.lm_head(output.hidden_states[-1]), expected, **EXACT)
        step = model(x[:, :1], past_key_values=output.past_key_values, output_attentions=True)
        assert [weights.shape for weights in step.attentions] == [(2, 4, 1, SLOTS + 4)] * 3
        assert_close(step.attentions[1].sum(-1), torch.ones(2, 4, 1).double())
        vectors = model.get_input_embeddings()(x)
        assert_close(model(inputs_embeds=vectors, use_cache=True).logits, expected, **EXACT)
        with pytest.raises(ValueError, match="one segment at a time: the open one takes 5 tokens, got 23"):
            model(x, use_cache=True, output_attentions=True)


def live_elements(cache):
    """Elements of all storages that a cache keeps alive."""
    storages, seen, todo = {}, set(), [cache]
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            storages[item.untyped_storage().data_ptr()] = item.untyped_storage().nbytes()
        elif isinstance(item, dict):
            todo += item.values()
        elif isinstance(item, list | tuple):
            todo += item
        elif hasattr(item, "__dict__"):
            todo += vars(item).values()
    return sum(storages.values())


@pytest.mark.parametrize("memory", MEMORIES)
def test_what_a_cache_holds_is_bounded(memory):
    model = build(memory, num_hidden_layers=2)
    cache, token, held = SegmentCache(model.config), ids(1, 1), []
    with torch.no_grad():
        for _ in range(200):
            token = model(token, past_key_values=cache).logits[:, -1].argmax(-1, keepdim=True)
            held.append(live_elements(cache))
    period = SEGMENT * (3 if memory == "compressive" else 1)  # groups of three tokens
    full = 4 * period
    assert held[full:-period] == held[full + period :]
    assert max(held) == max(held[:full])


def test_refusals():
    model, x = build(), ids(1, 6)
    state = by_segments(model, x)[1]
    cache = SegmentCache(model.config)
    with pytest.raises(ValueError, match="memory or past_key_values, not both"):
        model(x, memory=state, past_key_values=cache)
    with pytest.raises(ValueError, match="memory or past_key_values, not both"):
        model.generate(x, memory=state, past_key_values=cache)
    with pytest.raises(ValueError, match="must be a SegmentCache for a model with a memory, got DynamicCache"):
        model(x, past_key_values=DynamicCache())
    with pytest.raises(ValueError, match="position_ids cannot be given"):
        model(x, position_ids=torch.arange(6)[None], use_cache=True)
    with pytest.raises(ValueError, match="use_cache=False"):
        model.generate(x, use_cache=False, max_new_tokens=2)
    with pytest.raises(ValueError, match="cannot be taken back"):
        cache.crop(2)
    assert not cache.is_croppable
    with pytest.raises(ValueError, match="filled by a wordorder model"):
        cache.update(x, x, 0)
    with pytest.raises(ValueError, match="assisted generation is not supported"):
        model.generate(x, prompt_lookup_num_tokens=2, max_new_tokens=4)
    by_cache(model, x, [6], cache=cache)
    with pytest.raises(ValueError, match="generate takes the whole text, with the 6 tokens that the cache has read"):
        model.generate(x[:, :3], past_key_values=cache, max_new_tokens=2)
    with pytest.raises(ValueError, match="holds 1 rows and the batch 2"):
        model(x.expand(2, -1), past_key_values=cache)
    with pytest.raises(ValueError, match="one token at least"):
        model(x[:, :0], past_key_values=cache)
    model.train().model.decoder.gradient_checkpointing = True
    with pytest.raises(ValueError, match="would fill the cache twice"):
        model(x, use_cache=True)


@pytest.mark.parametrize(
    "other", [{"memory": "segment-recurrence"}, {"num_hidden_layers": 2}, {"memory_options": {"full": True}}]
)
def test_the_cache_of_another_memory_or_network_is_refused(other):
    model, x = build(), ids()
    with pytest.raises(ValueError, match=r"a cache for .* and this model has LookAheadMemory\(length=7.* in 3; pass"):
        model(x, past_key_values=SegmentCache(build(**other).config))


def test_the_old_name_of_memory_is_pointed_out():
    model, x = build(), ids()
    for call in (model, model.generate):
        with pytest.raises(ValueError, match=r"mems is called memory here: pass memory=.*; got a list"):
            call(x, mems=[])


def test_padding_before_a_prompt_that_goes_on_from_a_memory_is_refused():
    model, x = build(), ids()
    mask = torch.ones_like(x)
    mask[1, :4] = 0
    with pytest.raises(ValueError, match="prompts of one length, or write each row by itself"):
        model.generate(x, attention_mask=mask, memory=model(x).memory, max_new_tokens=2)


def test_models_without_a_memory_keep_their_ways():
    without = {"memory": "none", "memory_length": None, "segment_length": None}
    model, x = build(**without), ids(1, 6)
    with pytest.raises(ValueError, match="take a DynamicCache"):
        SegmentCache(model.config)
    with pytest.raises(ValueError, match="memory was given, but this model has memory='none'"):
        model.generate(x, memory=object(), max_new_tokens=2)
    greedy = model.generate(x, max_new_tokens=6, do_sample=False)
    assert torch.equal(model.generate(x, max_new_tokens=6, do_sample=False, prompt_lookup_num_tokens=2), greedy)
    assert isinstance(model(x, use_cache=True).past_key_values, DynamicCache)
