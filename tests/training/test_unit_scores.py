"""The scores of each unit of the scored texts: their sums, their documents, their order, and the file."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from documents import tokens_with
from safetensors.numpy import load_file, save_file

from wordorder.data.examples.lanes import UNIT, RunningText
from wordorder.data.packing import Spans, running
from wordorder.errors import RunFailed
from wordorder.tasks.scores import NumberTally, TokenTally, UnitSums
from wordorder.training import read_recipe, run
from wordorder.training.runs.unit_scores import UNIT_SCORES, read_unit_scores, write_unit_scores

CPU = torch.device("cpu")
CLS, SEP = 1, 3
TINY = {
    "masked-lm": (),
    "across-documents": ("task.packing=full-sentences-across-documents",),
    "causal-lm": ("task.name=causal-lm", "model.network=decoder", "model.encoding=rope"),
    "lanes": (
        "task.name=causal-lm",
        "task.packing=lanes",
        "data.length=16",
        "task.eval_lanes=3",
        "task.reset_memory=documents",
        "model.network=decoder",
        "model.encoding=transformer-xl",
        "model.memory=segment-recurrence",
        "model.memory_length=16",
    ),
    "windows": (
        "task.name=causal-lm",
        "task.packing=lanes",
        "data.length=16",
        "training.eval_stride=4",
        "model.network=decoder",
        "model.encoding=rope",
    ),
    "classification": ("task.name=classification",),
}


@pytest.fixture(params=TINY)
def finished(request, recipe_file, tmp_path):
    settings = [*TINY[request.param], "training.max_steps=2", "tokenizer.kind=byte", "data.test_fraction=0.2"]

    def go(name, *overrides):
        recipe = read_recipe(recipe_file, [*settings, *overrides])
        return run(recipe, progress=False, output_dir=tmp_path / name)

    return SimpleNamespace(task=request.param, go=go, folder=tmp_path)


def test_units_add_up_to_the_scores_and_do_not_depend_on_the_batches(finished):
    test = finished.go("one").metrics["test"]
    kept = read_unit_scores(finished.folder / "one")
    assert kept.counts.sum() == test.get("tokens", test.get("examples"))
    assert kept.losses.sum() / kept.counts.sum() == pytest.approx(test["loss"], rel=1e-6)
    assert kept.right.sum() / kept.counts.sum() == pytest.approx(test["accuracy"], rel=1e-12)
    data = json.loads((finished.folder / "one" / "data.json").read_text())
    assert kept.data == data["fingerprint"]
    assert 1 < len(np.unique(kept.documents)) <= data["test"]["documents"]
    documents = kept.by_document()
    assert len(documents.losses) < len(kept.losses) or finished.task == "classification"
    assert documents.losses.sum() == pytest.approx(kept.losses.sum())
    finished.go("other", "training.eval_batch_size=3")
    other = read_unit_scores(finished.folder / "other")
    np.testing.assert_allclose(other.losses, kept.losses, rtol=1e-5)
    np.testing.assert_array_equal(other.counts, kept.counts)
    np.testing.assert_array_equal(other.documents, kept.documents)


@pytest.mark.parametrize("by_document", [True, False])
def test_units_of_running_text_do_not_depend_on_how_it_is_read(by_document):
    tokens = tokens_with([[UNIT + 7], [3], [0], [2 * UNIT]])
    # each with its [SEP]; the document without a token has no unit
    owner = np.repeat([0, 0, 1, 3, 3, 3], [UNIT, 8, 4, UNIT, UNIT, 1])
    unit = np.repeat(np.arange(6), [UNIT, 8, 4, UNIT, UNIT, 1])
    text = RunningText(tokens, length=10, characters=1, words=1, by_document=by_document)
    np.testing.assert_array_equal(text.unit_documents[unit], owner)
    readings = [text.windows(), text.windows(3), *text.scoring_lanes(slice(0, None, 2)), *text.scoring_lanes(most=2)]
    for reading in readings:
        for index in range(len(reading)):
            labels = reading[index]["shift_labels"]
            found = reading.units_of(np.array([index]), len(labels))[0]
            places = np.array([np.flatnonzero(text.ids == label)[0] for label in labels if label > SEP])
            np.testing.assert_array_equal(found[labels.numpy() > SEP], unit[places.astype(np.int64)])


def test_units_of_causal_segments_are_those_of_the_running_text():
    from wordorder.data.examples.datasets import CausalLanguageExamples

    tokens = tokens_with([[UNIT + 7], [3], [2 * UNIT]])
    text = RunningText(tokens, length=10, characters=1, words=1)
    spans = Spans(sides=(running(tokens, room=10, keep_last=True),), before=(CLS,))
    examples = CausalLanguageExamples(spans, text)
    every = np.concatenate([examples.units_of(np.array([i]), len(examples[i]["labels"]))[0, 1:] for i in range(30)])
    np.testing.assert_array_equal(every, text.units_at(np.arange(len(every))))


def test_units_of_numbers_have_squared_errors():
    tally = NumberTally(CPU)
    tally.keep_units(3)
    tally.add(torch.tensor([[1.0], [2.0]]), torch.tensor([3.0, 2.5]), torch.tensor([2, 0]))
    assert tally.units.losses.tolist() == [0.25, 0, 4]
    assert tally.units.right is None


def test_a_batch_without_units_is_no_mistake_of_the_user():
    tally = TokenTally(CPU)
    tally.keep_units(3)
    with pytest.raises(AssertionError, match="units"):
        tally.add(torch.zeros(1, 2), torch.tensor([1]))


def written(folder, documents=(0, 0, 1)):
    sums = UnitSums(3, CPU, torch.float64)
    sums.add(torch.tensor([0, 1, 2, 2]), torch.tensor([0.5, 1.5, 1.0, 300.0]), torch.tensor([True, False, True, True]))
    write_unit_scores(folder, sums, np.array(documents), data="abc")
    return folder / UNIT_SCORES


def test_the_file_takes_six_bytes_a_unit(tmp_path):
    tensors = load_file(written(tmp_path, (0, 1, 2)))
    assert sum(tensor.nbytes for tensor in tensors.values()) == 3 * 6
    kept = read_unit_scores(tmp_path)
    assert kept.losses.tolist() == [0.5, 1.5, 301.0]
    assert kept.counts.tolist() == [1, 1, 2]
    assert kept.right.tolist() == [1, 0, 2]
    assert (kept.documents.tolist(), kept.data) == ([0, 1, 2], "abc")
    written(tmp_path, (0, 0, 70_000))
    assert read_unit_scores(tmp_path).documents.tolist() == [0, 0, 70_000]


def test_a_run_of_an_earlier_version_has_none(tmp_path):
    assert read_unit_scores(tmp_path) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"losses": np.array([1.0, np.nan, 1.0], np.float32)}, "not a number"),
        ({"losses": np.ones(2, np.float32)}, "a loss and a count for each unit"),
        ({"counts": None}, "a loss and a count for each unit"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path, change, said):
    path = written(tmp_path)
    tensors = {**load_file(path), **change}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, path)
    with pytest.raises(RunFailed, match=said):
        read_unit_scores(tmp_path)


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(RunFailed, match="cannot be read"):
        read_unit_scores(tmp_path)
