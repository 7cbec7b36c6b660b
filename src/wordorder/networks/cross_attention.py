"""Attention of one sequence to another, with its projections."""

from torch import Tensor, nn

from wordorder.attention import Keys, Source, attention_weights
from wordorder.networks.multi_head import Linear, MultiHead, Norm


class CrossAttention(MultiHead):
    """Queries of one sequence, keys and values of another, attention, and the projection back.

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, Sec. 3.2.3. Arguments and errors as in `SelfAttention`; both
    sequences have ``width`` channels.
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        key_value_heads: int,
        dropout: float = 0.0,
        norm: Norm | None = None,
        linear: Linear = nn.Linear,
    ) -> None:
        super().__init__(width, heads=heads, key_value_heads=key_value_heads, dropout=dropout, norm=norm)
        self.q: nn.Linear = linear(width, self.splits[0] * self.head_dim)
        self.kv: nn.Linear = linear(width, 2 * self.splits[1] * self.head_dim)
        self.out: nn.Linear = linear(width, width)

    def forward(self, x_BTC: Tensor, source: Source, *, weights: bool = False) -> tuple[Tensor, Tensor | None]:
        """Attend to the source, (B, T, C) -> (B, T, C); with ``weights`` also return these, (B, H, T, S)."""
        (q,) = self._split(self.q(x_BTC), self.splits[:1])
        if source.states_BSC is None:
            k = v = q.new_empty(q.shape[0], self.splits[1], 0, q.shape[-1])
        else:
            k, v = self._split(self.kv(source.states_BSC), self.splits[1:])
        q, k = self._normed(q, k)
        keys = Keys(k, v) if source.extend is None else source.extend(Keys(k, v))
        mixed_BTC = self.out(self._join(self.attend(q, keys, source.plan, {})[0]))
        return mixed_BTC, attention_weights(q, keys.k, source.plan) if weights else None
