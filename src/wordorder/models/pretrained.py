"""What all of this package's models share with transformers: initial weights, capabilities, losses."""

# transformers' base classes are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from wordorder.encodings import ReplacesEmbedding
from wordorder.errors import BadInput
from wordorder.models.config.faults import not_tied
from wordorder.networks import AdaptiveEmbedding, initialise_module


def refuse_mems(given: Mapping[str, Any]) -> None:
    """Say what ``mems=``, as transformers' Transformer-XL had it, is called here.

    Args:
        given: further arguments of a call, by name.

    Raises:
        ValueError: it is among them.
    """
    if "mems" in given:
        kind = type(given["mems"]).__name__
        raise ValueError(
            f"mems is called memory here: pass memory=, what an earlier call gave as .memory; got a {kind}"
        )


class WordOrderPreTrainedModel(PreTrainedModel):
    """The base of every model here; a network's own base adds its configuration's class and its layers' names."""

    config: Any  # a WordOrderConfig; each network's base says which
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = False
    _supports_flex_attn = False
    _can_compile_fullgraph = True
    accepts_loss_kwargs = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        initialise_module(module, std=self.config.initializer_range)

    def loss_of(self, *args: Any, **kwargs: Any) -> Tensor:
        """Transformers' loss for this head, chosen by the class's name; its declared type is a union of all losses."""
        return cast("Any", self).loss_function(*args, **kwargs)

    def one_class_each(self, labels: Tensor) -> bool:
        """Whether every text has one class of several, by the configuration or, as transformers does, by the labels."""
        if self.config.problem_type is not None:
            return self.config.problem_type == "single_label_classification"
        return self.config.num_labels > 1 and labels.dtype in (torch.int64, torch.int32)

    def loss_of_texts(self, logits: Tensor, labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
        """The loss of one answer per text: a mean over ``num_items_in_batch`` labels, or over this batch's."""
        mean_of_batch = num_items_in_batch is not None and not self.one_class_each(labels)
        loss = self.loss_of(
            labels=labels, pooled_logits=logits, config=self.config, num_items_in_batch=num_items_in_batch
        )
        # transformers counts classes over several batches, but not numbers or several labels per text
        return loss * (labels.numel() / cast("int", num_items_in_batch)) if mean_of_batch else loss

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> Any:
        """Another number of tokens, for every table that has a row per token: encodings may replace nn.Embedding.

        Args:
            new_num_tokens: the new number; None = the present one.
            pad_to_multiple_of: round it up to a multiple.
            mean_resizing: draw new rows as the present ones are spread; False = by initializer_range.

        Raises:
            BadInput: the words are in clusters (adaptive_cutoffs).
        """
        table: Any = self.get_input_embeddings()
        if isinstance(table, AdaptiveEmbedding):
            if new_num_tokens is None and pad_to_multiple_of is None:
                return table
            raise BadInput(
                "adaptive_cutoffs: tokens are sorted by frequency into clusters, to which none can be added; convert or"
                " train the model again with another vocab_size"
            )
        if not isinstance(table, ReplacesEmbedding):
            table = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
            self._forget_lost_padding()
            return table
        if new_num_tokens is None and pad_to_multiple_of is None:
            return table
        count, multiple = new_num_tokens or table.num_embeddings, pad_to_multiple_of or 1
        count = -(-count // multiple) * multiple
        replaced = [module for module in self.modules() if isinstance(module, ReplacesEmbedding)]
        trained = [(p, p.requires_grad) for module in replaced for p in module.parameters()]
        super().resize_token_embeddings(count, None, mean_resizing)
        for parameter, requires_grad in trained:  # transformers would thaw what is frozen
            parameter.requires_grad_(requires_grad)
        self.config.vocab_size = self.vocab_size = count  # transformers read it from a table that may have one row
        self._forget_lost_padding()
        return table

    def _forget_lost_padding(self) -> None:
        """Padding that was cut off is no token any more; a saved configuration that named it could not be loaded."""
        padding = self.config.pad_token_id
        if padding is not None and padding >= self.config.vocab_size:
            self.config.pad_token_id = None

    def _get_resized_embeddings(
        self,
        old_embeddings: Any,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> Any:
        if not isinstance(old_embeddings, ReplacesEmbedding):
            return super()._get_resized_embeddings(old_embeddings, new_num_tokens, pad_to_multiple_of, mean_resizing)
        if new_num_tokens not in (None, old_embeddings.num_embeddings):
            old_embeddings.resize(new_num_tokens, std=None if mean_resizing else self.config.initializer_range)
        return old_embeddings

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Which parameters are one and the same, by full names."""
        return self.named_by_table(super().get_expanded_tied_weights_keys(all_submodels))

    def named_by_table(self, tied: Mapping[str, str]) -> dict[str, str]:
        """The same with the ``weight`` of an encoding in the place of nn.Embedding under the name that it has there.

        Raises:
            BadInput: an output layer is to share a table of another shape.
        """
        return {target: self._table_name(target, source) for target, source in tied.items()}

    def _table_name(self, target: str, source: str) -> str:
        prefix = source.removesuffix(".weight")
        table = None if prefix == source else self.get_submodule(prefix)
        if not isinstance(table, ReplacesEmbedding):
            return source
        output, shared = (tuple(weight.shape) for weight in (self.get_parameter(target), table.weight))
        if output != shared:
            raise BadInput(not_tied(output, shared, self.config.encoding))
        return next(f"{prefix}.{name}" for name, weight in table.named_parameters() if weight is table.weight)
