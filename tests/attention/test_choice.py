"""The choice of a backend as a table: shapes, dtypes and device in, a name out."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from wordorder.attention import BACKENDS, Call, backends, choose_backend
from wordorder.attention.backends import VARIABLE, triton
from wordorder.attention.backends.reference import Reference
from wordorder.attention.backends.triton.measured import MEASURED
from wordorder.attention.call import _gpu
from wordorder.errors import BadInput

CALL = {
    "device": torch.device("cpu"),
    "dtype": torch.float32,
    "batch": 2,
    "heads": 12,
    "queries": 512,
    "keys": 512,
    "head_dim": 64,
    "bias": "learned",
    "training": True,
}
CUDA = torch.device("cuda")
GPU = {"device": CUDA, "dtype": torch.bfloat16, "gpu": "sm_90", "memory": 140 * 2**30}
LONG = {"queries": 4096, "keys": 4096, "batch": 1, "heads": 4}
RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
ROWS = {"triton": "wordorder, triton", "sdpa": "SDPA, bias written out"}
FACTS = {
    "none": {"bias": "none", "rank": 0},
    "t5": {"rank": 0},
    "tupe-r": {"rank": 66},
    "transformer-xl": {"bias": "none", "rank": 0, "content": True},
    "deberta": {"bias": "none", "rank": 0, "content": True},
}


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
        # windows
        ({**LONG, "bias": "none", "span": 2048}, "recomputed-tiles"),
        ({**LONG, "bias": "none", "span": 2049}, "sdpa"),
        ({"bias": "none", "queries": 1024, "keys": 1024, "span": 512}, "recomputed-tiles"),
        ({**LONG, "bias": "none", "training": False, "span": 64}, "recomputed-tiles"),
        ({**LONG, "bias": "none", "queries": 1, "training": False, "span": 64}, "sdpa"),
        ({"bias": "none", "span": 64}, "sdpa"),
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
        # GPU: what was measured (below), and what does not fit
        ({**GPU, "return_lse": True}, "triton"),
        ({**GPU, "return_lse": True, "traced": True}, "triton"),
        ({**GPU, "return_lse": True, "dtype": torch.float64}, "reference"),
        ({**GPU}, "sdpa"),
        ({**GPU, "queries": 64, "keys": 64}, "sdpa"),
        ({**GPU, "bias": "fixed"}, "sdpa"),
        ({**GPU, "bias": "none", "content": True}, "sdpa"),
        ({**GPU, **LONG, "batch": 6}, "triton"),
        ({**GPU, **LONG, "batch": 6, "gpu": "sm_80"}, "sdpa"),
        ({**GPU, **LONG, "batch": 1}, "sdpa"),
        ({**GPU, **LONG, "batch": 6, "rank": 66}, "sdpa"),
        ({**GPU, **LONG, "batch": 6, "dropout": True}, "sdpa"),
        ({**GPU, **LONG, "batch": 6, "structured": False}, "sdpa"),
        ({**GPU, **LONG, "batch": 6, "training": False}, "sdpa"),
        ({**GPU, **LONG, "batch": 6, "dtype": torch.float32}, "sdpa"),
        ({**GPU, **LONG, "batch": 6, "transformed": True}, "sdpa"),
        ({**GPU, **LONG, "batch": 6, "head_dim": 192}, "sdpa"),
        ({**GPU, **LONG, "batch": 72}, "triton"),
        ({**GPU, **LONG, "batch": 72, "rank": 66, "dropout": True}, "triton"),
        ({**GPU, **LONG, "batch": 72, "dtype": torch.float32}, "triton"),
        ({**GPU, **LONG, "batch": 72, "structured": False}, "triton"),
        ({**GPU, **LONG, "batch": 72, "bias": "none"}, "sdpa"),
        ({**GPU, **LONG, "batch": 72, "bias": "fixed"}, "sdpa"),
        ({**GPU, **LONG, "batch": 72, "bias": "fixed", "masked": True}, "triton"),
        ({**GPU, **LONG, "batch": 72, "traced": True}, "sdpa"),
        ({**GPU, **LONG, "batch": 8, "memory": 16 * 2**30, "rank": 66}, "triton"),
        ({**GPU, **LONG, "batch": 1, "memory": 2**30, "rank": 66}, "sdpa"),
        # a window: SDPA computes what it hides
        ({**GPU, **LONG, "batch": 12, "bias": "none", "span": 512}, "triton"),
        ({**GPU, **LONG, "batch": 12, "bias": "none", "span": 512, "training": False}, "triton"),
        ({**GPU, **LONG, "batch": 12, "bias": "none", "span": 512, "traced": True}, "sdpa"),
        ({**GPU, **LONG, "batch": 12, "bias": "none", "span": 512, "content": True, "dense_content": True}, "sdpa"),
        ({**GPU, **LONG, "batch": 12, "bias": "none", "span": 512, "dtype": torch.float32}, "sdpa"),
        ({**GPU, **LONG, "batch": 11, "bias": "none", "span": 512}, "sdpa"),
        ({**GPU, **LONG, "batch": 12, "bias": "none", "span": 1025}, "sdpa"),
        ({**GPU, **LONG, "batch": 12, "bias": "none", "queries": 1, "training": False, "span": 512}, "sdpa"),
        # what the kernels have no registers or memory for
        ({**GPU, **LONG, "batch": 72, "rank": 144}, "triton"),
        ({**GPU, **LONG, "batch": 72, "rank": 145}, "flex"),
        ({**GPU, **LONG, "batch": 72, "head_dim": 192}, "flex"),
        ({**GPU, **LONG, "batch": 72, "gpu": "sm_75"}, "sdpa"),
        ({**GPU, **LONG, "batch": 72, "gpu": "sm_75", "return_lse": True}, "reference"),
        ({**GPU, **LONG, "batch": 72, "gpu": "sm_120"}, "triton"),
        ({**GPU, **LONG, "batch": 72, "gpu": "gfx90a"}, "triton"),
        ({**GPU, **LONG, "batch": 72, "gpu": "gfx942"}, "triton"),
        ({**GPU, **LONG, "batch": 72, "gpu": "gfx950"}, "triton"),
        ({**GPU, **LONG, "batch": 72, "gpu": "gfx1100"}, "sdpa"),
        ({**GPU, **LONG, "batch": 72, "gpu": "gfx1030", "head_dim": 192}, "sdpa"),
        ({**GPU, **LONG, "batch": 72, "kernels_fail": True}, "sdpa"),
        ({**GPU, **LONG, "batch": 72, "kernels_fail": True, "head_dim": 192}, "sdpa"),
        ({**LONG, "device": torch.device("mps"), "batch": 4, "training": False}, "sdpa"),
    ],
)
def test_choice(change, chosen, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(triton, "TRITON", True)
    assert choose_backend(Call(**{**CALL, **change})).name == chosen


class Symbol:
    """A size that is not known while a graph is traced: a comparison would bind the graph."""

    def __mul__(self, other):
        return self

    __rmul__ = __mul__

    def __lt__(self, other):
        raise AssertionError("compared")

    __gt__ = __ge__ = __le__ = __eq__ = __lt__
    __hash__ = None


@pytest.mark.parametrize("device", [CALL["device"], CUDA], ids=str)
@pytest.mark.parametrize("change", [{}, {"training": False}, {"bias": "fixed"}, {"dtype": torch.float32}])
def test_a_traced_call_compares_no_size(device, change, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(triton, "TRITON", True)
    sizes = dict.fromkeys(("batch", "queries", "keys"), Symbol())
    call = {**CALL, "dtype": torch.bfloat16, "device": device, "traced": True, **change}
    assert choose_backend(Call(**{**call, **sizes})) == choose_backend(Call(**call))


@pytest.mark.parametrize(
    ("change", "chosen"),
    [({}, "sdpa"), ({**LONG, "batch": 72}, "sdpa"), ({"return_lse": True}, "reference")],
)
def test_choice_on_a_gpu_without_triton(change, chosen, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(triton, "TRITON", False)
    assert choose_backend(Call(**{**CALL, **GPU, **change})).name == chosen
    with pytest.raises(ValueError, match="needs Triton"):
        choose_backend(Call(**{**CALL, **GPU}), "flex")


def measured_rows():
    """Every call that the H200 ran with both: its facts, and the milliseconds of each backend."""
    attention, probe = (
        json.loads((RESULTS / f"gpu-h200-{name}.json").read_text("utf-8")) for name in ("attention", "probe")
    )
    for section, rows in attention["sections"].items():
        taken = {name: rows.get(row, {}).get("milliseconds") for name, row in ROWS.items()}
        tokens = int(re.search(r"([\d,]+) tokens", section)[1].replace(",", ""))
        numbers = {"batch": 2**14 // tokens, "heads": 16, "queries": tokens, "keys": tokens}
        yield section, numbers | FACTS[section.split(",")[0]] | {"dtype": torch.bfloat16}, taken
    cases = {key.rsplit(" ", 1)[0] for key in probe}
    for case in sorted(cases):
        name, dtype, batch, heads, tokens, dropout = case.split(" ")
        numbers = {"batch": int(batch[1:]), "heads": int(heads[1:])} | dict.fromkeys(
            ("queries", "keys"), int(tokens[1:])
        )
        facts = FACTS[name] | {"dtype": getattr(torch, dtype), "dropout": dropout != "drop0.0"}
        yield case, numbers | facts, {backend: probe.get(f"{case} {backend}", [None])[0] for backend in ROWS}


def test_no_call_that_was_measured_takes_the_slower_backend(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(triton, "TRITON", True)
    compared = 0
    for name, facts, taken in measured_rows():
        if None in taken.values():
            continue
        chosen = choose_backend(Call(**{**CALL, **GPU, **facts})).name
        assert taken[chosen] <= 1.1 * min(taken.values()), (name, chosen, taken)
        compared += 1
    assert compared == 43


def test_every_length_at_which_triton_is_taken_was_measured():
    rows = list(measured_rows())
    for kind, least in MEASURED["sm_90"].items():
        pairs = [
            facts["queries"] ** 2
            for _, facts, taken in rows
            if (facts["rank"] > 0) == (kind == "low-rank") and None not in taken.values()
            if taken["triton"] < taken["sdpa"]
        ]
        assert min(pairs) == least


class HalfDone(Reference):
    """A backend of a user: at home everywhere, and for every second number of queries it refuses."""

    name = "half-done"

    def refusal(self, call):
        return "wants an even number of queries; take backend=None" if call.queries % 2 else None

    def at_home(self, call):
        return True


def test_a_backend_of_ones_own_is_asked_where_it_stands(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(backends, "BACKENDS", [HalfDone(), *BACKENDS])
    assert choose_backend(Call(**CALL)).name == "half-done"
    assert choose_backend(Call(**{**CALL, "queries": 511})).name == "kept-tiles"
    with pytest.raises(ValueError, match="backend 'half-done' wants an even number of queries; take backend=None"):
        choose_backend(Call(**{**CALL, "queries": 511}), "half-done")


def test_an_argument_forces(monkeypatch):
    monkeypatch.setenv(VARIABLE, "sdpa")
    assert choose_backend(Call(**CALL), "reference").name == "reference"


def test_the_variable_forces_what_the_backend_can_do(monkeypatch):
    monkeypatch.setenv(VARIABLE, "sdpa")
    assert choose_backend(Call(**CALL)).name == "sdpa"
    assert choose_backend(Call(**CALL, return_weights=True)).name == "reference"


def test_a_wrong_variable_is_named(monkeypatch):
    monkeypatch.setenv(VARIABLE, "flash")
    known = "kept-tiles, far-and-near, recomputed-tiles, triton, flex, sdpa, reference"
    with pytest.raises(BadInput, match=f"WORDORDER_BACKEND must be one of {known}, or not be set, got 'flash'"):
        choose_backend(Call(**CALL))


@pytest.mark.parametrize(
    ("change", "forced", "word"),
    [
        ({}, "flash", "one of"),
        ({"return_lse": True}, "sdpa", "log-sum-exp"),
        ({"return_weights": True}, "sdpa", "weights"),
        ({"return_weights": True}, "kept-tiles", "weights"),
        ({"device": CUDA}, "recomputed-tiles", "CPU"),
        ({"traced": True}, "kept-tiles", "CPU"),
        ({}, "flex", "CUDA"),
        ({"dropout": True}, "flex", "dropout"),
        ({"device": CUDA, "structured": False}, "flex", "low-rank"),
        ({"device": CUDA, "traced": True}, "flex", "traced"),
        ({"return_weights": True}, "triton", "weights"),
        ({"dtype": torch.float64}, "triton", "float16, bfloat16 or float32"),
        ({"head_dim": 192, "dtype": torch.bfloat16}, "triton", "at most 128 channels here, got 192"),
        ({"head_dim": 320, "dtype": torch.float16, "training": False}, "triton", "at most 256 channels here, got 320"),
        ({"head_dim": 65}, "triton", "at most 64 channels here, got 65"),
        ({"batch": 5462}, "triton", "at most 65,535 heads of all examples"),
        ({"rank": 81}, "triton", "low-rank factors of at most 80 channels here, got 81"),
        ({**GPU, "gpu": "sm_75"}, "triton", "compute capability 8.0"),
        ({**GPU, "gpu": "sm_70"}, "flex", "compute capability 8.0"),
        ({**GPU, "gpu": "gfx1100"}, "triton", "not on gfx1100"),
        ({**GPU, "gpu": "gfx1201"}, "flex", "not on gfx1201"),
    ],
)
def test_what_a_forced_backend_cannot_do_is_said(change, forced, word, monkeypatch):
    monkeypatch.setattr(triton, "TRITON", True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(ValueError, match=word):
        choose_backend(Call(**{**CALL, **change}), forced)


def test_triton_wants_a_gpu_and_its_package(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(triton, "TRITON", True)
    with pytest.raises(ValueError, match="computes on a GPU"):
        choose_backend(Call(**CALL), "triton")
    monkeypatch.setattr(triton, "TRITON", False)
    with pytest.raises(ValueError, match="needs Triton; install it with pip install triton"):
        choose_backend(Call(**CALL), "triton")


@pytest.mark.parametrize(
    ("hip", "card", "expected"),
    [
        (None, SimpleNamespace(major=9, minor=0, total_memory=7), ("sm_90", 7)),
        (None, SimpleNamespace(major=12, minor=0, total_memory=7), ("sm_120", 7)),
        ("6.4", SimpleNamespace(major=9, minor=4, total_memory=7, gcnArchName="gfx942:sramecc+:xnack-"), ("gfx942", 7)),
    ],
)
def test_a_plan_knows_architecture_and_memory_of_the_gpu(hip, card, expected, monkeypatch):
    assert _gpu(torch.device("cpu")) == ("", 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(torch.version, "hip", hip)
    assert _gpu(torch.device("cuda", 1)) == expected
