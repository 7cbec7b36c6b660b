"""The base of the tasks that give one answer per text: pieces of long texts, and labels."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from wordorder.tasks.task import Corpus, Task, TaskOption

if TYPE_CHECKING:
    import numpy as np

    from wordorder.data.examples.datasets import PreparedData


class LabelledTask(Task):
    """A task whose documents have a label each."""

    options: ClassVar[frozenset[TaskOption]] = frozenset({"max_pieces", "truncate", "pair_column"})
    grouped_by_length = True

    def prepare_labelled(
        self,
        corpus: Corpus,
        value_of: Callable[[str], float],
        dtype: "type[np.generic]",
        label_names: tuple[str, ...] = (),
    ) -> "PreparedData":
        """Return pieces of texts with their labels: `value_of` a label's text, as numbers of a `dtype`."""
        import numpy as np

        from wordorder.data.examples.collate import Collate
        from wordorder.data.examples.datasets import LabelledExamples
        from wordorder.data.examples.segments import cut_in_pieces
        from wordorder.data.tokenizers.tokenizer import adds_special_tokens, pair_separators

        examples: dict[str, LabelledExamples] = {}
        for name, part in corpus.parts.items():
            segments, owners = cut_in_pieces(
                corpus.encoded[name],
                corpus.encoded_pairs.get(name),
                length=corpus.length,
                max_pieces=corpus.data.max_pieces,
                truncate=corpus.data.truncate,
                separators=pair_separators(corpus.tokenizer),
                add_special_tokens=adds_special_tokens(corpus.tokenizer),
                unknown_id=None if corpus.tokenizer.unk_token_id is None else corpus.id_of("unk"),
                **corpus.ends,
            )
            labels: Any = np.array([value_of(str(document.label)) for document in part], dtype)
            examples[name] = LabelledExamples(segments, labels[owners], owners)
        collate = Collate(padding=corpus.id_of("pad"), longest=corpus.length)
        return corpus.prepared(examples, collate, statistics=corpus.statistics(examples), label_names=label_names)


def is_number(label: str) -> bool:
    """Tell whether a label is a finite number."""
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False
