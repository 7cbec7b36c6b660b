"""Division of the numbered examples of a training among processes, and the numbers that each gives to its own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Division of a training's examples among processes: batch after batch, to the processes in turn.

    So accelerate does it with the batches of a sampler: example n is in batch n // batch, which is of process
    (n // batch) % world. Each process numbers its own examples from 0.

    Args:
        accumulation: micro-batches of a step of one process, pieces of a segment counted too.
        parts: pieces in which a step reads each segment, see `Lanes`.
    """

    batch: int
    accumulation: int
    steps: int
    rank: int = 0
    world: int = 1
    parts: int = 1

    def __len__(self) -> int:
        """Return the number of examples of all processes."""
        return self.batch * self.accumulation * self.world * self.steps

    @property
    def rows(self) -> int:
        """Number of rows of a step, of all processes."""
        return self.batch * (self.accumulation // self.parts) * self.world

    def own(self, index: int) -> int:
        """Return the number that this process has for an example.

        Raises:
            IndexError: there is no such example, or it is another process's.
        """
        micro, row = divmod(index, self.batch)
        if not 0 <= index < len(self) or micro % self.world != self.rank:
            raise IndexError(f"example {index} of {len(self)} is not one of process {self.rank} of {self.world}")
        return micro // self.world * self.batch + row
