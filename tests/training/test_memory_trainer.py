"""Memory carried through training and evaluation: what a loop over single lanes gives, and exact on resume."""

import math
import multiprocessing
import os
import shutil
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from documents import read_documents, settings, split_documents
from safetensors.torch import load_file
from torch.distributed import TCPStore
from torch.nn import functional
from transformers import AutoModelForCausalLM

from wordorder.errors import BadInput, RunFailed
from wordorder.inference import Context, evaluate_model_dir
from wordorder.inference.saved_model import load_model
from wordorder.models import build_config, build_model
from wordorder.training import read_recipe, run
from wordorder.training.loop.carried_memory import CarriedMemory
from wordorder.training.loop.loop import Loop
from wordorder.training.loop.step_loss import LossWatch
from wordorder.training.runs.fit import make_config
from wordorder.training.runs.run import _prepare

LENGTH = 16
LANES = (
    "task.name=causal-lm",
    "task.packing=lanes",
    f"data.length={LENGTH}",
    "data.limit_documents=9",
    "data.validation_fraction=0.2",
    "data.test_fraction=0.2",
    "task.eval_lanes=3",
    "tokenizer.kind=byte",
    "model.network=decoder",
    "model.encoding=transformer-xl",
    "model.memory=look-ahead",
    "model.memory_length=24",
    "training.batch_size=4",
    "training.micro_batch_size=2",
)
DOCUMENTS = ("task.reset_memory=documents",)


def recipe_of(recipe_file, *overrides):
    return read_recipe(recipe_file, [*LANES, *overrides])


@pytest.fixture(scope="session")
def trained(shared_recipe_file):
    recipe = recipe_of(shared_recipe_file, "training.max_steps=12", "training.learning_rate=1e-2")
    return run(recipe, progress=False, output_dir=shared_recipe_file.parent / "memory")


def texts_of(corpus, split="test"):
    pair = settings(
        source=f"{corpus}/*/*.txt", task="causal-lm", limit_documents=9, validation_fraction=0.2, test_fraction=0.2
    )
    return [document.text for document in split_documents(read_documents(pair), pair).parts()[split]]


def running_of(texts, tokenizer):
    """Each text as its bytes, and [SEP]."""
    return [
        token
        for text in texts
        for token in (*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.sep_token_id)
    ]


def loss_of_stream(model, inputs, labels, length=LENGTH, *, memory=True):
    """The sum of losses of one stream, segment by segment, alone in its batch."""
    total, state = 0.0, None
    for start in range(0, len(labels), length):
        segment = torch.tensor([inputs[start : start + length]])
        with torch.no_grad():
            output = model(input_ids=segment, memory=state)
        state = output.memory if memory else None
        wanted = torch.tensor(labels[start : start + length])
        total += float(functional.cross_entropy(output.logits[0], wanted, reduction="sum"))
    return total


def lanes_of(running, rows):
    border = [len(running) * row // rows for row in range(rows + 1)]
    before = [running[-1], *running[:-1]]
    return [(before[a:b], running[a:b]) for a, b in pairwise(border)]


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [(), (*DOCUMENTS, "data.length=64")], ids=["one stream", "documents"])
def test_each_micro_batch_goes_on_with_its_own_lanes(recipe_file, corpus, overrides):
    """With a rate of almost zero the losses of the steps are those of a loop over single lanes.

    Of five documents in four lanes one begins after another, and then the other lanes have ended.
    """
    still = ("training.learning_rate=1e-30", "model.hidden_dropout_prob=0.0", "model.attention_probs_dropout_prob=0.0")
    recipe = recipe_of(recipe_file, *overrides, *still, "training.max_steps=10", "training.evaluate_every=5")
    result = run(recipe, progress=False)
    prepared = _prepare(recipe)
    model = build_model(make_config(recipe, prepared), "causal-lm", seed=0).eval()
    text = prepared.train
    lanes = text.training_lanes(4, seed=0)
    states, losses = [None] * 4, []
    for step in range(10):
        total = count = 0
        for row in range(4):
            example = lanes[step * 4 + row]
            if not len(example["input_ids"]):
                continue
            state = None if example["memory_reset"] else states[row]
            with torch.no_grad():
                output = model(input_ids=example["input_ids"][None], memory=state)
            states[row] = output.memory
            total += float(functional.cross_entropy(output.logits[0], example["shift_labels"], reduction="sum"))
            count += len(example["input_ids"])
        losses.append(total / count)
    ended = [row for row in range(4) if not len(lanes[9 * 4 + row]["input_ids"])]
    assert len(ended) == (3 if overrides else 0)
    found = [row["loss"] for row in result.curve if "loss" in row]
    assert found == pytest.approx(losses, rel=1e-5)


