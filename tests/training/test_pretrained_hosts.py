"""A recipe that starts from a model folder of transformers: what is trained, saved, resumed, and what is refused."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

from wordorder.data import TokenizerConfig, load_tokenizer
from wordorder.errors import BadInput
from wordorder.inference import classify, evaluate_model_dir, fill_mask
from wordorder.inference.continuation import Continuation
from wordorder.training import read_recipe, run
from wordorder.training.loop.loop import Loop
from wordorder.training.loop.step_loss import StepLoss
from wordorder.training.runs.fit import make_config

RECIPE = """
[data]
source = "{source}"
length = 32
validation_fraction = 0.2

[task]
name = "{task}"

[model]
pretrained = "{model}"

[training]
output_dir = "{folder}/run"
max_steps = 5
batch_size = 4
learning_rate = 1e-2
evaluate_every = 5
log_every = 1
trackers = []
device = "cpu"
"""
WITHOUT_STEPS = ("training.learning_rate=1e-30", "training.weight_decay=0", "training.max_steps=1")


@pytest.fixture
def write(tmp_path, corpus, llama, bert):
    def write(host, task):
        path, model = tmp_path / f"{host}-{task}.toml", {"llama": llama, "bert": bert}[host]
        path.write_text(RECIPE.format(source=f"{corpus}/*/*.txt", task=task, model=model, folder=tmp_path))
        return path

    return write


def faults(path, *overrides):
    with pytest.raises(BadInput) as error:
        read_recipe(path, overrides)
    return "\n".join(error.value.faults)


def same(weight, other):
    """Tell whether two weights are equal, but for a step of 1e-30 from a 0."""
    return bool(((weight - other).abs() < 1e-20).all())


def weights_of(folder):
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("encoding", ["model", "none", "model+t5"])
def test_a_language_model_learns_and_is_loaded_with_the_logits_that_it_was_saved_with(write, llama, encoding):
    recipe = read_recipe(write("llama", "causal-lm"), [f"model.encoding={encoding}", "training.learning_rate=1e-2"])
    result = run(recipe, progress=False)
    losses = [row["loss"] for row in result.curve if "loss" in row]
    assert len(losses) == 5
    assert losses[-1] < losses[0]
    model, tokenizer = (kind.from_pretrained(result.model_dir) for kind in (AutoModelForCausalLM, AutoTokenizer))
    assert tokenizer("abc")["input_ids"] == AutoTokenizer.from_pretrained(llama)("abc")["input_ids"]
    assert evaluate_model_dir(result.model_dir, recipe.data.source)["loss"] == pytest.approx(
        result.metrics["test"]["loss"], rel=1e-5
    )
    ids = torch.tensor([tokenizer("abc def")["input_ids"]])
    saved = run(recipe, resume=True, progress=False)  # finished, so that nothing is trained
    assert saved.model_dir == result.model_dir
    plain = AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32).eval()
    plain.load_state_dict({k: v for k, v in weights_of(result.model_dir).items() if k in plain.state_dict()})
    alike = torch.allclose(model.eval()(ids).logits, plain(ids).logits, atol=1e-6)
    assert alike == (encoding == "model")  # the swap is in the folder
    writer = Continuation(result.model_dir)
    assert len(list(writer.write("abc", max_new_tokens=4, seed=0))) == 5


def test_the_model_that_trained_and_the_one_that_is_loaded_give_the_same_logits(write, monkeypatch):
    kept = []
    original = Loop.train
    monkeypatch.setattr(Loop, "train", lambda self, start: (original(self, start), kept.append(self))[0])
    result = run(read_recipe(write("llama", "causal-lm"), ["model.encoding=model+t5"]), progress=False)
    trained = kept[0].training.parts.model.eval()
    loaded = AutoModelForCausalLM.from_pretrained(result.model_dir).eval()
    ids = torch.randint(0, 280, (2, 17))
    assert torch.equal(loaded(ids).logits, trained(ids).logits)


@pytest.mark.parametrize(("host", "task"), [("llama", "causal-lm"), ("bert", "masked-lm"), ("bert", "classification")])
def test_all_weights_of_the_folder_are_there_before_the_first_step_and_new_ones_come_from_the_seed(
    write, llama, bert, tmp_path, host, task
):
    """No step moves a weight, so what is saved is what was started from."""
    before, found = weights_of(llama if host == "llama" else bert), {}
    for name, seed in (("model", 0), ("none", 0), ("model+t5", 0), ("t5", 3), ("t5", 4)):
        recipe = read_recipe(write(host, task), [*WITHOUT_STEPS, f"model.encoding={name}", f"training.seed={seed}"])
        found[name, seed] = weights_of(run(recipe, progress=False, output_dir=tmp_path / f"{name}-{seed}").model_dir)
        shared = before.keys() & found[name, seed].keys()
        assert len(shared) >= 29
        assert all(same(before[key], found[name, seed][key]) for key in shared)
    heads = found["model", 0].keys() - before.keys()
    assert bool(heads) == (task == "classification")
    for head in heads:
        assert same(found["model", 0][head], found["model+t5", 0][head])  # arms share it
        if head.endswith("weight"):
            assert not torch.equal(found["t5", 3][head], found["t5", 4][head])
    (table,) = found["t5", 3].keys() - before.keys() - heads
    assert not torch.equal(found["t5", 3][table], found["t5", 4][table])
    assert same(found["model+t5", 0][table], torch.zeros(()))  # beside the model's positions it begins at 0
    note = json.loads((tmp_path / "model+t5-0" / "pretrained.json").read_text())
    assert set(note["new"]) == {table, *heads}


def test_a_classifier_of_bert_is_scored_and_used(write, bert):
    result = run(read_recipe(write("bert", "classification"), ["model.encoding=model+t5"]), progress=False)
    model = AutoModelForSequenceClassification.from_pretrained(result.model_dir)
    assert model.config.id2label == {0: "left", 1: "middle", 2: "right"}
    recipe = read_recipe(write("bert", "classification"))
    scores = evaluate_model_dir(result.model_dir, recipe.data.source)
    assert scores == pytest.approx(result.metrics["test"], rel=1e-4)
    (answers,) = classify(result.model_dir, ["abc def"])
    assert {one["label"] for one in answers} == {"left", "middle", "right"}
    # fine-tuned once more, it gets another head
    again = run(
        read_recipe(write("bert", "classification"), [f"model.pretrained={result.model_dir}", *WITHOUT_STEPS]),
        progress=False,
        output_dir=result.model_dir.parent / "again",
    )
    first, second = weights_of(result.model_dir), weights_of(again.model_dir)
    assert {name for name in first if not same(first[name], second[name])} == {
        "classifier.weight",
        "classifier.bias",
    }


def test_a_masked_language_model_fills_masks(write):
    result = run(read_recipe(write("bert", "masked-lm"), ["model.encoding=none"]), progress=False)
    assert len(fill_mask(result.model_dir, ["abc [MASK] def"], top_k=2)[0]) == 2
    weights = weights_of(result.model_dir)
    assert "bert.embeddings.position_embeddings.weight" not in weights
    AutoModelForMaskedLM.from_pretrained(result.model_dir)


def test_a_classifier_of_llama_reads_start_and_end_in_training_and_later(write, llama):
    result = run(read_recipe(write("llama", "classification")), progress=False)
    tokenizer = AutoTokenizer.from_pretrained(result.model_dir)
    ids = tokenizer("abc")["input_ids"]
    assert (ids[0], ids[-1]) == (0, 1)
    recipe = read_recipe(write("llama", "classification"))
    assert evaluate_model_dir(result.model_dir, recipe.data.source) == pytest.approx(result.metrics["test"], rel=1e-4)
    assert len(classify(result.model_dir, ["abc def", "abc"])) == 2
    run(
        read_recipe(write("llama", "classification"), ["model.encoding=none"]), output_dir=result.model_dir.parent / "n"
    )


class Enough(Exception):
    pass


@pytest.mark.parametrize("encoding", ["none", "model+t5"])
def test_a_resumed_run_is_the_uninterrupted_one(write, tmp_path, monkeypatch, encoding):
    recipe = read_recipe(
        write("llama", "causal-lm"),
        [f"model.encoding={encoding}", "training.max_steps=6", "training.save_every=2", "training.evaluate_every=2"],
    )
    whole = run(recipe, output_dir=tmp_path / "whole", progress=False)
    original = Loop.micro_step

    def micro_step(self, *args, **kwargs):
        if self.training.state.step + 1 == 4:
            raise Enough
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "micro_step", micro_step)
        with pytest.raises(Enough):
            run(recipe, output_dir=tmp_path / "broken", progress=False)
    resumed = run(recipe, output_dir=tmp_path / "broken", resume=True, progress=False)
    for name in ("validation", "test", "tokens", "batches", "best_step"):
        assert resumed.metrics[name] == whole.metrics[name]
    ours, theirs = weights_of(resumed.model_dir), weights_of(whole.model_dir)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_resolved_recipe_reads_back(write, tmp_path, llama):
    recipe = read_recipe(write("llama", "causal-lm"))
    assert recipe.network == "llama"
    assert recipe.to_dict()["model"] == {"pretrained": str(llama), "encoding": "model"}
    again = tmp_path / "again.toml"
    again.write_text(recipe.to_toml())
    assert read_recipe(again).to_dict() == recipe.to_dict()


def test_length_follows_the_folder_and_its_table_is_a_limit(write, bert):
    path = write("bert", "masked-lm")
    path.write_text(path.read_text().replace("length = 32\n", ""))
    assert read_recipe(path).data.length == 40
    assert faults(path, "data.length=41").endswith("max_position_embeddings=40; lower data.length")
    assert read_recipe(path, ["data.length=41", "model.encoding=none"]).data.length == 41
    long = ["model.encoding=learned", "data.length=50", "model.max_position_embeddings=50"]
    config = read_recipe(path, long)
    assert config.model["max_position_embeddings"] == 50
    assert "raise model.max_position_embeddings" in faults(path, *long[:2])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["model.hidden_size=64"],
            "model.hidden_size: .* holds a model of transformers (llama), which says this itself",
        ),
        (
            ["model.hidden_dropout_prob=0.2"],
            "leave it out; valid beside pretrained: encoding, encoding_options, encoding_start, max_po",
        ),
        (["model.encoding=nonsense"], "unknown encoding 'nonsense'; did you mean 'none'?"),
        (["model.encoding=3"], "model.encoding: must be a string, got 3"),
        (["model.encoding_options={buckets=8}"], 'model.encoding_options: encoding "model" has none'),
        (["model.encoding=t5", "model.max_position_embeddings=0"], "must be positive, got 0"),
        (
            ["task.name=masked-lm"],
            "(llama), which has no head for masked-lm here; tasks that it can be trained for: cau",
        ),
        (["task.packing=lanes"], "task.packing: lanes are for models of this package; leave it out"),
        (["tokenizer.kind=byte"], "[tokenizer]: comes with the saved model"),
    ],
)
def test_what_does_not_fit_a_model_of_transformers_is_refused(write, overrides, words):
    found = faults(write("llama", "causal-lm"), *overrides)
    for part in words.split(" .* "):
        assert part in found


def test_a_model_that_reads_both_sides_is_no_language_model(write):
    assert "(bert), which has no head for causal-lm" in faults(write("bert", "masked-lm"), "task.name=causal-lm")


def test_folders_that_cannot_be_started_from_are_refused(write, llama, tmp_path):
    path, copy = write("llama", "causal-lm"), tmp_path / "copy"
    assert "holds no model (no config.json)" in faults(path, f"model.pretrained={tmp_path / 'none'}")
    shutil.copytree(llama, copy)
    start = f"model.pretrained={copy}"

    def spoil(**fields):
        config = json.loads((llama / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps({**config, **fields}))

    spoil(model_type="mamba")
    assert "holds a model of type 'mamba'; valid: wordorder-encoder" in faults(path, start)
    assert "of transformers: llama, qwen2" in faults(path, start)
    spoil(vocab_size=100)
    assert "the tokenizer has ids up to 279, the model has 100 tokens" in faults(path, start)
    spoil()
    (copy / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in faults(path, start)
    shutil.copy(llama / "tokenizer.json", copy)
    weights = weights_of(copy)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match=r"weights are missing from the file: model.layers.1.mlp.up_proj.weight"):
        run(read_recipe(path, [start]), progress=False)
    assert not (tmp_path / "run").exists()
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    assert "no weights can be read from safetensors" in faults(path, start)


def test_end_pads_where_a_tokenizer_has_no_padding_and_this_is_said(write, llama):
    tokenizer = load_tokenizer(TokenizerConfig(kind="existing", path=str(llama)), [], cache_dir=llama)
    assert (tokenizer.cls_token, tokenizer.sep_token, tokenizer.pad_token) == ("<s>", "</s>", "</s>")

    class Heard:
        lines: tuple[str, ...] = ()

        def advise(self, text):
            self.lines += (text,)

        def __getattr__(self, name):
            return lambda *args, **kwargs: None

    heard = Heard()
    run(read_recipe(write("llama", "causal-lm")), progress=heard)
    assert any("no token for padding: </s>, its end token, pads" in line for line in heard.lines)


@pytest.mark.parametrize(("host", "roles"), [("bert", ("[CLS]", "[SEP]", "[PAD]")), ("llama", ("</s>",) * 3)])
def test_older_folders_leave_special_tokens_to_the_names_and_to_the_models_configuration(
    llama, bert, tmp_path, host, roles
):
    copy = tmp_path / "copy"
    shutil.copytree(llama if host == "llama" else bert, copy)
    (copy / "tokenizer_config.json").write_text("{}")
    text = (copy / "tokenizer.json").read_text().replace('"</s>"', '"<|end|>"').replace('"<s>"', '"<|start|>"')
    (copy / "tokenizer.json").write_text(text)
    tokenizer = load_tokenizer(TokenizerConfig(kind="existing", path=str(copy)), [], cache_dir=tmp_path)
    found = (tokenizer.cls_token, tokenizer.sep_token, tokenizer.pad_token)
    assert found == tuple(role.replace("</s>", "<|end|>") for role in roles)


def test_only_heads_that_divide_by_the_tokens_of_a_step_are_told_their_number(write, monkeypatch):
    """BERT's head takes any keyword and drops this one: its loss, a mean, is divided by the micro-batches."""
    made = []
    original = StepLoss.__init__

    def init(self, *args):
        original(self, *args)
        made.append(self._divides)

    monkeypatch.setattr(StepLoss, "__init__", init)
    pieces = ["training.batch_size=8", "training.micro_batch_size=4", "training.max_steps=1", "training.log_every=1"]
    for host, task in (("llama", "causal-lm"), ("bert", "masked-lm")):
        result = run(
            read_recipe(write(host, task), pieces), progress=False, output_dir=write(host, task).with_suffix("")
        )
        (loss,) = [row["loss"] for row in result.curve if "loss" in row]
        assert loss < 1.5 * result.metrics["validation"]["loss"]
    assert made == [True, False]


