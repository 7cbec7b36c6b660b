"""Attention over long texts on a GPU, with the bias inside torch's FlexAttention, so that no score is written out.

A mask is: `create_block_mask` makes T x S booleans for a moment.

The low-rank part becomes further channels of queries and keys, so that one product gives content and position::

    score[i, j] = [scale q_i, a_i] . [k_j, c_j] + table[j - i + T - 1]

The Toeplitz part is read from its table by a `score_mod`. FlexAttention (Dong et al. 2024,
https://arxiv.org/abs/2412.05496) writes the gradient of the table by atomic additions: one per score, spread over
2 N - 1 distances (not over 32 buckets, where they would collide).
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from wordorder.attention.backends.backend import Backend
from wordorder.attention.backends.triton import compiler_refusal
from wordorder.attention.call import Call
from wordorder.encodings import Terms
from wordorder.ops import Bias, Mask

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


class InBlocks(NamedTuple):
    """The bias, of low-rank and Toeplitz parts, and the mask as FlexAttention takes it."""

    bias: Bias | None
    blocks: "BlockMask | None"


class Flex(Backend):
    """On a GPU, a bias that would be too large written out, of heads that the Triton kernels refuse."""

    name = "flex"

    def refusal(self, call: Call) -> str | None:
        if call.return_lse or call.return_weights or call.dropout or call.content:
            return "gives no log-sum-exp, weights, dropout or terms by content; take backend='reference' or None"
        on_gpu = call.device.type == "cuda"
        if not on_gpu and call.training:  # torch's function has no gradient on a CPU
            return "trains on a CUDA device only; take backend=None"
        if not call.structured:
            return "wants a bias of low-rank and Toeplitz parts; take backend=None"
        if call.traced or call.transformed:
            return "is not traced; take backend=None"
        return compiler_refusal(call) if on_gpu else None

    def at_home(self, call: Call) -> bool:
        from wordorder.attention.backends.triton.measured import is_too_large

        return call.device.type == "cuda" and is_too_large(call)

    def compiles(self, call: Call) -> bool:
        return call.device.type == "cuda"

    def prepare(self, terms: Terms, mask: Mask | Tensor | None, call: Call) -> InBlocks:
        from wordorder.attention.backends.flex.arguments import block_mask

        blocks = block_mask(mask, call.batch, call.heads, call.queries, call.keys, call.device)
        return InBlocks(terms.bias, blocks)

    def attend(
        self,
        q_BHTD: Tensor,
        k_BHSD: Tensor,
        v_BHSE: Tensor,
        prepared: InBlocks,
        added: Bias | None,
        *,
        scale: float,
        dropout: float,
        return_lse: bool,
    ) -> tuple[Tensor, Tensor | None]:
        from wordorder.attention.backends.flex.arguments import concatenate, flex_attention

        del added, dropout, return_lse  # refused
        q, k, tables = concatenate(q_BHTD, k_BHSD, prepared.bias, scale)
        queries, score_mod = q.shape[2], None
        if tables:
            table_HW = torch.stack(tables).sum(0) if len(tables) > 1 else tables[0]

            def add_relative(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                del b
                return score + table_HW[h, j - i + (queries - 1)]

            score_mod = add_relative
        compiled = flex_attention(q.device.type)
        return compiled(q, k, v_BHSE, score_mod=score_mod, block_mask=prepared.blocks, scale=1.0), None
