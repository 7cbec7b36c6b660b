"""Blocks of a streamed source: runs of whole documents of bounded size, encoded, each process its own."""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wordorder.data.examples.encode import EncodedDocuments, encode_documents
from wordorder.data.names import ERROR, IGNORE
from wordorder.data.quality.reading_log import COPIES, LEAKS, ReadingLog
from wordorder.data.quality.same_text import HeldOut
from wordorder.data.streaming.texts import Position, Source, Text
from wordorder.errors import BadInput, RunFailed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

BLOCK = 2**20
"""Characters after which a block ends: some 250,000 tokens of words. A block is a shard of the cache."""
_SMALLEST, _EACH = 2**9, 16  # a small text has shorter blocks, so that each reader has about so many in an epoch


@dataclass(frozen=True, slots=True)
class Block:
    """Encoded documents that are read at a time, and the position at which reading goes on."""

    encoded: EncodedDocuments
    after: Position


class Blocks:
    """The blocks of one process, epoch by epoch.

    A block is a pure function of its position: whoever reads it again, after a kill for instance, gets the same.

    Args:
        leakage: what happens where a text of validation or test stands in the source with other case or punctuation.
        cache_dir: where shards are kept; None keeps none.
    """

    def __init__(
        self,
        source: Source,
        tokenizer: "PreTrainedTokenizerFast",
        *,
        held_out: HeldOut,
        leakage: str,
        log: ReadingLog,
        cache_dir: Path | None,
    ) -> None:
        self.source, self._tokenizer, self._held_out, self._leakage = source, tokenizer, held_out, leakage
        self.log, self._cache_dir = log, cache_dir
        # The iterator that goes on from a position, so that reading on costs no search.
        self._open: tuple[Position, Iterator[Text]] | None = None
        self._share(0, 1, 1)

    def _share(self, rank: int, world: int, readers: int) -> None:
        self._rank, self._world = rank, world
        share = BLOCK if self.source.bytes is None else self.source.bytes // (_EACH * world * readers)
        self._size = min(BLOCK, max(_SMALLEST, share))
        self._own = self.source.for_process(rank, world)

    def for_process(self, rank: int, world: int, *, readers: int = 1) -> "Blocks":
        """Return the blocks of one of several processes, with so many lanes that read blocks of their own each.

        No two processes have the same blocks, and together they have all.
        """
        own = copy(self)
        own._open = None
        own._share(rank, world, readers)
        return own

    def start(self, epoch: int) -> Position:
        """Return the position at which an epoch begins."""
        return {**self._own.start(epoch), "block": 0}

    def read(self, position: Position) -> Block | None:
        """Read the next block of this process; return None at the end of the epoch.

        Raises:
            BadInput: something cannot be read.
            RunFailed: a text of validation or test stands in training, and data.leakage is "error".
        """
        here = position
        # In later epochs another process may read a text, which would then be counted by both.
        first_time = position["epoch"] == 0
        while True:
            texts, after = self._gather(here)
            if after is None:
                return None
            number, here = here["block"], after
            if not self._own.shared and number % self._world != self._rank:
                continue
            kept = [text.text for text in texts if text.text is not None and self._is_wanted(text, count=first_time)]
            if kept:
                return Block(encode_documents(kept, self._tokenizer, cache_dir=self._cache_dir), after)

    def _gather(self, position: Position) -> tuple[list[Text], Position | None]:
        """Gather texts until they are enough, or until a border, and the position after them, None at the end."""
        if self._open is None or self._open[0] != position:
            self._open = position, self._own.texts(position)
        texts, size = list[Text](), 0
        for text in self._open[1]:
            if text.text is not None:
                texts.append(text)
                size += len(text.text)
            if size >= self._size or (text.text is None and texts):
                after = {**text.after(), "block": position["block"] + 1}
                self._open = after, self._open[1]
                return texts, after
        self._open = None
        if not texts:
            return [], None
        # the last texts of a source without borders; behind them is the end
        return texts, {**texts[-1].after(), "block": position["block"] + 1}

    def _is_wanted(self, text: Text, *, count: bool) -> bool:
        """Return whether training may see a text.

        A copy of a text of validation or test is left out and counted. A text with the same words, where only case and
        punctuation differ, is kept and counted; with leakage "error" it is refused, with "ignore" not looked for.
        """
        content, where = str(text.text), f"{text.file} line {text.line}"
        split = self._held_out.copy_of(content)
        if split is not None:
            if count:
                self.log.count(COPIES, text.file, text.line, f"{where} is in {split}")
            return False
        split = None if self._leakage == IGNORE else self._held_out.leak_of(content)
        if split is not None and self._leakage == ERROR:
            raise RunFailed(
                f"{where} stands in {split} too, but for case, punctuation and white space; take it out of one of "
                'them, or set data.leakage="warn"'
            )
        if split is not None and count:
            self.log.count(LEAKS, text.file, text.line, f"{where} is in {split}: {content[:60]!r}")
        return True


def refuse_empty(epoch: int, examples: int, world: int) -> None:
    """Stop where an epoch of this process had nothing at all, instead of looking for ever."""
    if not examples:
        of = f" for each of {world} processes: give more files, or fewer processes" if world > 1 else ""
        raise BadInput(f"data.source has too little text in epoch {epoch}{of or ', or none'}")
