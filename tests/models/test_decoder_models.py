import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.testing import assert_close
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, DynamicCache, PreTrainedTokenizerFast, pipeline
from transformers.trainer_pt_utils import LabelSmoother

from wordorder.encodings import CATALOG
from wordorder.errors import BadInput
from wordorder.models import NETWORK_TASKS, build_config, build_model
from wordorder.models.pretrained import CACHE

NAMES = [*(name for name, kind in CATALOG.items() if "decoder" not in kind.refused_in), "learned+t5"]
SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "initializer_range": 0.3,
}
GREEDY = {"max_new_tokens": 9, "do_sample": False}


def build(encoding="tupe-r", **fields):
    return build_model(build_config("decoder", encoding=encoding, **{**SIZES, **fields}), "causal-lm", seed=1).eval()


def ids(batch=2, length=9):
    return torch.randint(3, 50, (batch, length))


def left_padded(prompts):
    longest = max(prompt.shape[1] for prompt in prompts)
    rows = [torch.nn.functional.pad(prompt, (longest - prompt.shape[1], 0)) for prompt in prompts]
    x = torch.cat(rows)
    return x, (x > 0).long()


@pytest.mark.parametrize("name", NAMES)
def test_save_and_load(name, tmp_path):
    model, x = build(name), ids()
    model.save_pretrained(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
    ]
    again, info = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert type(again) is type(model)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_close(again(x).logits, model(x).logits, rtol=0, atol=0)
    assert AutoConfig.from_pretrained(tmp_path).model_type == "wordorder-decoder"
    assert_close(AutoModel.from_pretrained(tmp_path)(x)[0], model.model(x)[0], rtol=0, atol=0)


IN_BOTH = [(name, torch.float64, 1e-10) for name in NAMES] + [
    (name, torch.float32, 1e-5) for name in ("rope", "tupe-r")
]


