"""The Transformer classifier of the paper's published code, from token ids to features."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.networks.complex_valued import ReferenceTransformer
from wordorder.networks.text.complex import ComplexTextEmbedding
from wordorder.networks.text.network import TextOutput
from wordorder.ops import Contiguous, Positions, check_key_padding
from wordorder.ops.complex import split, stack


class ReferenceTextNetwork(nn.Module):
    """`ReferenceTransformer` on texts as the published code feeds them: padded to one length, read backwards, no mask.

    Wang et al. 2020, https://arxiv.org/abs/1912.12333, whose text classification code pads (with a word like any other)
    and cuts every text to 53 tokens, numbers positions L - 1 .. 0, attends to padding and takes the last slot's state,
    normally padding at position 0, as the features. All of that is kept, so that results can be compared; the batch and
    the side of the padding change nothing, since every text is padded on the right to the same length.

    Two things differ. The code drops amplitudes and angles apart, here a complex number is dropped whole. The code
    keeps row 0 of the embedding at 0, here that row is trained like any other.

    Args:
        words: complex embeddings; variant "reference-code" starts as the code does.
        body: the code's two layers.
        length: tokens to which texts are padded, L; positive.
        padding_idx: token id that fills them up.

    Raises:
        ValueError: length is not positive.
    """

    def __init__(
        self, words: ComplexTextEmbedding, body: ReferenceTransformer, *, length: int = 53, padding_idx: int
    ) -> None:
        super().__init__()
        if length <= 0:
            raise ValueError(f"length must be positive, got {length}")
        self.words, self.body, self.length, self.padding_idx = words, body, length, padding_idx

    @property
    def features(self) -> int:
        """Channels of the vector per text: both parts, 2C."""
        return self.body.features

    def forward(
        self,
        input_ids: Tensor | None = None,
        positions: Positions | Tensor | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> TextOutput:
        """Summarise texts.

        Args:
            input_ids: long (B, T), T at most ``length``; tokens first, padding after them.
            positions: None or ``Contiguous(T)``; the code numbers positions itself, backwards.
            inputs_embeds: refused: padding has an embedding of its own.
            key_padding_mask: bool (B, T), True = padding, which is then read as ``padding_idx``.

        Raises:
            ValueError: inputs_embeds or other positions are given, or texts are too long.
        """
        if input_ids is None or inputs_embeds is not None:
            raise ValueError("variant 'reference-code' reads token ids alone: it pads texts by a token id")
        T = input_ids.shape[1]
        if positions is not None and not _counted_from_0(positions, T):
            raise ValueError("variant 'reference-code' numbers positions itself, backwards; leave them out")
        if T > self.length:
            raise ValueError(
                f"variant 'reference-code' pads texts to length {self.length}, got {T} tokens; shorten the text, or "
                "build the network with a larger length (Hugging Face models: max_position_embeddings)"
            )
        check_key_padding("key_padding_mask", key_padding_mask, input_ids.shape[0], T)
        if key_padding_mask is not None:
            input_ids = input_ids.masked_fill(key_padding_mask, self.padding_idx)
        padded_BL = F.pad(input_ids, (0, self.length - T), value=self.padding_idx)
        backwards_L = torch.arange(self.length - 1, -1, -1, device=padded_BL.device)
        hidden = self.body.hidden(split(self.words(padded_BL, backwards_L)))
        both_BLC = stack(hidden)
        return TextOutput(both_BLC[:, -1], both_BLC[:, :T])


def _counted_from_0(positions: Positions | Tensor, length: int) -> bool:
    known = isinstance(positions, Contiguous) and isinstance(positions.offset, int)  # others would have to be read
    return known and positions == Contiguous(length)
