"""Every generated task: answers follow from the texts alone, and texts are those that its length promises."""

from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest
from documents import read_documents, settings
from solvers import SOLVERS

from wordorder.data.generated import GENERATED, lengths_of
from wordorder.data.generated.task import GeneratedTask


def drawn(name, **values):
    form = "classification" if GENERATED[name].answers else "translation"
    data, options = settings(source=f"task:{name}", task=form, **values)
    parts = defaultdict(list)
    for document in read_documents((data, options)):
        parts[document.split].append(document)
    return data, parts


def answer_of(document):
    return document.label if document.pair is None else document.pair


@pytest.fixture(scope="module", params=GENERATED)
def full(request):
    """A task, and its splits at the sizes that a recipe has where it gives none."""
    task = GENERATED[request.param]
    return task, *drawn(request.param)


def test_the_solver_is_always_right_and_another_rule_is_not(full):
    task, _, parts = full
    documents = [document for part in parts.values() for document in part]
    assert all(SOLVERS[task.name](document.text) == answer_of(document) for document in documents)
    assert {name: len(part) for name, part in parts.items()} == {"train": 10_000, "validation": 1_000, "test": 1_000}
    # the answer to another text is right by chance alone
    wrong = [SOLVERS[task.name](one.text) == answer_of(other) for one, other in pairwise(parts["test"])]
    assert np.mean(wrong) < (1.5 / len(task.answers) if task.answers else 0.01)


def test_no_text_of_validation_or_test_is_in_another_split(full):
    _, _, parts = full
    texts = {name: [document.text for document in part] for name, part in parts.items()}
    for name in ("validation", "test"):
        assert len(set(texts[name])) == len(texts[name])
    for one, other in (("train", "test"), ("train", "validation"), ("validation", "test")):
        assert set(texts[one]).isdisjoint(texts[other])


def test_lengths_are_those_of_the_split_and_all_of_them_are_drawn(full):
    task, data, parts = full
    for name, part in parts.items():
        low, high = lengths_of(task, data)[name]
        lengths = [document.length for document in part]
        assert (min(lengths), max(lengths)) == ((low, high) if name == "train" else (min(lengths), high))
        assert min(lengths) >= low
    assert lengths_of(task, data)["validation"] == lengths_of(task, data)["train"]
    counts = Counter(document.length for document in parts["train"])
    low, high = lengths_of(task, data)["train"]
    assert len(counts) == high - low + 1
    assert max(counts.values()) < 2 * min(counts.values())


WORDS_OF = {
    "missing-duplicate": lambda n: 2 * n,
    "addition": lambda n: 2 * n + 1,
}
"""Words of a text of a length, where they are neither the length itself nor counted between two places."""


def test_a_length_counts_what_its_task_says(full):
    task, _, parts = full
    for document in parts["test"]:
        words, length = document.text.split(), document.length
        match task.name:
            case "recall":
                found = len(words) - 2 - (words.index(words[-1]) + 2)
            case "overwritten-recall":
                last = max(n for n, word in enumerate(words[:-1]) if word == words[-1])
                found = len(words) - 2 - (last + 2)
            case "late-instruction":
                found = len(words) - 1 - 4
            case "dyck-2":
                # the bracket that is to be closed opened where the depth rose, for good, to that of the end
                depth = np.cumsum([1 if word in "([" else -1 for word in words])
                opened = [n for n, word in enumerate(words) if word in "([" and depth[n] == depth[-1]]
                first = min(n for n in opened if (depth[n:] >= depth[-1]).all())
                found = (len(words) - 1 - first) // 2
            case "recall-by-distance":
                found = (len(words) - 2 - (words.index(words[-1]) + 2)) // 2
            case "copy-in-context":
                found = words.index("|")
            case "multi-hop":
                found = words.index("?") // 2
            case name:
                found, length = len(words), WORDS_OF.get(name, int)(length)
        assert found == length, document.text


def test_no_class_can_be_guessed(full):
    task, _, parts = full
    for name, part in parts.items():
        if task.answers:
            counts = Counter(document.label for document in part)
            assert set(counts) == set(task.answers)
            assert max(counts.values()) / len(part) <= (0.55 if len(task.answers) == 2 else 2 / len(task.answers)), name


def test_texts_are_those_of_the_seed():
    for name in GENERATED:
        sizes = {"train_examples": 300, "test_examples": 12}
        found = [drawn(name, **sizes, seed=seed)[1] for seed in (0, 0, 1)]
        texts = [[document.text for part in parts.values() for document in part] for parts in found]
        assert texts[0] == texts[1] != texts[2]


def test_the_same_words_have_both_answers():
    rng = np.random.default_rng(0)
    for name in ("order-binding", "even-place"):
        answers = defaultdict(set)
        for _ in range(4000):
            text, answer = GENERATED[name].draw(rng, 4)
            answers[tuple(sorted(text.split()))].add(answer)
        assert len(answers) > 30
        assert sum(found == {"yes", "no"} for found in answers.values()) / len(answers) > 0.99


