"""The base of complex embeddings: tables, initial values, resizing, pre-trained word vectors."""

import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from wordorder.encodings.wave_frequencies import FrequencyInit, initial_frequencies
from wordorder.encodings.word_vectors import FoundVectors, read_word_vectors
from wordorder.ops import Contiguous, PositionsLike, as_positions, check_positions_fit
from wordorder.ops.token_ids import check_token_ids
from wordorder.ops.waves.functions import row_wise_waves, waves
from wordorder.ops.waves.tables import WaveTables, wrap_phase

Sharing = Literal["full", "word-sharing", "dimension-sharing"]
Variant = Literal["paper", "reference-code"]

INITIAL_DECAY = 1e-4
"""Decay rate per token: after 1,000 tokens a word still has 90% of its amplitude, so damping is weak at first."""


def table_shape(name: str, sharing: Sharing, vocabulary: int, width: int) -> tuple[int, int]:
    """Return (V, D), (1, D) for a table shared by all words, or (V, 1) for one shared by all channels.

    Raises:
        ValueError: unknown sharing scheme.
    """
    shapes = {"full": (vocabulary, width), "word-sharing": (1, width), "dimension-sharing": (vocabulary, 1)}
    if sharing not in shapes:
        raise ValueError(f"{name} must be one of {', '.join(get_args(Sharing))}, got {sharing!r}")
    return shapes[sharing]


