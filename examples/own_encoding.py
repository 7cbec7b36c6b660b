"""An encoding of your own: the common suite tries it out, then a small encoder learns with it and without.

Shows: the six lines that an encoding of your own takes, and `check_encoding`, which tries it out.
Prints: what the suite found, then the loss without positions and with the encoding.

    python examples/own_encoding.py
    wordorder compare demo --arm examples/own_encoding.py:Neighbours

`Neighbours` adds one learned number per head to the score of the next token on either side, and to that of the token
itself; all others are left as they are. A term of the scores that depends on distance alone is `at_distance`.
"""

import torch
from torch import Tensor, nn

from wordorder.encodings import OnDistance, register_encoding
from wordorder.networks import check_encoding


class Neighbours(OnDistance):
    """Add a learned number to the scores of the token before, the token itself, and the token after."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(3, heads))

    def at_distance(self, distance: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Numbers for distances of any shape: (heads, *shape)."""
        near = (distance.abs() <= 1)[..., None]
        return torch.where(near, self.table[distance.clamp(-1, 1) + 1], 0).movedim(-1, 0)


if __name__ == "__main__":
    from swap_the_encoding import train

    for finding in check_encoding(Neighbours):
        print(f"{finding.kind}: {finding.check}: {finding.message}")
    register_encoding("neighbours", Neighbours)
    for encoding in ("none", "neighbours"):
        print(f"{encoding:16} loss {train(encoding, steps=60):.4f}", flush=True)
