"""Attention masks, kept as conditions so that tiles can build only the parts that they need."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from wordorder.errors import BadInput
from wordorder.ops.execution import is_sparse
from wordorder.ops.positions import Contiguous, Packed, Positions, check_rows_agree, last_positions, shift_between


@dataclass(frozen=True)
class Mask:
    """An attention mask: keys within a band of distances, that are tokens and of the same packed sequence.

    A query sees a key where ``low <= position(key) - position(query) <= high``. A causal mask has high = 0; with low =
    1 - w as well it is a window of w tokens, the query's own included, and Transformer-XL's ``same_length`` where w is
    the memory's length; low = 1 lets a query see what follows it alone (memory that looks ahead).

    Args:
        query: positions of the queries.
        key: positions of the keys.
        low: the lowest distance that is seen; None = all to the left.
        high: the highest one; None = all to the right.
        tokens_BS: bool (B, S), False where a key is padding; None = every key is a token.

    Raises:
        ValueError: one of query and key is packed and the other is not, so that nobody can say who sees whom; or low is
            above high, which would leave nothing to see.
        BadInput: tokens_BS is not a bool tensor (B, S), or query and key are of different numbers of rows.
    """

    query: Positions
    key: Positions
    low: int | None = None
    high: int | None = None
    tokens_BS: Tensor | None = None

    def __post_init__(self) -> None:
        if self.tokens_BS is not None:
            _check_tokens(self.tokens_BS)
        if isinstance(self.query, Packed) != isinstance(self.key, Packed):
            kinds = type(self.query).__name__, type(self.key).__name__
            raise ValueError(f"query and key must both be Packed or neither, got {kinds[0]} and {kinds[1]}")
        if self.query is not self.key:
            check_rows_agree("query", self.query, "key", self.key)
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low must be at most high, or there is nothing to see; got {self.low} and {self.high}")

    @property
    def has_band(self) -> bool:
        """Whether distances decide what is seen."""
        return self.low is not None or self.high is not None

    @property
    def sees_left(self) -> bool:
        """Whether a query may see its own position or one before it."""
        return self.low is None or self.low < 1

    @property
    def sees_right(self) -> bool:
        """Whether a query may see a position after its own."""
        return self.high is None or self.high > 0

    @property
    def hides_nothing(self) -> bool:
        """True if every query is known to see every key, without looking at a tensor."""
        return not self.has_band and self.tokens_BS is None and not isinstance(self.key, Packed)

    @property
    def diagonals(self) -> tuple[int | None, int | None] | None:
        """Lowest and highest visible j - i, each None if there is no end; None if j - i does not decide visibility."""
        shift = shift_between(self.query, self.key)
        if shift is None:
            return None
        return None if self.low is None else self.low - shift, None if self.high is None else self.high - shift

    @property
    def is_plain_causal(self) -> bool:
        """True if the mask is the lower triangle and nothing else, for backends that know that mask by name."""
        # offsets in tensors are not compared: that would read them
        return (
            (self.low, self.high) == (None, 0)
            and self.tokens_BS is None
            and shift_between(self.query, self.key) == 0
            and self.query.length == self.key.length
        )

    def windowed(self, window: int) -> "Mask":
        """Return the mask with |distance| < window as well."""
        low = 1 - window if self.low is None else max(self.low, 1 - window)
        return replace(self, low=low, high=window - 1 if self.high is None else min(self.high, window - 1))

    def last(self, keys: int) -> "Mask":
        """Return the mask over the last so many keys."""
        tokens_BS = None if self.tokens_BS is None else self.tokens_BS[:, self.key.length - keys :]
        return replace(self, key=last_positions(self.key, keys), tokens_BS=tokens_BS)

    def dense(self, device: torch.device | None = None) -> Tensor | None:
        """Return the mask as bool (B or 1, 1, T or 1, S), True = visible; None where nothing is hidden."""
        return self.tile(slice(None), slice(None), device)

    def tile(self, rows: slice, keys: slice, device: torch.device | None = None) -> Tensor | None:
        """Return these rows and columns of `dense`: bool (B or 1, 1, R or 1, E), or None."""
        conditions: list[Tensor] = []
        if self.tokens_BS is not None:
            conditions.append(self.tokens_BS.to(device)[:, None, keys])
        if isinstance(self.query, Packed) and isinstance(self.key, Packed):
            query_BR, key_BE = self.query.sequence_BT.to(device)[:, rows], self.key.sequence_BT.to(device)[:, keys]
            conditions.append(query_BR[:, :, None] == key_BE[:, None, :])
        if self.has_band:
            query_BR, key_BE = part_of(self.query, rows, device), part_of(self.key, keys, device)
            distance_BRE = key_BE[:, None, :] - query_BR[:, :, None]
            if self.high is not None:
                conditions.append(distance_BRE <= self.high)
            if self.low is not None:
                conditions.append(distance_BRE >= self.low)
        if not conditions:
            return None
        visible_BRE = conditions[0]
        for condition in conditions[1:]:
            visible_BRE = visible_BRE & condition
        return visible_BRE[:, None]


def part_of(positions: Positions, part: slice, device: torch.device | None) -> Tensor:
    """Return the positions of some tokens, long (1 or B, R); of contiguous ones no others are made."""
    if not isinstance(positions, Contiguous) or part.start is None:
        return positions.index_BT(device)[:, part]
    offset = positions.offset
    if isinstance(offset, Tensor):
        offset = offset.to(device)[:, None]
        device = offset.device
    return torch.arange(part.start, part.stop, device=device)[None] + offset


def seen_diagonals(mask: Mask | Tensor | None, left: int | None, diagonals: int) -> slice:
    """Return the diagonals on which some query can see its key, as far as the mask's type says.

    Args:
        mask: who sees whom; of a tensor nothing is known.
        left: number of diagonals, the first ones, that hold no key to the right (`diagonals_not_to_the_right`); None
            where it differs by example.
        diagonals: T + S - 1.
    """
    # the ends of the slice depend on lengths, which exporters leave open
    if not isinstance(mask, Mask) or left is None or torch.compiler.is_compiling():
        return slice(0, diagonals)
    return slice(0 if mask.sees_left else left, diagonals if mask.sees_right else left)


def _check_tokens(tokens: object) -> None:
    """Refuse a padding mask that is not a bool tensor: a float one may be additive, with 0 where a token is."""
    if isinstance(tokens, Tensor) and tokens.dtype == torch.bool and tokens.dim() == 2:
        return
    if not isinstance(tokens, Tensor):
        remedy = "make it one with torch.tensor(..., dtype=torch.bool)"
    elif tokens.dtype == torch.bool:
        remedy = "give each text one row"
    else:
        remedy = "convert it, as with mask == 1 where 1 is a token"
    raise BadInput(f"tokens_BS must be a bool tensor (batch, tokens), True = token, got {_described(tokens)}; {remedy}")


def _described(value: object) -> str:
    """Return dtype and shape of a tensor, or the type of anything else."""
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def valid_tokens(
    key_padding_mask: Tensor | None, batch: int, tokens: int, *, cached: int = 0, device: torch.device | None = None
) -> Tensor | None:
    """Return a bool mask (B, S), True = token, from a padding mask as `torch.nn.MultiheadAttention` takes it.

    Raises:
        BadInput: as in `check_key_padding`.
    """
    check_key_padding("key_padding_mask", key_padding_mask, batch, tokens, cached=cached, device=device)
    return None if key_padding_mask is None else ~key_padding_mask


def check_values(name: str, tensor: Tensor, device: torch.device | None) -> None:
    """Raise BadInput where a tensor is on the meta device and the tokens are on one with values; None is unknown."""
    if device is not None and tensor.device.type == "meta" != device.type:
        raise BadInput(
            f"{name} is on the meta device, without values, and the tokens are on {device}: make it with values"
        )


def check_key_padding(
    name: str, mask: object, batch: int, tokens: int, *, cached: int = 0, device: torch.device | None = None
) -> None:
    """Refuse a padding mask (True = padding) that is not bool (batch, tokens): any other may mean the opposite.

    Args:
        cached: number of tokens in a cache, which ``tokens`` includes; for the message.
        device: of the tokens.

    Raises:
        BadInput: names what was given and the remedy; or it is sparse, or without values where ``device`` has some.
    """
    if mask is None:
        return
    if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == (batch, tokens):
        if is_sparse(mask):
            raise BadInput(f"{name} must be a dense tensor, got {mask.layout}; take {name}.to_dense()")
        check_values(name, mask, device)
        return
    if not isinstance(mask, Tensor):
        remedy = "make it a tensor"
    elif mask.dtype == torch.bool:
        remedy = "give one value for each token"
    else:
        remedy = "a Hugging Face attention_mask is the other way round: pass attention_mask == 0"
    held = f", the {cached} tokens of the cache included" if cached else ""
    raise BadInput(
        f"{name} must be bool (batch, tokens) = {(batch, tokens)}{held}, True = padding, got {_described(mask)};"
        f" {remedy}"
    )
