"""Two processes train as one with twice the batch does: DDP and FSDP2, over gloo; see two_processes.py."""

import json
import shutil
import warnings

import numpy as np
import pytest
import tiny_recipes
import torch
from safetensors.torch import load_file
from tiny_recipes import LANES, TASKS, close, flat, largest_difference, losses, train
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from wordorder.training.runs.unit_scores import read_unit_scores

# the first test waits for two processes that import their libraries
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", TASKS)
def test_two_processes_train_as_one_with_twice_the_batch(slow_pair, corpus, tmp_path, name):
    """Loss, gradients and scores, with other numbers of labels in each process and a last batch that is not whole."""
    found, other = slow_pair[name]
    recorded = []
    one = train(tmp_path / name, corpus, *TASKS[name], rows=4, recorded=recorded)
    assert largest_difference(load_file(slow_pair.folder / f"{name}.safetensors"), flat(recorded)) < 1e-6
    assert found["losses"] == pytest.approx(losses(one), rel=1e-6)
    # predictions that are nearly the same correlate with anything
    within = 1e-3 if name == "regression" else 1e-6
    assert close(found["metrics"], {key: one.metrics[key] for key in ("validation", "test")}, within)
    assert found["tokens"] == one.metrics["tokens"]
    assert found["steps"] == one.metrics["steps"]
    assert found["best_step"] == one.metrics["best_step"]
    assert found == other
    mine, theirs = (read_unit_scores(folder / name) for folder in (tmp_path, slow_pair.folder))
    np.testing.assert_allclose(theirs.losses, mine.losses, rtol=1e-3 if name == "regression" else 1e-5)
    np.testing.assert_array_equal(theirs.counts, mine.counts)
    np.testing.assert_array_equal(theirs.documents, mine.documents)


def test_processes_that_read_other_batches_have_another_digest(slow_pair):
    digests = [tuple(slow_pair[name][0]["batches"].values()) for name in ("masked-lm", "lanes", "classification")]
    assert len(set(digests)) == 3


def test_a_signal_to_one_process_stops_all_after_one_step_and_they_go_on_bit_for_bit(pair):
    whole, stopped = pair["whole"], pair["stopped"]
    for one, other in zip(whole, stopped, strict=True):
        assert other["said"].startswith("stopped by SIGUSR1 after step 4; the last good checkpoint is")
        assert other["losses"] == one["losses"]
        assert other["batches"] == one["batches"]
    for file in ("model.safetensors", "optimizer.safetensors", "carried-0.safetensors", "carried-1.safetensors"):
        ours, theirs = (load_file(pair.folder / name / "checkpoint-6" / file) for name in ("stopped", "whole"))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours), file
    memories = [load_file(pair.folder / f"whole/checkpoint-6/carried-{rank}.safetensors") for rank in range(2)]
    assert any(not torch.equal(memories[0][name], memories[1][name]) for name in memories[0])


def test_dropout_differs_between_processes(pair):
    assert pair["whole"]
    states = json.loads((pair.folder / "whole/checkpoint-6/random.json").read_text())
    saved = load_file(pair.folder / "whole/checkpoint-6/random.safetensors")
    assert len(states) == 2
    own = [value for name, value in sorted(saved.items()) if name.endswith(".torch")]
    assert not torch.equal(*own)


def test_a_loss_that_is_no_number_in_one_process_ends_both_with_the_same_words(pair):
    one, other = pair["lost"]
    assert one["said"].startswith("the loss became nan at step 2; ")
    assert one == other
    assert not list((pair.folder / "lost").glob("checkpoint-2"))


def test_a_full_disk_ends_both_with_the_same_words(pair):
    one, other = pair["full_disk"]
    assert one["said"].startswith("checkpoint-2 could not be saved: [Errno 28] No space left on device")
    assert one == other


def test_an_older_checkpoint_that_cannot_be_removed_ends_both_with_the_same_words(pair):
    one, other = pair["not_removed"]
    assert one["said"].startswith("an older checkpoint could not be removed: [Errno 13] Permission denied; the last")
    assert one == other


def test_fsdp_on_cpus_is_refused(pair):
    for found in pair["refused"]:
        assert (
            "none is used here: accelerate would train with whole weights in each process (DDP)" in found["faults"][0]
        )


