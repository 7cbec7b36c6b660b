"""One layer: attention to its own text, in some decoders to another one, and a feed-forward network."""

from torch import Tensor, nn

from wordorder.attention import Keys, LayerStep, Record
from wordorder.networks.options import TransformerOptions
from wordorder.ops.execution import call_as_constant


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

    def forward(self, x_BSC: Tensor, step: LayerStep) -> tuple[Tensor, Record]:
        """Compute the layer, (B, S, C) -> (B, queries, C), and return what it leaves.

        Args:
            x_BSC: the tokens, in some memories behind the slots.
            step: encoding and mask, cache or memory, and the source of cross-attention.
        """
        mixed_BTC, record = self.attention(self._normed(x_BSC, self.attention_norm), step)
        if step.learns:
            record = record._replace(loss=step.loss(self._keys_of, record.left))
        x_BTC = x_BSC if step.queries is None else x_BSC[:, -step.queries :]
        x_BTC = self._residual(x_BTC, mixed_BTC, self.attention_norm)
        if self.cross_attention is not None and self.cross_attention_norm is not None and step.source is not None:
            query_BTC = self._normed(x_BTC, self.cross_attention_norm)
            mixed_BTC, weights = self.cross_attention(query_BTC, step.source, weights=step.weights)
            x_BTC = self._residual(x_BTC, mixed_BTC, self.cross_attention_norm)
            record = record._replace(source_weights=weights)
        mixed_BTC = self.feedforward(self._normed(x_BTC, self.feedforward_norm))
        return self._residual(x_BTC, mixed_BTC, self.feedforward_norm), record

    def _keys_of(self, x_BNC: Tensor) -> Keys:
        """Return keys and values of further rows, which give the weights of the layer no gradient."""
        return self.attention.keys_of(call_as_constant(self.attention_norm, x_BNC) if self.pre else x_BNC)

    def _normed(self, x_BTC: Tensor, norm: nn.Module) -> Tensor:
        return norm(x_BTC) if self.pre else x_BTC

    def _residual(self, x_BTC: Tensor, added_BTC: Tensor, norm: nn.Module) -> Tensor:
        x_BTC = x_BTC + self.dropout(added_BTC)
        return x_BTC if self.pre else norm(x_BTC)


class EncoderLayer(DecoderLayer):
    """A layer of an encoder: `DecoderLayer` without cross-attention."""
