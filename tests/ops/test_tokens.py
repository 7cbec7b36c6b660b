import numpy
import pytest
import torch

from wordorder import ComplexOrderEmbedding, Encoder
from wordorder.errors import BadInput
from wordorder.papers.complex_order import TextEmbedding

READERS = {
    "embedding": lambda: ComplexOrderEmbedding(5, 4),
    "text": lambda: TextEmbedding(5, width=4),
    "encoder": lambda: Encoder(5, width=4, layers=1, heads=1, encoding="rope"),
    "encoder of waves": lambda: Encoder(5, width=4, layers=1, heads=1, encoding="complex-order"),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (torch.zeros(2, 3, dtype=torch.int16), r"int64 or int32, got torch.int16 \(2, 3\)"),
        (torch.zeros(2, 3, dtype=torch.uint8), r"int64 or int32, got torch.uint8 \(2, 3\)"),
        (torch.zeros(2, 3), r"token ids must be integers .*got torch.float32 \(2, 3\)"),
        (torch.zeros(2, 3, dtype=torch.bool), "token ids must be integers .*got torch.bool"),
        (torch.zeros(3, dtype=torch.long), r"token ids must be integers \(batch, tokens\)"),
        (torch.tensor([[0, 5]]), r"token ids must lie in 0 \.\. 4, got 0 \.\. 5"),
        (torch.tensor([[-1, 4]]), r"token ids must lie in 0 \.\. 4, got -1 \.\. 4"),
    ],
)
def test_wrong_ids_are_named_alike_by_all_that_read_them(name, ids, words):
    with pytest.raises(ValueError, match=words):
        READERS[name]()(ids, torch.arange(ids.shape[-1]))


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", [list, numpy.array])
def test_what_is_no_tensor_is_named(name, kind):
    with pytest.raises(BadInput, match=r"(input_ids|token ids) must be a tensor .*got (list|ndarray).*torch\.tensor"):
        READERS[name]()(kind([[1, 2]]), torch.arange(2))


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # of vmap over attention
@pytest.mark.parametrize("name", READERS)
def test_32_bits_and_a_gradient_per_text(name):
    reader, ids = READERS[name]().eval(), torch.randint(5, (3, 4))
    weights = {name: parameter.detach() for name, parameter in reader.named_parameters()}

    def loss(weights, ids_1T):
        found = torch.func.functional_call(reader, weights, (ids_1T, torch.arange(4)))
        found = getattr(found, "hidden", found)
        return sum(part.square().sum() for part in (found if isinstance(found, tuple) else [found]))

    torch.testing.assert_close(loss(weights, ids.int()), loss(weights, ids))
    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, ids[:, None])
    together = torch.func.grad(loss)(weights, ids)
    for name, grad in together.items():
        torch.testing.assert_close(each[name].sum(0), grad, rtol=1e-4, atol=1e-4)
