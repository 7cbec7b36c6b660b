"""Complex-order embeddings: every word is a wave over positions."""

from typing import Literal

from wordorder.encodings.places import check_choice
from wordorder.encodings.wave_embedding import (
    AsReal,
    FrequencyInit,
    Sharing,
    WaveEmbedding,
    WavesAsReal,
    complex_channels,
    warn_of_lost_words,
)

Damping = Literal["none", "learned"]


class ComplexOrderEmbedding(WaveEmbedding):
    """A complex vector per word whose channels rotate with the position, each at its own frequency.

    Wang et al. 2020, "Encoding word order in complex embeddings", https://arxiv.org/abs/1912.12333, Eq. 8, for channel
    d of word j at position p::

        g_jd(p) = r_jd exp(i (w_jd p + theta_jd))

    which is the only bounded function with ``g(p + n) = g(p) w(n)`` for every p, up to damping: moving by n tokens is
    one linear map wherever it happens (paper, Sec. 2). ``damping="learned"`` is the paper's general solution, of which
    it fixes the modulus to 1 because the bound was hard to keep in training; here the decay is a softplus, never
    negative::

        g_jd(p) = r_jd exp(-softplus(c_jd) max(p, 0)) exp(i (w_jd p + theta_jd))

    Positions before 0 are not damped: the wave would grow without bound there.

    Differs from the paper: without phases by default, which its ablation found to hurt (Table 4, .785 against .813), as
    its reference code does, which `wordorder.papers.complex_order` repeats.

    >>> import torch, wordorder
    >>> embedding = wordorder.ComplexOrderEmbedding(1000, 64)
    >>> real, imag = embedding(torch.randint(1000, (2, 16)), torch.arange(16))
    >>> real.shape, imag.shape
    (torch.Size([2, 16, 64]), torch.Size([2, 16, 64]))

    Args:
        vocabulary: number of token ids, V; positive.
        width: complex channels, D; positive.
        frequency: "full" (V, D), "word-sharing" (1, D): all words turn alike, or "dimension-sharing" (V, 1): all
            channels of a word do.
        amplitude: "full", "word-sharing" or "dimension-sharing". A warning if no table differs between words.
        phase: initial phases: False, True ("full"), or how they are shared.
        padding_idx: token id that is exactly 0 at every position, whatever is shared, and sends no gradient.
        damping: "none", or "learned": a rate of decay per token, shared as frequencies are, from 1e-4 at first.
        frequency_init: initial frequencies (`initial_frequencies`); default "geometric", with dimension-sharing
            "log-uniform".
        frequency_trainable: False freezes them (the reference's translation code).
        sparse: gradients of tables with V rows are sparse, for `torch.optim.SparseAdam`; tables shared by all words
            keep dense ones, which another optimizer has to take.

    Shape:
        token ids (B, T), positions (T,), (1, T) or (B, T), any integers -> real and imag, (B, T, D) each, in the
        tables' dtype. Angles are in at least float32 (float64 for float64), whose error at angle x is about x * 6e-8.

    Raises:
        ValueError: an argument is out of range; or from forward: wrong shapes, ids, or positions that are not integers.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        frequency: Sharing = "full",
        amplitude: Sharing = "full",
        phase: bool | Sharing = False,
        padding_idx: int | None = None,
        damping: Damping = "none",
        frequency_init: FrequencyInit | None = None,
        frequency_trainable: bool = True,
        sparse: bool = False,
    ) -> None:
        check_choice("damping", damping, Damping)
        tables: dict[str, Sharing] = {"amplitude": amplitude, "frequency": frequency}
        if phase is not False:
            tables["phase"] = "full" if phase is True else phase
        if damping == "learned":
            tables["decay"] = frequency
        start = frequency_init or ("log-uniform" if frequency == "dimension-sharing" else "geometric")
        super().__init__(
            vocabulary,
            width,
            tables=tables,
            frequency_init=start,
            frequency_trainable=frequency_trainable,
            padding_idx=padding_idx,
            sparse=sparse,
        )
        alike = frequency == "word-sharing" or (not frequency_trainable and start == "geometric")
        if amplitude == "word-sharing" and alike and tables.get("phase", "word-sharing") == "word-sharing":
            warn_of_lost_words("amplitude and frequency")


class ComplexOrder(WavesAsReal):
    """Replace token embeddings by waves over positions, one per word and channel (`ComplexOrderEmbedding`).

    Wang et al. 2020, https://arxiv.org/abs/1912.12333; appendix C suggests the concatenation for real networks::

        concat      x = W [Re g | Im g]              one linear map, 2C -> C; no bias, so that padding stays 0
        real-part   x = Re g
        pair        x = [Re g | Im g] with D = C/2    what complex networks read; in a real network half the tables

    All other arguments are those of `ComplexOrderEmbedding`.

    Args:
        width: model channels, C; positive, even for "pair".
        amplitude: how amplitudes are shared; only "full" can be tied to an output layer.
        as_real: how a complex vector becomes a real one: "concat", "real-part" or "pair".

    Shape:
        token ids (B, T), positions (T,), (1, T) or (B, T) -> (B, T, C).

    Raises:
        ValueError: an argument is out of range; or from forward: wrong shapes, ids or positions.
    """

    purpose = "absolute positions"
    position_dependent = True

    def __init__(
        self,
        width: int,
        *,
        vocabulary: int,
        padding_idx: int | None = None,
        frequency: Sharing = "full",
        amplitude: Sharing = "full",
        phase: bool | Sharing = False,
        damping: Damping = "none",
        frequency_init: FrequencyInit | None = None,
        frequency_trainable: bool = True,
        as_real: AsReal = "concat",
    ) -> None:
        waves = ComplexOrderEmbedding(
            vocabulary,
            complex_channels(width, as_real),
            frequency=frequency,
            amplitude=amplitude,
            phase=phase,
            padding_idx=padding_idx,
            damping=damping,
            frequency_init=frequency_init,
            frequency_trainable=frequency_trainable,
        )
        super().__init__(waves, width, as_real)
