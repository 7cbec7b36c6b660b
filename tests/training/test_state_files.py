import json
import random

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from wordorder.training.checkpoints.state_files import load_state, random_state, restore_random_state, save_state


def test_a_nested_state_comes_back_as_it_was(tmp_path):
    shared = torch.arange(6.0).reshape(2, 3)
    state = {
        "state": {0: {"step": torch.tensor(3.0), "average": shared.t(), "same": shared}, 7: {}},
        "groups": [{"betas": (0.9, 0.999), "lr": 1e-300, "params": [0, 1], "fused": None, "odd": 0.1 + 0.2}],
        "half": torch.ones(2, dtype=torch.bfloat16),
        "bytes": torch.arange(256, dtype=torch.uint8),
        "numpy": np.float64(0.1),
    }
    save_state(tmp_path, "optimizer", state)
    loaded = load_state(tmp_path, "optimizer")
    assert loaded.keys() == state.keys()
    assert loaded["groups"] == state["groups"]
    assert loaded["state"].keys() == {0, 7}
    for name, tensor in state["state"][0].items():
        assert_close(loaded["state"][0][name], tensor, rtol=0, atol=0)
    assert_close(loaded["half"], state["half"], rtol=0, atol=0)
    assert_close(loaded["bytes"], state["bytes"], rtol=0, atol=0)
    assert loaded["numpy"] == 0.1


def test_a_state_without_tensors_is_json_alone(tmp_path):
    save_state(tmp_path, "scheduler", {"last_epoch": 3})
    assert [path.name for path in tmp_path.iterdir()] == ["scheduler.json"]
    assert json.loads((tmp_path / "scheduler.json").read_text())


@pytest.mark.parametrize("value", [{"a": object()}, [{1.5: 2}], {"a": {(): 1}}])
def test_what_only_pickle_could_write_is_refused(tmp_path, value):
    with pytest.raises(TypeError, match="state"):
        save_state(tmp_path, "state", value)


def draw():
    return random.random(), np.random.random(), np.random.normal(), torch.rand(1).item()


def test_all_generators_go_on_where_they_were(tmp_path):
    np.random.normal()  # leaves the second normal number in numpy's state
    save_state(tmp_path, "random", [random_state()])
    expected = draw()
    assert draw() != expected
    restore_random_state(load_state(tmp_path, "random")[0])
    assert draw() == expected


@pytest.mark.gpu
def test_cuda_generators_go_on_where_they_were(tmp_path):
    save_state(tmp_path, "random", random_state())
    expected = torch.rand(3, device="cuda")
    restore_random_state(load_state(tmp_path, "random"))
    assert_close(torch.rand(3, device="cuda"), expected, rtol=0, atol=0)
