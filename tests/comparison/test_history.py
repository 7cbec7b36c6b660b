"""Equal history: a memory and its segment together are what other arms read at once, in training and in evaluation."""

from itertools import product

import pytest
import torch
from comparison_example import read
from torch.nn.functional import cross_entropy

from wordorder.comparison.arms import resolve_arms
from wordorder.comparison.budget import check_trained, equal_history, fit_budget, histories, history_sentence
from wordorder.comparison.pipeline import cost_of_config
from wordorder.errors import BadInput, UnfairComparison
from wordorder.inference import Context, evaluate_model_dir
from wordorder.models import build_config, build_model
from wordorder.training import run
from wordorder.training.loop.loop import Loop
from wordorder.training.runs.fit import make_config
from wordorder.training.runs.run import _prepare

LANES = (
    "task.name=causal-lm",
    "task.packing=lanes",
    "data.length=32",
    "task.eval_lanes=2",
    "tokenizer.kind=byte",
    "model.network=decoder",
    "model.max_position_embeddings=32",
    "training.max_steps=4",
    "training.evaluate_every=0.5",
    "training.log_every=1",
    "training.batch_size=6",
    "training.micro_batch_size=3",
)
XL = {"model.encoding": "transformer-xl"}
MEMORY = {**XL, "model.memory": "segment-recurrence"}
ARMS = {"none": XL, "half": {**MEMORY, "model.memory_length": 16}, "most": {**MEMORY, "model.memory_length": 24}}


def adapted(make_recipe, *overrides, arms=ARMS):
    return equal_history(resolve_arms(make_recipe(*LANES, *overrides, arms=arms, history="equal", seeds=[0])))


def test_memory_and_segment_together_are_what_others_read_at_once(make_recipe):
    arms = adapted(make_recipe)
    assert {name: own.as_json() for name, own in histories(arms).items()} == {
        "none": {"segment": 32, "memory": 0, "history": 32},
        "half": {"segment": 16, "memory": 16, "history": 32},
        "most": {"segment": 8, "memory": 24, "history": 32},
    }
    assert [arm.recipe.training.eval_stride for arm in arms] == [8, None, None]
    assert all(arm.recipe.data == arms[0].recipe.data for arm in arms)
    assert "together are 32 tokens for every arm" in history_sentence(histories(arms), equal=True)


def test_a_memory_without_a_length_gets_half(make_recipe):
    (arm,) = adapted(make_recipe, arms={"half": MEMORY})
    assert histories([arm])["half"].as_json() == {"segment": 16, "memory": 16, "history": 32}
    assert arm.recipe.model["memory_length"] == 16


def test_without_equal_history_the_sentence_says_so(make_recipe):
    recipe = make_recipe(*LANES, arms=ARMS, seeds=[0])
    _, budget = fit_budget(resolve_arms(recipe), recipe, pipeline=None)
    assert budget.histories["half"].as_json() == {"segment": 32, "memory": 16, "history": 48}
    assert "History is not equal" in budget.sentence
    assert "32 to 56 tokens" in budget.sentence


@pytest.mark.parametrize("length", [32, 40, 20])
def test_a_memory_that_leaves_no_whole_segments_is_refused_with_those_that_do(make_recipe, length):
    arms = {"none": XL, "odd": {**MEMORY, "model.memory_length": length}}
    with pytest.raises(BadInput, match=f"'odd': model.memory_length {length} .*take 16 or 24 or 28"):
        adapted(make_recipe, arms=arms)


def test_texts_that_are_not_in_lanes_have_no_equal_history(make_recipe):
    with pytest.raises(BadInput, match=r'task\.packing "lanes"'):
        equal_history(resolve_arms(make_recipe(history="equal")))


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["training.segments_per_step=2"], "only by a model with a memory"),
        (["training.segments_per_step=5", "model.memory=look-ahead", "model.memory_length=8"], "must divide"),
        (["training.eval_stride=33"], "at most data.length 32"),
        (["training.eval_stride=8", "model.memory=look-ahead", "model.memory_length=8"], "models without a memory"),
        (["training.eval_stride=0"], "at least 1"),
    ],
)
def test_pieces_and_strides_are_checked(make_recipe, overrides, words):
    with pytest.raises(BadInput, match=words):
        make_recipe(*LANES, *overrides, arms={"one": XL})


def test_flops_are_those_of_an_arms_own_segment_after_a_full_memory(make_recipe):
    none, half, most = adapted(make_recipe)
    for arm, length in ((none, 32), (half, 16), (most, 8)):
        config = build_config("decoder", **{**arm.recipe.model, "vocab_size": 99})
        from wordorder.cost import cost

        one = cost(config, "causal-lm", length=length, batch_size=3)
        assert cost_of_config(arm.recipe, config)["flops_per_token"] == one["flops_per_token"]


