"""Attention masks, kept as conditions so that tiles can build only the parts that they need."""

from dataclasses import dataclass

import torch
from torch import Tensor

from wordorder.errors import BadInput
from wordorder.ops.execution import is_sparse
from wordorder.ops.positions import Packed, Positions, check_rows_agree, shift_between


@dataclass(frozen=True)
class Visibility:
    """An attention mask as a product of conditions: the key is a token, of the same packed sequence, on a visible side.

    Args:
        query: positions of the queries.
        key: positions of the keys.
        causal: a query sees only keys at its own position or before it.
        valid_BS: bool (B, S), False where a key is padding; None = every key is a token.
        ahead: a query sees only keys strictly after its own position (memory that looks ahead); not with causal.
        within: with causal, a query sees only keys at a distance below this, its own position being at distance 0;
            None = all before it. Transformer-XL's ``same_length`` is the memory's length here.

    Raises:
        ValueError: one of query and key is packed and the other is not, so that nobody can say who sees whom; causal
            and ahead come together, which would leave nothing to see; within is below 1 or comes without causal.
        BadInput: valid_BS is not a bool tensor (B, S), or query and key are of different numbers of rows.
    """

    query: Positions
    key: Positions
    causal: bool = False
    valid_BS: Tensor | None = None
    ahead: bool = False
    within: int | None = None

    def __post_init__(self) -> None:
        _check_valid(self.valid_BS)
        if isinstance(self.query, Packed) != isinstance(self.key, Packed):
            kinds = type(self.query).__name__, type(self.key).__name__
            raise ValueError(f"query and key must both be Packed or neither, got {kinds[0]} and {kinds[1]}")
        check_rows_agree("query", self.query, "key", self.key)
        if self.causal and self.ahead:
            raise ValueError("causal and ahead together leave nothing to see; choose one of them")
        if self.within is not None and (self.within < 1 or not self.causal):
            raise ValueError(f"within must be at least 1 and goes with causal=True, got {self.within}, {self.causal}")

    @property
    def hides_nothing(self) -> bool:
        """True if every query is known to see every key, without looking at a tensor."""
        return not (self.causal or self.ahead) and self.valid_BS is None and not isinstance(self.key, Packed)

    @property
    def diagonals(self) -> tuple[int | None, int | None] | None:
        """Lowest and highest visible j - i, each None if there is no end; None if j - i does not decide visibility."""
        shift = shift_between(self.query, self.key)
        if shift is None:
            return None
        if self.ahead:
            return 1 - shift, None
        if not self.causal:
            return None, None
        return None if self.within is None else 1 - self.within - shift, -shift

    @property
    def is_plain_causal(self) -> bool:
        """True if the mask is the lower triangle and nothing else, for backends that know that mask by name."""
        # offsets in tensors are not compared: that would read them
        return (
            self.causal
            and self.within is None
            and self.valid_BS is None
            and shift_between(self.query, self.key) == 0
            and self.query.length == self.key.length
        )

    def dense(self, device: torch.device | None = None) -> Tensor | None:
        """Return the mask as bool (B or 1, 1, T or 1, S), True = visible; None where nothing is hidden."""
        return self.tile(slice(None), slice(None), device)

    def tile(self, rows: slice, keys: slice, device: torch.device | None = None) -> Tensor | None:
        """Return these rows and columns of `dense`: bool (B or 1, 1, R or 1, E), or None."""
        conditions: list[Tensor] = []
        if self.valid_BS is not None:
            conditions.append(self.valid_BS.to(device)[:, None, keys])
        if isinstance(self.query, Packed) and isinstance(self.key, Packed):
            query_BR, key_BE = self.query.sequence_BT.to(device)[:, rows], self.key.sequence_BT.to(device)[:, keys]
            conditions.append(query_BR[:, :, None] == key_BE[:, None, :])
        if self.causal or self.ahead:
            query_BR, key_BE = self.query.index_BT(device)[:, rows], self.key.index_BT(device)[:, keys]
            back_BRE = query_BR[:, :, None] - key_BE[:, None, :]
            conditions.append(back_BRE >= 0 if self.causal else back_BRE < 0)
            if self.within is not None:
                conditions.append(back_BRE < self.within)
        if not conditions:
            return None
        visible_BRE = conditions[0]
        for condition in conditions[1:]:
            visible_BRE = visible_BRE & condition
        return visible_BRE[:, None]


def seen_diagonals(visible: Visibility | Tensor | None, left: int | None, diagonals: int) -> slice:
    """Return the diagonals on which some query can see its key, as far as the mask's type says.

    Args:
        visible: who sees whom; of a tensor nothing is known.
        left: number of diagonals, the first ones, that hold no key to the right (`diagonals_not_to_the_right`); None
            where it differs by example.
        diagonals: T + S - 1.
    """
    # the ends of the slice depend on lengths, which exporters leave open
    if not isinstance(visible, Visibility) or left is None or torch.compiler.is_compiling():
        return slice(0, diagonals)
    return slice(left if visible.ahead else 0, left if visible.causal else diagonals)


def _check_valid(valid: object) -> None:
    """Refuse a padding mask that is not a bool tensor: a float one may be additive, with 0 where a token is."""
    if valid is None or (isinstance(valid, Tensor) and valid.dtype == torch.bool and valid.dim() == 2):
        return
    given, remedy = type(valid).__name__, "make it one with torch.tensor(..., dtype=torch.bool)"
    if isinstance(valid, Tensor):
        given, remedy = f"{valid.dtype} {tuple(valid.shape)}", "give each text one row"
        if valid.dtype != torch.bool:
            remedy = "convert it, as with mask == 1 where 1 is a token"
    raise BadInput(f"valid_BS must be a bool tensor (batch, tokens), True = token, got {given}; {remedy}")


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

    Raises:
        BadInput: names what was given and the remedy; or it is sparse, or without values where the tokens' ``device``
            has some. ``cached`` is the number of tokens in the cache, for the message.
    """
    if mask is None:
        return
    if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == (batch, tokens):
        if is_sparse(mask):
            raise BadInput(f"{name} must be a dense tensor, got {mask.layout}; take {name}.to_dense()")
        check_values(name, mask, device)
        return
    given, remedy = type(mask).__name__, "make it a tensor"
    if isinstance(mask, Tensor):
        given, remedy = f"{mask.dtype} {tuple(mask.shape)}", "give one value for each token"
        if mask.dtype != torch.bool:
            remedy = "a Hugging Face attention_mask is the other way round: pass attention_mask == 0"
    held = f", the {cached} tokens of the cache included" if cached else ""
    raise BadInput(
        f"{name} must be bool (batch, tokens) = {(batch, tokens)}{held}, True = padding, got {given}; {remedy}"
    )
