"""Complex word embeddings without positions, the baseline of complex-order embeddings."""

from wordorder.encodings.places import check_choice
from wordorder.encodings.wave_embedding import (
    AsReal,
    Sharing,
    WaveEmbedding,
    WavesAsReal,
    complex_channels,
    warn_of_lost_words,
)


class ComplexVanillaEmbedding(WaveEmbedding):
    """A complex vector per word, independent of the position: the paper's baseline "complex-vanilla".

    Wang et al. 2020, https://arxiv.org/abs/1912.12333, Sec. 4::

        g_jd = r_jd exp(i theta_jd)

    Args:
        vocabulary: number of token ids, V; positive.
        width: complex channels, D; positive.
        amplitude: "full" (V, D), "word-sharing" (1, D) or "dimension-sharing" (V, 1).
        phase: "full", "word-sharing" or "dimension-sharing"; drawn uniformly from (-pi, pi].
        padding_idx: token id that is exactly 0 and sends no gradient.
        sparse: gradients of tables with V rows are sparse, for `torch.optim.SparseAdam`.

    Shape:
        token ids (B, T), positions (T,), (1, T) or (B, T), which change nothing -> real and imag,
        (B, T, D) each.

    Raises:
        ValueError: an argument is out of range; or from forward: wrong shapes, ids or positions.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        amplitude: Sharing = "full",
        phase: Sharing = "full",
        padding_idx: int | None = None,
        sparse: bool = False,
    ) -> None:
        check_choice("phase", phase, Sharing)
        super().__init__(
            vocabulary,
            width,
            tables={"amplitude": amplitude, "phase": phase},
            padding_idx=padding_idx,
            sparse=sparse,
        )
        if amplitude == phase == "word-sharing":
            warn_of_lost_words("amplitude and phase")


class ComplexVanilla(WavesAsReal):
    """Replace token embeddings by complex vectors without word order, for comparison (`ComplexVanillaEmbedding`).

    Wang et al. 2020, https://arxiv.org/abs/1912.12333, Sec. 4. All other arguments are those of
    `ComplexVanillaEmbedding`.

    Args:
        width: model channels, C; positive, even for "pair".
        as_real: how a complex vector becomes a real one: "concat", "real-part" or "pair".

    Shape:
        token ids (B, T), positions (T,), (1, T) or (B, T) -> (B, T, C).

    Raises:
        ValueError: an argument is out of range; or from forward: wrong shapes, ids or positions.
    """

    purpose = "no positions, for comparison"

    def __init__(
        self,
        width: int,
        *,
        vocabulary: int,
        padding_idx: int | None = None,
        amplitude: Sharing = "full",
        phase: Sharing = "full",
        as_real: AsReal = "concat",
    ) -> None:
        waves = ComplexVanillaEmbedding(
            vocabulary,
            complex_channels(width, as_real),
            amplitude=amplitude,
            phase=phase,
            padding_idx=padding_idx,
        )
        super().__init__(waves, width, as_real)
