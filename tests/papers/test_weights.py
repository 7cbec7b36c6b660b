"""Checkpoints of both of torch's formats and of safetensors are read, and nothing that a file names is run."""

import collections
import pickle
from pathlib import Path

import pytest
import torch
import tupe_reference as ref
from safetensors.torch import save_file

from wordorder.errors import BadInput
from wordorder.papers.tupe import convert_tupe
from wordorder.papers.tupe.convert import FAIRSEQ
from wordorder.papers.weights import NAMED, read_checkpoint

KINDS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64]
FORMATS = pytest.mark.parametrize("stream", [False, True], ids=["zip", "stream"])


class Trap:
    """Asks whoever unpickles it to leave a mark."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self):
        return exec, (f"__import__('os').mkdir({str(self.mark)!r})",)


def failure(path: Path) -> str:
    with pytest.raises(BadInput) as error:
        read_checkpoint(path, FAIRSEQ)
    (fault,) = error.value.faults
    assert fault.startswith(f"checkpoint {path}")
    return fault


@FORMATS
def test_tensors_are_what_torch_saved(tmp_path, stream):
    whole = torch.randn(6, 8)
    saved = collections.OrderedDict(
        {str(kind): torch.randint(0, 2, (5, 2)).to(kind) for kind in KINDS}
        | {"whole": whole, "same": whole, "turned": whole.t(), "scalar": torch.tensor(3.5), "empty": torch.empty(0, 3)}
        | {"parameter": torch.nn.Linear(3, 4).weight}
    )
    torch.save({"model": saved, "args": {"a": 1}}, tmp_path / "file.pt", _use_new_zipfile_serialization=not stream)
    file = read_checkpoint(tmp_path / "file.pt", FAIRSEQ)
    assert file.args == {"a": 1}
    assert file.weights.keys() == saved.keys()
    for name, tensor in saved.items():
        assert file.weights[name].dtype == tensor.dtype
        assert torch.equal(file.weights[name], tensor), name
        assert not file.weights[name].requires_grad


@FORMATS
@pytest.mark.parametrize("named", NAMED)
def test_an_object_of_the_reference_code_is_left_alone(tmp_path, stream, named):
    module, _, name = named.rpartition(".")
    allowed = set(torch.serialization.get_safe_globals())
    if module == "argparse":
        ref.save(tmp_path / "model.pt", ref.weights(), stream=stream)
    else:
        with ref.foreign(module, name) as thing:
            ref.save(tmp_path / "model.pt", ref.weights(), stream=stream, train_meters={"loss": thing})
    file = read_checkpoint(tmp_path / "model.pt", FAIRSEQ)
    assert file.args is not None
    assert file.args["encoder_layers"] == ref.L
    assert set(torch.serialization.get_safe_globals()) == allowed


@FORMATS
@pytest.mark.parametrize("protocol", [2, 4])
def test_what_a_file_asks_to_run_is_not_run(tmp_path, stream, protocol):
    content = {"model": ref.weights(), "args": None, "trap": Trap(tmp_path / "mark")}
    torch.save(content, tmp_path / "model.pt", _use_new_zipfile_serialization=not stream, pickle_protocol=protocol)
    said = failure(tmp_path / "model.pt")
    assert "cannot be read without running code" in said
    assert "save the model's state_dict() alone" in said
    assert not (tmp_path / "mark").exists()
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Trap(tmp_path / "mark")))
    failure(tmp_path / "plain.pt")
    assert not (tmp_path / "mark").exists()


@FORMATS
def test_a_whole_pickled_module_is_refused_with_the_remedy(tmp_path, stream):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt", _use_new_zipfile_serialization=not stream)
    said = failure(tmp_path / "model.pt")
    assert "torch.nn.modules.linear.Linear" in said
    assert "load it with the code that made it, and save the model's state_dict() alone" in said


@pytest.mark.parametrize("data", [b"", b"hello\n", b"PK\x03\x04 and nothing more", b"\x80\x02K\x01."])
@pytest.mark.parametrize("name", ["file.pt", "file.safetensors"])
def test_what_is_no_checkpoint_is_one_line(tmp_path, data, name):
    (tmp_path / name).write_bytes(data)
    assert "is damaged" in failure(tmp_path / name)


@FORMATS
def test_a_file_that_is_cut_short_is_one_line(tmp_path, stream):
    data = ref.save(tmp_path / "whole.pt", ref.weights(dtype=torch.float16), stream=stream).read_bytes()
    for part in range(0, 10, 3):
        (tmp_path / "cut.pt").write_bytes(data[: len(data) * part // 10])
        assert "is damaged" in failure(tmp_path / "cut.pt")


def test_a_file_without_a_model_is_named(tmp_path):
    for saved, said in (
        ({"args": 1, "state_dict": {}}, 'has no state dict under "model"'),
        (torch.ones(3), 'has no state dict under "model"'),
        ({}, "this one has nothing"),
        ({"model": {}}, "holds no model of TUPE's reference code"),
        ({"model": torch.ones(3)}, "holds no model of TUPE's reference code"),
        ({"model": {3: torch.ones(3)}}, "no tensors: 3"),
        ({"model": {"\x1b[2J": torch.ones(3)}}, "its weights are \\x1b[2J"),
        ({"model": {"decoder.a": torch.ones(1), "a": torch.ones(1)}}, 'both with and without "decoder."'),
    ):
        torch.save(saved, tmp_path / "file.pt")
        with pytest.raises(BadInput) as error:
            convert_tupe(tmp_path / "file.pt", tmp_path / "out")
        assert said in str(error.value)
        assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert "does not exist" in failure(tmp_path / "missing.pt")
    assert "is no file" in failure(tmp_path)


def test_a_state_dict_alone_has_no_settings(tmp_path):
    weights = {name: tensor.clone() for name, tensor in ref.weights().items()}
    torch.save(weights, tmp_path / "state.pt")
    save_file(weights, tmp_path / "state.safetensors")
    for name in ("state.pt", "state.safetensors"):
        file = read_checkpoint(tmp_path / name, FAIRSEQ)
        assert file.args is None
        assert file.weights.keys() == weights.keys()
