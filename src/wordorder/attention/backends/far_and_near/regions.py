"""The parts of the scores where the bias is constant: rectangles and triangles, each a call of torch's kernel."""

# torch's lists are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from wordorder.attention.backends.far_and_near.band import Band
from wordorder.attention.backends.tiles import InTiles, Tiles
from wordorder.attention.backends.tiles.tile import TileMask
from wordorder.attention.call import Call
from wordorder.encodings import Terms
from wordorder.ops import Contiguous, LowRankBias, Mask, ToeplitzBias
from wordorder.ops.positions import shift_between

MOST_RUNS = 2
"""Most runs of tokens in an example: with more tiles, which mask what they compute, are faster."""


class Region(NamedTuple):
    """Queries and keys that see each other: all pairs, or the lower triangle, in one call of the kernel."""

    examples: slice
    queries: slice
    keys: slice
    is_triangle: bool
    side: int = 0
    """0: keys on the left, whose constant is the table's first number; 1: on the right, the last; a triangle there is
    the upper one, and the lower one of rows in reverse."""

    @property
    def rows(self) -> tuple[slice, slice, slice]:
        """Index of the queries."""
        return self.examples, slice(None), self.queries

    @property
    def columns(self) -> tuple[slice, slice, slice]:
        """Index of the keys."""
        return self.examples, slice(None), self.keys

    def in_order(self, part: Tensor) -> Tensor:
        """Return rows (B, H, N, ...) in the kernel's order, or back from it."""
        return part.flip(2) if self.side and self.is_triangle else part


class Prepared(NamedTuple):
    """Bias and mask as this backend takes them."""

    regions: tuple[Region, ...]
    factors: tuple[LowRankBias, ...]
    near: TileMask | Band | None = None
    """The band, as its device takes it; None = no key is near."""
    edges: tuple[int, int] = (0, 0)
    """The columns of T + S - 1 distances between which the band lies."""
    ends: Tensor | None = None
    """The table from the first to the second edge, as far as it has columns there, (H, X); None = there is none."""

    @property
    def columns(self) -> slice:
        """The columns of the whole table that are in ``ends``."""
        return slice(max(self.edges[0], 0), self.edges[1] + 1)

    @property
    def sides(self) -> set[int]:
        """The sides on which some query has a far key."""
        return {region.side for region in self.regions}


def prepare(terms: Terms, mask: Mask | Tensor | None, call: Call) -> Prepared | InTiles:
    """Return the parts of a call that `FarAndNear` does not refuse; for tiles, where padding is all over the text."""
    assert not isinstance(mask, Tensor)
    runs = [*_runs(None if mask is None else mask.tokens_BS, call.keys)]
    if len(runs) > MOST_RUNS * max(call.batch, 1) and call.device.type == "cpu":
        return Tiles(keep=False).prepare(terms, mask, call)
    parts = () if terms.bias is None else terms.bias.parts()
    factors = tuple(part for part in parts if isinstance(part, LowRankBias))
    table = next((part for part in parts if isinstance(part, ToeplitzBias)), None)
    mask = mask or Mask(Contiguous(call.queries), Contiguous(call.keys))
    shift = cast("int", shift_between(mask.query, mask.key))
    # all in key index less query index, j - i
    highest = call.keys - 1 if mask.high is None else min(mask.high - shift, call.keys - 1)
    edges = call.edges
    if edges is None:
        return Prepared(tuple(_regions(runs, call, highest, None)), factors)
    left, right = (edge - (call.queries - 1) for edge in edges)
    prepared = Prepared(
        tuple(_regions(runs, call, left, right if mask.high is None else None)),
        factors,
        near_keys(mask, max(left + 1, 1 - call.queries), min(highest, right - 1), call),
        edges,
    )
    if table is None:
        return prepared
    return prepared._replace(ends=table.table_HW[:, prepared.columns].expand(call.heads, -1))


def near_keys(mask: Mask, lowest: int, highest: int, call: Call) -> TileMask | Band | None:
    """Return the band of these diagonals, key index less query index: in tiles on a CPU, else in blocks."""
    if lowest > highest:
        return None
    if call.device.type != "cpu":
        return Band(lowest, highest, call.queries, call.keys, mask.tokens_BS, call.device)
    shift = cast("int", shift_between(mask.query, mask.key))
    band = Mask(mask.query, mask.key, lowest + shift, highest + shift, mask.tokens_BS)
    return TileMask(band, batch=call.batch, queries=call.queries, keys=call.keys, device=call.device)


def _regions(runs: Iterable[tuple[slice, int, int]], call: Call, left: int, right: int | None) -> Iterator[Region]:
    """Yield the regions of keys j <= i + left, and of keys j >= i + right; None = none on the right."""
    queries, keys = call.queries, call.keys
    for examples, start, stop in runs:
        for rows, columns, is_triangle in _below(left, slice(start, stop), queries):
            yield Region(examples, rows, columns, is_triangle)
        if right is None:
            continue
        # the same with queries and keys counted from the end
        for rows, columns, is_triangle in _below(keys - queries - right, slice(keys - stop, keys - start), queries):
            rows = slice(queries - rows.stop, queries - rows.start)
            columns = slice(keys - columns.stop, keys - columns.start)
            yield Region(examples, rows, columns, is_triangle, side=1)


def _runs(tokens_BS: Tensor | None, keys: int) -> Iterator[tuple[slice, int, int]]:
    """Yield examples, first key and end of each run of tokens; with padding on one side an example has one."""
    if tokens_BS is None:
        yield slice(None), 0, keys
        return
    edges = F.pad(tokens_BS.to("cpu", torch.int8), (1, 1)).diff(dim=1)
    starts, stops = (cast("list[list[int]]", (edges == step).nonzero().tolist()) for step in (1, -1))
    for (row, start), (_, stop) in zip(starts, stops, strict=True):
        yield slice(None) if tokens_BS.shape[0] == 1 else slice(row, row + 1), start, stop


def _below(offset: int, keys: slice, queries: int) -> Iterator[tuple[slice, slice, bool]]:
    """Yield queries, keys and whether they are a triangle: of keys j <= i + offset, one and what is beside it."""
    seen = min(max(offset + 1 - keys.start, 0), keys.stop - keys.start)  # by the first query
    if seen:
        yield slice(0, queries), slice(keys.start, keys.start + seen), False
    # from here on each query sees one key more than the one before it
    first, base = (1, keys.start + seen) if seen else (keys.start - offset, keys.start)
    size = min(keys.stop - base, queries - first)
    if size > 0:
        yield slice(first, first + size), slice(base, base + size), True
        if first + size < queries:
            yield slice(first + size, queries), slice(base, base + size), False
