"""Calls and models that were answered wrongly in silence, or not at all, when swaps were reviewed."""

import copy

import pytest
import torch
from swapped_models import apart, body_of, ids_of, model_of, output_of, padded, swapped
from transformers import AutoModelForCausalLM, DynamicCache

from wordorder.errors import BadInput
from wordorder.models import load_swapped, save_swapped, swap_encoding, unswap


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["t5", "rope+fox", "model+shaw"])
def test_a_copied_layer_attends_as_the_one_that_it_copies(encoding):
    model = swapped("llama", encoding)
    before = output_of(model, ids_of(2, 9))
    layer = body_of(model).layers[1]
    layer.self_attn = copy.deepcopy(layer.self_attn)  # as replicas of nn.DataParallel are other objects
    assert apart(output_of(model, ids_of(2, 9)), before) == 0


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["t5", "learned+fox"])
def test_ids_that_a_cache_does_not_hold_are_refused(encoding):
    model, ids = swapped("llama", encoding), ids_of(1, 12)
    gap = torch.cat((torch.arange(6), torch.arange(20, 26)))[None]
    call = {"attention_mask": torch.ones_like(ids), "position_ids": gap}
    output_of(model, ids, use_cache=False, **call)
    with pytest.raises(BadInput, match=r"one by one .* use_cache=False"):
        output_of(model, ids, cache=DynamicCache(config=model.config), **call)


@torch.no_grad()
def test_a_llama_that_looks_both_ways_gets_an_encoders_encoding():
    plain = model_of("llama", is_causal=False)
    before = output_of(plain, ids_of(1, 9), use_cache=False)
    model = swap_encoding(copy.deepcopy(plain), "model+t5", seed=0)
    assert body_of(model).wordorder.encoding.parts["t5"].bidirectional
    assert apart(output_of(model, ids_of(1, 9), use_cache=False), before) <= 1e-5
    with pytest.raises(BadInput, match="cope"):
        swap_encoding(plain, "cope")


@torch.no_grad()
def test_roberta_counts_its_tokens_beside_sines_on_either_side_of_padding():
    model, texts = swap_encoding(model_of("roberta"), "model+sinusoidal", start="drawn"), ids_of(2, 9)
    ids, mask = padded(texts, (3, 3), "roberta")
    assert apart(output_of(model, ids, attention_mask=mask)[:, 3:], output_of(model, texts)) <= 2e-5


@torch.no_grad()
def test_soft_capped_weights_are_returned():
    model, ids = swapped("gemma2", "t5"), ids_of(1, 7)
    weights = model(ids, output_attentions=True).attentions
    assert [tuple(of_layer.shape) for of_layer in weights] == [(1, 4, 7, 7)] * 3
    assert apart(weights[0].sum(-1), torch.ones(1, 4, 7)) <= 1e-5


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["none@3", "t5@3", "rope@3"])
def test_windows_go_by_column_whatever_position_ids_say(encoding):
    model, ids = swapped("llama", encoding), ids_of(2, 9)
    for places in (2 * torch.arange(9), torch.tensor([0, 1, 2] * 3)):
        places, mask = places.expand(2, -1), torch.ones(2, 9, dtype=torch.long)
        whole = output_of(model, ids, attention_mask=mask, position_ids=places, use_cache=False)
        mask[1, -2:] = 0  # a mask that transformers hands over, where it left one out before
        padded = output_of(model, ids, attention_mask=mask, position_ids=places, use_cache=False)
        assert apart(padded[0], whole[0]) <= 2e-5


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_a_mask_of_numbers_is_refused(kind):
    with pytest.raises(BadInput, match=r"four axes must be bool"):
        output_of(swapped(kind, "t5@4"), ids_of(1, 5), attention_mask=torch.zeros(1, 1, 5, 5))


@torch.no_grad()
def test_packed_texts_share_one_row_of_distances(monkeypatch):
    from wordorder.models.swap import call
    from wordorder.ops import ToeplitzBias

    kinds = []
    plan = call.plan_layers
    monkeypatch.setattr(
        call, "plan_layers", lambda terms, *a, **k: kinds.append(type(terms.kinds[0].bias)) or plan(terms, *a, **k)
    )
    positions = torch.cat((torch.arange(5), torch.arange(7)))[None]
    output_of(swapped("llama", "t5"), ids_of(1, 12), position_ids=positions, use_cache=False)
    assert kinds == [ToeplitzBias]


@torch.no_grad()
def test_what_has_no_start_at_0_is_loaded_beside_the_models_positions(tmp_path):
    plain = model_of("llama")
    model = swap_encoding(copy.deepcopy(plain), "model+alibi", start="drawn")
    before = output_of(model, ids_of(2, 9))
    model.save_pretrained(tmp_path / "whole")
    save_swapped(model, tmp_path / "small")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "whole").eval()
    assert apart(output_of(loaded, ids_of(2, 9)), before) == 0
    assert apart(output_of(load_swapped(plain, tmp_path / "small"), ids_of(2, 9)), before) == 0


@torch.no_grad()
def test_a_loaded_rope_is_unswapped(tmp_path):
    plain = model_of("llama")
    swap_encoding(copy.deepcopy(plain), "rope").save_pretrained(tmp_path)
    model = unswap(AutoModelForCausalLM.from_pretrained(tmp_path).eval())
    assert apart(output_of(model, ids_of(2, 9)), output_of(plain, ids_of(2, 9))) == 0


def test_a_t5_with_one_side_stays_swapped():
    model = swap_encoding(model_of("t5"), "t5", options={"bidirectional": False})
    with pytest.raises(BadInput, match="does not compute encoding 't5'"):
        unswap(model)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")
def test_pefts_copies_are_merged_before_they_are_saved(tmp_path):
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["wordorder"])
    model = peft.get_peft_model(swapped("llama", "t5"), settings)
    with pytest.raises(BadInput, match="merge_and_unload"):
        save_swapped(model.get_base_model(), tmp_path)
    save_swapped(model.merge_and_unload(), tmp_path)
    load_swapped(model_of("llama"), tmp_path)


def test_layers_in_torchs_checkpoint_wrapper_are_computed_again():
    wrap = pytest.importorskip("torch.distributed.algorithms._checkpoint.checkpoint_wrapper").checkpoint_wrapper
    model, ids = swapped("llama", "t5").train(), ids_of(2, 9)
    layers = body_of(model).layers
    gradients = []
    for wrapped in (False, True):
        for index in range(len(layers)) if wrapped else ():
            layers[index] = wrap(layers[index])
        model.zero_grad()
        model(ids, labels=ids, use_cache=False).loss.backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert max(apart(a, b) for a, b in zip(*gradients, strict=True)) <= 1e-6


def test_tables_beside_the_models_own_are_no_longer_than_that():
    with pytest.raises(BadInput, match="max_positions must be at most 64"):
        swap_encoding(model_of("bert"), "model+tupe-r", max_positions=65)
    swap_encoding(model_of("bert"), "tupe-r", max_positions=65)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")
def test_a_model_of_peft_and_a_name_in_capitals_are_told_the_remedy():
    peft = pytest.importorskip("peft")
    with pytest.raises(BadInput, match="swap the encoding of its model first, then add adapters"):
        swap_encoding(peft.get_peft_model(model_of("llama"), peft.LoraConfig(target_modules=["q_proj"])), "t5")
    with pytest.raises(BadInput, match="did you mean 'model'"):
        swap_encoding(model_of("llama"), "Model+t5")