@pytest.mark.parametrize("whole", [False, True])
def test_pieces_of_a_step_hold_the_tokens_of_its_segments(make_recipe, whole):
    overrides = ("task.reset_memory=documents",) if whole else ()
    text = _prepare(adapted(make_recipe, *overrides)[0].recipe).train
    rows, parts = 3, 4
    segments = text.training_lanes(rows, seed=7)
    pieces = text.training_lanes(rows, seed=7, parts=parts)
    assert len(pieces) == parts * len(segments)
    for index in range(len(segments)):
        step, row = divmod(index, rows)
        own = [pieces[(1, (step * parts + part) * rows + row)] for part in range(parts)]
        segment = segments[(1, index)]
        for name in ("input_ids", "shift_labels"):
            torch.testing.assert_close(torch.cat([piece[name] for piece in own]), segment[name])
        assert all(len(piece["input_ids"]) <= 8 for piece in own)
        assert [bool(piece["memory_reset"]) for piece in own] == [bool(segment["memory_reset"]), *[False] * (parts - 1)]


def losses_of_single_lanes(recipe):
    """The mean loss of each step's tokens, lane by lane, with a memory that goes on from piece to piece."""
    prepared, parts, rows = _prepare(recipe), recipe.training.segments_per_step, 6
    model = build_model(make_config(recipe, prepared), "causal-lm", seed=3).eval()
    lanes, states, losses = prepared.train.training_lanes(rows, seed=3, parts=parts), [None] * rows, []
    for step in range(4):
        total = count = 0
        for row, part in product(range(rows), range(parts)):
            example = lanes[(step * parts + part) * rows + row]
            remembered = {"memory": states[row]} if parts > 1 else {}
            with torch.no_grad():
                output = model(input_ids=example["input_ids"][None], **remembered)
            states[row] = output.memory if parts > 1 else None
            total += float(cross_entropy(output.logits[0], example["shift_labels"], reduction="sum"))
            count += len(example["input_ids"])
        losses.append(total / count)
    return losses


def test_arms_of_equal_history_are_fed_the_same_and_predict_the_same_tokens(make_recipe, tmp_path, monkeypatch):
    fed = {}
    inner = Loop.micro_step

    def watch(self, batch, *args, **kwargs):
        place = self.training.folder.name, self.training.state.step
        fed.setdefault(place, []).append(batch["input_ids"].clone())
        return inner(self, batch, *args, **kwargs)

    monkeypatch.setattr(Loop, "micro_step", watch)
    still = ("training.learning_rate=1e-30", "model.hidden_dropout_prob=0.0", "model.attention_probs_dropout_prob=0.0")
    rows, scored, arms = {}, {}, adapted(make_recipe, *still)
    for arm in arms:
        result = run(arm.recipe, output_dir=tmp_path / arm.name, progress=False, seed=3)
        metrics, losses = result.metrics, [point["loss"] for point in result.curve if "loss" in point]
        assert losses == pytest.approx(losses_of_single_lanes(arm.recipe), rel=1e-5)
        scored[arm.name] = metrics["test"]["loss"]
        rows[arm.name] = {
            "arm": arm.name,
            "seed": 3,
            "batches": metrics["batches"],
            "tokens": metrics["test"]["tokens"],
        }
    assert rows["none"]["batches"] == rows["half"]["batches"] == rows["most"]["batches"]
    assert len({row["tokens"] for row in rows.values()}) == 1
    for step in range(4):
        assert len(fed["none", step]) == 2  # micro-batches, each with rows of its own
        assert len(fed["most", step]) == 8
        for micro in range(2):
            pieces = fed["most", step][micro::2]
            torch.testing.assert_close(torch.cat(pieces, dim=1), fed["none", step][micro])
    source = arms[
        0
    ].recipe.data.source  # a saved model is scored with the segments, or windows, that it was scored with
    again = evaluate_model_dir(tmp_path / "most" / "model", source)
    assert (again["loss"], again["length"]) == (pytest.approx(scored["most"], rel=1e-5), 8)
    sliding = Context(kind="sliding", stride=8)
    assert evaluate_model_dir(tmp_path / "none" / "model", source, context=sliding)["loss"] == pytest.approx(
        scored["none"], rel=1e-5
    )
    results = {"rows": list(rows.values()), "baseline": "none"}
    check_trained(read(results))
    rows["half"]["batches"]["4"] = "0"
    with pytest.raises(UnfairComparison, match="half, seed 3: was trained on other batches than none"):
        check_trained(read(results))
