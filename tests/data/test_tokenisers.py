"""Every kind trains the same in every process, reads well, knows its specials, and survives a damaged cache."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from documents import settings
from tokenizers import Tokenizer

import wordorder
from wordorder.data import TOKENIZER_KINDS, TokenizerConfig, load_tokenizer
from wordorder.data.tokenizers import read_tokenizer
from wordorder.data.tokens import encode_texts
from wordorder.errors import BadInput
from wordorder.tasks import prepare

TRAINED = [kind for kind in TOKENIZER_KINDS if kind != "existing"]
TEXTS = [
    f"The {noun} of the {other} {verb}, doesn't it? Naïve {noun}s {verb} {i}.\n\nSo they {verb}!"
    for i, (noun, other, verb) in enumerate(
        (noun, other, verb)
        for noun in ("house", "horse", "mouse", "senate", "nation")
        for other in ("state", "union", "address")
        for verb in ("stands", "runs", "speaks", "waits")
    )
]


def train(kind, cache, **fields):
    return load_tokenizer(TokenizerConfig(kind=kind, **({"vocab_size": 300} | fields)), TEXTS, cache_dir=Path(cache))


@pytest.mark.parametrize("kind", TRAINED)
@pytest.mark.parametrize("lowercase", [False, True])
def test_specials_template_and_size(tmp_path, kind, lowercase):
    tokenizer = train(kind, tmp_path, lowercase=lowercase)
    assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id) == (0, 1, 2)
    assert (tokenizer.sep_token_id, tokenizer.mask_token_id) == (3, 4)
    assert len(tokenizer) <= 300
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))
    text = tokenizer("The house", add_special_tokens=False)["input_ids"]
    assert set(tokenizer("The house")) == {"input_ids", "attention_mask"}
    assert tokenizer("The house")["input_ids"] == [2, *text, 3]
    assert tokenizer("The house", "The house")["input_ids"] == [2, *text, 3, *text, 3]
    assert (tokenizer("The house")["input_ids"] == tokenizer("the HOUSE")["input_ids"]) is lowercase


@pytest.mark.parametrize("kind", TRAINED)
def test_text_comes_back_readable(tmp_path, kind):
    tokenizer, text = train(kind, tmp_path, vocab_size=2000), "The house of the state stands. So they wait, naïve!"
    if kind in ("word", "whitespace"):
        text = "So they speaks! The house of the state stands"  # words of the training text only
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text
    if kind in ("bpe", "byte"):
        odd = "  two  spaces,\ttab \U0001f600 , .\n"
        assert tokenizer.decode(tokenizer(odd)["input_ids"], skip_special_tokens=True) == odd


@pytest.mark.parametrize("kind", TRAINED)
def test_a_mask_in_the_text_stands_where_a_word_did(tmp_path, kind):
    tokenizer = train(kind, tmp_path)
    whole, masked = (tokenizer(f"The {word} stands")["input_ids"] for word in ("house", "[MASK]"))
    assert masked.count(4) == 1
    at = masked.index(4)
    assert masked[:at] == whole[:at]
    assert masked[at + 1 :] == whole[-len(masked) + at + 1 :]


def test_training_is_the_same_in_every_process(tmp_path):
    program = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path; from test_tokenisers import TRAINED, train\n"
        "print([train(kind, Path(sys.argv[1]), lowercase=True).backend_tokenizer.to_str() for kind in TRAINED])"
    )
    outputs = set()
    for seed in ("1", "2", "3"):
        environment = os.environ | {
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": str(Path(next(iter(wordorder.__path__))).parent),
        }
        command = [sys.executable, "-c", program, str(tmp_path / seed), str(Path(__file__).parent)]
        outputs.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(outputs) == 1


@pytest.mark.parametrize("kind", TRAINED)
def test_training_does_not_depend_on_the_order_of_documents(tmp_path, kind):
    config = TokenizerConfig(kind=kind, vocab_size=300)
    turned = load_tokenizer(config, TEXTS[::-1], cache_dir=tmp_path).backend_tokenizer.to_str()
    assert turned == train(kind, tmp_path).backend_tokenizer.to_str()


def test_wordpiece_letters_of_a_large_alphabet_leave_room_for_words(tmp_path):
    texts = ["".join(chr(0x4E00 + (i * j) % 500) for j in range(40)) + " word words wording" for i in range(50)]
    tokenizer = load_tokenizer(TokenizerConfig(vocab_size=200), texts, cache_dir=tmp_path)
    assert len(tokenizer) <= 200
    assert "word" in tokenizer.get_vocab()


def test_the_cache_is_used_and_keyed_by_text_and_settings(tmp_path, monkeypatch):
    first = train("wordpiece", tmp_path).backend_tokenizer.to_str()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules["wordorder.data.tokenizers"]._TRAINERS, "wordpiece", None)  # training would fail
        assert train("wordpiece", tmp_path).backend_tokenizer.to_str() == first
        with pytest.raises(TypeError):
            train("wordpiece", tmp_path, vocab_size=299)
        with pytest.raises(TypeError):
            load_tokenizer(TokenizerConfig(vocab_size=300), TEXTS[:-1], cache_dir=tmp_path)
    (file,) = (tmp_path / "tokenizers").iterdir()
    file.write_text(file.read_text(encoding="utf-8")[:100], encoding="utf-8")  # as a full disk would leave it
    assert train("wordpiece", tmp_path).backend_tokenizer.to_str() == first
    assert Tokenizer.from_file(str(file)).to_str() == first


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "tokenizers").write_text("in the way")
    with pytest.warns(UserWarning, match="cannot cache in .* set WORDORDER_CACHE"):
        tokenizer = train("word", tmp_path)
    assert len(tokenizer) > 10


@pytest.mark.parametrize("kind", TRAINED)
def test_existing_is_what_was_saved(tmp_path, kind):
    tokenizer = train(kind, tmp_path / "cache")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text('{"model_type": "unheard-of"}')
    for path in (tmp_path / "model", tmp_path / "model" / "tokenizer.json"):
        config = TokenizerConfig(kind="existing", path=str(path))
        loaded = load_tokenizer(config, [], cache_dir=tmp_path / "cache")
        assert loaded(TEXTS[3])["input_ids"] == tokenizer(TEXTS[3])["input_ids"]
        assert loaded.special_tokens_map == tokenizer.special_tokens_map


def test_existing_faults(tmp_path):
    def fault(path):
        with pytest.raises(BadInput) as caught:
            load_tokenizer(TokenizerConfig(kind="existing", path=str(path)), [], cache_dir=tmp_path)
        return str(caught.value)

    assert "does not exist" in fault(tmp_path / "nowhere")
    assert f"{tmp_path / 'tokenizer.json'} does not exist" in fault(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    assert "is not a tokeniser" in fault(tmp_path / "tokenizer.json")
    assert "is not a tokeniser" in fault(tmp_path)
    text = train("byte", tmp_path).backend_tokenizer.to_str()
    Tokenizer.from_str(text.replace("[SEP]", "[OTHER]")).save(str(tmp_path / "plain.json"))
    assert "has no sep_token" in fault(tmp_path / "plain.json")
    Tokenizer.from_str(text.replace("[MASK]", "[OTHER]")).save(str(tmp_path / "plain.json"))
    (tmp_path / "text.txt").write_text("\n\n".join(f"Some words, {n}. " * 50 for n in range(9)))
    text = {"source": str(tmp_path / "text.txt"), "length": 16}
    existing = TokenizerConfig(kind="existing", path=str(tmp_path / "plain.json"))
    with pytest.raises(BadInput, match="has no mask_token, which task masked-lm needs"):
        prepare(*settings(task="masked-lm", **text), existing, seed=0, cache_dir=tmp_path)
    causal = settings(task="causal-lm", **text)  # which masks nothing
    assert prepare(*causal, existing, seed=0, cache_dir=tmp_path).statistics["fingerprint"]


@pytest.mark.parametrize("kind", TRAINED)
def test_encoding_is_that_of_the_tokeniser_and_names_of_specials_are_text(tmp_path, kind):
    tokenizer = train(kind, tmp_path)
    texts = [TEXTS[0], "A [MASK] in the [SEP] corpus.", TEXTS[1]]
    first, second, third = (one.ids.tolist() for one in encode_texts(texts, tokenizer))
    assert first == tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]
    assert third == tokenizer(TEXTS[1], add_special_tokens=False)["input_ids"]
    assert not {2, 3, 4} & set(second)
    assert tokenizer("[MASK]")["input_ids"] == [2, 4, 3]  # the tokeniser itself is as before


@pytest.mark.parametrize("kind", TRAINED)
def test_fill_mask_pipeline_accepts_the_tokeniser(tmp_path, kind):
    from transformers import BertConfig, BertForMaskedLM, pipeline

    tokenizer = train(kind, tmp_path)
    tokenizer.model_max_length = 32
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **sizes)).eval()
    answers = pipeline("fill-mask", model=model, tokenizer=tokenizer, device="cpu")("The [MASK] stands now.", top_k=2)
    assert len(answers) == 2
    assert all(answer["token"] < len(tokenizer) and "stands" in answer["sequence"] for answer in answers)


def test_a_reader_that_panics_is_one_error(tmp_path, monkeypatch):
    class PanicException(BaseException):
        """What tokenizers raises where its code in Rust gives up."""

    def panics(path):
        raise PanicException("range end index 8 out of range")

    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr("wordorder.data.tokenizers._opened", panics)
    with pytest.raises(BadInput, match="holds no tokenizer that can be read: range end index"):
        read_tokenizer(tmp_path)


def test_what_python_alone_takes_for_white_space_is_part_of_a_word(tmp_path):
    words = load_tokenizer(TokenizerConfig(kind="whitespace", vocab_size=300), ["a\x1cb c\x1f"] * 3, cache_dir=tmp_path)
    assert words.tokenize("a\x1cb c\x1f") == ["a\x1cb", "c\x1f"]
