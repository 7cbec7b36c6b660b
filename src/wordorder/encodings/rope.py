"""Rotary position embedding (RoPE), of all channels or a share of them, and its scalings for longer texts."""

import math
from itertools import groupby
from typing import Any, Literal, cast

import torch
from torch import Tensor

from wordorder.encodings.places import OnQueriesAndKeys, Rotation, check_choice, check_sines
from wordorder.errors import BadInput
from wordorder.ops import Contiguous, Positions, PositionsLike, as_positions

Ramp = Literal["dimension", "turns"]
ShareOf = Literal["channels", "frequencies"]
Length = int | Tensor
"""Tokens of a text as far as it was read: a number, or a tensor without axes."""


class Rotary(OnQueriesAndKeys):
    """Rotate pairs of query or key channels by an angle proportional to position.

    Su et al. 2021, "RoFormer", https://arxiv.org/abs/2104.09864, Sec. 3.2.2::

        w_i = base ** (-2 i / D),  i = 0 .. D/2 - 1              [radians per token]
        (a, b) -> (a cos(p w_i) - b sin(p w_i),  b cos(p w_i) + a sin(p w_i))

    Differs from the paper: pairs are (x[i], x[i + D/2]) as in HF Llama, not neighbours;
    angles are in at least float32 (float64 for float64). No parameters, buffers or cache.

    Args:
        head_dim: channels per head, D; positive and even.
        base: sets the longest wavelength, about 2 pi * base tokens; greater than 1.
        share: share of the channels that rotate, in (0, 1]; the others have no position.
        share_of: what is cut. "channels": the first share of the channels rotates, as if they were all (GPT-J,
            GPT-NeoX); "frequencies": of all D/2 frequencies the slowest are 0 (p-RoPE, Barbero et al. 2024,
            https://arxiv.org/abs/2410.06205; Gemma 4).
        interleaved: pairs are neighbours, (x[2 i], x[2 i + 1]), as in the paper, in GPT-J and in LLaMA's own files.

    Shape:
        x (B, H, T, D), positions (B or 1, T) token index, may be negative -> like x, same dtype.

    Raises:
        ValueError: an argument is out of range, or x's last axis is not head_dim.
    """

    purpose = "order by rotation, the default of decoders today"
    paper = "Su et al. 2021, https://arxiv.org/abs/2104.09864"

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10_000.0,
        share: float = 1.0,
        share_of: ShareOf = "channels",
        interleaved: bool = False,
    ) -> None:
        super().__init__()
        check_sines(base, "head_dim (width / heads)", head_dim)
        check_choice("share_of", share_of, ShareOf)
        if not 0 < share <= 1:
            raise ValueError(f"share must lie in (0, 1], got {share}")
        self.head_dim, self.base, self.share, self.share_of = head_dim, base, share, share_of
        self.interleaved = interleaved
        self.channels = int(head_dim * share) if share_of == "channels" else head_dim
        """Channels over which the frequencies go, d of the scalings' equations."""
        if self.channels < 2 or self.channels % 2:
            raise ValueError(
                f"share * head_dim must be an even number of channels, got {share} * {head_dim} = {self.channels}"
            )

    def frequencies(self, *, dtype: torch.dtype, device: torch.device | None, length: Length = 0) -> Tensor:
        """Return the radians per token of each pair, (K,), in a text of so many tokens."""
        frequency_K = self.scaled(_geometric(self.channels, self.base, dtype, device), length)
        if self.share_of == "channels" or self.share == 1:
            return frequency_K
        turning = int(self.share * self.head_dim // 2)
        return torch.cat((frequency_K[:turning], torch.zeros_like(frequency_K[turning:])))

    def scaled(self, frequency_K: Tensor, length: Length) -> Tensor:
        """Return the frequencies of a scaling, of those of the paper and the length of a text."""
        del length
        return frequency_K

    def length(self, positions: Positions) -> Length:
        """Return the number of tokens of a text, for a scaling that depends on it; 0 for others."""
        del positions
        return 0

    def magnitude(self) -> float:
        """Return the factor on both cosine and sine; 1 for a pure rotation."""
        return 1.0

    def forward(
        self,
        query: Positions,
        key: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> tuple[Rotation, Rotation]:
        """Return the rotations of queries and keys, one object for both if they have the same positions."""
        length = self.length(key)
        of_queries = self.rotation(query, dtype=dtype, device=device, length=length)
        if key is query:
            return of_queries, of_queries
        return of_queries, self.rotation(key, dtype=dtype, device=device, length=length)

    def rotation(
        self,
        positions: Positions,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        length: Length | None = None,
    ) -> Rotation:
        """Return the cosines and sines at these positions, in at least float32; ``length`` is that of the text."""
        wide = torch.promote_types(dtype, torch.float32)
        position_BT = positions.index_BT(device)
        length = self.length(positions) if length is None else length
        frequency_K = self.frequencies(dtype=wide, device=position_BT.device, length=length)
        angle_B1TK = position_BT[:, None, :, None].to(wide) * frequency_K
        return Rotation(angle_B1TK.cos() * self.magnitude(), angle_B1TK.sin() * self.magnitude(), self.interleaved)

    def rotate(self, x_BHTD: Tensor, positions: PositionsLike) -> Tensor:
        """Rotate queries or keys."""
        if x_BHTD.shape[-1] != self.head_dim:
            raise ValueError(f"x must end in head_dim={self.head_dim}, got {tuple(x_BHTD.shape)}")
        return self.rotation(as_positions(positions), dtype=x_BHTD.dtype, device=x_BHTD.device).apply(x_BHTD)


class LinearScaledRotary(Rotary):
    """Rotate by positions divided by ``factor``: factor * N tokens span the angles of N.

    Chen et al. 2023, "Extending context window of large language models via positional interpolation",
    https://arxiv.org/abs/2306.15595, Eq. 4: ``w_i = base ** (-2 i / D) / factor``.

    Args:
        head_dim: channels per head, D; positive and even.
        base: sets the longest wavelength, about 2 pi * base tokens before scaling; greater than 1.
        factor: how many times longer the text may grow; at least 1.
        share: share of the channels that rotate, as in `Rotary`.
        share_of: "channels" or "frequencies", as in `Rotary`.
        interleaved: pairs are neighbours, as in `Rotary`.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "a longer context for a trained RoPE"
    paper = "Chen et al. 2023, https://arxiv.org/abs/2306.15595"

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10_000.0,
        factor: float = 2.0,
        share: float = 1.0,
        share_of: ShareOf = "channels",
        interleaved: bool = False,
    ) -> None:
        super().__init__(head_dim, base=base, share=share, share_of=share_of, interleaved=interleaved)
        self.factor = _checked_factor(factor)

    def scaled(self, frequency_K: Tensor, length: Length) -> Tensor:
        del length
        return frequency_K / self.factor


class NTKAwareRotary(Rotary):
    """Rotate with a larger base: the fastest pair keeps its frequency, the slowest is divided by ``factor``.

    bloc97 2023, "NTK-aware scaled RoPE"; formula in Peng et al. 2023, https://arxiv.org/abs/2309.00071, Eq. 16:
    ``base' = base * factor ** (d / (d - 2))``, with d channels that rotate.

    Args:
        head_dim: channels per head, D; even and at least 4.
        base: sets the longest wavelength, about 2 pi * base tokens before scaling; greater than 1.
        factor: how many times longer the text may grow; at least 1.
        share: share of the channels that rotate, as in `Rotary`.
        share_of: "channels" or "frequencies", as in `Rotary`.
        interleaved: pairs are neighbours, as in `Rotary`.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "a longer context for a trained RoPE"
    paper = "Peng et al. 2023, Eq. 16, https://arxiv.org/abs/2309.00071"

    def __init__(
        self,
        head_dim: int,
        *,
        base: float = 10_000.0,
        factor: float = 2.0,
        share: float = 1.0,
        share_of: ShareOf = "channels",
        interleaved: bool = False,
    ) -> None:
        super().__init__(head_dim, base=base, share=share, share_of=share_of, interleaved=interleaved)
        self.factor = _checked_factor(factor)
        if self.channels < 4:
            raise ValueError(f"head_dim must be at least 4 for NTK-aware scaling, got {self.channels}")

    def scaled(self, frequency_K: Tensor, length: Length) -> Tensor:
        del length
        base = self.base * self.factor ** (self.channels / (self.channels - 2))
        return _geometric(self.channels, base, frequency_K.dtype, frequency_K.device)


class _ByLength(Rotary):
    """The base of scalings that depend on how long the text is."""

    def length(self, positions: Positions) -> Length:
        """Return the number of tokens up to the last position of the batch."""
        if not isinstance(positions, Contiguous):
            return positions.position_BT.max() + 1
        if isinstance(positions.offset, Tensor):
            return positions.offset.max() + positions.length
        length = positions.offset + positions.length
        return torch.full((), length) if torch.compiler.is_compiling() else length  # a traced length stays open


class DynamicRotary(_ByLength):
    """Rotate with a base that grows with the text, once it is longer than the original length.

    emozilla 2023, "dynamically scaled RoPE"; transformers' rope type "dynamic". In a text of n tokens, with N the
    original length and d channels that rotate::

        base' = base * (factor n / N - (factor - 1)) ** (d / (d - 2)),    n > N;  base otherwise

    n counts to the last position of the batch, as in transformers: a row beside a longer one is read as a longer text.
    With a cache all keys are rotated anew at each step, by the length so far, where transformers keeps those that it
    has rotated. So a text longer than N is read otherwise token by token than at once, in both. With a memory n is the
    length of the window.

    Args:
        head_dim: channels per head, D; even and at least 4.
        max_positions: longest text of the network in tokens; N where ``original_positions`` is not given.
        original_positions: original length N in tokens; positive.
        base: sets the longest wavelength, about 2 pi * base tokens in short texts; greater than 1.
        factor: how fast the base grows; at least 1.
        share: share of the channels that rotate, as in `Rotary`.
        share_of: "channels" or "frequencies", as in `Rotary`.
        interleaved: pairs are neighbours, as in `Rotary`.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "a longer context for a trained RoPE"
    paper = "Peng et al. 2023, https://arxiv.org/abs/2309.00071"

    def __init__(
        self,
        head_dim: int,
        *,
        max_positions: int,
        original_positions: int | None = None,
        base: float = 10_000.0,
        factor: float = 2.0,
        share: float = 1.0,
        share_of: ShareOf = "channels",
        interleaved: bool = False,
    ) -> None:
        super().__init__(head_dim, base=base, share=share, share_of=share_of, interleaved=interleaved)
        self.factor, self.original_positions = _checked_factor(factor), _original(original_positions, max_positions)
        if self.channels < 4:
            raise ValueError(f"head_dim must be at least 4 for NTK-aware scaling, got {self.channels}")

    def scaled(self, frequency_K: Tensor, length: Length) -> Tensor:
        stretch = self.factor * length / self.original_positions - (self.factor - 1)
        stretch = stretch.to(frequency_K).clamp(min=1) if isinstance(stretch, Tensor) else max(stretch, 1.0)
        base = self.base * stretch ** (self.channels / (self.channels - 2))
        return _geometric(self.channels, base, frequency_K.dtype, frequency_K.device)


class YaRNRotary(Rotary):
    """Rotate fast pairs at their frequency and slow ones at theirs divided by ``factor``, with a ramp between.

    Peng et al. 2023, "YaRN", https://arxiv.org/abs/2309.00071, Sec. 3.2 and 3.4. With r_i = N w_i / (2 pi) turns of
    pair i over the original length N::

        w'_i    = (1 - gamma_i) w_i / factor + gamma_i w_i
        sqrt(1/t) = 0.1 ln(factor) + 1      on queries and keys, so that scores are multiplied by 1/t

        ramp="dimension"   gamma_i = clip((high - i) / (high - low), 0, 1)
                           low  = floor(i(beta)), high = ceil(i(alpha)), where i(r) solves r_i = r
        ramp="turns"       gamma_i = clip((r_i - alpha) / (beta - alpha), 0, 1)

    The paper writes the second. The authors' code, and so every published checkpoint, transformers, vLLM and llama.cpp
    have the first, which is the default here. Between the two ends, at factor 16, frequencies by the second are down to
    0.30 of those by the first. As in that code, low is at least 0 and high at most d - 1, of d channels that rotate.

    Args:
        head_dim: channels per head, D; positive and even.
        max_positions: longest text of the network in tokens; N where ``original_positions`` is not given.
        original_positions: original length N in tokens, that is the length of pre-training; positive.
        base: sets the longest wavelength, about 2 pi * base tokens before scaling; greater than 1.
        factor: how many times longer the text may grow; at least 1.
        alpha: pairs with fewer turns than this are slow; at least 0.
        beta: pairs with more turns than this are fast; greater than alpha.
        ramp: how the share of the original frequency grows between them, by the index of the pair ("dimension") or by
            its "turns".
        truncate: round both ends of the ramp over pairs to whole ones; gpt-oss does not.
        attention_factor: in place of sqrt(1/t); positive.
        share: share of the channels that rotate, as in `Rotary`.
        share_of: "channels" or "frequencies", as in `Rotary`.
        interleaved: pairs are neighbours, as in `Rotary`.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "a longer context for a trained RoPE"
    paper = "Peng et al. 2023, https://arxiv.org/abs/2309.00071"

    def __init__(
        self,
        head_dim: int,
        *,
        max_positions: int,
        original_positions: int | None = None,
        base: float = 10_000.0,
        factor: float = 2.0,
        alpha: float = 1.0,
        beta: float = 32.0,
        ramp: Ramp = "dimension",
        truncate: bool = True,
        attention_factor: float | None = None,
        share: float = 1.0,
        share_of: ShareOf = "channels",
        interleaved: bool = False,
    ) -> None:
        super().__init__(head_dim, base=base, share=share, share_of=share_of, interleaved=interleaved)
        check_choice("ramp", ramp, Ramp)
        self.original_positions = _original(original_positions, max_positions)
        if not 0 <= alpha < beta:
            raise ValueError(f"alpha and beta must fulfil 0 <= alpha < beta, got {alpha} and {beta}")
        self.alpha, self.beta, self.ramp, self.truncate = alpha, beta, ramp, truncate
        self.factor, self.attention_factor = _checked_factor(factor), _checked_magnitude(attention_factor)

    def scaled(self, frequency_K: Tensor, length: Length) -> Tensor:
        del length
        if self.ramp == "turns":
            return _slower(frequency_K, self.factor, self.original_positions, self.alpha, self.beta)
        low, high = self._pair_of(self.beta), self._pair_of(self.alpha)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.channels - 1)
        pair_K = torch.arange(frequency_K.shape[0], dtype=frequency_K.dtype, device=frequency_K.device)
        # as in the authors' code: with both ends equal the ramp is a step
        keep_K = 1 - ((pair_K - low) / (high - low or 0.001)).clamp(0, 1)
        return frequency_K * (keep_K + (1 - keep_K) / self.factor)

    def _pair_of(self, turns: float) -> float:
        """Return i of the pair that makes so many turns over the original length, as a real number."""
        if turns == 0:
            return float(self.channels)  # no pair has frequency 0: beyond the last one
        wavelength = self.original_positions / (2 * math.pi * turns)
        return self.channels * math.log(wavelength) / (2 * math.log(self.base))

    def magnitude(self) -> float:
        """Return the square root of the inverse temperature."""
        return 0.1 * math.log(self.factor) + 1 if self.attention_factor is None else self.attention_factor


class Llama3Rotary(Rotary):
    """Rotate fast pairs at their frequency and slow ones at theirs divided by ``factor``, as Llama 3.1 does.

    Grattafiori et al. 2024, "The Llama 3 herd of models", https://arxiv.org/abs/2407.21783, and its code: the ramp of
    `YaRNRotary` over turns r_i = N w_i / (2 pi), without a temperature::

        gamma_i = clip((r_i - low) / (high - low), 0, 1),    w'_i = (1 - gamma_i) w_i / factor + gamma_i w_i

    Args:
        head_dim: channels per head, D; positive and even.
        max_positions: longest text of the network in tokens; N where ``original_positions`` is not given.
        original_positions: original length N in tokens, that is the length of pre-training; positive.
        base: sets the longest wavelength, about 2 pi * base tokens before scaling; greater than 1. Llama 3 has 500,000.
        factor: how many times longer the text may grow; at least 1.
        low: pairs with fewer turns than this are slow; at least 0.
        high: pairs with more turns than this are fast; greater than low.
        share: share of the channels that rotate, as in `Rotary`.
        share_of: "channels" or "frequencies", as in `Rotary`.
        interleaved: pairs are neighbours, as in `Rotary`.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "a longer context for a trained RoPE"
    paper = "Grattafiori et al. 2024, https://arxiv.org/abs/2407.21783"

    def __init__(
        self,
        head_dim: int,
        *,
        max_positions: int,
        original_positions: int | None = None,
        base: float = 10_000.0,
        factor: float = 8.0,
        low: float = 1.0,
        high: float = 4.0,
        share: float = 1.0,
        share_of: ShareOf = "channels",
        interleaved: bool = False,
    ) -> None:
        super().__init__(head_dim, base=base, share=share, share_of=share_of, interleaved=interleaved)
        if not 0 <= low < high:
            raise ValueError(f"low and high must fulfil 0 <= low < high, got {low} and {high}")
        self.factor, self.low, self.high = _checked_factor(factor), low, high
        self.original_positions = _original(original_positions, max_positions)

    def scaled(self, frequency_K: Tensor, length: Length) -> Tensor:
        del length
        return _slower(frequency_K, self.factor, self.original_positions, self.low, self.high)


class LongRotary(_ByLength):
    """Rotate each pair at its frequency divided by a factor of its own, in texts beyond the original length by another.

    Ding et al. 2024, "LongRoPE", https://arxiv.org/abs/2402.13753, as Phi-3 and transformers have it; of a text of n
    tokens, with N the original length::

        w'_i = w_i / (long_factor_i if n > N else short_factor_i)
        magnitude = sqrt(1 + ln(factor) / ln(N)),   on queries and keys; 1 where factor is 1

    What n is, and what that means for caches, is said in `DynamicRotary`.

    Args:
        head_dim: channels per head, D; positive and even.
        max_positions: longest text of the network in tokens; N where ``original_positions`` is not given.
        original_positions: original length N in tokens, that is the length of pre-training; positive.
        base: sets the longest wavelength, about 2 pi * base tokens before scaling; greater than 1.
        factor: how many times longer the text may grow; at least 1.
        short_factor: of texts of at most N tokens, one number for each pair; None = 1 for all.
        long_factor: of longer texts; None = ``factor`` for all.
        attention_factor: in place of the magnitude above; positive.
        share: share of the channels that rotate, as in `Rotary`.
        share_of: "channels" or "frequencies", as in `Rotary`.
        interleaved: pairs are neighbours, as in `Rotary`.

    Raises:
        ValueError: an argument is out of range.
    """

    purpose = "a longer context for a trained RoPE"
    paper = "Ding et al. 2024, https://arxiv.org/abs/2402.13753"

    def __init__(
        self,
        head_dim: int,
        *,
        max_positions: int,
        original_positions: int | None = None,
        base: float = 10_000.0,
        factor: float = 2.0,
        short_factor: list[float] | None = None,
        long_factor: list[float] | None = None,
        attention_factor: float | None = None,
        share: float = 1.0,
        share_of: ShareOf = "channels",
        interleaved: bool = False,
    ) -> None:
        super().__init__(head_dim, base=base, share=share, share_of=share_of, interleaved=interleaved)
        self.factor, self.attention_factor = _checked_factor(factor), _checked_magnitude(attention_factor)
        self.original_positions, pairs = _original(original_positions, max_positions), self.channels // 2
        self.short_factor = _factors("short_factor", short_factor, pairs, 1.0)
        self.long_factor = _factors("long_factor", long_factor, pairs, self.factor)

    def scaled(self, frequency_K: Tensor, length: Length) -> Tensor:
        short_K, long_K = (frequency_K / frequency_K.new_tensor(f) for f in (self.short_factor, self.long_factor))
        is_long = length > self.original_positions
        if isinstance(is_long, Tensor):
            return torch.where(is_long.to(frequency_K.device), long_K, short_K)
        return long_K if is_long else short_K

    def magnitude(self) -> float:
        """Return the factor on both cosine and sine."""
        if self.attention_factor is not None:
            return self.attention_factor
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_positions))


def from_rope_parameters(config: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of the encoding that a configuration of transformers describes.

    >>> from transformers import LlamaConfig
    >>> parameters = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    >>> from_rope_parameters(LlamaConfig(rope_parameters=parameters))
    ('rope-linear', {'base': 10000.0, 'factor': 4.0})

    Kinds of layers (``layer_types``) give a pattern, such as "rope:sliding@512*5,rope:full" for Gemma 3, whose windows
    are those of ``sliding_window``.

    Args:
        config: with ``rope_parameters``, and ``max_position_embeddings`` where these leave a length out.

    Raises:
        BadInput: there are no parameters, or their type or a kind of layer is unknown.
    """
    parameters: Any = getattr(config, "rope_parameters", None)
    if not isinstance(parameters, dict):
        raise BadInput("config must have rope_parameters, got none")
    values = cast("dict[str, Any]", parameters)
    types: list[str] = list(getattr(config, "layer_types", None) or ())
    by_type = {kind for kind, value in values.items() if isinstance(value, dict) and kind.endswith("_attention")}
    if not types and not by_type:
        return _of_parameters(config, values)
    if unknown := {*types} - {"full_attention", "sliding_attention"} or not types:
        raise BadInput(
            f"layer_types must name full_attention and sliding_attention for each layer, got {unknown or None}"
        )
    layers: list[str] = []
    options: dict[str, dict[str, Any]] = {}
    for kind in types:
        name, options_of_kind = _of_parameters(config, values[kind] if by_type else values)
        label = f":{kind.removesuffix('_attention')}" if by_type else ""
        options[name + label] = options_of_kind
        layers.append(name + label + (f"@{config.sliding_window}" if kind == "sliding_attention" else ""))
    runs = [(layer, len([*run])) for layer, run in groupby(layers)]
    return ",".join(layer if count == 1 else f"{layer}*{count}" for layer, count in runs), options


def _of_parameters(config: Any, values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of one kind of layer."""
    kind, values = values.get("rope_type", "default"), {**values}
    longest: int = getattr(config, "max_position_embeddings", 0)
    original = values.get("original_max_position_embeddings") or longest
    if values.get("factor") is None and kind in ("yarn", "longrope"):
        values["factor"] = longest / original
    names = {
        "default": ("rope", ()),
        "proportional": ("rope-linear" if values.get("factor", 1.0) != 1 else "rope", ()),
        "linear": ("rope-linear", ()),
        "dynamic": ("rope-dynamic", ()),
        "yarn": ("rope-yarn", ("attention_factor", "truncate")),
        "llama3": ("rope-llama3", ()),
        "longrope": ("rope-longrope", ("attention_factor", "short_factor", "long_factor")),
    }
    if kind not in names:
        raise BadInput(f"rope_type must be one of {', '.join(names)}, got {kind!r}")
    name, taken = names[kind]
    options: dict[str, Any] = {"base": values.get("rope_theta", 10_000.0)}
    if values.get("partial_rotary_factor", 1.0) != 1:
        options["share"] = values["partial_rotary_factor"]
    if kind == "proportional":
        options["share_of"] = "frequencies"
    if name != "rope":
        options["factor"] = values["factor"]
    if kind == "dynamic":
        options["original_positions"] = longest
    elif kind in ("yarn", "llama3", "longrope"):
        options["original_positions"] = original
    options |= {key: values[key] for key in taken if values.get(key) is not None}
    if kind == "yarn":
        options |= {"alpha": values.get("beta_slow") or 1.0, "beta": values.get("beta_fast") or 32.0}
        over, under = values.get("mscale"), values.get("mscale_all_dim")
        if "attention_factor" not in options and over and under:
            by_factor = 0.1 * math.log(max(float(values["factor"]), 1.0))
            options["attention_factor"] = (over * by_factor + 1) / (under * by_factor + 1)
    elif kind == "llama3":
        options |= {"low": values["low_freq_factor"], "high": values["high_freq_factor"]}
    return name, options


def _geometric(channels: int, base: float | Tensor, dtype: torch.dtype, device: torch.device | None) -> Tensor:
    two_i_K = torch.arange(0, channels, 2, device=device, dtype=dtype)
    return base ** (-two_i_K / channels)


def _slower(frequency_K: Tensor, factor: float, original: int, low: float, high: float) -> Tensor:
    """Return frequencies that are divided by a factor where pairs make few turns over the original length."""
    turns_K = original * frequency_K / (2 * math.pi)
    keep_K = ((turns_K - low) / (high - low)).clamp(0, 1)
    return frequency_K * (keep_K + (1 - keep_K) / factor)


def _original(original_positions: int | None, max_positions: int) -> int:
    original = max_positions if original_positions is None else original_positions
    if original <= 0:
        raise ValueError(f"original_positions (or max_positions) must be positive, got {original}")
    return original


def _checked_factor(factor: float) -> float:
    if not 1 <= factor < math.inf:
        raise ValueError(f"factor must be at least 1{' and finite' if factor > 1 else ''}, got {factor}")
    return factor


def _checked_magnitude(attention_factor: float | None) -> float | None:
    if attention_factor is not None and not 0 < attention_factor < math.inf:
        raise ValueError(f"attention_factor must be positive and finite, got {attention_factor}")
    return attention_factor


def _factors(name: str, factors: list[float] | None, pairs: int, default: float) -> tuple[float, ...]:
    if factors is None:
        return (default,) * pairs
    if len(factors) != pairs or not all(0 < factor < math.inf for factor in factors):
        raise ValueError(f"{name} must be {pairs} positive numbers, one for each pair of channels, got {list(factors)}")
    return tuple(factors)
