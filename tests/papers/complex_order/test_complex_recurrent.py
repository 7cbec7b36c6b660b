import pytest
import torch
from torch.testing import assert_close

from wordorder.networks import initialise
from wordorder.ops.complex import split, stack
from wordorder.papers.complex_order import ComplexLSTM, UnitaryRecurrent


def pair(*shape):
    return tuple(torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(2))


def parted(function, z):
    return torch.complex(function(z.real), function(z.imag))


def gated(a, b):
    return torch.complex(a.real * b.real, a.imag * b.imag)


def lstm_step_by_step(lstm, z):
    """The equations, one step and one gate at a time, in complex numbers."""
    matrices = [torch.complex(*w) for w in (lstm.input_weight, lstm.hidden_weight)]
    bias = torch.complex(lstm.bias[:, 0], lstm.bias[:, 1])
    h = c = torch.zeros(z.shape[0], lstm.hidden, dtype=torch.complex128)
    states = []
    for t in range(z.shape[1]):
        i, f, g, o = (z[:, t] @ matrices[0][k].T + h @ matrices[1][k].T + bias[k] for k in range(4))
        kept, written = gated(parted(torch.sigmoid, f), c), gated(parted(torch.sigmoid, i), parted(torch.tanh, g))
        c = kept + written
        h = gated(parted(torch.sigmoid, o), parted(torch.tanh, c))
        states.append(h)
    return torch.stack(states, dim=1)


def agree(ours, paper, leaves):
    upstream = torch.randn_like(paper.real), torch.randn_like(paper.real)
    found = torch.autograd.grad(ours, leaves, upstream)
    expected = torch.autograd.grad([paper.real, paper.imag], leaves, upstream)
    for a, b in zip((*ours, *found), (paper.real, paper.imag, *expected), strict=True):
        assert_close(a, b, rtol=0, atol=1e-12 * max(1.0, b.abs().max().item()))


@pytest.mark.parametrize("length", [1, 9])
def test_lstm_matches_the_equations(length):
    lstm, z = ComplexLSTM(3, 5).double(), pair(2, length, 3)
    for parameter in lstm.parameters():
        torch.nn.init.normal_(parameter, 0.1, 0.5)
    agree(split(lstm(stack(z))), lstm_step_by_step(lstm, torch.complex(*z)), [*z, *lstm.parameters()])


def test_lstm_starts_by_remembering():
    lstm = ComplexLSTM(3, 5)
    assert (lstm.bias[1] == 1).all()
    assert lstm.bias.sum() == 10
    assert lstm.input_weight.abs().max() <= 1 / 10**0.5  # U(-1/sqrt(n), 1/sqrt(n)) / sqrt(2)


def unitary_step_by_step(cell, x):
    turn = [torch.diag(torch.exp(1j * angle.to(torch.complex128))) for angle in cell.angle]
    mirror = []
    for v in cell.reflection:
        v = torch.complex(v[0], v[1])
        mirror.append(torch.eye(len(v)) - 2 * torch.outer(v, v.conj()) / v.abs().square().sum())
    shuffle = torch.eye(cell.hidden, dtype=torch.complex128)[cell.permutation]
    recurrence = turn[2] @ mirror[1] @ turn[1] @ shuffle @ mirror[0] @ turn[0]
    driven = torch.complex(*(x @ cell.input_weight.T).chunk(2, dim=-1))
    h, states = torch.zeros(len(x), cell.hidden, dtype=torch.complex128), []
    for t in range(x.shape[1]):
        z = driven[:, t] + h @ recurrence.T
        h = z * (z.abs() + cell.bias).relu() / (z.abs() + 1e-6)
        states.append(h)
    return torch.stack(states, dim=1), recurrence


@pytest.mark.parametrize("length", [1, 9])
def test_unitary_cell_matches_the_equations(length):
    cell, x = UnitaryRecurrent(3, 5).double(), torch.randn(2, length, 3, dtype=torch.float64, requires_grad=True)
    torch.nn.init.normal_(cell.bias, 0.0, 0.1)
    paper, recurrence = unitary_step_by_step(cell, x)
    if length == 1:  # the recurrence has met nothing but zeros
        leaves = [x, cell.input_weight, cell.bias]
    else:
        leaves = [x, *cell.parameters()]
    agree(cell(x), paper, leaves)
    assert_close(recurrence @ recurrence.conj().T, torch.eye(5, dtype=torch.complex128))


def test_unitary_recurrence_neither_grows_nor_fades():
    cell = UnitaryRecurrent(1, 6).double()
    torch.nn.init.zeros_(cell.bias)
    impulse = torch.zeros(1, 500, 1, dtype=torch.float64)
    impulse[0, 0] = 1.0
    real, imag = cell(impulse)
    size = (real.square() + imag.square()).sum(-1).sqrt()[0]
    assert_close(size, size[:1].expand(500), rtol=5e-3, atol=0)  # modReLU's 1e-6 takes a little each step


def test_unitary_cell_keeps_its_state_over_padding():
    cell, x = UnitaryRecurrent(3, 5).double(), torch.randn(1, 6, 3, dtype=torch.float64)
    valid = torch.tensor([[True, True, False, True, False, True]])
    found = stack(cell(x, key_padding_mask=~valid))
    assert_close(found[:, valid[0]], stack(cell(x[:, valid[0]])))
    assert_close(found[:, 2], found[:, 1])
    again = UnitaryRecurrent(3, 5).double()
    assert not again.load_state_dict(cell.state_dict()).missing_keys
    assert_close(stack(again(x)), stack(cell(x)), rtol=0, atol=0)


def test_finite_gradients_at_zero():
    cell, x = UnitaryRecurrent(3, 5), torch.zeros(1, 4, 3, requires_grad=True)
    grads = torch.autograd.grad(sum(part.sum() for part in cell(x)), [x, *cell.parameters()])
    assert all(grad.isfinite().all() for grad in grads)
    assert split(stack(cell(x)))[0].shape == (1, 4, 5)


def test_a_cell_that_was_made_without_memory_is_drawn_like_any_other():
    with torch.device("meta"):
        cell = UnitaryRecurrent(3, 5)
    cell.to_empty(device="cpu")
    initialise(cell, seed=1)
    other = UnitaryRecurrent(3, 5)
    initialise(other, seed=1)
    for name, tensor in cell.state_dict().items():
        assert_close(tensor, other.state_dict()[name], rtol=0, atol=0)
