"""Random positions in training (Ruoss et al. 2023)."""

import pytest
import torch

from wordorder.data.examples.collate import CollatePositions, WithPositions, drawn_positions
from wordorder.errors import BadInput
from wordorder.training import read_recipe, run
from wordorder.training.loop.loop import Loop
from wordorder.training.runs.run import _prepare

SETTINGS = ("training.max_steps=6", "training.batch_size=4", "training.random_positions=64", "model.encoding=rope")


def test_positions_ascend_and_are_drawn_evenly():
    drawn = torch.stack([drawn_positions(8, largest=20, seed=1, epoch=0, index=index) for index in range(5000)])
    assert bool((drawn.diff(dim=1) > 0).all())
    assert drawn.min() == 0
    assert drawn.max() == 19
    counts = torch.bincount(drawn.flatten(), minlength=20) / len(drawn)
    torch.testing.assert_close(counts, torch.full((20,), 8 / 20), atol=0.04, rtol=0)


def test_positions_depend_on_seed_epoch_and_example_alone():
    draws = {
        (seed, epoch, index): tuple(drawn_positions(8, largest=99, seed=seed, epoch=epoch, index=index).tolist())
        for seed in (0, 1)
        for epoch in (0, 1)
        for index in (0, 1)
    }
    assert len(set(draws.values())) == 8
    assert draws[1, 0, 1] == tuple(drawn_positions(8, largest=99, seed=1, epoch=0, index=1).tolist())
    assert drawn_positions(9, largest=9, seed=0, epoch=0, index=0).tolist() == list(range(9))


def test_batches_have_them_and_zeros_at_padding(recipe_file):
    prepared = _prepare(read_recipe(recipe_file, SETTINGS))
    examples = WithPositions(prepared.train, largest=64, seed=0)
    batch = CollatePositions(prepared.collate)(examples.__getitems__([(0, n) for n in range(6)]))
    plain = prepared.collate(prepared.train.__getitems__([(0, n) for n in range(6)]))
    assert {name: value.tolist() for name, value in batch.items() if name != "position_ids"} == {
        name: value.tolist() for name, value in plain.items()
    }
    for row, ids in enumerate(batch["input_ids"]):
        count = len(prepared.train[(0, row)]["input_ids"])
        expected = drawn_positions(count, largest=64, seed=0, epoch=0, index=row).tolist()
        assert batch["position_ids"][row].tolist() == expected + [0] * (len(ids) - count)
    one = examples[(0, 3)]
    assert (
        one["position_ids"].tolist()
        == drawn_positions(len(one["input_ids"]), largest=64, seed=0, epoch=0, index=3).tolist()
    )


@pytest.mark.parametrize("network", ["encoder", "decoder"])
def test_training_has_random_positions_and_evaluation_has_not(recipe_file, tmp_path, monkeypatch, network):
    seen, original = [], Loop.micro_step
    task = {"encoder": "masked-lm", "decoder": "causal-lm"}[network]
    settings = [*SETTINGS, f"model.network={network}", f"task.name={task}"]

    def micro_step(self, batch, *args, **kwargs):
        seen.append(batch["position_ids"])
        return original(self, batch, *args, **kwargs)

    monkeypatch.setattr(Loop, "micro_step", micro_step)
    random = run(read_recipe(recipe_file, settings), output_dir=tmp_path / "random", progress=False)
    monkeypatch.undo()
    settings = [setting for setting in settings if "random" not in setting]
    plain = run(read_recipe(recipe_file, settings), output_dir=tmp_path / "plain", progress=False)
    assert max(int(positions.max()) for positions in seen) > 40
    assert random.metrics["batches"] == plain.metrics["batches"]  # what is read is the same
    assert random.metrics["validation"]["loss"] != plain.metrics["validation"]["loss"]


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (["training.random_positions=31"], "training.random_positions: must be at least data.length 32, got 31"),
        (
            ["training.random_positions=64", "model.encoding=learned"],
            r"training.random_positions: 64: length 64 is longer than the position table of encoding 'learned'",
        ),
        (
            ["training.random_positions=64", "task.name=causal-lm", "task.packing=lanes", "model.network=decoder"],
            "training.random_positions: is for encoders and decoders of this package, without lanes and memory",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(recipe_file, settings, fault):
    with pytest.raises(BadInput, match=fault):
        read_recipe(recipe_file, settings)


def test_an_arm_may_have_them(recipe_file):
    text = (
        recipe_file.read_text()
        + """
[compare]
[[compare.arms]]
name = "plain"
"model.encoding" = "rope"
[[compare.arms]]
name = "random"
"model.encoding" = "rope"
"training.random_positions" = 128
"""
    )
    recipe_file.write_text(text)
    recipe = read_recipe(recipe_file)
    assert [recipe.for_arm(arm).training.random_positions for arm in recipe.compare.arms] == [None, 128]
