"""What memory costs beside plain attention: the relative term of Transformer-XL, and LaMemo's merge of two read-outs.

    python benchmarks/memory.py --json benchmarks/results/memory.json

Every section is one run: candidates in turn, ratios within a round, medians of CPU time (see timing.py).

relative: N queries over K = 2 N keys, causal, with the four terms of Transformer-XL, forward and backward down to
queries, keys, values, projected distances and both vectors. The limit, 1.00, is the formulation of the papers' code:
time before batch before heads, einsum "ibnd,jnd->ijbn", the shift by concatenation and view, softmax over axis 1.

merge: N slots read N keys strictly after them and merge that with what they have read before, forward and backward
down to queries, keys and values. The limit, 1.00, is torch's scaled_dot_product_attention with the same mask, which a
tensor says, and no merge.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from timing import interleave, machine
from torch import Tensor
from torch.nn import functional as F

from wordorder.attention import attention
from wordorder.attention.backends.reference import log_sum_exp
from wordorder.encodings import ContentTerm, Terms
from wordorder.ops import Contiguous, Mask, RelativeBias, merge_read_outs

BATCH, HEADS, CHANNELS = 4, 8, 64
SCALE = CHANNELS**-0.5
PLAIN_CODE, MASKED = "operations of the papers' code", "SDPA with the mask, no merge"
RELATIVE = ((128, 256, 21), (384, 768, 9))  # queries, keys, rounds
MERGE = ((128, 31), (512, 15))  # slots and keys, rounds


class Relative(ContentTerm):
    """The term of `TransformerXL` to the left, from rows that are projected already: both sides share that map."""

    def __init__(self, rows_SHD: Tensor, u_HD: Tensor, v_HD: Tensor) -> None:
        self.rows_SHD, self.u_HD, self.v_HD = rows_SHD, u_HD, v_HD

    def layer(self, index: int) -> "Relative":
        """The same in every layer."""
        return self

    def scores(self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: object) -> Tensor:
        """Not used: attention calls `as_bias`."""
        raise NotImplementedError

    def as_bias(
        self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: object, *, rotated: bool
    ) -> tuple[Tensor, RelativeBias]:
        """Return u, which is added to the queries, and the products with the rows as a bias."""
        rows_HSD = scale * self.rows_SHD.transpose(0, 1)
        return self.u_HD[:, None], RelativeBias(q_BHTD + self.v_HD[:, None], rows_HSD[None], k_BHSD.shape[2])


def projected(tokens: int, *, parts: int) -> list[Tensor]:
    """Leaves (B, H, T, D) in the layout in which a projection leaves them."""
    shape = BATCH, tokens, HEADS, CHANNELS
    return [torch.randn(shape).transpose(1, 2).detach().requires_grad_() for _ in range(parts)]


def relative_by_plain_code(queries: int, keys: int) -> Callable[[], Any]:
    """`RelPartialLearnableMultiHeadAttn` of the papers' code, from projections to read-outs, without dropout."""
    q, k, v = (torch.randn(n, BATCH, HEADS, CHANNELS).requires_grad_() for n in (queries, keys, keys))
    rows = torch.randn(keys, HEADS, CHANNELS, requires_grad=True)  # of the distances keys - 1 .. 0
    u, w = (torch.randn(HEADS, CHANNELS, requires_grad=True) for _ in range(2))
    hidden = torch.ones(queries, keys).triu(1 + keys - queries).bool()[:, :, None, None]
    upstream = torch.randn(queries, BATCH, HEADS, CHANNELS)

    def run() -> Any:
        by_content = torch.einsum("ibnd,jbnd->ijbn", q + u, k)
        by_distance = torch.einsum("ibnd,jnd->ijbn", q + w, rows)
        padded = torch.cat([by_distance.new_zeros(queries, 1, BATCH, HEADS), by_distance], dim=1)
        shifted = padded.view(keys + 1, queries, BATCH, HEADS)[1:].view_as(by_distance)
        scores = (by_content + shifted).mul_(SCALE).masked_fill(hidden, -torch.inf)
        read = torch.einsum("ijbn,jbnd->ibnd", F.softmax(scores, dim=1), v)
        return torch.autograd.grad(read, [q, k, v, rows, u, w], upstream)

    return run


