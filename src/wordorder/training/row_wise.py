"""`optim = "row_wise_adam"`: AdamW that steps only on the rows of token tables that a batch used."""

# transformers.Trainer is untyped for the most part, and so is whatever super() gives of it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any

from torch import Tensor, nn

from wordorder.networks import token_tables, use_sparse_gradients
from wordorder.ops import RowWiseAdam
from wordorder.training.arguments import ROW_WISE_ADAM
from wordorder.training.progress import Progress
from wordorder.training.resumable import ResumableTrainer


class RowWiseTrainer(ResumableTrainer):
    """A Trainer that can give token tables sparse gradients and update them by row.

    transformers knows no optimiser for sparse gradients, and torch cannot take their norm: both are done here.

    Args:
        model: see transformers.Trainer; with ``row_wise`` its embeddings are changed, see `use_sparse_gradients`.
        args: see transformers.Trainer; rate, betas, eps, weight decay and clipping are those of AdamW.
        row_wise: False leaves everything to transformers.
        **arguments: passed on.
    """

    def __init__(self, model: Any, args: Any, *, row_wise: bool = False, **arguments: Any) -> None:
        super().__init__(model, args, **arguments)
        self._row_wise = row_wise
        self._tables = use_sparse_gradients(model) if row_wise else {}

    def create_optimizer(self, model: Any = None) -> Any:
        """Build the optimiser; see transformers.Trainer."""
        made: Any = self.optimizer
        if made is not None or not self._row_wise:
            return super().create_optimizer(model)
        model, args = self.model if model is None else model, self.args
        decayed = set(self.get_decay_parameter_names(model)) - self._tables.keys()
        weights = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
        self.optimizer = RowWiseAdam(
            [
                {"params": [w for name, w in weights if name in decayed], "weight_decay": args.weight_decay},
                {"params": [w for name, w in weights if name not in decayed], "weight_decay": 0.0},
            ],
            lr=args.learning_rate,
            betas=(args.adam_beta1, args.adam_beta2),
            eps=args.adam_epsilon,
            fused=True,  # for the dense weights, as in transformers' default
        )
        return self.optimizer

    def _clip_grad_norm(self, model: Any) -> Any:
        return self._clip(model, self.args.max_grad_norm) if self._row_wise else super()._clip_grad_norm(model)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        if self._row_wise and grad_norm is None:
            return self._clip(model, float("inf"))  # clips nothing
        return super()._get_grad_norm(model, grad_norm=grad_norm)

    def _clip(self, model: nn.Module, largest: float) -> Tensor:
        return self.accelerator.clip_grad_norm_(with_dense_gradients(model), largest)


def with_dense_gradients(model: nn.Module) -> list[Tensor]:
    """Return tensors with a dense ``.grad`` that torch can clip in the place of a model's parameters.

    The norm of a sparse gradient is that of its rows once those that belong to one token are summed. Such a parameter
    is stood in for by these rows, whose memory is the gradient's own.

    Args:
        model: its sparse gradients are coalesced in place.
    """
    found: list[Tensor] = []
    for parameter in model.parameters():
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            rows = parameter.grad.values()
            stand_in = rows.detach()
            stand_in.grad = rows
            found.append(stand_in)
        else:
            found.append(parameter)
    return found


def announce(model: nn.Module, weight_decay: float, progress: Progress) -> None:
    """Report which tables are updated by row, or why none is.

    Args:
        model: before or after `use_sparse_gradients`.
        weight_decay: of the other weights.
        progress: is told.
    """
    tables = token_tables(model)
    if tables:
        names = ", ".join(f"{name} {tuple(table.shape)}" for name, table in tables.items())
        decay = "; weight_decay leaves these tables alone" if weight_decay else ""
        progress.say(f"{ROW_WISE_ADAM} updates only the rows in use of {names}{decay}")
        return
    progress.advise(
        f"training.optim {ROW_WISE_ADAM!r} finds no table that is read by its tokens' rows alone (one that is tied to "
        "an output layer has a gradient in every row), and updates all weights whole, as AdamW; "
        "--set model.tie_word_embeddings=false unties tables"
    )
