"""Arms of equal budget: sized to within 1%, or refused with every arm's count; and what was trained is what was
matched."""

import json
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
from comparison_example import example_results, read
from comparison_stand_in import STAND_IN

from wordorder.comparison.arms import resolve_arms
from wordorder.comparison.budget import check_trained, count_parameters, fit_budget, fit_widths, nearest
from wordorder.comparison.pipeline import cost_of_config
from wordorder.errors import UnfairComparison
from wordorder.training.loop.batches import FedBatches, rows_of
from wordorder.training.runs.fit import make_config

TOKENS = SimpleNamespace(
    pad_token_id=0, sep_token_id=1, cls_token_id=2, num_special_tokens_to_add=lambda pair: 3 if pair else 2
)


@dataclass
class Prepared:
    """What a model's configuration takes of the data."""

    statistics: dict = field(default_factory=lambda: {"vocab_size": 99})
    tokenizer: object = field(default_factory=lambda: TOKENS)
    label_names: tuple = ()
    train: object = None
    validation: object = None


def pipeline(**known):
    return replace(STAND_IN, prepare=lambda recipe, seed: Prepared(**known))


def counted(arms, match, **known):
    found = {}
    for arm in arms:
        config = make_config(arm.recipe, Prepared(**known))
        cost = cost_of_config(arm.recipe, config)
        found[arm.name] = cost["flops_per_token"] if match == "flops" else cost["parameters"]["total"]
        assert count_parameters(arm.recipe, config) == cost["parameters"]["total"]
    return found


ENCODER = {
    name: {"model.encoding": name} for name in ("none", "learned", "shaw", "transformer-xl", "tupe-r", "complex-order")
}
DECODER = {
    "rope": {"model.encoding": "rope"},
    "swiglu": {"model.encoding": "rope", "model.hidden_act": "swiglu"},
    "grouped": {"model.encoding": "rope", "model.num_key_value_heads": 1},
    "transformer-xl": {"model.encoding": "transformer-xl"},
}
CAUSAL = ("task.name=causal-lm", "model.network=decoder")
COMPLEX = {"none": {}, "complex": {"model.encoding": "complex-order", "model.complex_valued": True}}
UNTIED = "model.tie_word_embeddings=false"
TRANSLATION = ("task.name=translation", "task.target_source=sotu", "model.network=seq2seq")
HALVES = {name: {"model.encoding": name} for name in ("none", "shaw", "t5")}
CLASSES = ("task.name=classification", "model.network=classifier", "model.encoding=complex-order")
CLASSIFIERS = {name: {"model.architecture": name} for name in ("transformer", "convolution", "recurrent")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("match", "overrides", "arms", "known"),
    [
        ("parameters", (), ENCODER, {}),
        ("parameters", CAUSAL, DECODER, {}),
        ("parameters", (UNTIED,), COMPLEX, {}),
        ("parameters", TRANSLATION, HALVES, {}),
        ("parameters", CLASSES, CLASSIFIERS, {"label_names": ("no", "yes")}),
        ("flops", (), {name: ENCODER[name] for name in ("none", "shaw", "transformer-xl")}, {}),
        ("flops", CAUSAL, {name: DECODER[name] for name in ("rope", "swiglu", "grouped")}, {}),
        ("flops", TRANSLATION, {name: HALVES[name] for name in ("none", "shaw")}, {}),
        ("flops", (UNTIED,), COMPLEX, {}),
    ],
)
def test_every_network_is_sized_to_within_one_percent(make_recipe, match, overrides, arms, known):
    recipe = make_recipe("model.hidden_size=32", "model.intermediate_size=96", *overrides, arms=arms, match=match)
    before = counted(resolve_arms(recipe), match, **known)
    assert max(before.values()) > 1.01 * min(before.values())  # there is something to do
    sized, budget = fit_budget(resolve_arms(recipe), recipe, pipeline=pipeline(**known))
    after = counted(sized, match, **known)
    first = next(iter(arms))
    assert max(after.values()) <= 1.01 * min(after.values())
    assert after[first] == before[first]
    assert budget.reference == first
    for arm in sized:
        own = budget.arms[arm.name]
        assert (own.value, own.target) == (after[arm.name], before[first])
        for name, (old, new) in own.changed.items():
            assert old != new
            assert arm.recipe.to_dict()["model"][name.removeprefix("model.")] == new
    assert f"{before[first]:,} {'parameters' if match == 'parameters' else 'FLOP per token'}" in budget.sentence