def test_evaluation_is_a_loop_over_lanes_whatever_is_read_side_by_side(trained, corpus):
    model = AutoModelForCausalLM.from_pretrained(trained.model_dir).eval()
    from wordorder.inference.saved_model import load_tokenizer_of

    texts = texts_of(corpus)
    running = running_of(texts, load_tokenizer_of(trained.model_dir))
    total = sum(loss_of_stream(model, inputs, labels) for inputs, labels in lanes_of(running, 3))
    test = trained.metrics["test"]
    assert test["tokens"] == len(running)
    assert test["loss"] == pytest.approx(total / len(running), rel=1e-5)
    assert test["perplexity"] == pytest.approx(math.exp(total / len(running)), rel=1e-4)
    assert test["bits_per_character"] == pytest.approx(total / math.log(2) / sum(map(len, texts)), rel=1e-5)
    assert test["word_perplexity"] == pytest.approx(math.exp(total / sum(len(t.split()) for t in texts)), rel=1e-4)
    how = {"context": "memory", "length": LENGTH, "memory_length": 24, "lanes": 3}
    for batch_size in (1, 2, 32):
        found = evaluate_model_dir(trained.model_dir, f"{corpus}/*/*.txt", batch_size=batch_size)
        assert {name: found.pop(name) for name in how} == how
        assert found == pytest.approx(test, rel=1e-5)


def test_other_contexts_are_loops_over_segments_windows_and_one_lane(trained, corpus):
    from wordorder.inference.saved_model import load_tokenizer_of

    model = AutoModelForCausalLM.from_pretrained(trained.model_dir).eval()
    running = running_of(texts_of(corpus), load_tokenizer_of(trained.model_dir))
    before = [running[-1], *running[:-1]]

    def found(**context):
        scores = evaluate_model_dir(trained.model_dir, f"{corpus}/*/*.txt", context=Context(**context))
        assert scores["tokens"] == len(running)
        return scores["loss"]

    alone = loss_of_stream(model, before, running, memory=False) / len(running)
    assert found(kind="segment") == pytest.approx(alone, rel=1e-5)
    assert found(kind="sliding", stride=LENGTH) == pytest.approx(alone, rel=1e-5)
    one = loss_of_stream(model, before, running) / len(running)
    assert found(lanes=1) == pytest.approx(one, rel=1e-5)
    total, stride = 0.0, 5
    ends = [*range(LENGTH, len(running), stride), len(running)]
    for number, end in enumerate(ends):
        new = ends[number - 1] if number else 0
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([before[end - LENGTH : end]])).logits[0]
        wanted = torch.tensor(running[new:end])
        total += float(functional.cross_entropy(logits[LENGTH - len(wanted) :], wanted, reduction="sum"))
    assert found(kind="sliding", stride=5) == pytest.approx(total / len(running), rel=1e-5)
    longer = AutoModelForCausalLM.from_pretrained(trained.model_dir, memory_length=40).eval()
    total = sum(loss_of_stream(longer, inputs, labels, 8) for inputs, labels in lanes_of(running, 2))
    assert found(memory_length=40, lanes=2, length=8) == pytest.approx(total / len(running), rel=1e-5)


@pytest.mark.slow
def test_evaluation_leaves_the_memory_of_training_alone(recipe_file, trained):
    often = run(
        recipe_of(recipe_file, "training.max_steps=12", "training.learning_rate=1e-2", "training.evaluate_every=1"),
        progress=False,
    )
    weights = [load_file(result.model_dir / "model.safetensors") for result in (often, trained)]
    losses = [[row["loss"] for row in result.curve if "loss" in row] for result in (often, trained)]
    assert losses[0] == losses[1]
    assert weights[0].keys() == weights[1].keys()
    assert trained.metrics["tokens"] == 12 * 4 * LENGTH


def raw_losses(monkeypatch):
    seen = []
    original = LossWatch._look_at

    def look_at(self, loss, step):
        seen.append((step, loss))
        original(self, loss, step)

    monkeypatch.setattr(LossWatch, "_look_at", look_at)
    return seen


