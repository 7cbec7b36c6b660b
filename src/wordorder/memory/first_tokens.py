"""Segment recurrence that never drops the first tokens of a text."""

from dataclasses import dataclass

import torch
from torch import Tensor

from wordorder.memory.segment_recurrence import SegmentRecurrence
from wordorder.memory.state import MemoryState


@dataclass(frozen=True)
class FirstTokensRecurrence(SegmentRecurrence):
    """Segment recurrence that keeps the first tokens of each text, and the newest ones beside them.

    Xiao et al. 2024, "Efficient streaming language models with attention sinks" (StreamingLLM),
    https://arxiv.org/abs/2309.17453, Sec. 3.2: trained decoders attend to a text's first tokens whatever those are, and
    fail once these are gone. Of M slots the first ``first`` hold the text's first tokens, and the others its newest.

    Positions are those of the window, as in the paper: where tokens between them are gone, the first tokens stand right
    before the oldest of the others. A layer with a window loses sight of them. Differs from the paper: states are kept,
    as in `SegmentRecurrence`, and not keys.

    Args:
        length: most slots, M; positive.
        first: of these the ones for the first tokens; positive and less than length. The paper takes 4.
        same_length: must be False: it would hide the first tokens.

    Raises:
        ValueError: an argument is out of range.
    """

    name = "first-tokens"
    first: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.first) is not int or not 0 < self.first < self.length:
            raise ValueError(f"first must be a whole number in 1 .. length - 1 = {self.length - 1}, got {self.first!r}")
        if self.same_length:
            raise ValueError("same_length would hide the first tokens, which this memory is for; leave it out")

    def survivors(self, state: MemoryState) -> slice | Tensor:
        """Return each row's first tokens and its newest ones."""
        valid_BS, columns = state.valid_BM, state.length
        if valid_BS is None:
            newest = range(columns - self.length + self.first, columns)
            return torch.tensor([*range(self.first), *newest], device="cpu")
        # a row with fewer tokens than slots keeps its last columns, all of its tokens among them
        oldest_B1 = valid_BS.int().argmax(dim=1, keepdim=True).clamp(max=columns - self.length)
        slot_M = torch.arange(self.length, device=valid_BS.device)
        return torch.where(slot_M < self.first, oldest_B1 + slot_M, columns - self.length + slot_M)