@pytest.mark.parametrize("match", ["parameters", "flops"])
def test_an_arm_or_a_seed_that_is_added_leaves_the_others_as_they_were(make_recipe, match):
    sizes = ("model.hidden_size=32", "model.intermediate_size=96")
    arms = {name: ENCODER[name] for name in ("none", "shaw", "transformer-xl")}
    fewer = make_recipe(*sizes, arms=dict(list(arms.items())[:2]), match=match, seeds=[0])
    before, _ = fit_budget(resolve_arms(fewer), fewer, pipeline=pipeline())
    more = make_recipe(*sizes, arms=arms, match=match, seeds=[0, 1])
    after, budget = fit_budget(resolve_arms(more), more, pipeline=pipeline())
    assert budget.arms["shaw"].changed
    assert [arm.recipe.model for arm in after[:2]] == [arm.recipe.model for arm in before]


def test_only_what_differs_is_changed_and_by_the_feed_forward_width_first(make_recipe):
    arms = {"none": {}, "rope": {"model.encoding": "rope"}, "shaw": {"model.encoding": "shaw"}}
    recipe = make_recipe("model.hidden_size=64", "model.intermediate_size=256", arms=arms, match="parameters")
    sized, budget = fit_budget(resolve_arms(recipe), recipe, pipeline=pipeline())
    assert [list(own.changed) for own in budget.arms.values()] == [[], [], ["model.intermediate_size"]]
    old, new = budget.arms["shaw"].changed["model.intermediate_size"]
    assert old == 256 > new
    assert new % 8 == 0  # a multiple that suits the hardware agrees well enough here
    assert budget.sentence.endswith(f"within 1%; feed-forward width {new} to 256.")
    assert sized[0].recipe is recipe.for_arm(recipe.compare.arms[0]) or sized[0].recipe.model == recipe.model


def test_the_baseline_may_be_any_arm(make_recipe):
    recipe = make_recipe(arms={"none": {}, "shaw": {"model.encoding": "shaw"}}, match="parameters", baseline="shaw")
    _, budget = fit_budget(resolve_arms(recipe), recipe, pipeline=pipeline())
    assert budget.arms["shaw"].changed == {}
    old, new = budget.arms["none"].changed["model.intermediate_size"]
    assert new > old


