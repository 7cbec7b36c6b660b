"""The numbers of a split, and the hash that tells two corpora apart."""

from collections.abc import Generator, Mapping, Sequence

from wordorder.data.cache import content_hash
from wordorder.data.corpora import Document
from wordorder.data.examples.encode import EncodedDocuments
from wordorder.data.examples.translation import SentencePairs


def split_statistics(
    documents: Sequence[Document], encoded: EncodedDocuments, *, examples: int, unknown_id: object
) -> dict[str, float | int]:
    """Return the numbers of one split; see `PreparedData.statistics`.

    Args:
        unknown_id: id of [UNK]; None, which no token has, where nothing is unknown.
    """
    return {
        "documents": len(documents),
        "characters": sum(len(document.text) for document in documents),
        "words": sum(len(document.text.split()) for document in documents),
        "tokens": len(encoded.ids),
        "segments": examples,
        "unknown_fraction": _unknown_fraction(encoded, unknown_id),
        "without_tokens": sum(not len(encoded.tokens(number)) for number in range(len(documents))),
    }


def target_statistics(
    documents: Sequence[Document], encoded: EncodedDocuments, pairs: SentencePairs, *, unknown_id: object
) -> dict[str, float | int]:
    """Return the numbers that translations have beside those of their sources."""
    texts = [str(document.pair) for document in documents]
    return {
        "target_characters": sum(map(len, texts)),
        "target_words": sum(len(text.split()) for text in texts),
        "target_tokens": len(encoded.ids),
        "target_unknown_fraction": _unknown_fraction(encoded, unknown_id),
        "dropped_long": len(texts) - len(pairs.kept),
        "cut": pairs.cut,
    }


def _unknown_fraction(encoded: EncodedDocuments, unknown_id: object) -> float:
    return float((encoded.ids == unknown_id).sum()) / max(1, len(encoded.ids))


def fingerprint(
    parts: Mapping[str, Sequence[Document]],
    encoded: Mapping[str, EncodedDocuments],
    encoded_pairs: Mapping[str, EncodedDocuments],
) -> str:
    """Name the content of all splits: texts, classes and tokens, so that the tokeniser counts too."""

    def contents() -> Generator[str | bytes]:
        for name, part in parts.items():
            yield name
            for document in part:
                yield from (document.text, document.label or "", document.pair or "")
            for tokens in (encoded, encoded_pairs):
                if name in tokens:
                    yield tokens[name].ids.tobytes()

    return content_hash(contents())
