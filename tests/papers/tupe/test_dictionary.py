"""fairseq's dict.txt: ids as the program gave them, and a tokeniser that looks pieces up."""

import pytest
import torch
import tupe_reference as ref
from transformers import AutoModelForMaskedLM, AutoTokenizer

from wordorder.errors import BadInput
from wordorder.papers.tupe import convert_tupe
from wordorder.papers.vocabulary import read_dictionary

PIECES = ["the", "un@@", "tied", "posi@@", "tions", "é", "a\u2028b", "café"]


@pytest.fixture
def dictionary(tmp_path):
    """Write a dict.txt of so many tokens, beginning with some that are words."""

    def write(count, pieces=PIECES):
        tokens = [*pieces, *(f"madeupword{n:04d}" for n in range(count - len(pieces)))]
        path = tmp_path / "dict.txt"
        path.write_text("".join(f"{token} {1000 - n}\n" for n, token in enumerate(tokens)), encoding="utf-8")
        return path

    return write


def test_ids_follow_the_special_ones(dictionary):
    path = dictionary(45)
    ids = read_dictionary(path, 50)
    assert [ids[token] for token in ("<s>", "<pad>", "</s>", "<unk>", "the", "<mask>")] == [0, 1, 2, 3, 4, 49]
    assert sorted(ids.values()) == list(range(50))


def test_the_size_shows_the_special_tokens_that_tupe_s_fairseq_adds(dictionary):
    path = dictionary(42)
    ids = read_dictionary(path, 50)
    assert [ids[token] for token in ("<unk>", "<file>", "<email>", "<url>", "the", "<mask>")] == [3, 4, 5, 6, 7, 49]


def test_a_mask_in_the_file_keeps_its_place(dictionary):
    path = dictionary(46, ["the", "<mask>", "of"])
    ids = read_dictionary(path, 50)
    assert (ids["<mask>"], ids["of"]) == (5, 6)


def test_a_token_that_comes_twice_has_its_last_id_as_in_fairseq(dictionary):
    path = dictionary(45, ["the", "of", "the", "<unk>"])
    ids = read_dictionary(path, 50)
    assert (ids["the"], ids["<unk>"]) == (6, 3)


def test_a_dictionary_of_another_model_is_refused(dictionary):
    path = dictionary(40)
    with pytest.raises(BadInput, match=r"40 tokens.* 45 .* or 48 .*checkpoint's has 50"):
        read_dictionary(path, 50)


@pytest.mark.parametrize("line", ["the", "the many", "the -1", " 5", "", "the 5 ", "the 1.5"])
def test_a_line_of_another_form_is_named(tmp_path, line):
    (tmp_path / "dict.txt").write_text(f"of 7\n{line}\nby 3\n")
    with pytest.raises(BadInput, match="line 2 must be"):
        read_dictionary(tmp_path / "dict.txt", 50)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        read_dictionary(tmp_path / "dict.txt", 50)
    (tmp_path / "dict.txt").write_bytes(b"\xff\xfe 3\n")
    with pytest.raises(BadInput, match="not UTF-8"):
        read_dictionary(tmp_path / "dict.txt", 50)


def test_windows_line_ends_are_none_of_the_count(tmp_path):
    (tmp_path / "dict.txt").write_bytes(b"the 5\r\nof 3\r\n")
    assert list(read_dictionary(tmp_path / "dict.txt", 7))[4:6] == ["the", "of"]


def test_the_tokeniser_looks_pieces_up(tmp_path, dictionary):
    path = ref.save(tmp_path / "model.pt", ref.weights(dtype=torch.float32))
    report = convert_tupe(path, tmp_path / "out", dictionary=dictionary(45))
    assert report.tokenizer
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.model_max_length == ref.MAXLEN
    assert len(tokenizer) == ref.V

    encoded = tokenizer("the un@@ tied <mask> café untied")
    assert encoded.keys() == {"input_ids", "attention_mask"}
    assert encoded["input_ids"] == [0, 4, 5, 6, 49, 11, 3, 2]
    assert tokenizer("the", "tied")["input_ids"] == [0, 4, 2, 2, 6, 2]
    assert tokenizer.decode(encoded["input_ids"]) == "<s> the un@@ tied <mask> café <unk> </s>"
    assert tokenizer.decode(encoded["input_ids"], skip_special_tokens=True) == "the un@@ tied café"
    assert (tokenizer.pad_token_id, tokenizer.mask_token_id, tokenizer.cls_token_id) == (1, 49, 0)

    batch = tokenizer(["the un@@ tied <mask>", "the"], padding=True, return_tensors="pt")
    assert batch["attention_mask"].sum(1).tolist() == [6, 3]
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    alone = model(**tokenizer("the", return_tensors="pt")).logits
    torch.testing.assert_close(model(**batch).logits[1, :3], alone[0], rtol=1e-4, atol=1e-4)


def test_without_a_dictionary_there_is_no_tokeniser(tmp_path):
    report = convert_tupe(ref.save(tmp_path / "model.pt", ref.weights()), tmp_path / "out")
    assert not report.tokenizer
    assert any("no tokeniser" in note for note in report.notes)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["README.md", "config.json", "conversion.json", "model.safetensors"]


def test_a_wrong_dictionary_leaves_nothing(tmp_path, dictionary):
    path = ref.save(tmp_path / "model.pt", ref.weights())
    with pytest.raises(BadInput, match=r"name the dict\.txt"):
        convert_tupe(path, tmp_path / "out", dictionary=dictionary(10))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dict.txt", "model.pt"]