def test_the_configuration_counts_what_is_swapped(write):
    from wordorder.cost import cost
    from wordorder.tasks import prepare

    recipe = read_recipe(write("llama", "causal-lm"), ["model.encoding=model+t5"])
    config = make_config(recipe, prepare(recipe.data, recipe.task, recipe.tokenizer, seed=0))
    counts = cost(config, "causal-lm", length=16, batch_size=2)
    assert counts["parameters"]["encoding"] == 32 * 4
    assert counts["parameters"]["total"] == run(recipe, progress=False).metrics["parameters"]


def test_a_swapped_folder_keeps_its_encoding(write):
    path = write("llama", "causal-lm")
    once = run(read_recipe(path, ["model.encoding=model+t5", *WITHOUT_STEPS]), progress=False)
    again = [f"model.pretrained={once.model_dir}", f"training.output_dir={path.with_suffix('')}"]
    words = r"was swapped already, for 'model\+t5'; name the folder of the plain model, or leave model\.encoding out"
    assert re.search(words, faults(path, *again, "model.encoding=none"))
    kept = run(read_recipe(path, [*again, *WITHOUT_STEPS]), progress=False)
    config = AutoModelForCausalLM.from_pretrained(kept.model_dir).config
    assert config.wordorder["encoding"] == "model+t5"


def test_how_an_encoding_begins_is_chosen(write, bert):
    path = write("bert", "masked-lm")
    words = faults(path, "model.encoding=model+alibi")
    assert 'model.encoding_start = "drawn"' in words
    read_recipe(path, ["model.encoding=model+alibi", "model.encoding_start=drawn"])
    assert "start must be 'drawn', 'zero', 'copy' or None, got 'zeros'" in faults(
        path, "model.encoding=t5", "model.encoding_start=zeros"
    )
    assert "model.encoding_start" in faults(path, "model.encoding_start=zero")  # "model" has nothing that begins
    copied = run(
        read_recipe(path, ["model.encoding=learned", "model.encoding_start=copy", *WITHOUT_STEPS]), progress=False
    )
    name = "bert.embeddings.position_embeddings.weight"
    learned = weights_of(copied.model_dir)["bert.wordorder.encoding.parts.learned.table.weight"]
    assert same(learned, weights_of(bert)[name])
