"""Examples of a stream by number: reading on is cheap, and going back starts from a place that was noted."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.data import Dataset

from wordorder.data.examples.datasets import Example, Key
from wordorder.data.streaming.blocks import Blocks
from wordorder.data.streaming.sharing import Sharing
from wordorder.errors import RunFailed

_NOTED = 8
"""Number of places that are kept. A checkpoint is written while the loader is already a batch ahead, so the newest
place may lie behind what has been trained on."""


class StreamedDataset(Dataset[Example], ABC):
    """Base class of streamed segments and streamed lanes: asked for example n, they read on until they have it.

    A sampler asks for the examples of a process in order, from wherever a resumed run goes on. The state holds a few
    places to begin at; it only saves reading: without it the same examples come, found again from the beginning.
    """

    def __init__(self, blocks: Blocks, sharing: Sharing) -> None:
        self._blocks, self._sharing = blocks, sharing
        self._noted: list[tuple[int, Any]] = [(0, self._place())]

    def __len__(self) -> int:
        return len(self._sharing)

    def __getitem__(self, key: Key) -> Example:
        return self.__getitems__([key])[0]

    @abstractmethod
    def __getitems__(self, keys: Sequence[Key]) -> list[Example]:
        """Return the examples of some keys, reading on or going back as far as they need."""

    def own_number(self, key: Key) -> int:
        """Return this process's number for an example.

        Args:
            key: (epoch, number) of a sampler; where an epoch of the text ends, the stream knows alone.
        """
        return self._sharing.own(key[1] if isinstance(key, tuple) else key)

    @abstractmethod
    def _place(self) -> object:
        """Return the place where reading goes on, as plain values."""

    @abstractmethod
    def _go_to(self, first: int, place: Any) -> None:
        """Go on reading at a place from `_place`, where example `first` comes next."""

    def _note(self, first: int, *, at_least: int) -> None:
        """Note the present place, unless one was noted a few examples ago."""
        if first - self._noted[-1][0] >= at_least:
            # the first place of all is kept, so that every example can be found again
            self._noted = [self._noted[0], *self._noted[1:][1 - _NOTED :], (first, self._place())]

    def _return_to(self, number: int) -> None:
        """Go back to the last noted place that is not behind an example."""
        self._noted = [noted for noted in self._noted if noted[0] <= number]
        self._go_to(*self._noted[-1])

    def state_dict(self) -> dict[str, Any]:
        """Return the state: places to begin at, so that not all is read again, and the log of texts passed over."""
        return {
            "source": self._blocks.fingerprint,
            "places": [[first, place] for first, place in self._noted],
            "log": self._blocks.log.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state and go on reading from it.

        Raises:
            RunFailed: the source is another one than that of the state.
        """
        if state["source"] != self._blocks.fingerprint:
            raise RunFailed(
                "the streamed source is not the one of the checkpoint: other files, sizes or contents; bring it back"
            )
        self._noted = [(int(first), place) for first, place in state["places"]]
        self._blocks.log.load_state_dict(state["log"])
        self._go_to(*self._noted[-1])
