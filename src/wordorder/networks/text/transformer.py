"""A Transformer encoder that gives one vector per text."""

from torch import Tensor, nn

from wordorder.networks.encoder import Encoder
from wordorder.networks.text.network import TextOutput
from wordorder.networks.text.pooling import Pooling, pool
from wordorder.ops import PositionsLike


class TextTransformer(nn.Module):
    """An encoder's hidden states, and their mean, the first or the last of them as the text's features.

    Args:
        encoder: with any encoding of the catalogue.
        width: channels of its hidden states, and features per text, C.
        pooling: "mean", "first" (such as [CLS]) or "last" token of the text.
    """

    def __init__(self, encoder: Encoder, width: int, *, pooling: Pooling = "mean") -> None:
        super().__init__()
        self.encoder, self.features = encoder, width
        self.pooling: Pooling = pooling

    def forward(
        self,
        input_ids: Tensor | None = None,
        positions: PositionsLike | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        backend: str | None = None,
        return_all_hidden: bool = False,
        return_attentions: bool = False,
    ) -> TextOutput:
        """Summarise texts; arguments and errors as in `Encoder.forward`."""
        encoded = self.encoder(
            input_ids,
            positions,
            inputs_embeds=inputs_embeds,
            key_padding_mask=key_padding_mask,
            backend=backend,
            return_all_hidden=return_all_hidden,
            return_attentions=return_attentions,
        )
        features_BC = pool(self.pooling, encoded.hidden, key_padding_mask=key_padding_mask)
        return TextOutput(features_BC, encoded.hidden, encoded.all_hidden, encoded.attentions)