class WaveEmbedding(nn.Module):
    """Complex vectors of tokens at positions, from tables of amplitude, frequency, phase and decay.

    Args:
        vocabulary: number of token ids, V; positive.
        width: complex channels, D; positive.
        tables: how each table is shared; those left out do not exist (no position, phase 0, no decay).
        frequency_init: initial frequencies; None where there are none.
        frequency_trainable: False freezes the frequencies.
        amplitude_std: standard deviation of initial amplitudes; None = the one given to `draw_parameters`.
        padding_idx: token id that is exactly 0, at every position and whatever is shared, and sends no gradient.
        sparse: gradients of tables with V rows are sparse (`row_wise_waves`), with one row per distinct token.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        tables: Mapping[str, Sharing],
        frequency_init: FrequencyInit | None = None,
        frequency_trainable: bool = True,
        amplitude_std: float | None = None,
        padding_idx: int | None = None,
        sparse: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (("vocabulary", vocabulary), ("width", width)):
            if value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")
        if padding_idx is not None and not 0 <= padding_idx < vocabulary:
            raise ValueError(f"padding_idx must lie in 0 .. {vocabulary - 1}, got {padding_idx}")
        self.vocabulary, self.width, self.padding_idx, self.sparse = vocabulary, width, padding_idx, sparse
        self.frequency_init: FrequencyInit | None = frequency_init
        self.amplitude_std, self.sharing = amplitude_std, dict(tables)
        shapes = {name: table_shape(name, sharing, vocabulary, width) for name, sharing in tables.items()}
        self.amplitude = nn.Parameter(torch.empty(shapes["amplitude"]))
        for name in ("frequency", "phase", "decay"):
            table = nn.Parameter(torch.empty(shapes[name])) if name in shapes else None
            self.register_parameter(name, table)
        if isinstance(self.frequency, nn.Parameter):
            self.frequency.requires_grad_(frequency_trainable)
        self.draw_parameters(1.0)

    def tables(self) -> WaveTables:
        """Return the tables in the form that `waves` takes."""
        frequency, phase, decay = (
            cast("nn.Parameter | None", getattr(self, name)) for name in ("frequency", "phase", "decay")
        )
        return WaveTables(self.amplitude, frequency, phase, decay, width=self.width)

    def named_tables(self) -> dict[str, nn.Parameter]:
        """Return the existing tables by name."""
        return dict(self.named_parameters(recurse=False))

    def wrapped_phase(self) -> Tensor | None:
        """Return the phase table wrapped to (-pi, pi]; None without phases."""
        phase = self.tables().phase
        return None if phase is None else wrap_phase(phase)

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
        if self.sparse and torch.is_grad_enabled():
            return row_wise_waves(token_ids, position_BT, self.tables(), padding_idx=self.padding_idx)
        return waves(token_ids, position_BT, self.tables(), padding_idx=self.padding_idx)

    def draw_parameters(self, std: float, generator_for: Callable[[str], torch.Generator | None] | None = None) -> None:
        """Draw the initial values; `networks.initialise` calls it, which has one rule for all other parameters.

        ``nn.init`` is used where possible, because transformers patches it so that loaded weights are not drawn again;
        elsewhere transformers' mark of loaded weights is read.

        Args:
            std: standard deviation of amplitudes, unless the embedding has its own.
            generator_for: random generator by the table's name; None = torch's global one.
        """
        generators, loaded = generator_for or _global_generator, _is_loaded(self.amplitude)
        nn.init.normal_(self.amplitude, 0.0, self.amplitude_std or std, generator=generators("amplitude"))
        if self.padding_idx is not None and self.amplitude.shape[0] > 1 and not loaded:
            with torch.no_grad():
                self.amplitude[self.padding_idx].zero_()
        tables = self.named_tables()
        if "frequency" in tables and not _is_loaded(tables["frequency"]) and not tables["frequency"].is_meta:
            frequency, start = tables["frequency"], cast("FrequencyInit", self.frequency_init)
            with torch.no_grad():
                frequency.copy_(initial_frequencies(start, frequency.shape, generators("frequency")))
        if "phase" in tables:
            nn.init.uniform_(tables["phase"], -math.pi, math.pi, generator=generators("phase"))
        if "decay" in tables:
            nn.init.constant_(tables["decay"], math.log(math.expm1(INITIAL_DECAY)))  # softplus undone

    def resize(self, vocabulary: int, *, std: float | None = None) -> None:
        """Give every table that has a row per word another number of rows; new words start as drawn.

        Parameters stay the same objects. A padding_idx that is cut off becomes None.

        Args:
            vocabulary: the new number of token ids; positive.
            std: standard deviation of the amplitudes of new words; default: that of the present ones.

        Raises:
            ValueError: vocabulary is not positive.
        """
        if vocabulary <= 0:
            raise ValueError(f"vocabulary must be positive, got {vocabulary}")
        old = {name: table.data for name, table in self.named_tables().items()}
        kept, self.vocabulary = min(vocabulary, self.vocabulary), vocabulary
        if self.padding_idx is not None and self.padding_idx >= vocabulary:
            self.padding_idx = None
        for name, table in self.named_tables().items():
            table.grad, table._is_hf_initialized = None, False  # pyright: ignore[reportAttributeAccessIssue]
            rows = 1 if self.sharing[name] == "word-sharing" else vocabulary
            table.data = table.data.new_empty(rows, table.shape[1])
        self.draw_parameters(float(old["amplitude"].float().std(correction=0)) if std is None else std)
        for name, table in self.named_tables().items():
            table.data[:kept] = old[name][:kept]

    def load_pretrained(self, path: str | Path, words: Mapping[str, int] | None = None) -> FoundVectors:
        """Set amplitudes to pre-trained word vectors; words that the file does not have keep theirs.

        Args:
            path: a file in word2vec's or GloVe's text format, or .safetensors; `read_word_vectors` describes both.
            words: token id by word; needed unless the file holds one row per token id.

        Returns:
            how many words of the vocabulary were found.

        Raises:
            ValueError: amplitudes are shared, or the file cannot be read; nothing was changed.
        """
        if tuple(self.amplitude.shape) != (self.vocabulary, self.width):
            raise ValueError("pre-trained vectors need amplitude='full': one row per word and one column per channel")
        found = read_word_vectors(Path(path), words, vocabulary=self.vocabulary, width=self.width)
        with torch.no_grad():
            self.amplitude[found.ids.to(self.amplitude.device)] = found.vectors.to(self.amplitude)
        return found

    def extra_repr(self) -> str:
        """Return the sizes, for print."""
        shapes = ", ".join(f"{name}={tuple(table.shape)}" for name, table in self.named_tables().items())
        return f"{self.vocabulary}, {self.width}, {shapes}"


def _global_generator(_name: str) -> None:
    return None


def _is_loaded(parameter: nn.Parameter) -> bool:
    """Tell whether transformers has loaded the parameter from a file, so that it must not be drawn."""
    return getattr(parameter, "_is_hf_initialized", False)


def check_choice(name: str, value: str, choices: object) -> None:
    """Raise unless the value is one of a Literal's choices.

    Raises:
        ValueError: names the argument, the choices and the value.
    """
    known = get_args(choices)
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def warn_of_lost_words(tables: str) -> None:
    """Warn that all words have the same vectors."""
    warnings.warn(
        f"{tables} are the same for all words, so that nothing says which word a token is; share one of them at most",
        stacklevel=3,
    )
