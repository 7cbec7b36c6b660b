"""Cross-validation and protocols: every text is tested once, no text on two sides, and optimism has a name."""

from collections import Counter

import pytest
from documents import same_text, settings, split_documents
from hypothesis import given
from hypothesis import strategies as st

from wordorder.data import Text, TokenizerConfig
from wordorder.errors import BadInput
from wordorder.tasks import task_faults


def config(**fields):
    return settings(**{"source": "x", "task": "classification", "folds": 5} | fields)


def texts(documents):
    return {same_text(document) for document in documents}


def labelled(count, label=lambda i: "ab"[i % 2]):
    return [Text(text=f"text {i}", label=label(i)) for i in range(count)]


corpora = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=2), st.sampled_from("abc")),
    max_size=80,
)


@given(corpora, st.integers(2, 7), st.integers(0, 2))
def test_each_document_is_tested_exactly_once_and_no_text_is_on_two_sides(pairs, folds, seed):
    documents = [Text(text=text, label=label) for text, label in pairs]
    first = {same_text(document): document.label for document in reversed(documents)}
    sizes = Counter(first.values())
    try:
        splits = [split_documents(documents, config(folds=folds, fold=k, seed=seed)) for k in range(folds)]
    except BadInput:
        left = len(first) - -(-len(first) // folds)
        assert len(first) < 2 * folds or min(sizes.values()) < 2 or left - len(sizes) < max(1, left // 19)
        return
    assert sorted(map(id, documents)) == sorted(id(d) for split in splits for d in split.test)
    for split in splits:
        parts = [texts(part) for part in split.parts().values()]
        assert all(parts)
        assert sum(map(len, parts)) == len(set().union(*parts))
        assert sum(map(len, split.parts().values())) == len(documents)
        assert {first[text] for text in parts[0]} == set(sizes)  # no class is met in the test for the first time
    unique = [texts(split.test) for split in splits]
    assert max(map(len, unique)) - min(map(len, unique)) <= 1
    for label in sizes:
        shares = [sum(first[text] == label for text in part) for part in unique]
        assert max(shares) - min(shares) <= 1


def test_the_seed_and_nothing_else_draws_the_folds():
    documents = labelled(200)
    fold = texts(split_documents(documents, config()).test)
    assert texts(split_documents(documents[::-1], config()).test) == fold
    assert texts(split_documents(documents, config(validation_fraction=0.3)).test) == fold
    assert texts(split_documents(documents, config(seed=1)).test) != fold


def test_validation_is_a_share_of_all_texts_cut_from_what_the_fold_leaves():
    split = split_documents(labelled(200), config(folds=10, fold=3, validation_fraction=0.1))
    assert [len(part) for part in split.parts().values()] == [160, 20, 20]
    assert Counter(d.label for d in split.validation) == {"a": 10, "b": 10}


def test_independent_folds_are_draws_of_their_own():
    documents = labelled(200)
    drawn = [texts(split_documents(documents, config(fold=k, fold_kind="independent")).test) for k in range(5)]
    assert [len(part) for part in drawn] == [40] * 5
    assert len(set().union(*drawn)) < 200
    assert drawn[0] & drawn[1]
    assert drawn[0] != drawn[1]


def test_a_protocol_that_scores_the_part_that_chooses_says_so_by_one_list():
    split = split_documents(labelled(200), config(folds=10, protocol="best-checkpoint-on-test"))
    assert split.validation is split.test
    assert [len(part) for part in split.parts().values()] == [180, 20, 20]
    held_out = split_documents(labelled(200), config(folds=None, test_fraction=0.2, protocol="best-checkpoint-on-test"))
    assert [len(part) for part in held_out.parts().values()] == [160, 40, 40]
    assert not texts(held_out.train) & texts(held_out.test)


def test_the_protocol_takes_an_official_test_but_no_official_validation():
    documents = [
        Text(text=f"{split} {i}", label="ab"[i % 2], split=split) for split in ("train", "test") for i in range(9)
    ]
    split = split_documents(documents, config(folds=None, protocol="best-checkpoint-on-test"))
    assert [len(part) for part in split.parts().values()] == [9, 9, 9]
    more = [*documents, Text(text="validation", label="a", split="validation")]
    with pytest.raises(BadInput, match=r"data\.protocol best-checkpoint-on-test is for a source without a validation"):
        split_documents(more, config(folds=None, protocol="best-checkpoint-on-test"))


@pytest.mark.parametrize(
    ("documents", "fields", "fault"),
    [
        (labelled(9), {}, r"9 different texts, too few for data\.folds = 5"),
        (labelled(40, lambda i: "rare" if i == 7 else "ab"[i % 2]), {}, "rare has one text only"),
        (
            [Text(text=str(i), label="ab"[i % 2], split="train" if i else "test") for i in range(40)],
            {},
            r"data\.folds divides all texts of a source, but data\.source x has its own test split",
        ),
    ],
)
def test_what_cannot_be_folded_is_refused(documents, fields, fault):
    with pytest.raises(BadInput, match=fault):
        split_documents(documents, config(**fields))


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"folds": 1}, "data.folds: must be at least 2, got 1"),
        ({"folds": 5, "fold": 5}, "data.fold must be below data.folds = 5, got 5"),
        ({"folds": None, "fold": 1}, "data.fold is only for cross-validation"),
        ({"folds": None, "fold_kind": "independent"}, "data.fold_kind is only for cross-validation"),
        ({"fold_kind": "true"}, "data.fold_kind: unknown value 'true'; valid values: disjoint, independent"),
        ({"protocol": "best"}, "data.protocol: unknown value 'best'; valid values: test-once, best-checkpoint-on-test"),
        ({"test_source": "y"}, "data.folds cuts the test part from the source"),
        ({"validation_source": "y"}, "data.folds takes no data.validation_source"),
        (
            {"folds": None, "protocol": "best-checkpoint-on-test", "test_source": "none"},
            "data.protocol best-checkpoint-on-test needs a test part",
        ),
    ],
)
def test_values_that_do_not_go_together_are_named(fields, fault):
    with pytest.raises(BadInput) as caught:
        config(**fields)
    assert [found for found in caught.value.faults if found.startswith(fault)], caught.value.faults


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"add_special_tokens": 0}, "tokenizer.add_special_tokens: must be true or false, got 0"),
        ({"add_special_tokens": False, "kind": "existing", "path": "x"}, "is decided by the existing tokeniser"),
        ({"min_frequency": 2}, "tokenizer.min_frequency is only for kinds word and whitespace"),
        ({"min_frequency": 0, "kind": "word"}, "tokenizer.min_frequency: must be at least 1"),
    ],
)
def test_wrong_values_of_the_tokeniser_are_named(fields, fault):
    with pytest.raises(BadInput, match=fault):
        TokenizerConfig(**fields)


def test_texts_without_special_tokens_are_for_single_labelled_texts():
    bare = TokenizerConfig(add_special_tokens=False)
    masked = settings(source="x", task="masked-lm")
    assert task_faults(*config(), bare) == []
    assert task_faults(*masked, TokenizerConfig()) == []
    assert "task masked-lm needs them" in task_faults(*masked, bare)[0]
    assert "[SEP]" in task_faults(*config(pair_column="second"), bare)[0]
