"""The base of complex embeddings: tables, initial values, resizing, and real networks."""

import math
import warnings
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from wordorder.encodings.places import Generators, ReplacesEmbedding, check_choice, check_positive
from wordorder.ops import Contiguous, PositionsLike, as_positions, check_positions_fit
from wordorder.ops.tokens import check_token_ids
from wordorder.ops.waves import WaveTables, waves

Sharing = Literal["full", "word-sharing", "dimension-sharing"]
FrequencyInit = Literal["geometric", "log-uniform", "normal"]
AsReal = Literal["concat", "real-part", "pair"]

SLOWEST = 1e-4
"""Radians per token; 2 pi / 1e-4 is a wavelength of about 63,000 tokens, longer than a text."""

INITIAL_DECAY = 1e-4
"""Decay rate per token: after 1,000 tokens a word still has 90% of its amplitude, so damping is weak at first."""


def _table_shape(name: str, sharing: Sharing, vocabulary: int, width: int) -> tuple[int, int]:
    """Return (V, D), (1, D) for a table shared by all words, or (V, 1) for one shared by all channels."""
    check_choice(name, sharing, Sharing)
    return (1 if sharing == "word-sharing" else vocabulary, 1 if sharing == "dimension-sharing" else width)


def _check_frequency_init(name: str, shape: tuple[int, int], width: int) -> None:
    """Refuse an initialisation that is unknown, or that does not fit the shape of the table."""
    check_choice("frequency_init", name, FrequencyInit)
    if name == "geometric" and shape[1] == 1 < width:
        raise ValueError(
            "frequency_init='geometric' gives every channel a frequency of its own, but frequency='dimension-sharing'"
            " has one per word; take 'log-uniform' (the default there) or 'normal'"
        )


