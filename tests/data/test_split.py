"""Splits are deterministic, complete, disjoint in text, and balanced over the labels."""

import pytest
from documents import same_text, settings, split_documents
from hypothesis import given
from hypothesis import strategies as st

from wordorder.data import Text
from wordorder.errors import BadInput


def config(**fields):
    return settings(**{"source": "x", "task": "classification"} | fields)


corpora = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3), st.sampled_from("abc")),
    max_size=60,
)


@given(corpora, st.integers(0, 3), st.sampled_from([0.05, 0.2, 0.45]))
def test_every_document_is_in_one_part_and_no_text_in_two(pairs, seed, fraction):
    documents = [Text(text=text, label=label) for text, label in pairs]
    data = config(seed=seed, validation_fraction=fraction, test_fraction=fraction)
    try:
        split = split_documents(documents, data)
    except BadInput:
        first = {same_text(document): document.label for document in reversed(documents)}
        needed = 2 * max(1, round(fraction * len(first))) + len(set(first.values()))
        assert len(first) <= needed + 1  # refused only where there is really too little
        return
    parts = split.parts()
    assert all(parts.values())
    assert sorted(map(id, documents)) == sorted(id(d) for part in parts.values() for d in part)
    texts = [{" ".join(d.text.split()) for d in part} for part in parts.values()]
    assert sum(map(len, texts)) == len(set().union(*texts))
    assert parts == split_documents(documents, data).parts()


def numbered(count, label=lambda i: None):
    return [Text(text=f"document {i}", label=label(i)) for i in range(count)]


def test_sizes_are_the_fractions_and_at_least_one():
    split = split_documents(numbered(200), config())
    assert [len(part) for part in split.parts().values()] == [180, 10, 10]
    assert [len(part) for part in split_documents(numbered(3), config()).parts().values()] == [1, 1, 1]


def test_the_seed_changes_the_split_and_the_order_of_files_does_not():
    documents = numbered(100)
    test = {d.text for d in split_documents(documents, config()).test}
    assert {d.text for d in split_documents(documents[::-1], config()).test} == test
    assert {d.text for d in split_documents(documents, config(seed=1)).test} != test


def test_labels_keep_their_shares():
    documents = numbered(1000, label=lambda i: "rare" if i % 20 == 0 else "common")
    split = split_documents(documents, config(test_fraction=0.2, validation_fraction=0.1))
    for part, expected in ((split.test, 10), (split.validation, 5)):
        assert sum(d.label == "rare" for d in part) == pytest.approx(expected, abs=1)


def test_a_label_of_one_document_stays_in_train():
    documents = numbered(40, label=lambda i: f"single {i}" if i < 10 else "common")
    split = split_documents(documents, config(test_fraction=0.3, validation_fraction=0.3))
    assert {f"single {i}" for i in range(10)} <= {d.label for d in split.train}


def test_official_splits_are_kept_and_their_copies_leave_train():
    def part(split, *texts):
        return [Text(text=text, split=split) for text in texts]

    documents = [*part("train", "a", "b", "v", "t"), *part("validation", "v", "t", "w"), *part("test", "t")]
    split = split_documents(documents, config(task="masked-lm"))
    assert [[d.text for d in part] for part in split.parts().values()] == [["a", "b"], ["v", "w"], ["t"]]
    assert split.dropped_duplicates == 3


def test_texts_that_differ_in_white_space_alone_are_the_same_text():
    texts = [f"a text, the {i}th" for i in range(40)]
    documents = [Text(text=text) for text in texts]
    documents += [Text(text=f" {text.replace(' ', '  ')}") for text in texts]
    parts = split_documents(documents, config(task="masked-lm", test_fraction=0.3, validation_fraction=0.3)).parts()
    seen = [{" ".join(d.text.split()) for d in part} for part in parts.values()]
    assert sum(map(len, seen)) == len(set().union(*seen)) == 40
    official = [Text(text=f"{text} ", split="test") for text in texts[:10]]
    split = split_documents([*documents, *official], config(task="masked-lm"))
    assert split.dropped_duplicates == 20


def test_a_missing_official_split_is_taken_from_train():
    documents = [*numbered(100), *(Text(text=f"t{i}", split="test") for i in range(5))]
    split = split_documents(documents, config())
    assert [len(part) for part in split.parts().values()] == [95, 5, 5]
    assert {d.split for d in split.validation} == {None}


def test_labels_are_checked_again_after_documents_are_left_out():
    rare = numbered(300, label=lambda i: "rare" if i == 7 else "often")
    with pytest.raises(BadInput, match=r"has one class only, 'often'.*data\.limit_documents kept some only"):
        split_documents(rare, config(limit_documents=40))
    copied = [*numbered(40, label=lambda i: "ab"[i % 2]), Text(text="copy", label="c", split="train")]
    copied += [Text(text="copy", label="c", split="test"), Text(text="other", label="a", split="test")]
    with pytest.raises(BadInput, match=r"no training document has c; .* a, b \(1 copy was dropped\)"):
        split_documents(copied, config())
    numbers = numbered(300, label=lambda i: "1" if i == 7 else "0")
    with pytest.raises(BadInput, match="there is nothing to learn"):
        split_documents(numbers, config(task="regression", limit_documents=40))


def test_limit_draws_from_the_whole_corpus():
    split = split_documents(numbered(1000), config(task="masked-lm", limit_documents=60))
    drawn = sorted(int(d.text.split()[1]) for part in split.parts().values() for d in part)
    assert len(drawn) == 60
    assert drawn[0] < 150
    assert drawn[-1] > 850


@pytest.mark.parametrize("documents", [[], numbered(2), [Text(text="same")] * 9])
def test_too_few_different_documents(documents):
    with pytest.raises(BadInput, match="too few different documents to split"):
        split_documents(documents, config())


def test_a_text_without_classes_that_is_too_short_says_how_it_is_cut():
    one = [Text(text="short")]
    with pytest.raises(BadInput) as caught:
        split_documents(one, config(source="one.txt", task="masked-lm"))
    (fault,) = caught.value.faults
    assert "1 is left where 2 are needed; one text file is cut into documents of 500 to 10,000 characters" in fault
    assert "label" not in fault
    with pytest.raises(BadInput, match="2 of 2 classes are left where 3 are needed; give more text"):
        split_documents([Text(text="a", label="x"), Text(text="b", label="y")], config())
