"""The choice of a backend as a table: shapes, dtypes and device in, a name out."""

import pytest
import torch

from wordorder.attention import Call, choice, choose_backend
from wordorder.attention.choice import VARIABLE
from wordorder.errors import BadInput

CALL = {
    "device": "cpu",
    "dtype": torch.float32,
    "batch": 2,
    "heads": 12,
    "queries": 512,
    "keys": 512,
    "head_dim": 64,
    "bias": "learned",
    "training": True,
}
LONG = {"queries": 4096, "keys": 4096, "batch": 1, "heads": 4}


@pytest.mark.parametrize(
    ("change", "chosen"),
    [
        # CPU training
        ({}, "kept-tiles"),
        ({"queries": 64, "keys": 64}, "sdpa"),
        (LONG, "recomputed-tiles"),
        ({"batch": 64}, "recomputed-tiles"),
        ({"bias": "fixed"}, "sdpa"),
        ({"bias": "none"}, "sdpa"),
        ({"bias": "none", "dropout": True}, "kept-tiles"),
        ({"bias": "none", "content": True}, "kept-tiles"),
        ({"dtype": torch.bfloat16, "bias": "none"}, "sdpa"),
        ({"dtype": torch.bfloat16}, "recomputed-tiles"),
        ({"dtype": torch.float16}, "sdpa"),
        ({"dtype": torch.float64}, "kept-tiles"),
        # CPU inference
        ({"training": False, "bias": "fixed"}, "sdpa"),
        ({"training": False, "bias": "fixed", "dtype": torch.bfloat16}, "sdpa"),
        ({**LONG, "training": False, "bias": "fixed"}, "sdpa"),
        ({**LONG, "heads": 8, "training": False, "bias": "fixed"}, "recomputed-tiles"),
        ({**LONG, "heads": 8, "training": False, "bias": "fixed", "structured": False}, "sdpa"),
        ({"training": False, "bias": "fixed", "masked": True, "batch": 16}, "sdpa"),
        ({"training": False, "bias": "fixed", "masked": True, "batch": 32}, "recomputed-tiles"),
        # what only some return
        ({"return_lse": True}, "kept-tiles"),
        ({"return_lse": True, "bias": "none"}, "recomputed-tiles"),
        ({"return_lse": True, "bias": "none", "content": True}, "kept-tiles"),
        ({"return_lse": True, "bias": "none", "dropout": True}, "kept-tiles"),
        ({"return_lse": True, "training": False}, "recomputed-tiles"),
        ({"return_lse": True, "dtype": torch.float16}, "reference"),
        ({"return_weights": True}, "reference"),
        # traced: nothing depends on lengths
        ({"traced": True}, "sdpa"),
        ({**LONG, "traced": True}, "sdpa"),
        ({"traced": True, "return_lse": True}, "reference"),
        ({"transformed": True}, "reference"),
        # GPU
        ({"device": "cuda", "dtype": torch.bfloat16}, "triton"),
        ({"device": "cuda", "dtype": torch.bfloat16, "queries": 64, "keys": 64}, "sdpa"),
        ({"device": "cuda", "dtype": torch.bfloat16, "traced": True}, "triton"),
        ({"device": "cuda", "dtype": torch.bfloat16, "transformed": True}, "sdpa"),
        ({"device": "cuda", "dtype": torch.float64}, "sdpa"),
        ({"device": "cuda", "dtype": torch.bfloat16, "bias": "fixed"}, "sdpa"),
        ({"device": "cuda", "dtype": torch.bfloat16, "bias": "none", "content": True}, "triton"),
        ({"device": "cuda", "dtype": torch.bfloat16, "head_dim": 192}, "sdpa"),
        ({**LONG, "device": "cuda", "dtype": torch.bfloat16}, "triton"),
        ({**LONG, "device": "cuda", "dtype": torch.bfloat16, "batch": 4, "head_dim": 192}, "flex"),
        ({**LONG, "device": "cuda", "dtype": torch.bfloat16, "batch": 4, "training": False}, "sdpa"),
        ({**LONG, "device": "cuda", "dtype": torch.bfloat16, "batch": 4, "training": False, "masked": True}, "triton"),
        ({**LONG, "device": "cuda", "dtype": torch.bfloat16, "batch": 4, "dropout": True}, "triton"),
        ({**LONG, "device": "cuda", "dtype": torch.bfloat16, "batch": 4, "structured": False}, "triton"),
        ({**LONG, "device": "cuda", "dtype": torch.bfloat16, "batch": 4, "bias": "none"}, "sdpa"),
        ({"device": "cuda", "return_lse": True}, "triton"),
        # float32 without tensor cores, only where there is no room to write its bias out
        ({"device": "cuda"}, "sdpa"),
        ({"device": "cuda", "bias": "none", "content": True}, "sdpa"),
        ({**LONG, "device": "cuda", "batch": 4}, "triton"),
        # what the kernels have no registers or memory for
        ({"device": "cuda", "dtype": torch.bfloat16, "rank": 144}, "triton"),
        ({"device": "cuda", "dtype": torch.bfloat16, "rank": 145}, "sdpa"),
        ({"device": "cuda", "dtype": torch.bfloat16, "small_gpu": True}, "sdpa"),
        ({**LONG, "device": "cuda", "dtype": torch.bfloat16, "batch": 4, "small_gpu": True}, "flex"),
        # traced: nothing depends on lengths here either
        ({"device": "cuda", "dtype": torch.bfloat16, "traced": True, "queries": 64, "keys": 64}, "triton"),
        ({**LONG, "device": "cuda", "dtype": torch.bfloat16, "traced": True, "training": False}, "sdpa"),
        ({**LONG, "device": "cuda", "traced": True}, "sdpa"),
        ({"device": "cuda", "return_lse": True, "dtype": torch.float64}, "reference"),
        ({**LONG, "device": "mps", "batch": 4, "training": False}, "sdpa"),
    ],
)
def test_choice(change, chosen, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(choice, "TRITON", True)
    assert choose_backend(Call(**{**CALL, **change})) == chosen


class Symbol:
    """A size that is not known while a graph is traced: a comparison would bind the graph."""

    def __mul__(self, other):
        return self

    __rmul__ = __mul__

    def __lt__(self, other):
        raise AssertionError("compared")

    __gt__ = __ge__ = __le__ = __eq__ = __lt__
    __hash__ = None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("change", [{}, {"training": False}, {"bias": "fixed"}, {"dtype": torch.float32}])
def test_a_traced_call_compares_no_size(device, change, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(choice, "TRITON", True)
    sizes = dict.fromkeys(("batch", "queries", "keys"), Symbol())
    call = {**CALL, "dtype": torch.bfloat16, "device": device, "traced": True, **change}
    assert choose_backend(Call(**{**call, **sizes})) == choose_backend(Call(**call))


@pytest.mark.parametrize(
    ("change", "chosen"),
    [({}, "sdpa"), ({**LONG, "batch": 4}, "flex"), ({"return_lse": True}, "reference")],
)
def test_choice_on_a_gpu_without_triton(change, chosen, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(choice, "TRITON", False)
    call = {**CALL, "device": "cuda", "dtype": torch.bfloat16, **change}
    assert choose_backend(Call(**call)) == chosen


def test_an_argument_forces(monkeypatch):
    monkeypatch.setenv(VARIABLE, "sdpa")
    assert choose_backend(Call(**CALL), "reference") == "reference"


def test_the_variable_forces_what_the_backend_can_do(monkeypatch):
    monkeypatch.setenv(VARIABLE, "sdpa")
    assert choose_backend(Call(**CALL)) == "sdpa"
    assert choose_backend(Call(**CALL, return_weights=True)) == "reference"


def test_a_wrong_variable_is_named(monkeypatch):
    monkeypatch.setenv(VARIABLE, "flash")
    known = "reference, sdpa, kept-tiles, recomputed-tiles, flex, triton"
    with pytest.raises(BadInput, match=f"WORDORDER_BACKEND must be one of {known}, or not be set, got 'flash'"):
        choose_backend(Call(**CALL))


@pytest.mark.parametrize(
    ("change", "forced", "word"),
    [
        ({}, "flash", "one of"),
        ({"return_lse": True}, "sdpa", "log-sum-exp"),
        ({"return_weights": True}, "sdpa", "weights"),
        ({"return_weights": True}, "kept-tiles", "weights"),
        ({"device": "cuda"}, "recomputed-tiles", "CPU"),
        ({"traced": True}, "kept-tiles", "CPU"),
        ({}, "flex", "CUDA"),
        ({"dropout": True}, "flex", "dropout"),
        ({"device": "cuda", "structured": False}, "flex", "low-rank"),
        ({"device": "cuda", "traced": True}, "flex", "traced"),
        ({"return_weights": True}, "triton", "weights"),
        ({"dtype": torch.float64}, "triton", "float16, bfloat16 or float32"),
        ({"head_dim": 192, "dtype": torch.bfloat16}, "triton", "at most 128 channels here, got 192"),
        ({"head_dim": 320, "dtype": torch.float16, "training": False}, "triton", "at most 256 channels here, got 320"),
        ({"head_dim": 65}, "triton", "at most 64 channels here, got 65"),
        ({"batch": 5462}, "triton", "at most 65,535 heads of all examples"),
        ({"rank": 81}, "triton", "low-rank factors of at most 80 channels here, got 81"),
        ({"small_gpu": True}, "triton", "compute capability 8.0"),
    ],
)
def test_what_a_forced_backend_cannot_do_is_said(change, forced, word, monkeypatch):
    monkeypatch.setattr(choice, "TRITON", True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(ValueError, match=word):
        choose_backend(Call(**{**CALL, **change}), forced)


def test_triton_wants_a_gpu_and_its_package(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(choice, "TRITON", True)
    with pytest.raises(ValueError, match="computes on a GPU"):
        choose_backend(Call(**CALL), "triton")
    monkeypatch.setattr(choice, "TRITON", False)
    with pytest.raises(ValueError, match="needs Triton; install it with pip install triton"):
        choose_backend(Call(**CALL), "triton")
