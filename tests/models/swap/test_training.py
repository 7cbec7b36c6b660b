"""Training of swapped models: Trainer, checkpoints, gradient checkpointing, PEFT, compiled, dropout."""

import copy

import pytest
import torch
import transformers as hf
from swapped_models import (
    DECODERS,
    ENCODERS,
    apart,
    body_of,
    ids_of,
    model_of,
    output_of,
    padded,
    swapped,
)
from test_families import is_defined

from wordorder.errors import BadInput
from wordorder.models import swap_encoding

MASKED, CAUSAL, SEQ2SEQ = hf.AutoModelForMaskedLM, hf.AutoModelForCausalLM, hf.AutoModelForSeq2SeqLM
LOSSES = {"llama": CAUSAL, "gemma2": CAUSAL, "gpt2": CAUSAL, "bert": MASKED, "t5": SEQ2SEQ}
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "resid_pdrop", "embd_pdrop", "attn_pdrop")


def without_dropout(kind):
    if kind == "t5":
        return {"dropout_rate": 0.0}
    names = {"bert": DROPOUTS[:2], "gpt2": DROPOUTS[2:]}.get(kind, ())
    return dict.fromkeys(names, 0.0)


def checkpointed(model, **how):
    """Have layers computed again for their gradients."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable(how)
    return model


def gradients_of(model, seed=4):
    """The gradient of every parameter of one step."""
    model.zero_grad()
    torch.manual_seed(seed)
    model(input_ids=ids_of(2, 12), labels=ids_of(2, 12, seed=2)).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("encoding", ["t5", "rope", "none", "learned"])
@pytest.mark.parametrize("kind", [*DECODERS, *ENCODERS])
def test_no_parameter_is_without_a_gradient(kind, encoding):
    """What replicas that reduce gradients ask for: the tables that were replaced are gone."""
    model = swapped(kind, encoding).train()
    output_of(model, ids_of(2, 12)).square().sum().backward()
    unused = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None and "pooler" not in n]
    assert unused == []
    assert any("wordorder" in name for name, _ in model.named_parameters()) == (encoding in ("t5", "learned"))


CHECKPOINTED = [
    ("llama", name) for name in ("t5", "rope+fox", "model+shaw", "tupe-r", "rope*2,none", "alibi@5", "path")
]
CHECKPOINTED += [("gemma2", "model+t5"), ("gpt2", "learned+fox"), ("bert", "model+tupe-r"), ("bert", "fox")]
CHECKPOINTED += [("t5", "t5"), ("t5", "model+fox"), ("t5", "rope+shaw"), ("llama", "rope+shift")]


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize(("kind", "encoding"), CHECKPOINTED)
def test_gradient_checkpointing_gives_the_same_gradients(kind, encoding, dropout):
    fields = {} if dropout else without_dropout(kind)
    if dropout and kind in ("llama", "gemma2"):
        fields = {"attention_dropout": 0.2}
    model = swapped(kind, encoding, LOSSES[kind], fields=fields).train()
    expected = gradients_of(model)
    assert max(gradient.abs().max() for name, gradient in expected.items() if "wordorder" in name or "q" in name) > 0
    model.config.use_cache = False
    ours = gradients_of(checkpointed(model, use_reentrant=False))
    assert ours.keys() == expected.keys()
    for name, gradient in expected.items():
        assert apart(ours[name], gradient) <= 1e-5 * max(1.0, float(gradient.abs().max())), name


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
@pytest.mark.parametrize("kind", ["llama", "bert", "t5"])
def test_reentrant_checkpoints_would_lose_gradients_and_are_refused(kind):
    model = checkpointed(swapped(kind, "alibi", LOSSES[kind]).train(), use_reentrant=True)
    with pytest.raises(BadInput, match=r"use_reentrant=True would lose the gradient.*'use_reentrant': False"):
        gradients_of(model)
    model.eval()  # which repeats nothing
    output_of(model, input_ids=ids_of(2, 5), labels=ids_of(2, 5))


@pytest.mark.parametrize(
    ("kind", "encoding", "fields"),
    [
        ("llama", "t5", {"attention_dropout": 0.5}),
        ("llama", "rope", {"attention_dropout": 0.5}),
        ("gemma2", "rope+fox", {"attention_dropout": 0.5}),
        ("bert", "model+shaw", {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.5}),
    ],
)
def test_dropout_of_attention_acts_in_training_alone(kind, encoding, fields):
    model = swapped(kind, encoding, fields=fields)
    plain = swapped(kind, encoding, fields=dict.fromkeys(fields, 0.0))
    with torch.no_grad():
        expected = output_of(plain.train(), ids_of(2, 12))
        assert apart(output_of(model, ids_of(2, 12)), expected) <= 1e-5
        dropped = [output_of(model.train(), ids_of(2, 12)) for _ in range(2)]
    assert apart(dropped[0], dropped[1]) > 0.1
    torch.manual_seed(5)
    first = output_of(model, ids_of(2, 12)).detach()
    torch.manual_seed(5)
    assert apart(output_of(model, ids_of(2, 12)).detach(), first) == 0


class Texts(torch.utils.data.Dataset):
    def __init__(self, number=24):
        self.ids = ids_of(number, 12)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def trainer_of(model, folder, **more):
    settings = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "seed": 1, "logging_steps": 100}
    settings |= {"per_device_train_batch_size": 4, "max_steps": 8, "learning_rate": 3e-3, "save_strategy": "no"}
    arguments = hf.TrainingArguments(output_dir=str(folder), **{**settings, **more})
    return hf.Trainer(model=model, args=arguments, train_dataset=Texts())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "encoding"), [("llama", "rope+fox"), ("bert", "model+tupe-r"), ("gpt2", "learned")])
def test_a_resumed_run_is_equal_to_the_bit(kind, encoding, tmp_path):
    def fresh():
        return swapped(kind, encoding, LOSSES[kind], draw=False, seed=1)

    whole = fresh()
    trainer_of(whole, tmp_path / "whole").train()
    begin = fresh().state_dict()
    moved = [name for name, tensor in whole.state_dict().items() if not torch.equal(tensor, begin[name])]
    assert any("wordorder" in name for name in moved)
    trainer_of(fresh(), tmp_path / "parts", save_strategy="steps", save_steps=5).train()
    resumed = trainer_of(fresh(), tmp_path / "parts")
    resumed.train(resume_from_checkpoint=str(tmp_path / "parts/checkpoint-5"))
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], tensor), name
    loaded = LOSSES[kind].from_pretrained(tmp_path / "parts/checkpoint-8")
    assert torch.equal(output_of(loaded, ids_of(2, 12)), output_of(whole.eval(), ids_of(2, 12)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
def test_the_trainer_checkpoints_and_evaluates(tmp_path):
    runs = []
    fields = hf.TrainingArguments.__dataclass_fields__
    name = "activation_checkpointing" if "activation_checkpointing" in fields else "gradient_checkpointing"
    for checkpointing in (False, True):
        model = swapped("llama", "rope+t5", draw=False, seed=1)
        trainer = trainer_of(model, tmp_path, **{name: checkpointing})
        trainer.train()
        runs.append(trainer.evaluate(Texts(8))["eval_loss"])
    assert runs[0] == pytest.approx(runs[1], abs=1e-4)


peft_warns = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
LEARNED = [
    ("llama", "t5"),
    ("llama", "rope+fox"),
    ("llama", "model+shaw"),
    ("gpt2", "learned"),
    ("bert", "model+tupe-r"),
]


@peft_warns
@pytest.mark.parametrize("targets", ["all-linear", "named"])
@pytest.mark.parametrize(("kind", "encoding"), LEARNED)
def test_lora_beside_an_encoding_that_is_trained_whole(kind, encoding, targets, tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not installed; it comes with the extra peft")
    base = swapped(kind, encoding, LOSSES[kind], fields=without_dropout(kind))
    untouched, expected = copy.deepcopy(base), output_of(base, ids_of(2, 12)).detach()
    names = {"llama": ["q_proj", "v_proj"], "gpt2": ["c_attn"], "bert": ["query", "value"]}[kind]
    config = peft.LoraConfig(
        r=2,
        target_modules=targets if targets == "all-linear" else names,
        modules_to_save=["wordorder"],
        fan_in_fan_out=kind == "gpt2",
    )
    model = peft.get_peft_model(base, config)
    assert not any("wordorder" in name and "lora" in name for name, _ in model.named_parameters())
    assert apart(output_of(model.eval(), ids_of(2, 12)).detach(), expected) <= 2e-5

    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    before = {name: p.detach().clone() for name, p in learning.items()}
    assert any("wordorder" in name for name in learning)
    optimizer = torch.optim.AdamW(learning.values(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model.train()(input_ids=ids_of(2, 12), labels=ids_of(2, 12)).loss.backward()
        assert [name for name, p in learning.items() if p.grad is None] == []
        optimizer.step()
    assert [name for name, p in learning.items() if torch.equal(p, before[name])] == []
    trained = output_of(model.eval(), ids_of(2, 12)).detach()
    with model.disable_adapter():
        assert apart(output_of(model, ids_of(2, 12)).detach(), expected) <= 2e-5

    model.save_pretrained(tmp_path / "adapter")
    again = peft.PeftModel.from_pretrained(untouched, tmp_path / "adapter").eval()
    assert apart(output_of(again, ids_of(2, 12)).detach(), trained) <= 2e-5
    merged = again.merge_and_unload()
    assert apart(output_of(merged, ids_of(2, 12)).detach(), trained) <= 1e-4
    assert type(body_of(merged).wordorder).__name__ == "WordOrder"
    merged.save_pretrained(tmp_path / "merged")
    loaded = LOSSES[kind].from_pretrained(tmp_path / "merged")
    assert apart(output_of(loaded, ids_of(2, 12)).detach(), trained) <= 1e-4


@peft_warns
def test_what_peft_copies_is_the_encoding_and_not_the_model():
    order = body_of(swapped("llama", "t5")).wordorder
    copied = copy.deepcopy(order)
    assert copied.host.body is order.host.body
    assert copied.encoding.parts["t5"].table.weight is not order.encoding.parts["t5"].table.weight
    whole = copy.deepcopy(model := swapped("llama", "t5"))
    assert body_of(whole).wordorder.host.body is body_of(whole)
    assert body_of(whole) is not body_of(model)


COMPILED = [("llama", name) for name in ("t5", "tupe-a", "shaw", "rope", "rope+fox", "path", "model+t5@5")]
COMPILED += [("bert", "model+tupe-r"), ("gemma2", "learned")]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "encoding"), COMPILED)
def test_a_compiled_model_has_one_graph_and_the_same_gradients(kind, encoding):
    model = swapped(kind, encoding, LOSSES[kind])
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    ids, mask = padded(ids_of(2, 9), (3, 1), kind)
    for call in ({"input_ids": ids_of(2, 12)}, {"input_ids": ids, "attention_mask": mask}):
        more = {"use_cache": False} if kind in DECODERS else {}
        seen = call.get("attention_mask", torch.ones_like(call["input_ids"])).bool()
        gradients = []
        for runs in (model, compiled):
            model.zero_grad()
            output = output_of(runs, **call, **more)[seen]
            output.square().sum().backward()
            gradients.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
            gradients[-1]["the output"] = output.detach()
        assert gradients[0].keys() == gradients[1].keys()
        for name, gradient in gradients[0].items():
            assert apart(gradients[1][name], gradient) <= 1e-5 * max(1.0, float(gradient.abs().max())), name


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["t5", "rope", "rope+fox", "cope", "path"])
@torch.no_grad()
def test_a_compiled_decode_step_has_one_graph_for_all_steps(encoding):
    model = swapped("llama", encoding)
    ids = ids_of(2, 12)
    expected = output_of(model, ids, use_cache=False)
    cache = hf.StaticCache(model.config, max_cache_len=16)
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    step = torch.compile(model, backend=count, fullgraph=True)
    outputs = [output_of(model, ids[:, :6], cache=cache)]
    for t in range(6, 12):
        positions = torch.full((2, 1), t)
        outputs.append(output_of(step, ids[:, t : t + 1], cache=cache, position_ids=positions))
    assert apart(torch.cat(outputs, dim=1), expected) <= 2e-5
    assert len(graphs) == 1


def test_what_was_frozen_stays_frozen_and_new_weights_follow_the_model():
    model = model_of("bert").to(torch.bfloat16).train()
    model.embeddings.requires_grad_(False)
    swap_encoding(model, "model+tupe-r")
    assert model.wordorder.training
    assert not model.embeddings.word_embeddings.weight.requires_grad
    assert {p.dtype for p in model.wordorder.parameters()} == {torch.bfloat16}
    assert all(p.requires_grad for p in model.wordorder.parameters())
    assert not swap_encoding(model_of("bert"), "t5").wordorder.training


def test_new_weights_are_drawn_by_their_names_and_the_seed():
    one, other, third = (swapped("llama", "learned+t5", draw=False, seed=seed) for seed in (1, 1, 2))
    state, same, another = (body_of(model).wordorder.state_dict() for model in (one, other, third))
    assert all(
        torch.equal(tensor, same[name]) and not torch.equal(tensor, another[name]) for name, tensor in state.items()
    )
    alone = body_of(swapped("llama", "t5", draw=False, seed=1)).wordorder.state_dict()
    assert [torch.equal(tensor, state[name]) for name, tensor in alone.items()] == [True]
    std = model_of("llama").config.initializer_range
    table = state["encoding.parts.learned.table.weight"]
    assert 0.9 * std < float(table.std()) < 1.1 * std


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["t5", "model+t5", "rope+fox"])
@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_neox"])
@pytest.mark.parametrize("use_cache", [True, False])  # a cache may change dtypes
def test_autocast_is_near_full_precision(kind, encoding, use_cache):
    model, ids = swapped(kind, encoding), ids_of(2, 12)
    exact = output_of(model, ids, use_cache=use_cache)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = output_of(model, ids, use_cache=use_cache)
    assert apart(outputs.float(), exact) <= 0.05 * float(exact.abs().max())


assert all(is_defined(kind, name) for kind, name in (*CHECKPOINTED, *LEARNED, *COMPILED))
