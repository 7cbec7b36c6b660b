"""One layer: attention to its own text, in some decoders to another one, and a feed-forward network."""

from dataclasses import dataclass
from typing import overload

from torch import Tensor, nn

from wordorder.attention import Plan
from wordorder.memory import LayerRecord, MemoryView
from wordorder.networks.cache import LayerCache
from wordorder.networks.options import TransformerOptions


@dataclass(frozen=True)
class Source:
    """The other text of cross-attention: its states, None where a cache holds their keys, and the plan to attend."""

    states_BSC: Tensor | None
    plan: Plan


class DecoderLayer(nn.Module):
    """Self-attention, perhaps cross-attention, and a feed-forward network, each in a residual connection with a norm.

    ``post``: ``x = norm(x + f(x))`` (Vaswani et al. 2017; BERT, TUPE). ``pre``: ``x = x + f(norm(x))`` (Xiong et al.
    2020, https://arxiv.org/abs/2002.04745).
    """

    def __init__(self, options: TransformerOptions, *, cross: bool = False) -> None:
        super().__init__()
        self.pre = options.pre
        self.attention = options.attention()
        self.attention_norm = options.norm_layer()
        self.cross_attention = options.cross_attention() if cross else None
        self.cross_attention_norm = options.norm_layer() if cross else None
        self.feedforward = options.feedforward_network()
        self.feedforward_norm = options.norm_layer()
        self.dropout = options.dropout_layer()

    @overload
    def forward(
        self, x_BTC: Tensor, plan: Plan, source: Source | None = None, cache: LayerCache | None = None
    ) -> Tensor: ...
    @overload
    def forward(self, x_BTC: Tensor, plan: MemoryView) -> tuple[Tensor, LayerRecord]: ...
    def forward(
        self, x_BTC: Tensor, plan: Plan | MemoryView, source: Source | None = None, cache: LayerCache | None = None
    ) -> Tensor | tuple[Tensor, LayerRecord]:
        """Compute the layer, (B, T, C) -> (B, T, C); with a memory (B, M + T, C) -> (B, queries, C) and what it leaves.

        Args:
            x_BTC: the tokens; with a memory, in a segment's first step, its slots before them.
            plan: encoding and mask; with a memory, the step as this layer sees it.
            source: another text, for cross-attention.
            cache: of earlier steps.
        """
        if isinstance(plan, MemoryView):
            mixed, record = self.attention.with_memory(self._normed(x_BTC, self.attention_norm), plan)
            x_BTC = self._residual(x_BTC[:, -plan.queries :], mixed, self.attention_norm)
            return self._after_attention(x_BTC), record
        cache = cache or LayerCache()
        x_BTC = self._after_self_attention(x_BTC, plan, cache)
        if self.cross_attention is not None and self.cross_attention_norm is not None and source is not None:
            query = self._normed(x_BTC, self.cross_attention_norm)
            found = self.cross_attention(query, source.states_BSC, source.plan, extend=cache.source)
            x_BTC = self._residual(x_BTC, found, self.cross_attention_norm)
        return self._after_attention(x_BTC)

    def attention_weights(
        self, x_BTC: Tensor, plan: Plan | MemoryView, source: Source | None = None, cache: LayerCache | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the weights that `forward` uses on the same input, on its own text and on the source, no dropout."""
        cache = cache or LayerCache()
        query = self._normed(x_BTC, self.attention_norm)
        if isinstance(plan, MemoryView):
            return self.attention.weights_with_memory(query, plan), None
        own = self.attention.weights(query, plan, extend=cache.own)
        if self.cross_attention is None or self.cross_attention_norm is None or source is None:
            return own, None
        x_BTC = self._after_self_attention(x_BTC, plan, cache)
        query = self._normed(x_BTC, self.cross_attention_norm)
        return own, self.cross_attention.weights(query, source.states_BSC, source.plan, extend=cache.source)

    def _after_self_attention(self, x_BTC: Tensor, plan: Plan, cache: LayerCache) -> Tensor:
        mixed = self.attention(self._normed(x_BTC, self.attention_norm), plan, extend=cache.own)
        return self._residual(x_BTC, mixed, self.attention_norm)

    def _after_attention(self, x_BTC: Tensor) -> Tensor:
        inner = self.feedforward(self._normed(x_BTC, self.feedforward_norm))
        return self._residual(x_BTC, inner, self.feedforward_norm)

    def _normed(self, x_BTC: Tensor, norm: nn.Module) -> Tensor:
        return norm(x_BTC) if self.pre else x_BTC

    def _residual(self, x_BTC: Tensor, added_BTC: Tensor, norm: nn.Module) -> Tensor:
        x_BTC = x_BTC + self.dropout(added_BTC)
        return x_BTC if self.pre else norm(x_BTC)


class EncoderLayer(DecoderLayer):
    """A layer of an encoder: `DecoderLayer` without cross-attention."""
