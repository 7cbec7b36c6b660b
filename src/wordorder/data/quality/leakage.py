"""Check whether texts of validation or test stand in training too; cheap enough for every run."""

from collections.abc import Sequence

from wordorder.data.corpora.document import Document
from wordorder.data.names import ERROR, IGNORE
from wordorder.data.quality.reading_log import LEAKS, ReadingLog
from wordorder.data.quality.same_text import HeldOut
from wordorder.data.settings import DataSettings
from wordorder.errors import BadInput

_MOST_NAMED = 3


def check_leakage(train: Sequence[Document], held_out: HeldOut, data: DataSettings, log: ReadingLog) -> None:
    """Count training texts whose words are those of a text of validation or test; case and punctuation may differ.

    Texts that differ in white space alone are not there any more: splitting leaves them out of training. Of labelled
    pairs the first text alone says little, and of translations both sides have been looked at: neither is checked.

    Raises:
        BadInput: there are some, and data.leakage is "error".
    """
    if data.leakage == IGNORE or any(document.pair is not None for document in train[:1]):
        return
    for number, document in enumerate(train, start=1):
        split = held_out.leak_of(document.text)
        if split is not None:
            log.count(LEAKS, "train", number, f"{document.text.strip()[:60]!r} is in {split}")
    found = log.number(LEAKS)
    if found and data.leakage == ERROR:
        raise BadInput(
            f"data.source {data.source}: {found} {log.words(LEAKS)}: {'; '.join(log.first(LEAKS)[:_MOST_NAMED])}; "
            'take them out, or set data.leakage="warn"; `wordorder data` shows more'
        )
