"""An encoder and a decoder with cross-attention to it, for translation."""

from dataclasses import dataclass

from torch import Tensor, nn

from wordorder.networks.cache import Cache
from wordorder.networks.decoder import Decoder
from wordorder.networks.encoder import Encoder
from wordorder.ops import PositionsLike, check_key_padding
from wordorder.ops.tokens import check_tensor


@dataclass(frozen=True)
class Seq2SeqOutput:
    """The output of a `Seq2Seq`."""

    hidden: Tensor
    """The decoder's output, (B, T, C)."""
    source: Tensor
    """The encoder's, (B, S, channels), which the decoder asked."""


class Seq2Seq(nn.Module):
    """Read one text, write another (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762).

    >>> import torch
    >>> from wordorder.networks import Decoder, Encoder, Seq2Seq
    >>> sizes = {"width": 32, "layers": 2, "heads": 4, "encoding": "rope"}
    >>> network = Seq2Seq(Encoder(100, **sizes), Decoder(100, cross_attention=True, **sizes))
    >>> network(torch.randint(100, (2, 7)), torch.randint(100, (2, 5))).hidden.shape
    torch.Size([2, 5, 32])

    Each half carries word order in its self-attention, by an encoding of its own; cross-attention carries none, see
    `Decoder`.

    Args:
        encoder: of the source; what it puts between its last layer and a head is taken off, since the decoder asks the
            states as they are (which matters where they are complex).
        decoder: of the target, with cross-attention.
        share_embeddings: source and target read the same token embeddings (the encoder's); False = tables of their
            own.

    Raises:
        ValueError: the decoder has no cross-attention, or the two do not fit together.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, *, share_embeddings: bool = True) -> None:
        super().__init__()
        if not decoder.cross_attention:
            raise ValueError("decoder must have cross-attention; build it with cross_attention=True")
        channels = encoder.options.channels, decoder.options.channels
        if channels[0] != channels[1]:
            found = f"encoder and decoder must have the same channels, got {channels[0]} and {channels[1]}"
            if len({half.options.channels // half.options.width for half in (encoder, decoder)}) > 1:
                found += "; one is complex and the other real; take ComplexEncoder with ComplexDecoder"
            raise ValueError(found)
        self.encoder, self.decoder, self.share_embeddings = encoder, decoder, share_embeddings
        encoder.read_out = nn.Identity()
        if share_embeddings:
            # the wrapper of a tool does not say how many rows its table has
            tables = [getattr(half.embedding, "num_embeddings", half.vocabulary) for half in (encoder, decoder)]
            if tables[0] != tables[1]:
                raise ValueError(f"shared embeddings need one vocabulary, got {tables[0]} and {tables[1]} token ids")
            decoder.embedding = encoder.embedding
            decoder.encoding.drop_replacement()

    def forward(
        self,
        source_ids: Tensor,
        target_ids: Tensor,
        *,
        source_positions: PositionsLike | None = None,
        target_positions: PositionsLike | None = None,
        source_padding_mask: Tensor | None = None,
        target_padding_mask: Tensor | None = None,
        backend: str | None = None,
    ) -> Seq2SeqOutput:
        """Return the target's states, each of which knows the whole source and the target up to its token.

        Args:
            source_ids: long (B, S).
            target_ids: long (B, T), a start token and then the target but for its last token.
            target_positions: as in `Decoder.forward`; packed ones need packed ones of the source.
            source_padding_mask: bool (B, S), True = padding; None = no padding.
            target_padding_mask: bool (B, T), True = padding; not needed where the target is padded on the right.
            backend: of attention, as in `choose_backend`; None chooses.

        Raises:
            BadInput: a padding mask is not bool (batch, tokens).
            ValueError: as in `Encoder.forward` and `Decoder.forward`.
        """
        masks = {"source": (source_ids, source_padding_mask), "target": (target_ids, target_padding_mask)}
        for side, (ids, mask) in masks.items():
            check_tensor(f"{side}_ids", ids)
            if ids.dim() == 2:  # the networks refuse others
                check_key_padding(f"{side}_padding_mask", mask, ids.shape[0], ids.shape[1], device=ids.device)
        encoded = self.encoder(
            source_ids, source_positions, key_padding_mask=source_padding_mask, backend=backend
        ).hidden
        decoded = self.decoder(
            target_ids,
            target_positions,
            key_padding_mask=target_padding_mask,
            source=encoded,
            source_positions=source_positions,
            source_padding_mask=source_padding_mask,
            backend=backend,
        )
        return Seq2SeqOutput(decoded.hidden, encoded)

    def step(
        self,
        target_ids: Tensor,
        cache: Cache,
        *,
        source: Tensor | None = None,
        source_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the states (B, T, C) of the next target tokens.

        Args:
            target_ids: long (B, T), the tokens after those that the cache holds.
            cache: of this target; it is added to.
            source: what the encoder gave; needed in the first step only.
            source_padding_mask: bool (B, S), True = padding; needed in every step where the source is padded.
        """
        return self.decoder(target_ids, source=source, source_padding_mask=source_padding_mask, cache=cache).hidden