def initial_frequencies(name: FrequencyInit, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    """Return frequencies in radians per token, float64, for a table (V, D), (1, D) or (V, 1).

    ``geometric``: ``10000 ** (-d / D)`` for channel d = 0 .. D - 1. Wavelengths from 2 pi to nearly 2 pi 10,000 tokens,
    evenly spread on a logarithmic scale, so that near and far positions are both distinguished; equal for all words at
    first, as in Vaswani et al. 2017. ``log-uniform``: the same range drawn at random per entry, for tables in which
    words, not channels, must cover it. Larger frequencies would only repeat: positions are whole numbers, so w and
    w + 2 pi are the same wave.

    ``normal``: N(0, 1), the listing in the paper's appendix C.
    """
    if name == "log-uniform":
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu")
        return torch.exp(math.log(SLOWEST) * drawn)
    if name == "normal":
        return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    d = torch.arange(shape[1], dtype=torch.float64, device="cpu")
    return (SLOWEST ** (d / shape[1])).expand(shape)


class WaveEmbedding(nn.Module):
    """Complex vectors of tokens at positions, from tables of amplitude, frequency, phase and decay.

    ``tables`` says how each is shared; those left out do not exist (no position, phase 0, no decay).
    """

    frequency: nn.Parameter | None
    phase: nn.Parameter | None
    decay: nn.Parameter | None

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        tables: Mapping[str, Sharing],
        frequency_init: FrequencyInit | None = None,
        frequency_trainable: bool = True,
        padding_idx: int | None = None,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        check_positive(vocabulary=vocabulary, width=width)
        if padding_idx is not None and not 0 <= padding_idx < vocabulary:
            raise ValueError(f"padding_idx must lie in 0 .. {vocabulary - 1}, got {padding_idx}")
        self.vocabulary, self.width, self.padding_idx, self.sparse = vocabulary, width, padding_idx, sparse
        self.frequency_init: FrequencyInit | None = frequency_init
        self.sharing = dict(tables)
        shapes = {name: _table_shape(name, sharing, vocabulary, width) for name, sharing in tables.items()}
        if frequency_init is not None:
            _check_frequency_init(frequency_init, shapes["frequency"], width)
        self.amplitude = nn.Parameter(torch.empty(shapes["amplitude"]))
        for name in ("frequency", "phase", "decay"):
            table = nn.Parameter(torch.empty(shapes[name])) if name in shapes else None
            self.register_parameter(name, table)
        if self.frequency is not None:
            self.frequency.requires_grad_(frequency_trainable)
        self.draw_parameters(1.0)

    def tables(self) -> WaveTables:
        """Return the tables in the form that `waves` takes."""
        return WaveTables(self.amplitude, self.frequency, self.phase, self.decay, self.width, self.padding_idx)

    def named_tables(self) -> dict[str, nn.Parameter]:
        """Return the existing tables by name."""
        return dict(self.named_parameters(recurse=False))

    def forward(self, token_ids: Tensor, positions: PositionsLike | None = None) -> tuple[Tensor, Tensor]:
        """Return real and imaginary part, (B, T, D) each, of token ids (B, T) at positions (T,), (1, T) or (B, T).

        Positions are 0 .. T - 1 where none are given.

        Raises:
            ValueError: ids are not integers (B, T) or outside the vocabulary (checked on the CPU only); positions
                are not integers, or of another shape.
        """
        check_token_ids(token_ids, self.vocabulary)
        where = Contiguous(token_ids.shape[1]) if positions is None else as_positions(positions)
        check_positions_fit("positions", where, *token_ids.shape)
        position_BT = where.index_BT(token_ids.device)
        sparse = self.sparse and torch.is_grad_enabled()
        return waves(token_ids, position_BT, self.tables(), sparse=sparse)

    def draw_parameters(self, std: float, generator_for: Generators | None = None) -> None:
        """Draw the initial values; `networks.initialise` calls it, which has one rule for all other parameters.

        ``nn.init`` is used where possible, because transformers patches it so that loaded weights are not drawn again;
        elsewhere transformers' mark of loaded weights is read.

        ``std`` is that of amplitudes.
        """

        def generator(name: str) -> torch.Generator | None:
            return generator_for(name) if generator_for else None

        loaded = _is_loaded(self.amplitude)
        nn.init.normal_(self.amplitude, 0.0, std, generator=generator("amplitude"))
        with torch.no_grad():
            if self.padding_idx is not None and self.amplitude.shape[0] > 1 and not loaded:
                self.amplitude[self.padding_idx].zero_()
            if self.frequency is not None and not _is_loaded(self.frequency) and not self.frequency.is_meta:
                self.frequency.copy_(self.draw_frequencies(self.frequency.shape, generator("frequency")))
        if self.phase is not None:
            nn.init.uniform_(self.phase, -math.pi, math.pi, generator=generator("phase"))
        if self.decay is not None:
            nn.init.constant_(self.decay, math.log(math.expm1(INITIAL_DECAY)))  # softplus undone

    def draw_frequencies(self, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        """Return the initial frequencies of a table of this shape, float64."""
        assert self.frequency_init is not None
        return initial_frequencies(self.frequency_init, shape, generator)

    def resize(self, vocabulary: int, *, std: float | None = None) -> None:
        """Give every table that has a row per word another number of rows; new words start as drawn.

        Parameters stay the same objects. A padding_idx that is cut off becomes None.

        Args:
            vocabulary: the new number of token ids; positive.
            std: standard deviation of the amplitudes of new words; default: that of the present ones.

        Raises:
            ValueError: vocabulary is not positive.
        """
        check_positive(vocabulary=vocabulary)
        old = {name: table.data for name, table in self.named_tables().items()}
        common, self.vocabulary = min(vocabulary, self.vocabulary), vocabulary
        if self.padding_idx is not None and self.padding_idx >= vocabulary:
            self.padding_idx = None
        for name, table in self.named_tables().items():
            table.grad, table._is_hf_initialized = None, False  # pyright: ignore[reportAttributeAccessIssue]
            rows = 1 if self.sharing[name] == "word-sharing" else vocabulary
            table.data = table.data.new_empty(rows, table.shape[1])
        self.draw_parameters(float(old["amplitude"].float().std(correction=0)) if std is None else std)
        for name, table in self.named_tables().items():
            table.data[:common] = old[name][:common]

    def extra_repr(self) -> str:
        """Return the sizes, for print."""
        shapes = ", ".join(f"{name}={tuple(table.shape)}" for name, table in self.named_tables().items())
        return f"{self.vocabulary}, {self.width}, {shapes}"


def _is_loaded(parameter: nn.Parameter) -> bool:
    """Tell whether transformers has loaded the parameter from a file, so that it must not be drawn."""
    return getattr(parameter, "_is_hf_initialized", False)


def warn_of_lost_words(tables: str) -> None:
    """Warn that all words have the same vectors."""
    warnings.warn(
        f"{tables} are the same for all words, so that nothing says which word a token is; share one of them at most",
        stacklevel=3,
    )


class WavesAsReal(ReplacesEmbedding):
    """Complex embeddings as the token embeddings of a network of real numbers, with ``width`` model channels, C."""

    paper = "Wang et al. 2020, https://arxiv.org/abs/1912.12333"
    refused_in: ClassVar[Mapping[str, str]] = {
        "cross-attention": "it takes the place of the token embeddings, and cross-attention reads none"
    }

    def __init__(self, waves: WaveEmbedding, width: int, as_real: AsReal) -> None:
        super().__init__()
        self.waves, self.width, self.as_real = waves, width, as_real
        self.projection = nn.Linear(2 * width, width, bias=False) if as_real == "concat" else None

    @property
    def weight(self) -> nn.Parameter:
        """Return the amplitudes, the counterpart of a table of word vectors."""
        return self.waves.amplitude

    @property
    def num_embeddings(self) -> int:
        return self.waves.vocabulary

    @property
    def padding_idx(self) -> int | None:
        """Return the token id whose vector is 0, or None."""
        return self.waves.padding_idx

    @property
    def embedding_dim(self) -> int:
        return self.width

    def forward(self, token_ids_BT: Tensor, positions: PositionsLike | None = None) -> Tensor:
        real, imag = self.waves(token_ids_BT, positions)
        if self.as_real == "real-part":
            return real
        both_BTC = torch.cat((real, imag), dim=-1)
        # under autocast the map gives 16 bits, and what layers add up stays in the tables' dtype, as with nn.Embedding
        return both_BTC if self.projection is None else self.projection(both_BTC).type_as(both_BTC)

    def resize(self, vocabulary: int, *, std: float | None = None) -> None:
        self.waves.resize(vocabulary, std=std)

    def cost_parts(self) -> dict[str, int]:
        """Return the number of parameters of each part beyond the amplitudes."""
        tables = {f"{name} table": table.numel() for name, table in self.waves.named_tables().items()}
        del tables["amplitude table"]
        if self.projection is not None:
            tables["projection to real"] = sum(parameter.numel() for parameter in self.projection.parameters())
        return tables


def complex_channels(width: int, as_real: AsReal) -> int:
    """Return the number of complex channels, D, for ``width`` real ones."""
    check_choice("as_real", as_real, AsReal)
    if as_real == "pair" and width % 2:
        raise ValueError(f"as_real='pair' needs an even width, got {width}")
    return width // 2 if as_real == "pair" else width
