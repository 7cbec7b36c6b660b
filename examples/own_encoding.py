"""Write an encoding, check it, and train a small encoder with and without it.

Shows: an encoding as a class of two methods, and `check_encoding`.
Prints: the findings of the checks, then the loss without positions and with the encoding.

    python examples/own_encoding.py
    wordorder compare demo --arm examples/own_encoding.py:Neighbours

`Neighbours` adds a learned number per head to the scores of the token before, the token itself and the token after.
`at_distance` defines a term of the scores that depends on distance alone.
"""

import torch
from torch import Tensor, nn

from wordorder.encodings import OnDistance, register_encoding
from wordorder.networks import check_encoding


class Neighbours(OnDistance):
    """Add a learned number to the scores of the token before, the token itself, and the token after."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.tensor([0.1, 0.0, -0.1])[:, None].repeat(1, heads))

    def at_distance(self, distance: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the term for distances ``key - query`` of any shape: (heads, *shape)."""
        near = (distance.abs() <= 1)[..., None]
        return 10 * torch.where(near, self.table[distance.clamp(-1, 1) + 1], 0).movedim(-1, 0)


if __name__ == "__main__":
    from swap_the_encoding import train

    for finding in check_encoding(Neighbours):
        print(f"{finding.kind}: {finding.check}: {finding.message}")
    register_encoding("neighbours", Neighbours)
    for encoding in ("none", "neighbours"):
        print(f"{encoding:16} loss {train(encoding, steps=60):.4f}", flush=True)
