"""The training text of a streamed recipe: becomes a data set when it is known who reads how much of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.data.examples.masking import Masking
from wordorder.data.examples.segments import PACKERS, CausalSegments
from wordorder.data.names import LANES
from wordorder.data.quality.reading_log import ReadingLog
from wordorder.data.quality.same_text import HeldOut
from wordorder.data.settings import DataSettings
from wordorder.data.streaming.blocks import Blocks
from wordorder.data.streaming.examples import Sharing, StreamedSegments
from wordorder.data.streaming.lanes import StreamedLanes
from wordorder.data.streaming.texts import FileTexts, open_source
from wordorder.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, kw_only=True)
class TextStream:
    """A text that is read while training goes on, and never held as a whole.

    Args:
        data: the section [data]; its length is set.
        blocks: its texts, encoded.
        ends: ids of [CLS] and [SEP], as packing wants them: cls_id, sep_id.
        running_text: cut text anywhere, whatever data.packing says.
        masking: of masked language modelling; None: tokens are not masked.
        seed: of the order of examples.
        mask_seed: of the masks.
    """

    data: DataSettings
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
        source = self.blocks.source
        known = {"files": source.files, "bytes": source.bytes} if isinstance(source, FileTexts) else {}
        return {"streamed": True, **known}

    def examples(self, sharing: Sharing) -> StreamedSegments | StreamedLanes:
        """Return the training examples of one process."""
        length, in_lanes = self.data.length, self.data.packing == LANES
        assert length is not None  # `prepare` refuses data without it
        lanes = sharing.rows // sharing.world if in_lanes else 1
        blocks = self.blocks.for_process(sharing.rank, sharing.world, readers=lanes)
        self.log.clear()  # another training of the same process may have counted before
        if in_lanes:
            by_document = self.data.reset_memory == "documents"
            return StreamedLanes(blocks, sharing, length=length, sep_id=self.ends["sep_id"], by_document=by_document)
        packer = CausalSegments if self.running_text else PACKERS[self.data.packing]
        return StreamedSegments(
            blocks,
            sharing,
            packer=packer(length=length, **self.ends),
            buffer=self.data.shuffle_buffer,
            masking=self.masking,
            seed=self.seed,
            mask_seed=self.mask_seed,
        )


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


def open_blocks(
    data: DataSettings, tokenizer: "PreTrainedTokenizerFast", held_out: HeldOut, *, seed: int, cache_dir: Path
) -> Blocks:
    """Open the streamed source of a recipe, encoded; `seed` is that of the order."""
    log = ReadingLog(skip=data.skip_unreadable)
    # lanes read on in the order of the files where nothing is to be turned
    source = open_source(data, log, seed=seed if data.packing != LANES or data.roll else None)
    cached = isinstance(source, FileTexts) if data.cache_shards is None else data.cache_shards
    return Blocks(
        source,
        tokenizer,
        held_out=held_out,
        leakage=data.leakage,
        log=log,
        cache_dir=cache_dir if cached else None,
    )