def test_the_place_of_a_pair_does_not_tell_that_it_is_asked_for():
    rng = np.random.default_rng(0)
    for name in ("recall", "overwritten-recall"):
        hits = defaultdict(list)
        for length in rng.integers(6, 101, size=2000).tolist():
            text, answer = GENERATED[name].draw(rng, length)
            values = [word for word in text.split() if word.startswith("v")]
            for place in range(-4, 0):
                hits[place].append(values[place] == answer)
            gaps = [text.count(f"{value} -") for value in values]
            hits["before a filler"].append(
                any(gap and value == answer for gap, value in zip(gaps, values, strict=True))
            )
        # one of four pairs, and two of them may have the same value
        assert max(np.mean(found) for found in hits.values()) < 0.36, (name, {k: np.mean(v) for k, v in hits.items()})


def test_neither_place_nor_number_tells_the_answers_in_context():
    rng = np.random.default_rng(0)
    hits = defaultdict(list)
    for length in rng.integers(4, 17, size=3000).tolist():
        text, answer = GENERATED["recall-by-distance"].draw(rng, length)
        values = text.split()[1:-2:2]
        for place in (*range(4), *range(-4, 0)):
            hits["recall", place].append(values[place] == answer)
        text, answer = GENERATED["multi-hop"].draw(rng, length)
        words = text.split()
        for place in (*range(8), -1):
            hits["hops", place].append(words[place] == answer)
        text, answer = GENERATED["copy-in-context"].draw(rng, length)
        whole, _, again = text.partition(" | ")
        for place in (0, -1):
            hits["copy", place].append(whole.split()[place] == answer or again.split()[-1] == answer)
    # one value of 16 by chance, and one pair of nine is at a place; one name of four at least is right
    most = {"recall": 0.2, "hops": 0.2, "copy": 0.35}
    assert all(np.mean(found) < most[name] for (name, _), found in hits.items()), {
        k: np.mean(v) for k, v in hits.items()
    }


def test_neither_the_number_of_brackets_nor_a_place_tells_which_one_is_open():
    rng = np.random.default_rng(0)
    right = defaultdict(list)
    for length in rng.integers(1, 21, size=3000).tolist():
        text, answer = GENERATED["dyck-2"].draw(rng, length)
        words = text.split()
        assert words.count("(") - words.count(")") == words.count("[") - words.count("]") == 1
        for place in range(4):
            right[place].append((words[place] in "()") == (answer == ")"))
    assert all(0.4 < np.mean(found) < 0.6 for found in right.values())


def test_answers_of_examples_from_the_papers():
    solved = {
        "even-pairs": {"a a b b a": "even", "a b": "odd"},
        "parity": {"a a a b b a": "even", "b": "odd"},
        "cycle-navigation": {"stay right left right right": "2", "left": "4"},
        "reverse": {"a a b b a": "a b b a a"},
        "duplicate": {"a b a": "a b a a b a"},
        "missing-duplicate": {"a b _ a b a": "a", "a b a _ b a": "a"},
        "bucket-sort": {"4 2 1 3 2 1": "1 1 2 2 3 4"},
        "addition": {"9 9 + 1 1": "1 1 0", "5 + 3": "8"},
        "order-binding": {"c b d a": "no", "a c b": "yes"},
        "even-place": {"c a": "yes", "a c": "no"},
        "recall": {"k1 v3 k11 v2 - ? k1": "v3", "k11 v2 k1 v3 - ? k1": "v3"},
        "overwritten-recall": {"k1 v3 k11 v1 k1 v2 - - ? k1": "v2", "k1 v3 k1 v1 k11 v2 ? k1": "v1"},
        "late-instruction": {"4 9 0 2 - - second": "9", "4 9 0 2 - smallest": "0"},
        "dyck-2": {"[ ( ( ) [ ]": ")", "( [ ( )": "]"},
        "recall-by-distance": {"k1 v3 k11 v2 k7 v2 ? k1": "v3", "k11 v2 k1 v3 ? k1": "v3"},
        "copy-in-context": {"a b a c | a b a": "c", "b b | b": "b"},
        "multi-hop": {"n2 n7 n7 n1 n1 n4 n4 n2 ? 3 n7": "n2", "n1 n4 n2 n7 n7 n1 n4 n2 ? 1 n2": "n7"},
        "previous-token": {"a b c": "b"},
        "n-back": {"a b c d e f": "b"},
        "first-token": {"h b c": "h"},
    }
    assert set(solved) == set(GENERATED)
    for name, examples in solved.items():
        assert {text: SOLVERS[name](text) for text in examples} == examples


def test_a_task_says_where_it_comes_from():
    for task in GENERATED.values():
        assert isinstance(task, GeneratedTask)
        assert "arxiv.org/abs/" in task.paper or task.paper.startswith("our own")
        assert task.question.endswith("?")
        assert task.length
