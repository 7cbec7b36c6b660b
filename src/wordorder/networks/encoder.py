"""The Transformer encoder, with any encoding of the catalogue."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from torch import Tensor

from wordorder.networks.initialisation import initialise
from wordorder.networks.layer import EncoderLayer
from wordorder.networks.options import TransformerKeywords, TransformerOptions
from wordorder.networks.stack import Stack, check_left_padding
from wordorder.ops import PositionsLike

if TYPE_CHECKING:
    from wordorder.memory import MemoryState


@dataclass(frozen=True)
class EncoderOutput:
    """The output of an encoder.

    Args:
        hidden: the last layer's output, after the final norm, (B, T, C).
        all_hidden: embeddings and every layer's output, if asked for; the last one is ``hidden``.
        attentions: every layer's attention weights (B, H, T, T), if asked for; with a memory (B, H, T, M + T).
        memory: what the segment left, for the next one; None where the network has no memory.
        memory_loss: in training, what weights of the memory learn from; add it to your loss. None = it has none.
    """

    hidden: Tensor
    all_hidden: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    memory: "MemoryState | None" = None
    memory_loss: Tensor | None = None


class Encoder(Stack):
    """A bidirectional Transformer over token ids, plain torch.

    >>> import torch, wordorder
    >>> encoder = wordorder.Encoder(1000, width=64, layers=2, heads=4, encoding="tupe-r")
    >>> encoder(torch.randint(1000, (2, 16))).hidden.shape
    torch.Size([2, 16, 64])

    Word order is prepared once per forward and shared by all layers. With post-norm the embeddings are normalised (as
    in BERT and TUPE), with pre-norm the output is; both can be chosen.

    Args:
        vocabulary: number of token ids, V; positive.
        options: sizes and style as one value, in place of keywords.
        **keywords: fields of `TransformerOptions`: width=256, layers=4, heads=4, encoding="tupe-r", max_positions=512,
            dropout=0.1, memory=None and so on. A memory must be without same_length.

    Raises:
        BadInput: unknown encoding or option.
        TypeError: an unknown keyword.
        ValueError: a size is out of range, or a memory has same_length.
    """

    def __init__(
        self, vocabulary: int, options: TransformerOptions | None = None, **keywords: Unpack[TransformerKeywords]
    ) -> None:
        options = TransformerOptions.of(type(self).__name__, options, keywords)
        if options.memory is not None and options.memory.window is not None:
            raise ValueError(
                "same_length is for decoders, whose tokens see what stands before them; leave it out in an encoder"
            )
        super().__init__(vocabulary, options, layer=EncoderLayer, use="encoder")
        initialise(self)

    def forward(
        self,
        input_ids: Tensor | None = None,
        positions: PositionsLike | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        memory: "MemoryState | None" = None,
        backend: str | None = None,
        return_all_hidden: bool = False,
        return_attentions: bool = False,
    ) -> EncoderOutput:
        """Encode token ids, or embeddings in their place.

        An encoder with a memory reads them as one segment of a longer text: they see each other and the slots, the
        slots of a look-ahead memory see all of them, and what the next segment wants is returned as ``memory``.

        Args:
            input_ids: long (B, T).
            positions: where the tokens stand; typed, or a long tensor (B, T); default 0 .. T - 1 for every example.
                For rows padded on the left pass ``Contiguous(T, offset)`` with one (negative) offset per example.
            inputs_embeds: instead of input_ids, (B, T, C).
            key_padding_mask: bool (B, T), True = padding (with a memory, on the right); None = no padding.
            memory: what the segment before left; None = the beginning of a text.
            backend: of attention, as in `choose_backend`; None chooses.
            return_all_hidden: also return every layer's output.
            return_attentions: also return every layer's attention weights; slow.

        Raises:
            BadInput: key_padding_mask is not bool (B, T); or it hides the first tokens of a row, without positions,
                from an encoding that counts positions (looked at on the CPU only).
            ValueError: neither or both of input_ids and inputs_embeds are given, ids are not integers (B, T) or outside
                the vocabulary (looked at on the CPU only), a position is beyond a learned table, a memory is given to
                an encoder that has none, or positions to one that has; padding as in `read_segment`.
        """
        if self.memory is not None or memory is not None:
            read = self.read_whole(
                input_ids,
                inputs_embeds,
                memory,
                {"positions": positions},
                key_padding_mask=key_padding_mask,
                backend=backend,
                return_all_hidden=return_all_hidden,
                return_attentions=return_attentions,
            )
            return EncoderOutput(*read)
        check_left_padding(self.encoding, positions, key_padding_mask)
        x_BTC, where = self.embed(input_ids, inputs_embeds, positions)
        plan = self.plan(
            where, x_BTC, key_padding_mask=key_padding_mask, backend=backend, return_attentions=return_attentions
        )
        run = self.run_layers(x_BTC, plan, return_all_hidden=return_all_hidden, return_attentions=return_attentions)
        return EncoderOutput(*run[:3])