def relative(queries: int, keys: int) -> dict[str, Callable[[], Any]]:
    """The same attention in several ways, and without the relative terms."""
    torch.manual_seed(0)
    (q,), (k, v) = projected(queries, parts=1), projected(keys, parts=2)
    rows = torch.randn(keys, HEADS, CHANNELS, requires_grad=True)
    u, w = (torch.randn(HEADS, CHANNELS, requires_grad=True) for _ in range(2))
    order = Terms(SCALE, content=(Relative(rows, u, w),))
    mask = Mask(Contiguous(queries, keys - queries), Contiguous(keys), high=0)
    upstream, visible = torch.randn(BATCH, queries, HEADS, CHANNELS).transpose(1, 2), mask.dense()

    def ours(backend: str | None) -> Any:
        read = attention(q, k, v, order, mask, backend=backend)
        return torch.autograd.grad(read, [q, k, v, rows, u, w], upstream)

    def nothing() -> Any:
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=SCALE)
        return torch.autograd.grad(read, [q, k, v], upstream)

    return {
        PLAIN_CODE: relative_by_plain_code(queries, keys),
        "wordorder": lambda: ours(None),
        "wordorder, SDPA with the term as mask": lambda: ours("sdpa"),
        "SDPA, no relative term": nothing,
    }


def merge(slots: int) -> dict[str, Callable[[], Any]]:
    """Reading ahead and merging in several ways, and reading ahead alone."""
    torch.manual_seed(0)
    q, k, v = projected(slots, parts=3)
    (old,), old_lse = projected(slots, parts=1), torch.randn(BATCH, HEADS, slots) + 5
    old = old.detach()
    mask = Mask(Contiguous(slots), Contiguous(slots, 1), low=1)
    upstream, visible = torch.randn(BATCH, slots, HEADS, CHANNELS).transpose(1, 2), mask.dense()
    assert visible is not None

    def step(read: Tensor) -> Any:
        return torch.autograd.grad(read, [q, k, v], upstream)

    def ours() -> Any:
        new, new_lse = attention(q, k, v, mask=mask, return_lse=True)
        return step(merge_read_outs(old, old_lse, new, new_lse)[0])

    def written_out() -> Any:
        scores = (SCALE * q @ k.transpose(-1, -2)).masked_fill(~visible, -torch.inf)
        return step(merge_read_outs(old, old_lse, scores.softmax(-1) @ v, log_sum_exp(scores))[0])

    def no_merge() -> Any:
        return step(F.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=SCALE))

    return {MASKED: no_merge, "wordorder": ours, "softmax and logsumexp, written out": written_out}


def measure(only: Sequence[str], *, rounds: int | None) -> dict[str, Any]:
    """All sections that are asked for."""
    found: dict[str, Any] = {}
    sizes = f"{BATCH} x {HEADS} heads of {CHANNELS}, float32"
    if "relative" in only:
        for queries, keys, times in RELATIVE:
            rows = interleave(relative(queries, keys), limit=PLAIN_CODE, rounds=rounds or times)
            found[f"relative term, {queries} queries, {keys} keys, {sizes}"] = rows
    if "merge" in only:
        for slots, times in MERGE:
            found[f"merge, {slots} slots, {sizes}"] = interleave(merge(slots), limit=MASKED, rounds=rounds or times)
    return found


def main() -> None:
    """Print the tables, and write the file that was asked for."""
    sections = ("relative", "merge")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sections, default=sections)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, help="default: enough for quartiles within a few percent")
    parser.add_argument("--json", type=Path, help="also write the numbers and the machine to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    found = measure(arguments.only, rounds=arguments.rounds)
    for section, rows in found.items():
        print(f"\n{section}")
        for name, row in rows.items():
            low, high = row["ratio_quartiles"]
            print(f"  {name:42} {row['ratio']:6.2f} ({low:.2f} to {high:.2f}) {row['milliseconds']:9.1f} ms")
    if arguments.json:
        document = {"limit": "the first row", "clock": "CPU time", "machine": machine(), "sections": found}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