def test_half_precision_checkpointing_and_compilation_with_a_memory(slow_pair):
    one, _ = slow_pair["together"]
    assert one["checkpointed"] == one["plain"]
    assert one["compiled"] == pytest.approx(one["plain"], rel=1e-3)
    plain, checkpointed, compiled = (
        load_file(slow_pair.folder / f"{name}.safetensors") for name in ("plain", "checkpointed", "compiled")
    )
    assert largest_difference(checkpointed, plain) == 0
    assert largest_difference(compiled, plain) < 0.02 * max(float(grad.abs().max()) for grad in plain.values())


@pytest.mark.parametrize(("name", "kind"), [("encoder", AutoModelForMaskedLM), ("decoder", AutoModelForCausalLM)])
def test_fully_sharded_networks_have_the_loss_and_gradients_of_whole_ones(pair, name, kind):
    for rank, found in enumerate(pair["fully_sharded"]):
        found = found[name]
        assert found["shared"]
        assert found["own_part"] == pytest.approx(0.5, abs=0.01)
        assert abs(found["loss"]) < 1e-6
        assert found["gradients"] < 1e-6
        assert found["kept"] == (rank == 0)  # nobody else keeps what was gathered
    saved = load_file(pair.folder / f"sharded-{name}" / "model.safetensors")
    expected = tiny_recipes.network(name)
    folder = pair.folder / f"alone-{name}"
    expected.save_pretrained(folder)
    alone = load_file(folder / "model.safetensors")
    assert saved.keys() == alone.keys()
    assert all(torch.equal(saved[key], alone[key]) for key in alone)
    loaded = kind.from_pretrained(pair.folder / f"sharded-{name}")
    assert loaded.config.architectures == expected.config.architectures
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), expected.parameters(), strict=True))


def test_the_trainer_with_sharded_weights_trains_saves_and_goes_on_as_with_whole_ones(pair):
    one, other = pair["sharded"]
    expected, _ = pair["replicated"]
    assert one["shared"] == [True, True]
    assert one["losses"] == pytest.approx(expected["losses"], rel=1e-6)
    assert close(one["metrics"], expected["metrics"], within=1e-5)
    assert one["again"] == one["losses"]
    assert one["again_metrics"] == one["metrics"] == other["metrics"]
    for file in ("model.safetensors", "optimizer.safetensors"):
        names = ("sharded/checkpoint-4", "sharded/first-checkpoint-4", "replicated/checkpoint-4")
        again, first, whole = (load_file(pair.folder / name / file) for name in names)
        assert first.keys() == whole.keys()
        assert largest_difference(first, whole) < 1e-5
        assert largest_difference(again, first) == 0
    layouts = [
        json.loads((pair.folder / name / "checkpoint-4/optimizer.json").read_text())
        for name in ("sharded", "replicated")
    ]
    assert layouts[0] == layouts[1]


def resume_alone(pair, corpus, tmp_path, name, *overrides, rows):
    folder = tmp_path / name
    shutil.copytree(pair.folder / name, folder)
    (folder / "metrics.json").unlink()
    for path in folder.glob("*checkpoint-4"):
        shutil.rmtree(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(folder, corpus, *overrides, rows=rows, resume=True)


@pytest.mark.parametrize("rows", [4, 2])
def test_one_process_goes_on_where_two_were_and_reads_the_same_examples(pair, corpus, tmp_path, rows):
    """A step has as many examples as before, of which a process may hold fewer at once."""
    assert pair["replicated"]
    result = resume_alone(pair, corpus, tmp_path, "replicated", *tiny_recipes.ADAM, rows=rows)
    assert losses(result) == pytest.approx(pair["replicated"][0]["losses"], rel=1e-5)
    assert result.metrics["batches"] is None  # nobody knows the digest of other shares


def test_a_memory_is_not_carried_into_another_number_of_processes(pair, corpus, tmp_path):
    folder = tmp_path / "memory"
    shutil.copytree(pair.folder / "whole", folder)
    (folder / "metrics.json").unlink()
    shutil.rmtree(folder / "checkpoint-6")
    with pytest.raises(Exception, match="holds the memories of 2 processes, this run has 1"):
        train(folder, corpus, *LANES, *tiny_recipes.DROPOUT, rows=4, resume=True)
