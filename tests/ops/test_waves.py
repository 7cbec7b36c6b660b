from functools import partial
from itertools import product

import pytest
import torch
from torch.testing import assert_close

from wordorder.ops.waves import WaveGradient, WaveTables, plain_waves, waves, wrap_phase

V = 7
SHAPES = {"full": lambda width: (V, width), "word": lambda width: (1, width), "dimension": lambda width: (V, 1)}
SCHEMES = [
    *product(SHAPES, SHAPES, [None], [None]),
    ("full", "full", "full", None),
    ("full", "word", "word", None),
    ("word", "dimension", "full", None),
    ("full", None, "full", None),
    ("dimension", None, "full", None),
    ("full", "full", None, "full"),
    ("full", "word", None, "word"),
    ("full", "dimension", "full", "dimension"),
    ("word", "full", "dimension", "full"),
]


def draw(scheme, width, dtype=torch.float64, scale=1.0):
    tables = [None if kind is None else torch.randn(SHAPES[kind](width)).to(dtype) * scale for kind in scheme]
    return [None if table is None else table.requires_grad_() for table in tables]


def inputs(batch, length, rows=1):
    ids, positions = torch.randint(V, (batch, length)), torch.randint(-6, 30, (rows, length))
    return ids, positions


def tables_of(given, width, padding_idx=None):
    return WaveTables(*given, width=width, padding_idx=padding_idx)


def from_paper(ids, positions, given, width, padding_idx=None):
    """Token by token and channel by channel, in complex128, with the gradient of Python's own complex numbers."""
    wide = [None if table is None else table.detach().double() for table in given]
    out = torch.zeros(*ids.shape, width, dtype=torch.complex128)
    # derivatives of the output, token by token, with respect to the numbers that it is made of
    partial = [torch.zeros(*ids.shape, width, dtype=torch.complex128) for _ in given]
    for b, t, d in product(*(range(size) for size in out.shape)):
        word, p = int(ids[b, t]), int(positions[b % positions.shape[0], t])
        if word == padding_idx:
            continue
        r, w, theta, c = (
            None if table is None else table[word % table.shape[0], d % table.shape[1]].item() for table in wide
        )
        ahead, rate = max(p, 0), 0.0 if c is None else float(torch.log1p(torch.tensor(c, dtype=torch.float64).exp()))
        turn = torch.exp(torch.tensor(-rate * ahead + 1j * ((w or 0.0) * p + (theta or 0.0)), dtype=torch.complex128))
        out[b, t, d] = r * turn
        partial[0][b, t, d] = turn
        partial[1][b, t, d] = 1j * p * r * turn
        partial[2][b, t, d] = 1j * r * turn
        if c is not None:
            partial[3][b, t, d] = -ahead * r * turn / (1 + torch.exp(torch.tensor(-c, dtype=torch.float64)))
    return out, partial


def table_gradient(partial, upstream, ids, table):
    """Sum ``Re(conj(upstream) partial)`` into the entries that the tokens read."""
    gradient = torch.zeros(table.shape, dtype=torch.float64)
    each = (upstream.conj() * partial).real
    for b, t, d in product(*(range(size) for size in each.shape)):
        gradient[int(ids[b, t]) % table.shape[0], d % table.shape[1]] += each[b, t, d]
    return gradient


