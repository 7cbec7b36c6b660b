import pytest
import torch
from torch import nn
from torch.testing import assert_close

from wordorder import RowWiseAdam

ROWS = 600  # more than a tile


def run(optimizer_class, batches, *, sparse, width=5, **options):
    torch.manual_seed(3)
    table, dense = nn.Embedding(ROWS, width, sparse=sparse).double(), nn.Linear(width, 2).double()
    weights = [table.weight] if optimizer_class is torch.optim.SparseAdam else [table.weight, *dense.parameters()]
    optimizer = optimizer_class(weights, lr=0.05, **options)
    for ids in batches:
        optimizer.zero_grad()
        dense(table(ids)).tanh().square().sum().backward()
        optimizer.step()
    return table.weight.detach(), dense.weight.detach(), optimizer


def test_it_is_dense_adam_for_rows_that_every_step_uses():
    batches = [torch.randperm(ROWS) for _ in range(5)]
    options = {"betas": (0.8, 0.95), "eps": 1e-4}
    for ours, dense in zip(
        run(RowWiseAdam, batches, sparse=True, **options)[:2],
        run(torch.optim.Adam, batches, sparse=False, **options)[:2],
        strict=True,
    ):
        assert_close(ours, dense, rtol=1e-12, atol=1e-12)


def test_rows_without_a_gradient_stay_as_they_are():
    used, other = torch.tensor([1, 5, 5, 9]), torch.tensor([2])
    after_two, _, _ = run(RowWiseAdam, [used, used], sparse=True)
    later, _, optimizer = run(RowWiseAdam, [used, used, other], sparse=True)
    assert torch.equal(after_two[used], later[used])
    moved = (optimizer.state[optimizer.param_groups[0]["params"][0]]["exp_avg"] != 0).any(1).nonzero().flatten()
    assert moved.tolist() == [1, 2, 5, 9]


def test_it_agrees_with_torch_s_sparse_adam():
    batches = [torch.randint(ROWS, (40,)) for _ in range(4)]
    torch.manual_seed(3)
    tables = [nn.Embedding(ROWS, 5, sparse=True).double() for _ in range(2)]
    tables[1].load_state_dict(tables[0].state_dict())
    for table, optimizer_class in zip(tables, (RowWiseAdam, torch.optim.SparseAdam), strict=True):
        optimizer = optimizer_class(table.parameters(), lr=0.05, eps=1e-12)
        for ids in batches:
            optimizer.zero_grad()
            table(ids).square().sum().backward()
            optimizer.step()
    assert_close(tables[0].weight, tables[1].weight, rtol=1e-9, atol=1e-9)


def test_hooks_are_called_once_a_step_even_beside_another_adam():
    torch.optim.Adam([nn.Parameter(torch.zeros(1))])  # torch then wraps Adam's own step
    table, calls = nn.Embedding(5, 3, sparse=True), []
    optimizer = RowWiseAdam(table.parameters())
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    table(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert calls == ["before", "after"]


def test_state_goes_through_a_state_dict():
    batches = [torch.randint(ROWS, (40,)) for _ in range(4)]
    straight = run(RowWiseAdam, batches, sparse=True)[0]
    torch.manual_seed(3)
    table, dense = nn.Embedding(ROWS, 5, sparse=True).double(), nn.Linear(5, 2).double()
    state = None
    for ids in batches:  # a new optimiser for every step
        optimizer = RowWiseAdam([table.weight, *dense.parameters()], lr=0.05)
        if state is not None:
            optimizer.load_state_dict(state)
        optimizer.zero_grad()
        dense(table(ids)).tanh().square().sum().backward()
        optimizer.step()
        state = optimizer.state_dict()
    assert_close(table.weight.detach(), straight, rtol=1e-12, atol=1e-12)


def test_gradients_are_left_in_place_and_the_closure_is_called():
    table = nn.Embedding(9, 2, sparse=True)
    optimizer = RowWiseAdam(table.parameters())

    def closure():
        optimizer.zero_grad()
        loss = table(torch.tensor([1, 2])).sum()
        loss.backward()
        return loss

    before = table.weight[1:3].sum()
    assert_close(optimizer.step(closure), before)
    assert table.weight.grad.is_sparse
    assert (table.weight[1:3].sum() < before).item()


@pytest.mark.parametrize("fused", [None, True])
def test_dense_weights_decay_as_in_adamw_and_rows_refuse_to(fused):
    weights = [nn.Parameter(torch.arange(1.0, 7).reshape(2, 3)) for _ in range(2)]
    optimizers = (
        RowWiseAdam(weights[:1], lr=0.1, weight_decay=0.5, fused=fused),
        torch.optim.AdamW(weights[1:], lr=0.1, weight_decay=0.5),
    )
    for weight, optimizer in zip(weights, optimizers, strict=True):
        for _ in range(3):
            optimizer.zero_grad()
            weight.square().sum().backward()
            optimizer.step()
    assert_close(*weights)
    table = nn.Embedding(5, 3, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match=r"weight_decay would touch every row of a \(5, 3\) table.* got 0.5"):
        RowWiseAdam(table.parameters(), weight_decay=0.5, fused=fused).step()


def test_a_loss_scaler_is_told_that_gradients_must_be_divided_for_it():
    table = nn.Embedding(5, 3, sparse=True)
    before, optimizer = table.weight.detach().clone(), RowWiseAdam(table.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(table(torch.tensor([1])).sum() * torch.inf).backward()
    scaler.step(optimizer)  # is skipped
    assert torch.equal(table.weight, before)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="learning rate"):
        RowWiseAdam([nn.Parameter(torch.zeros(2))], lr=-1)
