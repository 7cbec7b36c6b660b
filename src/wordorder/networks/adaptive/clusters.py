"""Cut a large vocabulary into clusters of words that are equally common, for adaptive input and output."""

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, kw_only=True)
class AdaptiveClusters:
    """A vocabulary sorted by falling frequency, in clusters whose vectors become narrower by a divisor.

    Grave et al. 2017, https://arxiv.org/abs/1609.04309; names of Dai et al. 2019, https://arxiv.org/abs/1901.02860
    (``cutoffs``, ``div_val``). Cluster i holds the ids ``ends[i] .. ends[i + 1] - 1`` of ``ends = (0, *cutoffs, V)``;
    its vectors have ``width // divisor ** i`` channels.

    Args:
        vocabulary: number of token ids, V.
        channels: of the model, C.
        cutoffs: the first id of every cluster but the first; growing, within 1 .. V - 1; at least one.
        divisor: how much narrower each cluster is than the one before; 1 = all have one width, and one table.
        width: of the first cluster's vectors; None = channels.

    Raises:
        ValueError: an argument is out of range.
    """

    vocabulary: int
    channels: int
    cutoffs: tuple[int, ...]
    divisor: int = 1
    width: int | None = None

    def __post_init__(self) -> None:
        for name in ("vocabulary", "channels", "divisor", "width"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be positive, got {value}")
        if not self.cutoffs:
            raise ValueError("cutoffs must name at least one id; without clusters leave them out")
        if any(end <= start for start, end in pairwise(self.ends)):
            raise ValueError(
                f"cutoffs must grow and lie within 1 .. {self.vocabulary - 1}, got {', '.join(map(str, self.cutoffs))}"
            )
        if self.widths[-1] == 0:
            raise ValueError(
                f"divisor={self.divisor} leaves no channel to cluster {len(self.cutoffs)} of a width of"
                f" {self.widths[0]}; lower divisor, or take fewer cutoffs"
            )

    @property
    def ends(self) -> tuple[int, ...]:
        """Ends of the clusters: 0, the cutoffs, V."""
        return (0, *self.cutoffs, self.vocabulary)

    @property
    def count(self) -> int:
        """Number of clusters, the first one included."""
        return len(self.cutoffs) + 1

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of each cluster's vectors."""
        return tuple((self.width or self.channels) // self.divisor**index for index in range(self.count))

    @property
    def tables(self) -> tuple[tuple[int, int], ...]:
        """Sizes (rows, channels) of each table: one of all words where all clusters have one width."""
        if self.divisor == 1:
            return ((self.vocabulary, self.widths[0]),)
        sizes = (end - start for start, end in pairwise(self.ends))
        return tuple(zip(sizes, self.widths, strict=True))

    @property
    def projected(self) -> bool:
        """True if vectors are projected to and from the model's channels: always where clusters differ in width.

        The first cluster is then projected too, however wide it is, as in the code of Transformer-XL and of adaptive
        input.
        """
        return self.divisor > 1 or self.widths[0] != self.channels