def check(scheme, shape, dtype, bound, *, rows=1, padding_idx=None, width=5, zero=False, sparse=False, scale=1.0):
    ids, positions = inputs(*shape, rows)
    given = draw(scheme, width, dtype, scale)
    if zero:
        with torch.no_grad():
            given[0][:, 0] = 0
    real, imag = waves(ids, positions, tables_of(given, width, padding_idx), sparse=sparse)
    out, partial = from_paper(ids, positions, given, width, padding_idx)
    assert real.dtype == imag.dtype == dtype
    assert_close(real.double(), out.real, rtol=0, atol=bound)
    assert_close(imag.double(), out.imag, rtol=0, atol=bound)
    upstream = torch.randn_like(real), torch.randn_like(imag)
    torch.autograd.backward((real, imag), upstream)
    together = torch.complex(*(part.double() for part in upstream))
    for table, part in zip(given, partial, strict=True):
        if table is not None:
            wanted = table_gradient(part, together, ids, table)
            ours = table.grad.to_dense() if table.grad.is_sparse else table.grad
            assert ours.dtype == dtype
            assert_close(ours.double(), wanted, rtol=0, atol=bound * max(1.0, wanted.abs().max().item()))
    return given


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("shape", "rows"), [((1, 1), 1), ((3, 5), 1), ((3, 5), 3)])
def test_output_and_every_gradient_match_the_paper(scheme, shape, rows):
    check(scheme, shape, torch.float64, 1e-12, rows=rows)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("padding_idx", [0, 3])
def test_padding_is_zero_and_sends_no_gradient_whatever_is_shared(scheme, padding_idx):
    given = check(scheme, (3, 5), torch.float64, 1e-12, padding_idx=padding_idx)
    for table in given:
        if table is not None and table.shape[0] == V:
            assert (table.grad[padding_idx] == 0).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradients_are_exact_at_an_amplitude_of_zero(scheme):
    for sparse in (False, True):
        given = check(scheme, (3, 5), torch.float64, 1e-12, zero=True, sparse=sparse)
        assert (given[0].grad.to_dense()[:, 0] != 0).any()


def test_padding_rows_of_zeros_do_not_cost_the_fast_path(monkeypatch):
    ids, positions = inputs(3, 5)
    given = draw(("full", "full", None, None), 5)
    given[0].data[2] = 0
    monkeypatch.setattr(WaveGradient, "_from_angles", None)
    real, imag = waves(ids, positions, WaveTables(*given, padding_idx=2))
    (real + imag).sum().backward()
    assert (given[0].grad[2] == 0).all()


def test_gradients_are_exact_at_tiny_amplitudes():
    check(("full", "full", None, None), (3, 5), torch.float32, 1e-5, scale=1e-36)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-8)])
def test_lower_precisions_stay_within_their_bound(scheme, dtype, bound):
    # an angle of x radians is known to x times the float32 rounding: small frequencies, so that the bound is the sines'
    check(scheme, (2, 6), dtype, bound, scale=0.1)


def test_angles_of_a_bfloat16_table_are_computed_in_float32():
    table = torch.tensor([[0.7109375]], dtype=torch.bfloat16)
    real, _ = waves(torch.zeros(1, 1).long(), torch.tensor([[20_001]]), WaveTables(torch.ones_like(table), table))
    assert_close(real.double(), torch.cos(table.double() * 20_001)[None], rtol=0, atol=2**-8)


