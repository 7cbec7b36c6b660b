"""`training.encoding_learning_rate` acts on an encoding's parameters and on no others, for every name."""

import pytest

from wordorder.encodings import CATALOG
from wordorder.models import build_config, build_model
from wordorder.training.loop.optimizers import Optimizers
from wordorder.training.recipe.settings import TrainingSettings

SIZES = {
    **{"vocab_size": 20, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4},
    "max_position_embeddings": 16,
}
CASES = [
    (network, task, name)
    for network, task in (("encoder", "masked-lm"), ("decoder", "causal-lm"))
    for name in (*CATALOG, "rope+softmax-sink@4,rope+shift")
    if name not in CATALOG or network not in CATALOG[name].refused_in
]


@pytest.mark.parametrize(("network", "task", "encoding"), CASES)
def test_the_rate_is_that_of_what_a_model_without_positions_lacks(network, task, encoding):
    model, plain = (
        build_model(build_config(network, encoding=name, **SIZES), task, seed=0) for name in (encoding, "none")
    )
    names = {parameter: name for name, parameter in model.named_parameters()}
    # Words' own vectors stand in place of the table, and are no part of the encoding.
    rest = {name for name, _ in plain.named_parameters()} | {n for n in names.values() if n.endswith(".amplitude")}
    (optimizer,) = Optimizers(model, TrainingSettings(learning_rate=1e-3, encoding_learning_rate=4.0)).made
    rates = [(names[parameter], group["lr"]) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(rates) == sorted((name, 1e-3 if name in rest else 4e-3) for name in names.values())
