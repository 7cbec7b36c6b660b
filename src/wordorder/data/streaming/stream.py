"""The training text of a streamed recipe: becomes a data set when it is known who reads how much of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.data.examples.masking import Masking
from wordorder.data.examples.segments import Segments, with_something_to_predict
from wordorder.data.names import LANES
from wordorder.data.quality.reading_log import ReadingLog
from wordorder.data.quality.same_text import HeldOut
from wordorder.data.settings import DataSettings
from wordorder.data.streaming.blocks import Blocks
from wordorder.data.streaming.examples import StreamedSegments
from wordorder.data.streaming.lanes import StreamedLanes
from wordorder.data.streaming.packing import packer_for
from wordorder.data.streaming.segments import SegmentReader
from wordorder.data.streaming.sharing import Sharing
from wordorder.data.streaming.texts import FileTexts, Source, open_source
from wordorder.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, kw_only=True)
class TextStream:
    """A text that is read while training goes on, and never held as a whole.

    Args:
        data: the section [data]; its length is set.
        blocks: the same texts, encoded.
        ends: ids of [CLS] and [SEP], as packing wants them: cls_id, sep_id.
        running_text: cut text anywhere, whatever data.packing says.
        masking: of masked language modelling; None: tokens are not masked.
        seed: of the order of examples.
        mask_seed: of the masks.
    """

    data: DataSettings
    source: Source
    blocks: Blocks
    ends: Mapping[str, int]
    running_text: bool
    masking: Masking | None
    seed: int
    mask_seed: int

    @property
    def log(self) -> ReadingLog:
        """Log of what was passed over so far."""
        return self.blocks.log

    def statistics(self) -> dict[str, Any]:
        """Return the statistics that are known before the text is read."""
        known = {"files": self.source.files, "bytes": self.source.bytes} if isinstance(self.source, FileTexts) else {}
        return {"streamed": True, **known}

    def examples(self, sharing: Sharing) -> StreamedSegments | StreamedLanes:
        """Return the training examples of one process."""
        assert self.data.length is not None  # `prepare` refuses data without it
        lanes = sharing.rows // sharing.world if self.data.packing == LANES else 1
        blocks = self.blocks.for_process(sharing.rank, sharing.world, readers=lanes)
        self.log.clear()  # another training of the same process may have counted before
        if self.data.packing == LANES:
            by_document = self.data.reset_memory == "documents"
            return StreamedLanes(
                blocks, sharing, length=self.data.length, sep_id=self.ends["sep_id"], by_document=by_document
            )
        packer = packer_for(self.data.packing, running_text=self.running_text, length=self.data.length, **self.ends)
        wanted = _all_of_them if self.masking is None else partial(with_something_to_predict, self.masking.special)
        return StreamedSegments(
            blocks,
            sharing,
            reader=SegmentReader(blocks, packer, keep=wanted, world=sharing.world),
            buffer=self.data.shuffle_buffer,
            masking=self.masking,
            seed=self.seed,
            mask_seed=self.mask_seed,
        )


def _all_of_them(segments: Segments) -> Segments:
    return segments


def first_texts(data: DataSettings, held_out: HeldOut, most: int) -> Iterator[str]:
    """Yield the first texts of a streamed source in its own order, the same for every process, for a tokeniser."""
    source = open_source(data, ReadingLog(skip=data.skip_unreadable), seed=None)
    found = 0
    for text in source.texts(source.start(0)):
        if text.text is None or held_out.copy_of(text.text) is not None:
            continue
        yield text.text
        found += 1
        if found == most:
            return
    if not found:
        raise BadInput(f"data.source {data.source} has no text")


def open_stream(
    data: DataSettings,
    tokenizer: "PreTrainedTokenizerFast",
    held_out: HeldOut,
    *,
    ends: dict[str, int],
    running_text: bool,
    masking: Masking | None,
    seed: int,
    mask_seed: int,
    cache_dir: Path,
) -> TextStream:
    """Open the streamed source of a recipe.

    Raises:
        BadInput: there is no such source.
    """
    log = ReadingLog(skip=data.skip_unreadable)
    # lanes read on in the order of the files where nothing is to be turned
    source = open_source(data, log, seed=seed if data.packing != LANES or data.roll else None)
    cached = isinstance(source, FileTexts) if data.cache_shards is None else data.cache_shards
    blocks = Blocks(
        source,
        tokenizer,
        held_out=held_out,
        leakage=data.leakage,
        log=log,
        cache_dir=cache_dir if cached else None,
    )
    return TextStream(
        data=data,
        source=source,
        blocks=blocks,
        ends=ends,
        running_text=running_text,
        masking=masking,
        seed=seed,
        mask_seed=mask_seed,
    )
