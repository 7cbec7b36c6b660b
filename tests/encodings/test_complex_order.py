import math
import warnings

import pytest
import torch
from torch.testing import assert_close

from wordorder import ComplexOrderEmbedding, ComplexVanillaEmbedding
from wordorder.encodings import ComplexOrder, ComplexVanilla
from wordorder.networks import initialise
from wordorder.ops import Arbitrary, Contiguous, Packed

V, D = 11, 6
SHARINGS = ["full", "word-sharing", "dimension-sharing"]
SHAPES = {"full": (V, D), "word-sharing": (1, D), "dimension-sharing": (V, 1)}


def build(**options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* same for all words")
        return ComplexOrderEmbedding(V, D, **options).double()


def complex_of(embedding, ids, positions):
    return torch.complex(*embedding(ids, positions))


def numbers(embedding):
    tables = [embedding.amplitude, embedding.frequency, embedding.phase, embedding.decay]
    return [None if table is None else table.detach().expand(V, D).clone().requires_grad_() for table in tables]


def from_paper(tables, ids, position_BT):
    """The equation in torch's own complex128, on tables without sharing."""
    r, w, theta, c = (None if table is None else table[ids] for table in tables)
    p = position_BT.double()[..., None].expand(*ids.shape, 1)
    g = r * torch.exp(1j * (p * w + (0 if theta is None else theta)))
    return g if c is None else g * torch.exp(-torch.log1p(c.exp()) * p.clamp(min=0))


@pytest.mark.parametrize("frequency", SHARINGS)
@pytest.mark.parametrize("amplitude", SHARINGS)
@pytest.mark.parametrize(
    "options", [{}, {"phase": True}, {"phase": "word-sharing", "damping": "learned"}, {"padding_idx": 3}]
)
def test_every_scheme_matches_the_paper_with_gradients(frequency, amplitude, options):
    embedding = build(frequency=frequency, amplitude=amplitude, **options)
    for parameter in embedding.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    ids, positions = torch.randint(V, (3, 7)), torch.randint(-40, 40, (3, 7))
    ours, tables = complex_of(embedding, ids, positions), numbers(embedding)
    seen = (ids != options.get("padding_idx", -1))[..., None]
    paper = from_paper(tables, ids, positions) * seen
    assert_close(ours, paper, rtol=1e-12, atol=1e-12)
    upstream = torch.randn_like(paper)
    grads = torch.autograd.grad(paper, [table for table in tables if table is not None], upstream)
    ours.backward(upstream)
    for table, wanted in zip(embedding.parameters(), grads, strict=True):
        rows = wanted if table.shape[0] == V else wanted.sum(0, keepdim=True)
        rows = rows if table.shape[1] == D else rows.sum(1, keepdim=True)
        assert_close(table.grad, rows, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("frequency", SHARINGS)
@pytest.mark.parametrize("amplitude", SHARINGS)
def test_parameters_have_the_contract_s_names_and_shapes(frequency, amplitude):
    embedding = build(frequency=frequency, amplitude=amplitude, phase=True, damping="learned")
    shapes = {name: tuple(parameter.shape) for name, parameter in embedding.named_parameters()}
    assert shapes == {
        "amplitude": SHAPES[amplitude], "frequency": SHAPES[frequency], "phase": (V, D), "decay": SHAPES[frequency],
    }  # fmt: skip
    assert set(dict(build().named_parameters())) == {"amplitude", "frequency"}


@pytest.mark.parametrize("frequency", SHARINGS)
def test_moving_by_n_tokens_is_one_linear_map_of_modulus_1(frequency):
    embedding, ids = build(frequency=frequency, phase=True), torch.arange(V)[None]
    for n in (1, 5, -3):
        w = torch.exp(1j * n * embedding.frequency)
        assert_close(w.abs(), torch.ones_like(w.abs()))
        for p in (-7, 0, 12, 400):
            here, there = (complex_of(embedding, ids, torch.full((1, V), q)) for q in (p, p + n))
            assert_close(there, here * w, rtol=1e-9, atol=1e-9)


def test_waves_never_exceed_their_amplitude():
    embedding, ids = build(phase=True), torch.randint(V, (1, 500))
    g = complex_of(embedding, ids, torch.randint(-(10**6), 10**6, (1, 500)))
    assert_close(g.abs(), embedding.amplitude[ids].abs(), rtol=1e-12, atol=1e-12)


def test_a_word_moves_by_its_frequency_at_most():
    embedding, ids = build(phase=True), torch.arange(V)[None]
    ways = (complex_of(embedding, ids, torch.full((1, V), p)) for p in range(50, 54))
    before, *after = ways
    most = (embedding.amplitude * embedding.frequency).abs()[None]
    for here in after:
        assert ((here - before).abs() <= most * (1 + 1e-9) + 1e-12).all()
        before = here


@pytest.mark.parametrize("decay", [-1e30, -50.0, -9.2, 0.0, 5.0, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_damped_waves_stay_bounded_over_a_million_positions(decay, dtype):
    embedding = ComplexOrderEmbedding(2, 1, damping="learned").to(dtype)
    embedding.decay.data.fill_(decay)
    positions = torch.cat([torch.arange(-1000, 1_000_001, 37), torch.tensor([-1, 0, 1])])[None]
    real, imag = embedding(torch.ones_like(positions), positions)
    modulus = torch.hypot(real, imag)
    assert modulus.isfinite().all()
    assert (modulus <= embedding.amplitude[1].abs() * (1 + 1e-6)).all()
    (real.square() + imag).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in embedding.parameters())


def test_damping_starts_as_good_as_absent_falls_with_the_position_and_learns():
    embedding, ids = build(damping="learned"), torch.ones(1, 4).long()
    positions = torch.tensor([[0, 10, 1000, 10_000]])
    modulus = complex_of(embedding, ids, positions).abs()[0, :, 0] / embedding.amplitude[1, 0].abs()
    assert_close(modulus, torch.exp(-1e-4 * positions[0].double()), rtol=1e-5, atol=1e-5)
    modulus[-1].backward()
    assert (embedding.decay.grad[1, 0] < 0).all()


def test_a_small_frequency_is_an_ordinary_word_vector():
    embedding, ids = build(), torch.randint(V, (2, 9))
    embedding.frequency.data.fill_(1e-9)
    real, imag = embedding(ids, torch.arange(9) * 50)
    assert_close(real, embedding.amplitude[ids], rtol=1e-6, atol=1e-6)
    assert_close(imag, torch.zeros_like(imag), rtol=0, atol=1e-6)


@pytest.mark.parametrize("frequency", SHARINGS)
@pytest.mark.parametrize("amplitude", SHARINGS)
@pytest.mark.parametrize("options", [{}, {"phase": True, "damping": "learned"}])
def test_padding_is_exactly_zero_and_sends_no_gradient(frequency, amplitude, options):
    embedding = build(frequency=frequency, amplitude=amplitude, padding_idx=4, **options)
    for parameter in embedding.parameters():
        parameter.data = torch.randn_like(parameter)
    padding = torch.full((2, 3), 4)
    outputs = embedding(padding, torch.arange(3) + 5)
    assert all((part == 0).all() for part in outputs)
    grads = torch.autograd.grad(outputs, list(embedding.parameters()), [torch.randn(2, 3, D).double()] * 2)
    assert all((grad == 0).all() for grad in grads)
    ids = torch.tensor([[1, 4, 2]])
    alone = [embedding(ids[:, k : k + 1], torch.tensor([k]))[0] for k in range(3)]
    assert_close(embedding(ids, torch.arange(3))[0], torch.cat(alone, 1))


def test_typed_positions_and_tensors_say_the_same():
    embedding, ids = build(), torch.randint(V, (2, 5))
    plain = embedding(ids, torch.arange(5) + 3)[0]
    for positions in (
        Contiguous(5, 3),
        torch.arange(5)[None] + 3,
        (torch.arange(5) + 3).expand(2, 5),
        Contiguous(5, torch.tensor([3, 3])),
        Arbitrary(torch.arange(5)[None] + 3),
        Packed((torch.arange(5) + 3).expand(2, 5), torch.zeros(2, 5).long()),
        (torch.arange(5) + 3).int(),
    ):
        assert_close(embedding(ids, positions)[0], plain, rtol=0, atol=0)
    per_example = embedding(ids, Contiguous(5, torch.tensor([3, -9])))[0]
    assert_close(per_example[0], plain[0])
    assert_close(per_example[1], embedding(ids, torch.arange(5) - 9)[0][1])


@pytest.mark.parametrize("sparse", [False, True])
def test_without_positions_tokens_stand_at_0_to_t_minus_1(sparse):
    embedding, ids = build(sparse=sparse), torch.randint(1, V, (2, 5))
    assert_close(embedding(ids), embedding(ids, torch.arange(5)), rtol=0, atol=0)


def test_frequencies_start_as_documented():
    d = torch.arange(D).double()
    geometric = 10_000 ** (-d / D)
    assert_close(ComplexOrderEmbedding(V, D).frequency.double(), geometric.expand(V, D), rtol=1e-6, atol=0)
    shared = ComplexOrderEmbedding(V, D, frequency="word-sharing").frequency
    assert_close(shared.double(), geometric[None], rtol=1e-6, atol=0)
    per_word = ComplexOrderEmbedding(5000, D, frequency="dimension-sharing").frequency.detach()
    assert 1e-4 <= per_word.min() < 1.2e-4
    assert 0.9 < per_word.max() <= 1
    assert abs(per_word.log10().mean() + 2) < 0.1  # evenly spread over the exponents -4 .. 0


def test_frequencies_may_be_normal_or_frozen():
    assert 0.9 < ComplexOrderEmbedding(999, D, frequency_init="normal").frequency.std() < 1.1
    frozen = ComplexOrderEmbedding(V, D, frequency_trainable=False)
    assert not frozen.frequency.requires_grad
    assert frozen.amplitude.requires_grad


def test_amplitudes_start_as_the_network_s_weights_do():
    embedding = ComplexOrderEmbedding(999, 64)
    initialise(embedding, seed=3, std=0.02)
    assert abs(embedding.amplitude.std().item() / 0.02 - 1) < 0.1


def test_parameters_are_drawn_by_name_from_the_seed():
    first, second = ComplexOrderEmbedding(V, D, phase=True), ComplexOrderEmbedding(V, D, frequency="dimension-sharing")
    for embedding in (first, second):
        initialise(embedding, seed=7)
    assert torch.equal(first.amplitude, second.amplitude)
    before = second.frequency.clone()
    initialise(second, seed=8)
    assert not torch.equal(before, second.frequency)
    assert (first.phase.abs() <= math.pi).all()
    assert first.phase.std() > 1.5  # evenly spread: pi / sqrt(3)


def test_loaded_tables_are_not_drawn_again():
    embedding = ComplexOrderEmbedding(V, D, padding_idx=2)
    with torch.no_grad():
        embedding.amplitude.fill_(7)
        embedding.frequency.fill_(7)
    embedding.frequency._is_hf_initialized = embedding.amplitude._is_hf_initialized = True
    from transformers.initialization import guard_torch_init_functions

    with guard_torch_init_functions():
        embedding.draw_parameters(0.02)
    assert (embedding.amplitude == 7).all()
    assert (embedding.frequency == 7).all()


def test_phases_are_read_wrapped():
    embedding, ids = build(phase=True), torch.randint(V, (2, 5))
    before = complex_of(embedding, ids, torch.arange(5))
    embedding.phase.data += 2 * math.pi * torch.randint(-3, 4, (V, D)).double()
    assert_close(complex_of(embedding, ids, torch.arange(5)), before, rtol=1e-10, atol=1e-10)


def test_vanilla_has_no_position():
    vanilla, ids = ComplexVanillaEmbedding(V, D).double(), torch.randint(V, (2, 5))
    g = complex_of(vanilla, ids, torch.arange(5))
    assert_close(g, vanilla.amplitude[ids] * torch.exp(1j * vanilla.phase[ids]))
    assert_close(complex_of(vanilla, ids, torch.arange(5) + 9), g, rtol=0, atol=0)
    assert set(dict(vanilla.named_parameters())) == {"amplitude", "phase"}


def test_choices_that_lose_the_words_warn():
    for options in (
        {"amplitude": "word-sharing", "frequency": "word-sharing"},
        {"amplitude": "word-sharing", "frequency": "word-sharing", "phase": "word-sharing"},
        {"amplitude": "word-sharing", "frequency_trainable": False},
    ):
        with pytest.warns(UserWarning, match="same for all words"):
            ComplexOrderEmbedding(V, D, **options)
    with pytest.warns(UserWarning, match="same for all words"):
        ComplexVanillaEmbedding(V, D, amplitude="word-sharing", phase="word-sharing")
    for options in (
        {"amplitude": "word-sharing"},
        {"frequency": "word-sharing"},
        {"amplitude": "word-sharing", "frequency": "word-sharing", "phase": True},
    ):
        ComplexOrderEmbedding(V, D, **options)  # a warning would be an error here


@pytest.mark.parametrize("padding_idx", [None, 2, 10])
@pytest.mark.parametrize("frequency", SHARINGS)
def test_resizing_acts_on_every_table_with_a_row_per_word(padding_idx, frequency):
    embedding = build(frequency=frequency, phase=True, damping="learned", padding_idx=padding_idx)
    ids = torch.randint(V - 1, (2, 5))
    before, old = complex_of(embedding, ids, torch.arange(5)), dict(embedding.named_parameters())
    embedding.resize(V + 4, std=0.5)
    assert all(parameter is old[name] for name, parameter in embedding.named_parameters())
    rows = {name: parameter.shape[0] for name, parameter in embedding.named_parameters()}
    for name in ("frequency", "decay"):
        assert rows[name] == (1 if frequency == "word-sharing" else V + 4)
    assert rows["amplitude"] == rows["phase"] == V + 4
    assert_close(complex_of(embedding, ids, torch.arange(5)), before, rtol=0, atol=0)
    new = complex_of(embedding, torch.full((1, 3), V + 3), torch.arange(3))
    assert new.isfinite().all()
    assert (new != 0).all()
    embedding.resize(V - 1)
    assert embedding.padding_idx == (padding_idx if padding_idx != 10 else None)
    embedding.resize(V)
    assert_close(complex_of(embedding, ids, torch.arange(5)), before, rtol=0, atol=0)
    with pytest.raises(ValueError, match="vocabulary must be positive, got 0"):
        embedding.resize(0)


@pytest.mark.parametrize(("std", "expected"), [(None, 3.0), (0.2, 0.2)])
def test_new_words_are_spread_as_asked_or_as_the_present_ones(std, expected):
    embedding = ComplexOrderEmbedding(400, 50)
    with torch.no_grad():
        embedding.amplitude.mul_(3)
    embedding.resize(800, std=std)
    assert embedding.amplitude[400:].std().item() == pytest.approx(expected, rel=0.05)
    assert torch.equal(embedding.frequency[400:], embedding.frequency[:400])  # geometric: alike for all words


def test_sparse_adam_touches_the_rows_of_the_batch_alone():
    embedding = ComplexOrderEmbedding(V, D, sparse=True, phase=True)
    before = {name: parameter.detach().clone() for name, parameter in embedding.named_parameters()}
    optimizer = torch.optim.SparseAdam(list(embedding.parameters()), lr=0.1)
    real, imag = embedding(torch.tensor([[1, 3, 3, 8]]), torch.tensor([2, 5, 7, 9]))
    (real.square().sum() + imag.sum()).backward()
    optimizer.step()
    for name, parameter in embedding.named_parameters():
        moved = (parameter != before[name]).any(1).nonzero().flatten().tolist()
        assert moved == [1, 3, 8], name


def test_the_first_sparse_step_is_that_of_dense_adam():
    results = []
    for sparse, adam in ((True, torch.optim.SparseAdam), (False, torch.optim.Adam)):
        embedding = ComplexOrderEmbedding(V, D, sparse=sparse)
        initialise(embedding, seed=1, std=1.0)
        optimizer = adam(list(embedding.parameters()), lr=0.1)
        real, imag = embedding(torch.tensor([[1, 3, 3, 8]]), torch.tensor([2, 5, 7, 9]))
        (real.square().sum() + imag.sum()).backward()
        optimizer.step()
        results.append([parameter.detach() for parameter in embedding.parameters()])
    for sparse, dense in zip(*results, strict=True):
        assert_close(sparse, dense)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_tables_give_16_bit_waves_from_float32_angles(dtype):
    embedding = ComplexOrderEmbedding(V, D).to(dtype)
    ids = torch.randint(V, (2, 9))
    real, imag = embedding(ids, torch.arange(9) + 5000)
    exact = complex_of(embedding.float(), ids, torch.arange(9) + 5000)
    assert real.dtype == imag.dtype == dtype
    assert_close(real.float(), exact.real, rtol=2**-7, atol=2**-7)
    assert_close(imag.float(), exact.imag, rtol=2**-7, atol=2**-7)


def test_as_real_maps_the_pair():
    ids, positions = torch.randint(V, (2, 5)), torch.arange(5) + 2
    for build_real in (ComplexOrder, ComplexVanilla):
        concat = build_real(D, vocabulary=V, padding_idx=1)
        real, imag = concat.waves(ids, positions)
        assert_close(concat(ids, positions), torch.cat((real, imag), -1) @ concat.projection.weight.T)
        assert (concat(torch.ones_like(ids), positions) == 0).all()
        part = build_real(D, vocabulary=V, as_real="real-part")
        assert_close(part(ids, positions), part.waves(ids, positions)[0])
        pair = build_real(D, vocabulary=V, as_real="pair")
        assert pair.waves.width == D // 2
        assert_close(pair(ids, positions), torch.cat(pair.waves(ids, positions), -1))
        assert (concat.num_embeddings, concat.embedding_dim, concat.padding_idx) == (V, D, 1)
        assert concat.weight is concat.waves.amplitude
    assert_close(concat(ids), concat(ids, torch.arange(5)))  # positions that nobody gives are 0 .. T - 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: ComplexOrderEmbedding(0, D), "vocabulary must be positive, got 0"),
        (lambda: ComplexOrderEmbedding(V, 0), "width must be positive, got 0"),
        (lambda: ComplexOrderEmbedding(V, D, frequency="shared"), "frequency must be one of full.*'shared'"),
        (lambda: ComplexOrderEmbedding(V, D, amplitude="words"), "amplitude must be one of full.*'words'"),
        (lambda: ComplexOrderEmbedding(V, D, phase="words"), "phase must be one of full.*'words'"),
        (lambda: ComplexOrderEmbedding(V, D, damping="strong"), "damping must be one of none, learned, got 'strong'"),
        (lambda: ComplexOrderEmbedding(V, D, frequency_init="flat"), "frequency_init must be one of geometric"),
        (
            lambda: ComplexOrderEmbedding(V, D, frequency="dimension-sharing", frequency_init="geometric"),
            "'geometric' gives every channel.*'log-uniform'",
        ),
        (lambda: ComplexOrderEmbedding(V, D, padding_idx=V), r"padding_idx must lie in 0 .. 10, got 11"),
        (lambda: ComplexVanillaEmbedding(V, D, phase="words"), "phase must be one of full"),
        (lambda: ComplexOrder(D, vocabulary=V, as_real="modulus"), "as_real must be one of concat.*'modulus'"),
        (lambda: ComplexOrder(5, vocabulary=V, as_real="pair"), "even width, got 5"),
        (lambda: build()(torch.tensor([[V]]), torch.arange(1)), "0 .. 10, got 11 .. 11"),
        (lambda: build()(torch.tensor([[-1]]), torch.arange(1)), "0 .. 10, got -1"),
        (lambda: build()(torch.zeros(1, 2), torch.arange(2)), r"token ids must be integers .*float32 \(1, 2\)"),
        (lambda: build()(torch.zeros(2).long(), torch.arange(2)), r"integers \(batch, tokens\)"),
        (lambda: build()(torch.zeros(1, 2).long(), torch.arange(2.0)), "positions must be integers, got torch.float32"),
        (lambda: build()(torch.zeros(1, 2).long(), torch.zeros(1, 2, 2).long()), r"\(T,\) or \(batch, T\)"),
        (lambda: build()(torch.zeros(1, 2).long(), torch.arange(3)), r"positions must be \(2,\).*got \(1, 3\)"),
        (lambda: build()(torch.zeros(3, 2).long(), torch.zeros(2, 2).long()), r"or \(3, 2\).*got \(2, 2\)"),
        (lambda: build()(torch.zeros(1, 2).long(), Contiguous(3)), r"got \(1, 3\)"),
    ],
)
def test_wrong_arguments_are_named(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()
