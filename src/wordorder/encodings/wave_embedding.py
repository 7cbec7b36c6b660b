"""What embeddings whose words are waves have in common: their tables, initial values, new sizes, word vectors."""

import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, cast, get_args

import torch
from torch import Tensor, nn

from wordorder.encodings.wave_frequencies import FrequencyInit, initial_frequencies
from wordorder.encodings.word_vectors import FoundVectors, read_word_vectors
from wordorder.ops import Contiguous, Positions, as_positions, check_positions_fit
from wordorder.ops.token_ids import check_token_ids
from wordorder.ops.waves.functions import row_wise_waves, waves
from wordorder.ops.waves.tables import WaveTables, wrap_phase

Sharing = Literal["full", "word-sharing", "dimension-sharing"]
Variant = Literal["paper", "reference-code"]

INITIAL_DECAY = 1e-4
"""Per token: after 1,000 tokens a word still has 90% of its amplitude, so that damping starts as good as absent."""


def table_shape(name: str, sharing: Sharing, vocabulary: int, width: int) -> tuple[int, int]:
    """(V, D), (1, D) where all words share the table, (V, 1) where all channels do.

    Raises:
        ValueError: unknown sharing scheme.
    """
    shapes = {"full": (vocabulary, width), "word-sharing": (1, width), "dimension-sharing": (vocabulary, 1)}
    if sharing not in shapes:
        raise ValueError(f"{name} must be one of {', '.join(get_args(Sharing))}, got {sharing!r}")
    return shapes[sharing]


class WaveEmbedding(nn.Module):
    """Tables of amplitude, frequency, phase and decay, from which tokens at positions become complex vectors.

    Args:
        vocabulary: number of token ids, V; positive.
        width: complex channels, D; positive.
        tables: how each table is shared; those left out do not exist (no position, phase 0, no decay).
        frequency_init: where frequencies start; None where there are none.
        frequency_trainable: False leaves frequencies as they start.
        amplitude_std: of initial amplitudes; None = what `draw_parameters` is told.
        padding_idx: token id that is exactly 0, at every position and whatever is shared, and sends no gradient.
        sparse: gradients of tables with V rows have one row per distinct token of the batch; see `row_wise_waves`.

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
        """The tables as `waves` takes them."""
        frequency, phase, decay = (
            cast("nn.Parameter | None", getattr(self, name)) for name in ("frequency", "phase", "decay")
        )
        return WaveTables(self.amplitude, frequency, phase, decay, width=self.width)

    def named_tables(self) -> dict[str, nn.Parameter]:
        """The tables that there are, by name."""
        return dict(self.named_parameters(recurse=False))

    def wrapped_phase(self) -> Tensor | None:
        """The phase table as it is used, in (-pi, pi]; None without phases."""
        phase = self.tables().phase
        return None if phase is None else wrap_phase(phase)

    def forward(self, token_ids: Tensor, positions: Positions | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Real and imaginary part, (B, T, D) each, of integer token ids (B, T) at positions (T,), (1, T) or (B, T).

        Positions are 0 .. T - 1 where none are given.

        Raises:
            ValueError: ids are not integers (B, T) or lie outside the vocabulary (looked at on the CPU only); positions
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
        """Set all tables to where they start; called by `networks.initialise`, which has one rule for all else.

        ``nn.init`` is used where it can be, since transformers guards it: loaded weights are not drawn again. The rest
        looks at transformers' mark itself.

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
            std: of the amplitudes of new words; default: that of the present ones.

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
        """Set amplitudes to word vectors trained elsewhere; words that the file does not have keep their draw.

        Args:
            path: word2vec's or GloVe's text format, or .safetensors; see `read_word_vectors`.
            words: token id by word; needed unless the file holds one row per token id.

        Returns:
            how many words of the vocabulary were found.

        Raises:
            ValueError: amplitudes are shared, or the file is not what it should be; nothing was changed.
        """
        if tuple(self.amplitude.shape) != (self.vocabulary, self.width):
            raise ValueError("pre-trained vectors need amplitude='full': one row per word and one column per channel")
        found = read_word_vectors(Path(path), words, vocabulary=self.vocabulary, width=self.width)
        with torch.no_grad():
            self.amplitude[found.ids.to(self.amplitude.device)] = found.vectors.to(self.amplitude)
        return found

    def extra_repr(self) -> str:
        """Sizes, for print."""
        shapes = ", ".join(f"{name}={tuple(table.shape)}" for name, table in self.named_tables().items())
        return f"{self.vocabulary}, {self.width}, {shapes}"


def _global_generator(_name: str) -> None:
    return None


def _is_loaded(parameter: nn.Parameter) -> bool:
    """Whether transformers has loaded it from a file, and asks for it to be left alone."""
    return getattr(parameter, "_is_hf_initialized", False)


def check_choice(name: str, value: str, choices: object) -> None:
    """Raise unless the value is one of a Literal's.

    Raises:
        ValueError: names the argument, the choices and the value.
    """
    known = cast("tuple[str, ...]", get_args(choices))
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def warn_of_lost_words(tables: str) -> None:
    """Say that a choice leaves nothing that tells words apart."""
    warnings.warn(
        f"{tables} are the same for all words, so that nothing says which word a token is; share one of them at most",
        stacklevel=3,
    )
