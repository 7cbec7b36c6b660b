"""The families of transformers whose encoding can be swapped: where their parts are, and how their own positions go.

A family is one row: a model whose layers look an attention function of transformers up by name needs nothing else.
"""

# transformers' modules are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from wordorder.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Family:
    """The parts of a model of one type, by the names of its attributes."""

    bodies: tuple[str, ...] = ("",)
    """From the model without a head to the modules that run layers, where they exist; "" = it is that module."""
    layers: str = "layers"
    """From a body to the list of its layers."""
    attention: str = "self_attn"
    """From a layer to the module that calls the attention function."""
    rotary: str | None = "rotary_emb"
    """The body's module that makes cosines and sines; None = queries and keys are not rotated."""
    table: str | None = None
    """From the body to its table of input positions."""
    table_offset: int = 0
    """Rows of that table before the one of position 0."""
    t5_bias: bool = False
    """Whether the first layer's attention has T5's table of distances, which all layers add to their scores."""
    causal: bool = True
    """Whether queries see keys on their left alone; ``config.is_decoder`` says so too."""
    cls: bool = False
    """Whether its texts begin with [CLS], whose position TUPE unties."""
    ids_after_padding: bool = False
    """Whether position ids begin at ``pad_token_id + 1``."""
    packs: bool = True
    """Whether its masks follow position ids, so that several texts can stand in a row."""
    scaled_queries: bool = False
    """Whether queries reach the attention function times its scale."""


_BERT = Family(
    layers="encoder.layer",
    attention="attention.self",
    rotary=None,
    table="embeddings.position_embeddings",
    causal=False,
    cls=True,
    packs=False,
)
_T5 = Family(
    bodies=("encoder", "decoder"),
    layers="block",
    attention="layer.0.SelfAttention",
    rotary=None,
    t5_bias=True,
    causal=False,
    packs=False,
)

FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "qwen2": Family(),
    "qwen3": Family(),
    "mistral": Family(),
    "gemma2": Family(),
    "gemma3_text": Family(),
    "olmo2": Family(),
    "phi": Family(),
    "gpt_neox": Family(attention="attention"),
    "gpt2": Family(layers="h", attention="attn", rotary=None, table="wpe"),
    "opt": Family(
        bodies=("decoder",), rotary=None, table="embed_positions", table_offset=2, packs=False, scaled_queries=True
    ),
    "bert": _BERT,
    "roberta": replace(_BERT, ids_after_padding=True),
    "modernbert": Family(attention="attn", causal=False, cls=True, packs=False),
    "t5": _T5,
    "mt5": _T5,
}
"""``config.model_type`` -> where the parts are."""


@dataclass(frozen=True)
class Host:
    """A module of a model of transformers that runs layers, taken apart."""

    family: Family
    body: Any
    layers: tuple[Any, ...]
    attentions: tuple[Any, ...]
    """The self-attention of each layer."""
    causal: bool

    @property
    def config(self) -> Any:
        """Configuration of the body."""
        return self.attentions[0].config

    @property
    def heads(self) -> int:
        """Heads of the queries."""
        return int(getattr(self.config, "num_attention_heads", None) or self.config.num_heads)

    @property
    def head_dim(self) -> int:
        """Channels of a head of the queries."""
        names = ("head_dim", "head_size", "attention_head_size", "key_value_proj_dim")
        return next(int(getattr(self.attentions[0], name)) for name in names if hasattr(self.attentions[0], name))

    @property
    def table_offset(self) -> int:
        """Rows of the table of input positions before the one of position 0."""
        return self.family.table_offset + (self.first_id if self.family.ids_after_padding else 0)

    @property
    def first_id(self) -> int:
        """The position id of a text's first token."""
        return int(self.config.pad_token_id or 0) + 1 if self.family.ids_after_padding else 0


def hosts_of(model: PreTrainedModel) -> tuple[Host, ...]:
    """Find the bodies of a model, whatever head it has: one, or encoder and decoder.

    Raises:
        BadInput: it is no model of transformers, or of a family that is not known (with those that are).
    """
    if type(model).__module__.startswith("peft."):
        raise BadInput(f"model is a {type(model).__name__}; swap the encoding of its model first, then add adapters")
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if not isinstance(model, PreTrainedModel) or kind not in FAMILIES:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BadInput(
            f"model is a {type(model).__name__} (model_type {kind!r}), whose encoding cannot be swapped: it must be a"
            f" model of transformers, of one of the types {', '.join(FAMILIES)}"
        )
    return tuple(_hosts(FAMILIES[kind], model.base_model))


def _hosts(family: Family, model: nn.Module) -> Iterator[Host]:
    for path in family.bodies:
        body: Any = getattr(model, path, None) if path else model
        if body is None:  # an encoder of T5 alone
            continue
        layers = tuple(body.get_submodule(family.layers).children())
        attentions = tuple(layer.get_submodule(family.attention) for layer in layers)
        config = body.config
        causal = family.causal or bool(getattr(config, "is_decoder", False))
        if getattr(config, "is_causal", True) is False or getattr(config, "use_bidirectional_attention", False):
            causal = False  # Llama's and Gemma 3's forms that embed texts
        yield Host(family, body, layers, attentions, causal)


class NoRotation(nn.Module):
    """A module in the place of a model's rotations that turns nothing: cosine 1 and sine 0 in every channel."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim

    def forward(self, x: Tensor, position_ids: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        """Return cosines and sines (1, T, D) in the dtype of x."""
        ones = x.new_ones(1, position_ids.shape[-1], self.head_dim)
        return ones, torch.zeros_like(ones)


class NoPositions(nn.Module):
    """A module in the place of a model's table of input positions that adds nothing."""

    def forward(self, *args: object, position_ids: Tensor | None = None, **kwargs: object) -> Tensor:
        """Return one integer 0, which changes neither the values nor the dtype of what it is added to."""
        # OPT calls it with a mask first
        tensor = next(value for value in (position_ids, *args) if isinstance(value, Tensor))
        return tensor.new_zeros((), dtype=torch.long)


def put_module(body: nn.Module, path: str, module: nn.Module) -> None:
    """Put a module in the place of another one below the body."""
    above, _, name = path.rpartition(".")
    setattr(body.get_submodule(above), name, module)