def test_tiles_longer_than_one_and_batches_that_share_one():
    for shape in ((2, 300), (300, 3), (1, 257)):
        for scheme in (("full", "full", None, None), ("full", "word", None, None), ("dimension", "full", None, "full")):
            check(scheme, shape, torch.float64, 1e-12, width=2)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_plain_formula_is_the_same_function_with_the_same_gradients(scheme):
    ids, positions = inputs(3, 5)
    given = draw(scheme, 5)
    tables = [table for table in given if table is not None]
    results = []
    for function in (waves, plain_waves):
        real, imag = function(ids, positions, tables_of(given, 5, padding_idx=2))
        results.append((real, imag, *torch.autograd.grad((real * imag.exp()).sum(), tables)))
    for ours, plain in zip(*results, strict=True):
        assert_close(ours, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_sparse_gradients_equal_dense_ones_and_are_coalesced(scheme):
    ids, positions = inputs(3, 5)
    given = draw(scheme, 5)
    tables = [table for table in given if table is not None]
    grads = []
    for function in (waves, partial(waves, sparse=True)):
        outputs = function(ids, positions, tables_of(given, 5))
        grads.append(torch.autograd.grad(outputs, tables, [torch.ones_like(outputs[0])] * 2))
    for table, dense, sparse in zip(tables, *grads, strict=True):
        assert sparse.is_sparse == (table.shape[0] > 1)
        assert_close(sparse.to_dense(), dense, rtol=1e-12, atol=1e-12)
        if sparse.is_sparse:
            assert sparse.is_coalesced()
            assert sparse.values().shape[0] == len(ids.unique())


def test_the_backward_pass_keeps_nothing_beyond_outputs_and_ids():
    ids, positions = inputs(4, 6)
    kept = []

    def keep(tensor):
        kept.append(tensor)
        return tensor

    for scheme in (("full", "full", None, None), ("full", "word", None, None), ("full", "dimension", None, None)):
        given = draw(scheme, 5)
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            outputs = waves(ids, positions, WaveTables(*given))
        known = {x.untyped_storage().data_ptr() for x in (ids, positions, *outputs, given[0], given[1])}
        assert {x.untyped_storage().data_ptr() for x in kept} <= known


@pytest.mark.parametrize("scheme", [SCHEMES[0], ("full", "word", "full", "full"), ("dimension", "full", None, None)])
def test_second_derivatives_match_finite_differences(scheme):
    ids, positions = inputs(2, 3)
    given = draw(scheme, 2)
    tables = [table for table in given if table is not None]

    def run(*tables):
        rest = iter(tables)
        filled = [None if kind is None else next(rest) for kind in scheme]
        return waves(ids, positions, WaveTables(*filled, padding_idx=1))

    assert torch.autograd.gradcheck(run, tables)
    assert torch.autograd.gradgradcheck(run, tables)


def test_second_derivatives_through_sparse_gradients_are_refused():
    ids, positions = inputs(2, 3)
    given = draw(SCHEMES[0], 2)
    real, _ = waves(ids, positions, WaveTables(*given), sparse=True)
    with pytest.raises(RuntimeError, match="sparse=False"):
        torch.autograd.grad(real.sum(), given[0], create_graph=True)


def test_phases_are_wrapped_without_touching_those_inside():
    pi = torch.pi
    phases = torch.tensor([-pi, pi, 3 * pi / 2, -3 * pi / 2, 0.3, -0.3, 100.0], dtype=torch.float64)
    wrapped = wrap_phase(phases)
    assert_close(wrapped, torch.tensor([pi, pi, -pi / 2, pi / 2, 0.3, -0.3, 100 - 32 * pi], dtype=torch.float64))
    assert (wrapped > -pi).all()
    assert (wrapped <= pi).all()
    assert torch.equal(wrapped[4:6], phases[4:6])


@pytest.mark.parametrize("given", [(True, True), (True, False), (False, True)])
def test_tables_that_need_no_gradient_get_none(given):
    ids, positions = inputs(2, 3)
    amplitude, frequency = draw(("full", "full"), 4)
    amplitude.requires_grad_(given[0])
    frequency.requires_grad_(given[1])
    real, imag = waves(ids, positions, WaveTables(amplitude, frequency))
    (real + imag).sum().backward()
    assert (amplitude.grad is not None, frequency.grad is not None) == given


def test_empty_batches_and_one_part_alone():
    given = draw(("full", "full", None, None), 4)
    for batch, length in ((0, 3), (2, 0)):
        real, imag = waves(torch.zeros(batch, length).long(), torch.arange(length)[None], WaveTables(*given))
        (real + imag).sum().backward()
        assert real.shape == (batch, length, 4)
        assert (given[0].grad == 0).all()
    ids, positions = inputs(2, 3)
    for part in (0, 1):
        ours = torch.autograd.grad(waves(ids, positions, WaveTables(*given))[part].sum(), given[:2])
        plain = torch.autograd.grad(plain_waves(ids, positions, WaveTables(*given))[part].sum(), given[:2])
        for one, other in zip(ours, plain, strict=True):
            assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scheme", [SCHEMES[0], ("full", "word", "full", "word"), ("word", "dimension", None, None)])
def test_compiled_in_one_graph_with_the_same_gradients(scheme):
    ids, positions = inputs(3, 5)
    given = draw(scheme, 6)
    tables = [table for table in given if table is not None]

    def run(ids, positions, *given):
        return waves(ids, positions, WaveTables(*given, padding_idx=1))

    results = []
    for function in (run, torch.compile(run, fullgraph=True, backend="aot_eager")):
        outputs = function(ids, positions, *given)
        results.append((*outputs, *torch.autograd.grad(outputs, tables, [torch.ones_like(outputs[0])] * 2)))
    for eager, compiled in zip(*results, strict=True):
        assert_close(compiled, eager, rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # dynamo looks
def test_sparse_gradients_survive_a_compiled_network():
    ids, positions = inputs(3, 5)
    given = draw(("full", "full", None, None), 6)

    @torch.compile(backend="aot_eager")
    def run(ids):
        real, imag = waves(ids, positions, WaveTables(*given), sparse=True)
        return (real * imag).sum()

    run(ids).backward()
    assert given[0].grad.is_sparse


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"
)  # inductor's own import
def test_compiles_with_inductor():
    ids, positions = inputs(3, 5)
    given = draw(("full", "full", None, None), 6)
    tables = given[:2]
    results = []
    for function in (waves, torch.compile(waves, fullgraph=True)):
        outputs = function(ids, positions, WaveTables(*given))
        results.append((*outputs, *torch.autograd.grad(outputs, tables, [torch.ones_like(outputs[0])] * 2)))
    for eager, compiled in zip(*results, strict=True):
        assert_close(compiled, eager, rtol=1e-10, atol=1e-10)


@pytest.mark.gpu
@pytest.mark.parametrize("scheme", SCHEMES)
def test_waves_on_a_gpu_equal_those_on_the_cpu(scheme):
    ids, positions = inputs(3, 5)
    given = draw(scheme, 6)
    results = []
    for device in ("cpu", "cuda"):
        moved = [None if table is None else table.detach().to(device).requires_grad_() for table in given]
        real, imag = waves(ids.to(device), positions.to(device), tables_of(moved, 6, padding_idx=1))
        (real * imag.exp()).sum().backward()
        results.append([real, imag, *(table.grad for table in moved if table is not None)])
    for here, there in zip(*results, strict=True):
        assert_close(there.cpu(), here, rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch.func.jvp's own import
@pytest.mark.parametrize("function", [waves, partial(waves, sparse=True)], ids=["dense", "sparse"])
def test_function_transforms_and_forward_mode_know_the_gradients(function):
    ids, positions = inputs(3, 5)
    amplitude, frequency = (table.detach() for table in draw(("full", "word"), 4))

    def loss(amplitude, frequency, ids, positions):
        real, imag = function(ids, positions, WaveTables(amplitude, frequency, padding_idx=1))
        return (real * imag + real).sum()

    leaves = [amplitude.clone().requires_grad_(), frequency.clone().requires_grad_()]
    expected = torch.autograd.grad(loss(*leaves, ids, positions), leaves)
    expected = [grad.to_dense() if grad.is_sparse else grad for grad in expected]
    for ours, other in zip(torch.func.grad(loss, (0, 1))(*leaves, ids, positions), expected, strict=True):
        assert_close(ours, other, rtol=1e-12, atol=1e-12)
    each = torch.func.vmap(torch.func.grad(loss, (0, 1)), (None, None, 0, None))(*leaves, ids[:, None], positions)
    for ours, other in zip(each, expected, strict=True):
        assert_close(ours.sum(0), other, rtol=1e-12, atol=1e-12)
    direction = torch.randn_like(amplitude)
    _, along = torch.func.jvp(lambda x: loss(x, frequency, ids, positions), (amplitude,), (direction,))
    assert_close(along, (expected[0] * direction).sum(), rtol=1e-12, atol=1e-12)
