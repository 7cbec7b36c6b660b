"""One layer of a decoder: attention to its own text, perhaps to another one, and a feed-forward network."""

from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from wordorder.attention import Plan
from wordorder.networks.blocks import Blocks
from wordorder.networks.cache import LayerCache
from wordorder.networks.multi_head import CrossAttention, Recall, SelfAttention


@dataclass(frozen=True)
class Source:
    """What cross-attention needs to know of the other text.

    Args:
        states_BSC: what its encoder gave; None where a cache holds its keys and values.
        plan: who sees whom; no word order.
    """

    states_BSC: Tensor | None
    plan: Plan


class DecoderLayer(nn.Module):
    """Self-attention, perhaps cross-attention, and a feed-forward network, each in a residual connection with a norm.

    ``post``: ``x = norm(x + f(x))`` (Vaswani et al. 2017). ``pre``: ``x = x + f(norm(x))`` (Xiong et al. 2020,
    https://arxiv.org/abs/2002.04745).

    Args:
        blocks: sizes and style, and what makes the parts.
        cross: whether there is cross-attention.
    """

    def __init__(self, blocks: Blocks, *, cross: bool = False) -> None:
        super().__init__()
        self.pre = blocks.pre
        self.attention = cast(SelfAttention, blocks.attention())
        self.attention_norm = blocks.norm_layer()
        self.cross_attention = cast(CrossAttention, blocks.cross_attention()) if cross else None
        self.cross_attention_norm = blocks.norm_layer() if cross else None
        self.feedforward = blocks.feedforward_network()
        self.feedforward_norm = blocks.norm_layer()
        self.dropout = blocks.dropout_layer()

    def forward(
        self, x_BTC: Tensor, plan: Plan | Recall, source: Source | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, C) -> (B, T, C).

        Args:
            x_BTC: the tokens; with a memory, in a segment's first step, its slots before them.
            plan: order and mask; with a memory, the segment as this layer sees it, which may leave fewer rows.
            source: another text, for cross-attention.
            cache: of earlier steps.
        """
        cache = cache or LayerCache()
        x_BTC = self._after_self_attention(x_BTC, plan, cache)
        if self.cross_attention is not None and self.cross_attention_norm is not None and source is not None:
            asked = self.cross_attention_norm(x_BTC) if self.pre else x_BTC
            found = self.cross_attention(asked, source.states_BSC, source.plan, extend=cache.source)
            x_BTC = self._residual(x_BTC, found, self.cross_attention_norm)
        inner = self.feedforward(self.feedforward_norm(x_BTC) if self.pre else x_BTC)
        return self._residual(x_BTC, inner, self.feedforward_norm)

    def attention_weights(
        self, x_BTC: Tensor, plan: Plan | Recall, source: Source | None = None, cache: LayerCache | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The weights that `forward` uses on the same input, on its own text and on the source, without dropout."""
        cache = cache or LayerCache()
        asked = self.attention_norm(x_BTC) if self.pre else x_BTC
        if isinstance(plan, Recall):
            return self.attention.recalled_weights(asked, plan), None
        own = self.attention.weights(asked, plan, extend=cache.own)
        if self.cross_attention is None or self.cross_attention_norm is None or source is None:
            return own, None
        x_BTC = self._after_self_attention(x_BTC, plan, cache)
        asked = self.cross_attention_norm(x_BTC) if self.pre else x_BTC
        return own, self.cross_attention.weights(asked, source.states_BSC, source.plan, extend=cache.source)

    def _after_self_attention(self, x_BTC: Tensor, plan: Plan | Recall, cache: LayerCache) -> Tensor:
        asked = self.attention_norm(x_BTC) if self.pre else x_BTC
        if isinstance(plan, Recall):
            mixed, x_BTC = self.attention.recall(asked, plan), x_BTC[:, -plan.asking :]
        else:
            mixed = self.attention(asked, plan, extend=cache.own)
        return self._residual(x_BTC, mixed, self.attention_norm)

    def _residual(self, x_BTC: Tensor, added_BTC: Tensor, norm: nn.Module) -> Tensor:
        x_BTC = x_BTC + self.dropout(added_BTC)
        return x_BTC if self.pre else norm(x_BTC)
