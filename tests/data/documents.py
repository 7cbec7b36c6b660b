"""Texts and splits as lists, as tests look at them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wordorder.data import DataSettings, Text, Texts
from wordorder.data.reading_log import ReadingLog
from wordorder.data.tokens import Tokens, tokens_of
from wordorder.tasks import TaskOptions, task_options
from wordorder.tasks.preparation import read, split

Settings = tuple[DataSettings, TaskOptions]


def settings(*, task: str, **values: Any) -> Settings:
    """The sections [data] and [task], from values of both."""
    data = {name: value for name, value in values.items() if name in DataSettings.model_fields}
    rest = {name: value for name, value in values.items() if name not in data}
    return DataSettings(**data), task_options({"name": task, **rest})


@dataclass(frozen=True)
class Documents:
    """The texts of each part; the validation of a protocol without one is the test itself."""

    train: list[Text]
    validation: list[Text]
    test: list[Text]
    dropped_duplicates: int

    def parts(self) -> dict[str, list[Text]]:
        return {"train": self.train, "validation": self.validation, "test": self.test}


def read_documents(settings: Settings, log: ReadingLog | None = None, cache_dir: Path | None = None) -> list[Text]:
    return list(read(*settings, log, cache_dir=cache_dir))


def split_documents(documents: Iterable[Text], settings: Settings, *, together: bool = False) -> Documents:
    documents = list(documents)
    rows = split(Texts.of(documents, together=together), *settings)
    parts = {name: [documents[row] for row in part] for name, part in rows.parts().items()}
    if rows.validation is rows.test:
        parts["validation"] = parts["test"]
    return Documents(**parts, dropped_duplicates=rows.dropped_duplicates)


def same_text(document: Text) -> str:
    return " ".join(document.text.split())


def tokens_with(documents: list[list[int]], sep_id: int = 3) -> Tokens:
    """Tokens of documents that are given as lists of sentence lengths; ids count up from 10."""
    ids, ends, place, token = [], [], 0, 10
    for sentences in documents:
        ids.append(list(range(token, token + sum(sentences))))
        token += sum(sentences)
        ends += [place + end for end in np.cumsum(sentences).tolist() if end]
        place += sum(sentences) + bool(sum(sentences))
    tokens = tokens_of(ids, sep_id)
    return Tokens(ids=tokens.ids, starts=tokens.starts, sentence_ends=np.unique(np.array(ends, np.int64)))