def test_where_the_feed_forward_width_is_not_enough_the_model_becomes_narrower(make_recipe):
    """A complex network's attention alone has more parameters than the whole of the real one."""
    arms = {"none": {}, "complex": {"model.encoding": "complex-order+rope", "model.complex_valued": True}}
    recipe = make_recipe(UNTIED, "model.hidden_size=48", "model.intermediate_size=48", arms=arms, match="parameters")
    _, budget = fit_budget(resolve_arms(recipe), recipe, pipeline=pipeline())
    old, new = budget.arms["complex"].changed["model.hidden_size"]
    assert old == 48 > new
    assert (new // 2) % 2 == 0  # two heads of an even number of channels, as rotations want them
    assert "model width" in budget.sentence


def test_a_bag_of_words_has_the_width_of_its_embeddings_only(make_recipe):
    arms = {"transformer": {}, "bag": {"model.architecture": "bag-of-words"}}
    recipe = make_recipe(*CLASSES, "model.hidden_size=160", arms=arms, match="parameters")
    known = {"label_names": ("no", "yes"), "statistics": {"vocab_size": 999}}
    _, budget = fit_budget(resolve_arms(recipe), recipe, pipeline=pipeline(**known))
    assert list(budget.arms["bag"].changed) == ["model.hidden_size"]


def fixed(more, **compare):
    """A recipe whose second arm asks for a feed-forward network that much wider."""
    return {
        "arms": {"base": {}, "larger": {"model.intermediate_size": 512 + more}, "shaw": {"model.encoding": "shaw"}},
        "match": "parameters",
        **compare,
    }


def test_an_arm_that_asks_for_three_percent_more_parameters_is_refused(make_recipe):
    sizes = ("model.hidden_size=128", "model.intermediate_size=512")
    recipe = make_recipe(*sizes, **fixed(27))
    counts = counted(resolve_arms(recipe), "parameters")
    assert counts["larger"] / counts["base"] == pytest.approx(1.03, abs=0.002)
    with pytest.raises(UnfairComparison) as refused:
        fit_budget(resolve_arms(recipe), recipe, pipeline=pipeline())
    first, base, larger, shaw, remedy = refused.value.faults
    assert "within 1%" in first
    assert f"{counts['base']:,}" in base
    assert f"{counts['larger']:,} parameters (+3.0%); sets model.intermediate_size itself" in larger
    assert "shaw" in shaw
    assert "compare.match" in remedy
    within = make_recipe(*sizes, **fixed(4))
    sized, budget = fit_budget(resolve_arms(within), within, pipeline=pipeline())
    assert sized[1].recipe.model["intermediate_size"] == 516
    assert budget.arms["larger"].changed == {}


def test_what_no_width_can_reach_is_refused_with_every_count(make_recipe):
    """Twelve layers are more than one, however narrow their feed-forward networks: eight heads want eight channels."""
    arms = {"one": {"model.num_hidden_layers": 1}, "small": {}}
    sizes = ("model.num_hidden_layers=12", "model.hidden_size=8", "model.num_attention_heads=8")
    recipe = make_recipe(*sizes, arms=arms, match="parameters")
    with pytest.raises(UnfairComparison) as refused:
        fit_budget(resolve_arms(recipe), recipe, pipeline=pipeline())
    _, one, small, _ = refused.value.faults
    counts = counted(resolve_arms(recipe), "parameters")
    assert one == f"one: {counts['one']:,} parameters, the baseline"
    assert small.startswith(f"small: {counts['small']:,} parameters (+")
    assert small.endswith("cannot be resized: model.hidden_size 8 cannot become smaller")


def test_without_a_budget_nothing_is_counted(make_recipe):
    recipe = make_recipe()
    arms = resolve_arms(recipe)
    same, budget = fit_budget(arms, recipe, pipeline=None)
    assert same == arms
    assert (budget.match, budget.reference, budget.arms, budget.sentence) == ("none", "none", {}, "")


@pytest.mark.parametrize("function", [lambda n: 3 * n + 7, lambda n: n**3, lambda n: 2.0**n if n < 40 else 2.0**40 + n])
def test_the_nearest_number_of_a_rising_function(function):
    for target in (-1, 8.4, 30, 31, 1000, 1e6, 1e30):
        best = min(range(1, 61), key=lambda n: abs(function(n) - target))
        assert abs(function(nearest(function, 1, 60, target)) - target) == abs(function(best) - target)


def test_counting_is_cheap(make_recipe):
    recipe, calls = make_recipe("model.hidden_size=64"), []

    def count(changes):
        calls.append(changes)
        return 1000 + 7 * changes.get("intermediate_size", 32) * changes.get("hidden_size", 64)

    changes, value = fit_widths(recipe, count, 40_000, tolerance=0.01)
    assert value == pytest.approx(40_000, rel=0.005)
    assert changes == {"intermediate_size": 87}
    assert len(calls) <= 8


def results_of(match="parameters"):
    results = example_results({"none": 300.0, "rope": 40.0}, seeds=2)
    marks = {row["seed"]: {"1": "a", "2": f"b{row['seed']}"} for row in results["rows"]}
    for row in results["rows"]:
        row |= {"parameters": 1000, "flops_per_token": 5000, "steps": 1000, "batches": marks[row["seed"]]}
    value = {"parameters": 1000, "flops": 5000}.get(match, 0)
    entry = {"value": value, "target": value, "changed": {}}
    results["budget"] = {"match": match, "tolerance": 0.01, "arms": {"none": dict(entry), "rope": dict(entry)}}
    results["baseline"] = "none"
    return json.loads(json.dumps(results))


@pytest.mark.parametrize(("match", "name"), [("parameters", "parameters"), ("flops", "flops_per_token")])
def test_what_was_trained_is_what_was_matched(match, name):
    results = results_of(match)
    check_trained(read(results))
    results["rows"][-1][name] = round(1.03 * results["rows"][-1][name])
    with pytest.raises(UnfairComparison, match=r"rope, seed 1: was matched with .* and was trained with"):
        check_trained(read(results))


def test_folds_have_vocabularies_of_their_own_and_arms_are_compared_within_them():
    results = results_of()
    for row in results["rows"]:
        row |= {"fold": row["seed"], "parameters": 1000 + 500 * row["seed"]}
    check_trained(read(results))
    results["rows"][-1]["parameters"] = 1545
    with pytest.raises(UnfairComparison, match=r"fold 1: arms differ by more than 1%: none 1,500, rope 1,545"):
        check_trained(read(results))


def test_more_steps_are_refused_though_the_batches_of_the_first_ones_are_the_same():
    results = results_of("none")
    for row in results["rows"]:
        row["batches"] = {"1": "a", "2": "b"}
    results["rows"][-1] |= {"steps": 2000, "batches": {"1": "a", "2": "b", "4": "c"}}
    with pytest.raises(UnfairComparison, match="rope, seed 1: was trained for 2,000 steps, and others for 1,000"):
        check_trained(read(results))
    for row in results["rows"]:
        row["fold"] = int(row["steps"] == 2000)
    check_trained(read(results))  # another fold has other texts, and so maybe other steps in an epoch


def test_other_batches_are_refused():
    results = results_of("none")
    check_trained(read(results))
    for row in results["rows"]:
        row.pop("batches")
    check_trained(read(results))  # the digests are not known
    results = results_of("none")
    results["rows"][-1]["batches"]["2"] = "c"
    with pytest.raises(UnfairComparison, match=r"rope, seed 1: was trained on other batches than none"):
        check_trained(read(results))


def batch(rows, *, labels=None):
    import torch

    ids = torch.tensor(rows)
    return {"input_ids": ids, "labels": ids + 1 if labels is None else torch.tensor(labels)}


def digest(batches, *, rows=1, per_step=1):
    fed = FedBatches(rows=rows)
    for number, one in enumerate(batches):
        fed.take(1 + number // per_step, rows_of(one))
    return fed.found()


def test_the_digest_does_not_tell_how_a_step_is_divided():
    whole = batch([[1, 2], [3, 4], [5, 6]])
    parts = [batch([[1, 2], [3, 4]]), batch([[5, 6]])]
    assert digest([whole, whole]) == digest([*parts, *parts], rows=2, per_step=2)
    assert digest([whole]) != digest([parts[1], parts[0]], rows=2, per_step=2)


def test_the_digest_tells_order_masks_labels_rows_and_steps_apart():
    first, second = batch([[1, 2], [3, 4]]), batch([[5, 6], [7, 8]])
    digests = [
        digest([first, second]),
        digest([second, first]),
        digest([first]),
        digest([first, second], rows=2, per_step=2),
        digest([batch([[3, 4], [1, 2]]), second]),
        digest([batch([[1, 2], [3, 9]]), second]),
        digest([batch([[1, 2], [3, 4]], labels=[0, 1]), second]),
        digest([batch([[1, 2, 3], [3, 4, 5]]), second]),
    ]
    assert digest([first, second]) == digests[0]
    last = [list(found.values())[-1] for found in digests]
    assert len(set(last)) == len(last)
    assert digests[2]["1"] == digests[0]["1"] != digests[1]["1"]


def test_the_digest_does_not_depend_on_padding_or_on_how_a_row_is_cut():
    import torch

    whole = {
        "input_ids": torch.tensor([[1, 2, 3, 4], [5, 6, 7, 0]]),
        "attention_mask": torch.tensor([[1] * 4, [1] * 3 + [0]]),
    }
    wider = {name: torch.nn.functional.pad(value, (0, 2)) for name, value in whole.items()}
    assert digest([whole]) == digest([wider])
    halves = [{name: value[:, part] for name, value in whole.items()} for part in (slice(0, 2), slice(2, 4))]
    assert digest(halves, rows=1, per_step=2) == digest([whole])
    assert digest(halves, rows=2, per_step=2) != digest([whole])


def test_a_shorter_run_is_compared_as_far_as_it_goes_and_a_resumed_one_is_the_same():
    from wordorder.training.loop.batches import same_batches

    steps = [batch([[n, n + 1]]) for n in range(500)]
    long = digest(steps)
    assert len(long) < 50
    for length in (1, 7, 33, 100, 380, 499):
        short = digest(steps[:length])
        assert same_batches(short, long)
        assert max(map(int, short.keys() & long.keys())) >= length / 2
        tampered = [*steps[: length // 3], batch([[0, 0]]), *steps[length // 3 + 1 : length]]
        assert not same_batches(digest(tampered), long)
    fed = FedBatches()
    for number in range(100):
        fed.take(1 + number, rows_of(steps[number]))
    state = json.loads(json.dumps(fed.state()))
    resumed = FedBatches()
    resumed.load_state(state)
    for number in range(100, 500):
        resumed.take(1 + number, rows_of(steps[number]))
    assert resumed.found() == long
    unknown = FedBatches()
    unknown.load_state(None)
    unknown.take(101, rows_of(steps[100]))
    assert unknown.found() is None