class Enough(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("model.memory=segment-recurrence", "model.encoding=rope"),
        DOCUMENTS,
        ("model.memory=none", "model.memory_length=24"),
    ],
    ids=["recurrence", "documents", "no memory"],
)
def test_a_run_that_was_broken_off_goes_on_to_the_bit(recipe_file, tmp_path, monkeypatch, overrides):
    settings = [
        *LANES,
        *overrides,
        "training.max_steps=26",
        "training.save_every=7",
        "training.evaluate_every=never",
        "training.select=last",
    ]
    if "model.memory=none" in overrides:
        settings = [setting for setting in settings if "memory_length" not in setting]
    seen = raw_losses(monkeypatch)
    whole = run(read_recipe(recipe_file, settings), progress=False, output_dir=tmp_path / "whole")
    expected, folder = seen.copy(), tmp_path / "broken"
    original = Loop.micro_step

    def micro_step(self, *args, **kwargs):
        if self.training.state.step == 23 and kwargs["number"] == 1:
            raise Enough
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "micro_step", micro_step)
        with pytest.raises(Enough):
            run(read_recipe(recipe_file, settings), progress=False, output_dir=folder)
    assert (folder / "checkpoint-21" / "carried-0.json").exists() == ("model.memory=none" not in overrides)
    del seen[:]
    resumed = run(read_recipe(recipe_file, settings), progress=False, output_dir=folder, resume=True)
    assert seen == [(step, loss) for step, loss in expected if step > 21]
    assert resumed.metrics["test"] == whole.metrics["test"]
    ours, theirs = (load_file(result.model_dir / "model.safetensors") for result in (resumed, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_checkpoint_at_the_end_of_an_epoch_goes_on_without_memory(recipe_file, tmp_path, monkeypatch):
    """The next epoch begins anew in an uninterrupted run too."""
    steps = _prepare(recipe_of(recipe_file)).train.training_lanes(4, seed=0).steps
    settings = [
        *LANES,
        f"training.max_steps={steps + 3}",
        f"training.save_every={steps}",
        "training.evaluate_every=never",
        "training.select=last",
    ]
    seen = raw_losses(monkeypatch)
    run(read_recipe(recipe_file, settings), progress=False, output_dir=tmp_path / "run")
    expected = [(step, loss) for step, loss in seen if step > steps]
    (tmp_path / "run" / "metrics.json").unlink()
    shutil.rmtree(tmp_path / "run" / f"checkpoint-{steps + 3}")
    del seen[:]
    run(read_recipe(recipe_file, settings), progress=False, output_dir=tmp_path / "run", resume=True)
    assert seen == expected


def test_memory_in_half_precision_is_saved_and_goes_on(recipe_file, tmp_path, monkeypatch):
    settings = [
        *LANES,
        "training.precision=bf16",
        "training.max_steps=9",
        "training.save_every=5",
        "training.evaluate_every=never",
        "training.select=last",
    ]
    seen = raw_losses(monkeypatch)
    run(read_recipe(recipe_file, settings), progress=False, output_dir=tmp_path / "run")
    assert all(math.isfinite(loss) for _, loss in seen)
    expected = [(step, loss) for step, loss in seen if step > 5]
    (tmp_path / "run" / "metrics.json").unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoint-9")
    del seen[:]
    run(read_recipe(recipe_file, settings), progress=False, output_dir=tmp_path / "run", resume=True)
    assert seen == expected


def one_of_two(rank, port, recipe_file, settings, folder):
    group = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": str(port)}
    os.environ.update({**group, "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True"})
    run(read_recipe(recipe_file, settings), output_dir=folder, progress=False)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_two_processes_have_lanes_and_memories_of_their_own(recipe_file, tmp_path):
    """Two processes of one row train as one of two, and a checkpoint holds the memories of both."""
    plain = [setting for setting in LANES if "micro_batch_size" not in setting]
    plain += ["training.max_steps=6", "training.save_every=5", "training.evaluate_every=never", "training.select=last"]
    plain += ["model.hidden_dropout_prob=0.0", "model.attention_probs_dropout_prob=0.0"]
    settings = [*plain, "training.micro_batch_size=1"]
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # at a port that nobody else can take
    fork = multiprocessing.get_context("fork")  # a new interpreter would import its libraries for seconds
    started = [
        fork.Process(target=one_of_two, args=(rank, store.port, recipe_file, settings, tmp_path / "two"))
        for rank in range(2)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [0, 0]
    one = run(
        read_recipe(recipe_file, [*plain, "training.micro_batch_size=2"]),
        progress=False,
        output_dir=tmp_path / "one",
    )
    ours, theirs = (load_file(tmp_path / name / "model/model.safetensors") for name in ("two", "one"))
    for name in theirs:
        assert torch.allclose(ours[name], theirs[name], atol=2e-5), name
    names = {path.name for path in (tmp_path / "two" / "checkpoint-5").glob("carried-*")}
    assert names == {f"carried-{rank}.{ending}" for rank in range(2) for ending in ("json", "safetensors")}
    (tmp_path / "two" / "metrics.json").unlink()
    shutil.rmtree(tmp_path / "two" / "checkpoint-6")
    with pytest.raises(RunFailed, match="holds the memories of 2 processes, this run has 1"):
        run(read_recipe(recipe_file, settings), progress=False, output_dir=tmp_path / "two", resume=True)
    assert one.metrics["tokens"] == 6 * 4 * LENGTH


def test_rows_that_do_not_fit_are_refused(recipe_file):
    carried = CarriedMemory()
    carried.state = SimpleNamespace(batch=3)
    with pytest.raises(ValueError, match="the batch has 2 rows and the memory before it 3"):
        carried.put_in({"input_ids": torch.zeros(2, 4)})
    prepared = _prepare(recipe_of(recipe_file))
    with pytest.raises(BadInput, match="lower one of them"):
        prepared.train.training_lanes(1000, seed=0)
    with pytest.raises(BadInput, match="cannot go whole into 20 lanes"):
        run(recipe_of(recipe_file, *DOCUMENTS, "training.batch_size=20"), progress=False)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["task.packing=segments", "task.eval_lanes=16"],
            "model.memory 'look-ahead' goes from segment to segment",
        ),
        (["model.segment_length=8"], "model.segment_length 8 is not data.length 16"),
        (
            ["training.label_smoothing=0.1"],
            "training.label_smoothing does nothing for task.packing lanes",
        ),
    ],
)
def test_recipes_whose_parts_do_not_go_together(recipe_file, overrides, words):
    with pytest.raises(BadInput, match=words):
        recipe_of(recipe_file, *overrides)


