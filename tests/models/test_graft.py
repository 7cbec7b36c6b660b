import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)
from tupe_from_paper import bucket, position_term

from wordorder.errors import BadInput
from wordorder.models import graft
from wordorder.models.grafts import GRAFTS, GraftedBertConfig, GraftedBertForMaskedLM
from wordorder.ops import Contiguous

HEADS, LONGEST = 4, 40
HOSTS = list(GRAFTS)
MASKED_LM = [BertForMaskedLM, RobertaForMaskedLM]
SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": 64,
    "initializer_range": 0.2,
}


def host(kind=BertForMaskedLM, **fields):
    torch.manual_seed(0)
    roberta = kind.__name__.startswith("Roberta")
    # RoBERTa's table has pad_token_id + 1 = 2 rows that no token reads
    config = (RobertaConfig if roberta else BertConfig)(
        **{**SIZES, "max_position_embeddings": LONGEST + 2 * roberta, **fields}
    )
    return kind(config).eval()


def stirred(model):
    """Move every weight, so that nothing hides behind a 0."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def ids(*shape):
    return torch.randint(3, 50, shape or (3, 11))


def padded():
    """A batch with padding on neither side, on the right, and on the left."""
    mask = torch.ones(3, 11, dtype=torch.long)
    mask[1, 7:] = 0
    mask[2, :3] = 0
    x = ids()
    return x, mask


def body(model):
    return getattr(model, model.base_model_prefix)


def tupe(model):
    return body(model).encoding.parts["tupe"]


def results(output, where=slice(None)):
    tensors = [v for k, v in output.items() if isinstance(v, torch.Tensor) and k != "loss"]
    return [t[where] if t.shape[:2] == (3, 11) else t for t in tensors]


@pytest.mark.parametrize("encoding", ["tupe-a", "tupe-r", "t5"])
@pytest.mark.parametrize("kind", HOSTS)
def test_step_0_computes_what_the_host_computes(kind, encoding):
    plain = host(kind, initializer_range=0.05)
    grafted = graft(plain, encoding)
    assert type(grafted) is GRAFTS[kind][1]
    x, mask = padded()
    token_types = torch.zeros_like(x)
    first = 2 if kind.__name__.startswith("Roberta") else 0
    calls = [{}, {"attention_mask": mask}, {"attention_mask": mask, "token_type_ids": token_types},
             {"position_ids": first + torch.arange(11)[None]}]  # fmt: skip
    for dtype, bound in ((torch.float32, 1e-6), (torch.float64, 1e-13)):
        plain, grafted = plain.to(dtype), grafted.to(dtype)
        for call in calls:
            given = {"input_ids": x, **call}
            if kind.__name__.endswith("MultipleChoice"):
                given = {k: v.repeat(2, 1)[None] for k, v in given.items() if k != "position_ids"}
            where = mask.bool() if "attention_mask" in call else slice(None)
            for ours, before in zip(results(grafted(**given), where), results(plain(**given), where), strict=True):
                assert_close(ours, before, rtol=0, atol=bound * max(1.0, before.abs().max().item()))


@pytest.mark.parametrize("options", [{}, {"theta": "free"}, {"reset": "reference-code"}, {"cls": "none"}])
def test_everything_about_positions_is_zero_at_first(options):
    encoding = tupe(graft(host(), "tupe-r", encoding_options=options))
    assert (encoding(Contiguous(LONGEST), Contiguous(LONGEST)).dense() == 0).all()
    if options.get("cls") != "none":
        assert (encoding.thetas() == 0).all()
    assert 0.15 < encoding.key_projection.weight.std() < 0.25  # drawn from the host's initial range
    assert 0.15 < encoding.table.weight.std() < 0.25


def from_the_equations(plain, weights, x, texts):
    """The host in eager attention, the position term and the padding added to its scores as one written-out matrix."""
    plain.config._attn_implementation = "eager"
    matrices = []
    for text in texts:
        matrix = torch.full((HEADS, x.shape[1], x.shape[1]), -1e300, dtype=torch.float64)
        matrix[:, text, text] = position_term(weights, HEADS, range(text.stop - text.start), reset="paper")
        matrices.append(matrix)
    return plain(x, attention_mask=torch.stack(matrices)).logits


@pytest.mark.parametrize("kind", MASKED_LM)
def test_scores_and_every_gradient_match_the_equations(kind):
    grafted = stirred(graft(host(kind), "tupe-r")).double()
    plain = host(kind).double()
    plain.load_state_dict({k: v for k, v in grafted.state_dict().items() if ".encoding." not in k})
    x, mask = padded()
    texts = [slice(0, 11), slice(0, 7), slice(3, 11)]
    ours = grafted(x, attention_mask=mask).logits[mask.bool()]
    prefix = f"{grafted.base_model_prefix}.encoding.parts.tupe."
    weights = {n.removeprefix(prefix): p for n, p in grafted.named_parameters() if n.startswith(prefix)}
    paper = from_the_equations(plain, weights, x, texts)[mask.bool()]
    assert_close(ours, paper, rtol=0, atol=1e-12 * paper.abs().max().item())
    upstream = torch.randn_like(paper)
    shared = [n for n, p in plain.named_parameters() if "pooler" not in n]
    ours_grads = torch.autograd.grad(
        ours, [*weights.values(), *(grafted.get_parameter(n) for n in shared)], upstream, allow_unused=True
    )
    paper_grads = torch.autograd.grad(
        paper, [*weights.values(), *(plain.get_parameter(n) for n in shared)], upstream, allow_unused=True
    )
    for name, mine, theirs in zip([*weights, *shared], ours_grads, paper_grads, strict=True):
        largest = max(1.0, theirs.abs().max().item())
        assert_close(mine, theirs, rtol=0, atol=1e-11 * largest, msg=lambda text, name=name: f"{name}: {text}")


def test_t5_reads_distances_and_options():
    grafted = stirred(graft(host(), "t5", encoding_options={"max_distance": 128})).double()
    bias = grafted.bert.position_bias((1, 9))
    table = body(grafted).encoding.parts["t5"].table.weight
    table = table * (body(grafted).config.hidden_size // HEADS) ** 0.5
    expected = torch.stack([torch.stack([table[bucket(i, j)] for j in range(9)]) for i in range(9)]).permute(2, 0, 1)
    assert_close(bias[0], expected)


def test_one_bias_for_all_examples_unless_they_are_padded():
    grafted = graft(host())
    assert grafted.bert.position_bias((3, 11)).shape == (1, HEADS, 11, 11)
    assert grafted.bert.position_bias((3, 11), torch.ones(3, 11)).shape == (3, HEADS, 11, 11)
    assert grafted.bert.position_bias((3, 11), torch.ones(3, 1, 11, 11)).shape == (1, HEADS, 11, 11)


@pytest.mark.parametrize("kind", MASKED_LM)
@pytest.mark.parametrize("keep", [True, False])
def test_padding_side_changes_nothing_but_bert_s_own_positions(kind, keep):
    model = stirred(graft(host(kind), keep_input_positions=keep)).double()
    pad = model.config.pad_token_id
    text = ids(1, 7)
    alone = model(text).logits
    for before, after in ((0, 4), (4, 0)):
        x = nn.functional.pad(text, (before, after), value=pad)
        logits = model(x, attention_mask=(x != pad).long()).logits[:, before : before + 7]
        same = torch.allclose(logits, alone, rtol=1e-10, atol=1e-10)
        assert same == (not (keep and before and kind is BertForMaskedLM))


def test_position_ids_are_followed():
    for kind, first in ((BertForMaskedLM, 0), (RobertaForMaskedLM, 2)):
        model = stirred(graft(host(kind))).double()
        x = ids()
        counted = model(x, position_ids=(first + torch.arange(11))[None]).logits
        assert_close(counted, model(x).logits, rtol=1e-12, atol=1e-12)
        later = body(model).position_bias((1, 3), position_ids=first + torch.tensor([[5, 6, 7]]))
        assert_close(later, body(model).position_bias((1, 8))[..., 5:, 5:])


def test_input_positions_can_be_taken_out():
    plain = host()
    grafted = graft(plain, keep_input_positions=False)
    assert not any("position_embeddings" in name for name in grafted.state_dict())
    x = ids()
    with torch.no_grad():
        plain.bert.embeddings.position_embeddings.weight.zero_()
    assert_close(grafted(x).logits, plain(x).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", HOSTS)
def test_save_and_load_in_every_head(kind, tmp_path):
    model = stirred(graft(host(kind), "tupe-r", encoding_options={"reset": "reference-code"}))
    model.save_pretrained(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    again, info = GRAFTS[kind][0].from_pretrained(tmp_path, output_loading_info=True)
    assert type(again) is type(model)
    assert not any(info[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    family = "roberta" if kind.__name__.startswith("Roberta") else "bert"
    assert again.config.model_type == f"wordorder-grafted-{family}"
    assert again.config.encoding_options == {"reset": "reference-code"}
    x = ids(1, 2, 11) if kind.__name__.endswith("MultipleChoice") else ids()
    for ours, saved in zip(results(again(x)), results(model(x)), strict=True):
        assert_close(ours, saved, rtol=0, atol=1e-6)


def test_a_plain_checkpoint_loads_silent_and_a_new_head_is_drawn(tmp_path):
    plain = host()
    plain.save_pretrained(tmp_path / "plain")
    loaded = GraftedBertForMaskedLM.from_pretrained(tmp_path / "plain").eval()
    x = ids()
    assert_close(loaded(x).logits, plain(x).logits, rtol=0, atol=1e-5)
    trained = stirred(graft(plain))
    trained.save_pretrained(tmp_path / "grafted")
    assert AutoConfig.from_pretrained(tmp_path / "grafted").model_type == "wordorder-grafted-bert"
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path / "grafted")
    for name, parameter in trained.bert.encoding.named_parameters():
        assert torch.equal(parameter, classifier.bert.encoding.get_parameter(name)), name
    assert 0.1 < classifier.classifier.weight.std() < 0.3


def test_every_parameter_learns_query_projection_and_numbers_first():
    model, x = graft(host(), "tupe-r").train(), ids(4, 20)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    learned = []
    for _ in range(2):
        optimiser.zero_grad()
        model(x, labels=x).loss.backward()
        learned.append({n for n, p in tupe(model).named_parameters() if p.grad is not None and (p.grad != 0).any()})
        optimiser.step()
    assert learned[0] == {"query_projection.weight", "query_projection.bias", "relative.table.weight"}
    assert learned[1] == {name for name, _ in tupe(model).named_parameters()}


def counting_texts(generator, number):
    """Texts that count upwards from somewhere, one token masked: its neighbours and their order tell which it was."""
    texts = []
    for _ in range(number):
        text = torch.cat([torch.tensor([2]), torch.randint(5, 12, (), generator=generator) + torch.arange(8)])
        labels = torch.full_like(text, -100)
        place = int(torch.randint(1, 9, (), generator=generator))
        labels[place], text[place] = text[place].clone(), 4
        texts.append({"input_ids": text, "labels": labels, "attention_mask": torch.ones_like(text)})
    return texts


@pytest.mark.slow
def test_training_goes_on_with_trainer(tmp_path):
    from transformers import Trainer, TrainingArguments

    generator = torch.Generator().manual_seed(1)
    train, test = counting_texts(generator, 480), counting_texts(generator, 64)
    settings = {"use_cpu": True, "report_to": "none", "save_strategy": "no", "disable_tqdm": True, "seed": 1,
                "per_device_train_batch_size": 16, "max_steps": 60, "learning_rate": 3e-3}  # fmt: skip

    def trainer_of(model):
        arguments = TrainingArguments(output_dir=str(tmp_path), **settings)
        return Trainer(model=model, args=arguments, train_dataset=train, eval_dataset=test)

    plain = trainer_of(host(initializer_range=0.05, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    plain.train()
    grafted = trainer_of(graft(plain.model, "tupe-r"))
    start = grafted.evaluate()["eval_loss"]
    assert start == pytest.approx(plain.evaluate()["eval_loss"], abs=1e-5)
    weights = {name: p.detach().clone() for name, p in tupe(grafted.model).named_parameters()}
    grafted.train()
    assert grafted.evaluate()["eval_loss"] < start - 0.1
    assert all((p != weights[name]).any() for name, p in tupe(grafted.model).named_parameters())


def test_the_host_is_left_as_it_was_and_what_it_froze_stays_frozen():
    plain = host().train()
    plain.bert.embeddings.requires_grad_(False)
    before = {name: p.clone() for name, p in plain.state_dict().items()}
    grafted = graft(plain)
    assert grafted.training
    assert not grafted.bert.embeddings.word_embeddings.weight.requires_grad
    assert grafted.cls.predictions.decoder.weight is grafted.bert.embeddings.word_embeddings.weight
    stirred(grafted)
    assert all(torch.equal(p, before[name]) for name, p in plain.state_dict().items())
    assert not graft(plain.eval()).training
    assert type(plain) is BertForMaskedLM


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_host_in_another_dtype(dtype):
    plain = host().to(dtype)
    grafted = graft(plain)
    assert {p.dtype for p in grafted.parameters()} == {dtype}
    x, mask = padded()
    for call in ({}, {"attention_mask": mask}):
        ours, before = grafted(x, **call).logits, plain(x, **call).logits
        assert ours.dtype == dtype
        where = mask.bool() if call else slice(None)
        bound = {torch.bfloat16: 0.03, torch.float16: 0.005, torch.float64: 1e-13}[dtype]
        assert_close(ours[where], before[where], rtol=0, atol=bound * before.abs().max().item())


def test_autocast():
    model, (x, mask) = stirred(graft(host())), padded()
    exact = model(x, attention_mask=mask).logits[mask.bool()]
    with torch.autocast("cpu", torch.bfloat16):
        bias = model.bert.position_bias((3, 11), mask)
        logits = model(x, attention_mask=mask).logits[mask.bool()]
    assert_close(logits.float(), exact, rtol=0, atol=0.1 * exact.abs().max().item())
    # rounded once, at the end: products in 16 bits would be off by a few of its steps
    assert_close(bias, model.bert.position_bias((3, 11), mask).bfloat16(), rtol=0, atol=0)


def test_gradient_checkpointing_changes_nothing():
    model, x = stirred(graft(host(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))).train(), ids()
    wanted = [p for n, p in model.named_parameters() if "pooler" not in n]
    plain = torch.autograd.grad(model(x, labels=x).loss, wanted)
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()
    assert model.bert.gradient_checkpointing
    for ours, reference in zip(torch.autograd.grad(model(x, labels=x).loss, wanted), plain, strict=True):
        assert_close(ours, reference, rtol=0, atol=0)
    enable({"use_reentrant": True})
    with pytest.raises(BadInput, match="use_reentrant"):
        model(x, labels=x)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MASKED_LM)
def test_compiles_without_a_break(kind):
    torch.compiler.reset()  # what other tests compiled counts against one limit
    model, (x, mask) = stirred(graft(host(kind, num_hidden_layers=1))), padded()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    wanted = mask.bool()
    assert_close(
        compiled(x, attention_mask=mask).logits[wanted],
        model(x, attention_mask=mask).logits[wanted],
        rtol=1e-4,
        atol=1e-4,
    )


def test_the_bias_is_one_per_example_for_flex_attention():
    model = graft(host())
    model.set_attn_implementation("flex_attention")
    assert model.bert.position_bias((3, 11)).shape == (3, HEADS, 11, 11)


def test_resizing_embeddings_keeps_them_tied():
    model, x = graft(host()), ids()
    before = model(x).logits
    model.resize_token_embeddings(60)
    assert model.cls.predictions.decoder.weight is model.get_input_embeddings().weight
    assert_close(model(x).logits[..., :50], before, rtol=1e-5, atol=1e-5)


def test_the_fill_mask_pipeline_knows_it(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import pipeline

    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[MASK]", "peace", "war", "and"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", pad_token="[PAD]")
    graft(host()).save_pretrained(tmp_path)
    fast.save_pretrained(tmp_path)
    guesses = pipeline("fill-mask", model=str(tmp_path), device="cpu", top_k=2)("peace and [MASK]")
    assert len(guesses) == 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: graft(host(attn_implementation="eager")), "'eager' drops the position bias.*set_attn_implementation"),
        (lambda: graft(DistilBertModel(DistilBertConfig(dim=8, hidden_dim=8, n_layers=1, n_heads=1))), "BERT or RoB"),
        (lambda: graft(nn.Linear(2, 2)), "BERT or RoBERTa of transformers, got Linear"),
        (lambda: graft(graft(host())), "grafted already"),
        (lambda: graft(host(BertLMHeadModel, is_decoder=True)), "decoder"),
        (lambda: graft(host(BertModel, is_decoder=True, add_cross_attention=True)), "decoder or has cross-attention"),
        (lambda: graft(host(), "rope"), "acts on queries and keys.*it can be: alibi, t5"),
        (lambda: graft(host(), "learned+tupe-a"), "'learned' acts on embeddings"),
        (lambda: graft(host(), "complex-order+t5"), "'complex-order' acts on embeddings, replacing the table, which"),
        (lambda: graft(host(), "tupe"), "did you mean 'tupe-"),
        (lambda: graft(host(), "tupe-r", encoding_options={"rset": "paper"}), "no option 'rset'"),
        (lambda: graft(host(), "t5", encoding_options={"buckets": 7}), "buckets must be even"),
        (lambda: graft(host(), "alibi"), "no weights that make it 0.*keep_input_positions=False"),
        (lambda: GraftedBertConfig(**SIZES, is_decoder=True), "is_decoder=True"),
        (lambda: GraftedBertConfig(**SIZES, encoding="rope"), "acts on queries and keys"),
        (lambda: graft(host())(ids(1, 41)), "max_positions=40"),
        (lambda: graft(host(RobertaForMaskedLM))(ids(1, 41)), "max_positions=40"),
        (lambda: graft(host())(), "exactly one"),
        (lambda: graft(host())(ids(), output_attentions=True), r"parts\['tupe'\]\.maps\(positions\)"),
        (lambda: graft(host(BertModel), "t5")(ids(), output_attentions=True), r"position_bias\(\(1, T\)\)"),
        (lambda: graft(host())(ids(), encoder_hidden_states=torch.zeros(3, 2, 32)), "encoder_hidden_states"),
        (lambda: graft(host())(ids(), past_key_values=object()), "past_key_values"),
        (lambda: graft(host())(ids(), position_bias=torch.zeros(1, 4, 11, 11)), "position_bias"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(call, words):
    with pytest.raises((BadInput, ValueError), match=words) as error:
        call()
    assert isinstance(error.value, ValueError)


def test_alibi_is_allowed_where_step_0_is_given_up():
    grafted = graft(host(), "alibi", keep_input_positions=False)
    assert grafted(ids()).logits.isfinite().all()
    longer = torch.randint(3, 20, (1, grafted.config.max_position_embeddings + 9))  # ALiBi has no table
    assert grafted(longer).logits.isfinite().all()


def test_eager_is_refused_however_it_is_asked_for(tmp_path):
    model = graft(host())
    with pytest.raises(BadInput, match="eager"):
        model.set_attn_implementation("eager")
    model.save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="eager"):
        AutoModelForMaskedLM.from_pretrained(tmp_path, attn_implementation="eager")
    model.config._attn_implementation = "eager"
    with pytest.raises(BadInput, match="eager"):
        model(ids())


def test_foreign_weights_and_quantised_ones_are_refused():
    adapted = host()
    adapted.bert.pooler_adapter = nn.Linear(2, 2)
    with pytest.raises(BadInput, match=r"bert.pooler_adapter.weight.*merge"):
        graft(adapted)
    quantised = host()
    quantised.cls.predictions.bias = nn.Parameter(torch.zeros(50, dtype=torch.int8), requires_grad=False)
    with pytest.raises(BadInput, match="quantised"):
        graft(quantised)


def test_the_page_s_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    host().save_pretrained("runs/host")
    page = Path(__file__).resolve().parents[2] / "docs" / "graft.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    names = {}
    exec(code.replace("google-bert/bert-base-uncased", "runs/host"), names)
    x = ids()
    expected = names["model"].eval()(x).logits
    for model in (names["grafted"], names["again"]):
        assert_close(model.eval()(x).logits, expected, rtol=0, atol=1e-5)


@pytest.mark.gpu
def test_a_host_on_a_gpu():
    plain = host().to("cuda")
    grafted = graft(plain)
    assert {parameter.device.type for parameter in grafted.parameters()} == {"cuda"}
    x, mask = (tensor.to("cuda") for tensor in padded())
    ours, before = (model(x, attention_mask=mask).logits[mask.bool()] for model in (grafted, plain))
    assert_close(ours, before, rtol=0, atol=1e-4)
    grafted.train()(x, attention_mask=mask, labels=x).loss.backward()
    assert (tupe(grafted).query_projection.weight.grad != 0).any()