@pytest.mark.parametrize(("name", "dtype", "bound"), IN_BOTH)
def test_token_by_token_equals_all_at_once(name, dtype, bound):
    model, x = build(name).to(dtype), ids(2, 12)
    whole = model(x).logits
    cache, parts = None, []
    for token in x.split(1, 1):
        output = model(token, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        parts.append(output.logits)
    assert isinstance(cache, DynamicCache)
    assert_close(torch.cat(parts, 1), whole, rtol=0, atol=bound * whole.abs().max().item())


@pytest.mark.parametrize("name", NAMES)
def test_generate_is_the_same_with_and_without_a_cache_and_with_left_padding(name):
    model = build(name).double()
    prompts = [ids(1, length) for length in (7, 3, 1)]
    x, mask = left_padded(prompts)
    together = [model.generate(x, attention_mask=mask, use_cache=cache, **GREEDY)[:, 7:] for cache in (True, False)]
    assert torch.equal(*together)
    for row, prompt in zip(together[0], prompts, strict=True):
        alone = model.generate(prompt, attention_mask=torch.ones_like(prompt), **GREEDY)[0, prompt.shape[1] :]
        assert torch.equal(row[: len(alone)], alone)
        assert (row[len(alone) :] == 0).all()


@pytest.mark.parametrize("name", ["rope", "tupe-r", "shaw", "learned+t5"])
def test_steps_with_left_padding_give_the_logits_of_each_text_alone(name):
    model, texts = build(name).double(), [ids(1, 8), ids(1, 5)]
    x, mask = left_padded(texts)
    first = model(x[:, :6], attention_mask=mask[:, :6], use_cache=True)
    second = model(x[:, 6:], attention_mask=mask, past_key_values=first.past_key_values)
    logits = torch.cat([first.logits, second.logits], 1)[mask.bool()]
    assert_close(logits, torch.cat([model(text).logits[0] for text in texts]), rtol=1e-10, atol=1e-10)
    counted = (mask.cumsum(1) - 1).clamp(min=0)  # as generate counts positions
    first = model(x[:, :6], attention_mask=mask[:, :6], position_ids=counted[:, :6], use_cache=True)
    again = model(x[:, 6:], mask, position_ids=counted[:, 6:], past_key_values=first.past_key_values)
    assert_close(again.logits, second.logits, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("how", [{"prompt_lookup_num_tokens": 2}, {"prefill_chunk_size": 2}])
def test_other_ways_to_fill_a_cache_write_the_same(how):
    model, x = build("tupe-r").double(), ids(1, 7)
    assert torch.equal(model.generate(x, **how, **GREEDY), model.generate(x, **GREEDY))


@pytest.mark.parametrize("name", ["rope", "tupe-r", "shaw"])
def test_beam_search_and_sampling_with_and_without_a_cache(name):
    model, (x, mask) = build(name).double(), left_padded([ids(1, 6), ids(1, 2)])
    settings = {"num_beams": 4, "num_return_sequences": 4, "do_sample": False, "max_new_tokens": 6}
    found = [model.generate(x, attention_mask=mask, use_cache=cache, **settings) for cache in (True, False)]
    assert torch.equal(*found)
    assert len({tuple(row.tolist()) for row in found[0]}) == 8
    drawn = []
    for cache in (True, False):
        torch.manual_seed(3)
        drawn.append(model.generate(x, attention_mask=mask, use_cache=cache, do_sample=True, max_new_tokens=8))
    assert torch.equal(*drawn)


@pytest.mark.parametrize("name", NAMES)
def test_padding_side_changes_nothing(name):
    model, text = build(name).double(), ids(1, 7)
    right, left = torch.nn.functional.pad(text, (0, 4)), torch.nn.functional.pad(text, (4, 0))
    alone, *others = (model(x, attention_mask=(x > 0).long()).logits for x in (text, right, left))
    for logits, where in zip(others, (slice(7), slice(4, 11)), strict=True):
        assert_close(logits[:, where], alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_packed_by_position_ids_equals_separate(name):
    model, texts = build(name).double(), [ids(1, 5), ids(1, 8)]
    separate = torch.cat([model(text).logits for text in texts], 1)
    position_ids = torch.cat([torch.arange(5), torch.arange(8)])[None]
    assert_close(model(torch.cat(texts, 1), position_ids=position_ids).logits, separate, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_eager_equals_sdpa_and_gives_weights(name):
    model, (x, mask) = build(name), left_padded([ids(1, 11), ids(1, 7)])
    sdpa = model(x, attention_mask=mask)
    model.set_attn_implementation("eager")
    eager = model(x, attention_mask=mask, output_attentions=True, output_hidden_states=True)
    assert_close(sdpa.logits[mask.bool()], eager.logits[mask.bool()], rtol=1e-4, atol=1e-4)
    assert len(eager.hidden_states) == 3
    for weights in eager.attentions:  # in the caller's columns: no weight on padding or on what comes after
        assert (weights.transpose(1, 3)[~mask.bool()] == 0).all()
        assert (weights[0].triu(1) == 0).all()


def test_loss_is_that_of_the_next_token():
    model, x = build().double(), ids(3, 9)
    labels = torch.where(torch.rand(3, 9) < 0.7, x, -100)
    logits, wanted = model(x).logits[:, :-1], labels[:, 1:]
    by_hand = -logits.log_softmax(-1)[wanted != -100].gather(1, wanted[wanted != -100][:, None]).mean()
    assert_close(model(x, labels=labels).loss, by_hand)
    count = (wanted != -100).sum()
    parts = [model(x[rows], labels=labels[rows], num_items_in_batch=count).loss for rows in (slice(1), slice(1, 3))]
    assert_close(sum(parts), by_hand)
    assert_close(model(x, labels=labels, num_items_in_batch=2 * int(count)).loss, by_hand / 2)


def test_labels_are_smoothed_in_training_as_the_trainer_does_it():
    fields = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model, plain, x = build(label_smoothing=0.1, **fields), build(**fields), ids()
    assert_close(model(x, labels=x).loss, plain(x, labels=x).loss)
    smoothed = model.train()(x, labels=x)
    assert_close(smoothed.loss, LabelSmoother(epsilon=0.1)(smoothed, x, shift_labels=True))
    assert abs(smoothed.loss - plain(x, labels=x).loss) > 1e-3


def test_every_parameter_is_trained():
    model, x = build().train(), ids()
    output = model(x, labels=x)
    output.loss.backward()
    assert output.memory is None
    assert output.past_key_values is None
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    assert isinstance(model(x, return_dict=False), tuple)


@pytest.mark.parametrize("name", ["learned", "tupe-r"])
def test_resizing_embeddings_keeps_them_tied(name, tmp_path):
    model, x = build(name), ids()
    before = model(x).logits
    model.resize_token_embeddings(60)
    assert model.config.vocab_size == 60
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert_close(model(x).logits[..., :50], before, rtol=1e-5, atol=1e-5)
    model.save_pretrained(tmp_path)
    assert AutoModelForCausalLM.from_pretrained(tmp_path)(x).logits.shape[-1] == 60


def test_untied_output_layer():
    model = build(tie_word_embeddings=False)
    assert model.lm_head.weight is not model.get_input_embeddings().weight


def test_gradient_checkpointing_through_transformers():
    model, x = build(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train(), ids()
    plain = torch.autograd.grad(model(x, labels=x).loss, list(model.parameters()))
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()
    assert model.model.decoder.gradient_checkpointing
    for ours, reference in zip(
        torch.autograd.grad(model(x, labels=x).loss, list(model.parameters())), plain, strict=True
    ):
        assert_close(ours, reference, rtol=0, atol=0)


@pytest.mark.parametrize("name", [pytest.param("tupe-r", marks=pytest.mark.slow), "shaw"])
def test_compiles_without_a_break(name):
    model, x = build(name, num_hidden_layers=1), ids(2, 12)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    loss, plain = compiled(x, labels=x).loss, model(x, labels=x).loss
    grads = [torch.autograd.grad(y, list(model.parameters()), allow_unused=True) for y in (loss, plain)]
    assert_close(loss, plain)
    for ours, eager in zip(*grads, strict=True):
        assert_close(ours, eager, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["rope", "shaw", "transformer-xl", "deberta", "cope", "xpos", "fire", "path", "deberta,none"]
)
def test_exports_with_dynamic_batch_and_length(name):
    model = build(name).double()  # in float32 the rounding of some CPUs passes the bound
    axes = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=2, max=64)}
    program = torch.export.export(model, (), {"input_ids": ids(3, 10)}, dynamic_shapes={"input_ids": axes}).module()
    for B, T in ((1, 23), (5, 2), (2, 64)):
        x = ids(B, T)
        assert_close(program(input_ids=x).logits, model(x).logits, rtol=1e-5, atol=1e-5)


def test_logits_of_some_columns_alone():
    model, x = build(), ids()
    whole = model(x).logits
    assert_close(model(x, logits_to_keep=2).logits, whole[:, -2:])
    assert_close(model(x, logits_to_keep=torch.tensor([0, 4])).logits, whole[:, [0, 4]])


def test_embeddings_instead_of_ids():
    model, x = build("rope"), ids()
    embeds = model.get_input_embeddings()(x)
    assert_close(model(inputs_embeds=embeds).logits, model(x).logits)
    settings = {"attention_mask": torch.ones_like(x), **GREEDY}
    assert torch.equal(model.generate(inputs_embeds=embeds, **settings), model.generate(x, **settings)[:, 9:])


def test_text_generation_pipeline():
    words = {"<pad>": 0, "<unk>": 1, "<eos>": 2} | {f"w{i}": i for i in range(3, 50)}
    tokens = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens, pad_token="<pad>", unk_token="<unk>", eos_token="<eos>", padding_side="left"
    )
    write = pipeline("text-generation", model=build("rope"), tokenizer=tokenizer)
    texts = ["w3 w4 w5 w6", "w7"]
    settings = {"do_sample": False, "max_new_tokens": 5, "max_length": None}
    together = write(texts, batch_size=2, **settings)
    for text, (found,) in zip(texts, together, strict=True):
        assert found["generated_text"].startswith(text)
        assert found == write(text, **settings)[0]


def test_factory_and_configuration():
    assert NETWORK_TASKS["decoder"] == ("causal-lm",)
    with pytest.raises(BadInput, match="label_smoothing must lie"):
        build_config("decoder", label_smoothing=1.0)
    with pytest.raises(BadInput, match="bidirectional=True"):  # which is False in a decoder
        build_config("decoder", encoding="tupe-r", encoding_options={"reset": "reference-code"})


@pytest.mark.parametrize("network", ["decoder", "seq2seq"])
def test_the_cache_has_two_names(network):
    """Transformers calls it past_key_values, and cache from version 5.24 on."""
    config = build_config(network, encoding="rope", **SIZES)
    model, x = build_model(config, "causal-lm" if network == "decoder" else "translation", seed=1).eval(), ids()
    target = {} if network == "decoder" else {"decoder_input_ids": x[:, :6]}
    caches = [model(x, use_cache=True, **target)[CACHE] for _ in range(2)]
    later = {"decoder_input_ids": x[:, 6:]} if target else {}
    found = [
        model(x, **later, **{name: cache}) for name, cache in zip(("past_key_values", "cache"), caches, strict=True)
    ]
    assert_close(found[0].logits, found[1].logits, rtol=0, atol=0)
    assert found[1][CACHE] is caches[1]
    with pytest.raises(ValueError, match="pass the cache as past_key_values or as cache, not as both"):
        model(x, **later, past_key_values=caches[0], cache=caches[1])


def cached(model):
    return model(ids(2, 3), use_cache=True).past_key_values


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model, x: model(), "exactly one"),
        (lambda model, x: model(x, memory=1), "memory"),
        (lambda model, x: model(ids(1, 65)), "max_positions=64"),
        (lambda model, x: model(x, attention_mask=torch.ones(2, 1, 9, 9)), "attention_mask"),
        (lambda model, x: model(x, torch.ones(2, 9), past_key_values=cached(model)), r"\(2, 12\), the 3 tokens"),
        (lambda model, x: model(x, position_ids=torch.arange(3)[None], use_cache=True), "position_ids"),
        (lambda model, x: model(x, position_ids=torch.arange(9).expand(3, 9), use_cache=True), "position_ids must be"),
        (lambda model, x: model(x, position_ids=torch.arange(9.0)[None], use_cache=True), "integers"),
        (lambda model, x: model(x, position_ids=2 * torch.arange(9)[None], use_cache=True), "grow by one"),
        (lambda model, x: model(x, position_ids=torch.arange(9)[None] % 4, use_cache=True), "grow by one"),
        (lambda model, x: model(x, labels=x, logits_to_keep=2), "leave logits_to_keep out"),
        (lambda model, x: model.generate(x, position_ids=torch.arange(9)[None] + 1), "leave position_ids out"),
        (lambda model, x: model.generate(x, max_new_tokens=2, cache_implementation="static"), "of a fixed size"),
        (lambda model, x: model(x, sequence_ids=torch.zeros(2, 9).long(), use_cache=True), "packed"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call(build(), ids())


@pytest.mark.parametrize("name", ["complex-order", "complex-vanilla", "complex-order+t5"])
@pytest.mark.parametrize("scores", ["real-part", "modulus"])
def test_complex_networks_write_and_are_saved_like_real_ones(name, scores, tmp_path):
    model = build(name, complex_valued=True, complex_options={"scores": scores})
    x, mask = left_padded([ids(1, 8), ids(1, 5)])
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert_close(again(x, mask).logits, model(x, mask).logits, rtol=0, atol=0)
    model = model.double()
    found = [model.generate(x, attention_mask=mask, use_cache=cache, **GREEDY) for cache in (True, False)]
    assert torch.equal(*found)
    first = model(x[:, :6], attention_mask=mask[:, :6], use_cache=True)
    second = model(x[:, 6:], attention_mask=mask, past_key_values=first.past_key_values)
    whole = model(x, mask).logits[mask.bool()]
    assert_close(torch.cat([first.logits, second.logits], 1)[mask.bool()], whole, rtol=1e-10, atol=1e-10)


def test_it_drafts_for_another_model_in_assisted_generation():
    model, assistant = (build("rope", num_hidden_layers=layers) for layers in (1, 2))
    x = ids(1, 6)
    greedy = {"do_sample": False, "max_new_tokens": 8}
    drafted = model.generate(x, assistant_model=assistant, **greedy)
    assert torch.equal(drafted, model.generate(x, **greedy))