def test_length_follows_the_segments_of_the_model(recipe_file):
    settings = [setting for setting in LANES if "data.length" not in setting]
    recipe = read_recipe(recipe_file, [*settings, "model.segment_length=20"])
    assert recipe.data.length == 20
    config = make_config(recipe, _prepare(recipe))
    assert (config.segment_length, config.memory_length) == (20, 24)
    assert config.bos_token_id == config.eos_token_id
    assert make_config(recipe_of(recipe_file), _prepare(recipe_of(recipe_file))).segment_length == LENGTH


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"kind": "backwards"}, "context must be one of segment, sliding, memory, got 'backwards'"),
        ({"kind": "segment", "stride": 4}, "stride is for context sliding, not for segment"),
        ({"stride": 4}, "stride is for context sliding, not for memory"),
        ({"kind": "sliding", "memory_length": 4}, "memory length is for context memory, not for sliding"),
        ({"kind": "sliding", "stride": 17}, "stride must lie between 1 and the length of a segment, 16, got 17"),
        ({"lanes": 0}, "lanes must be at least 1, got 0"),
    ],
)
def test_contexts_that_do_not_fit(trained, corpus, context, words):
    with pytest.raises(BadInput, match=words):
        evaluate_model_dir(trained.model_dir, f"{corpus}/*/*.txt", context=Context(**context))


def test_a_stride_is_refused_before_data_are_prepared(trained, corpus, monkeypatch, tmp_path):
    monkeypatch.setattr("wordorder.tasks.prepare", None)
    config = build_config("decoder", vocab_size=261, hidden_size=16, num_hidden_layers=1, encoding="rope")
    build_model(config, "causal-lm", seed=0).save_pretrained(tmp_path)
    with pytest.raises(BadInput, match="length of a segment, 8, got 9"):  # [CLS] and 8 tokens
        evaluate_model_dir(tmp_path, f"{corpus}/*/*.txt", context=Context(kind="sliding", stride=9, length=9))
    with pytest.raises(BadInput, match="stride must lie between 1 and the length of a segment, 16, got 17"):
        evaluate_model_dir(trained.model_dir, f"{corpus}/*/*.txt", context=Context(kind="sliding", stride=17))


def test_without_its_memory_a_model_reads_windows_as_long_as_its_table(recipe_file, corpus, tmp_path):
    table = ("model.encoding=learned", "model.max_position_embeddings=40", "training.max_steps=1")
    model_dir = run(recipe_of(recipe_file, *table), progress=False, output_dir=tmp_path / "run").model_dir
    for kind in ("sliding", "segment"):
        context = Context(kind=kind, length=40)
        assert evaluate_model_dir(model_dir, f"{corpus}/*/*.txt", context=context)["length"] == 40
    with pytest.raises(BadInput, match=r"length 40 .* of which memory_length=24 are the memory's"):
        evaluate_model_dir(model_dir, f"{corpus}/*/*.txt", context=Context(kind="memory", length=40))


def test_a_longer_memory_fits_a_table_beside_shorter_segments(tmp_path):
    sizes = {"vocab_size": 9, "hidden_size": 16, "num_hidden_layers": 1, "max_position_embeddings": 16}
    config = build_config("decoder", **sizes, encoding="learned", memory="look-ahead")
    build_model(config, "causal-lm", seed=0).save_pretrained(tmp_path)
    assert load_model(tmp_path, memory_length=12, segment_length=4).config.memory_length == 12
    with pytest.raises(BadInput, match=r"memory_length \+ segment_length = 20 is longer than the position table"):
        load_model(tmp_path, memory_length=12)
