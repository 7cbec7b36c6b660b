"""Tokenisers: six kinds trained on the training split, and existing ones.

Each has [PAD] [UNK] [CLS] [SEP] [MASK] as ids 0 to 4 and writes a text as [CLS] text [SEP], a pair as
[CLS] text [SEP] second [SEP]; or, with add_special_tokens = false, as the text alone. The same texts and settings give
the same tokeniser, bit for bit.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.data.cache import content_hash, write_cached
from wordorder.data.settings import TokenizerConfig
from wordorder.errors import BadInput, MissingExtra
from wordorder.files import one_line, read_json

try:
    import tokenizers
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as error:
    raise MissingExtra("tokenizers", "train") from error

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_ROLES = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<s>", "<cls>"),
    "sep_token": ("[SEP]", "</s>", "<sep>", "<eos>"),
    "mask_token": ("[MASK]", "<mask>"),
}
"""Special tokens as transformers calls them -> ours, and the names that others have for them."""
_STAND_INS = {"cls_token": ("bos_token",), "sep_token": ("eos_token",), "pad_token": ("eos_token", "sep_token")}
"""Special token that an existing tokeniser needs -> those that are taken in its place."""
SPECIALS = tuple(names[0] for names in _ROLES.values())
_FORMAT = "1"  # version of what is built below: raise it with every change, so that cached tokenisers are not reused


def load_tokenizer(config: TokenizerConfig, texts: Iterable[str], *, cache_dir: Path) -> "PreTrainedTokenizerFast":
    """Train a tokeniser on texts, or take the trained one from the cache, or load the existing one.

    Args:
        texts: the training split, and nothing else: a tokeniser that saw the test text leaks it. They are read more
            than once.

    Raises:
        BadInput: the existing tokeniser cannot be loaded or lacks a special token.
        MissingExtra: tokenizers or transformers is not installed.
    """
    if config.kind == "existing":
        return _load_existing(config)
    settings = (config.kind, config.vocab_size, config.lowercase, config.min_frequency, config.add_special_tokens)
    name = content_hash(chain([_FORMAT, version("tokenizers"), *map(str, settings)], texts))
    path = cache_dir / "tokenizers" / f"{name}.json"
    try:
        trained = Tokenizer.from_file(str(path))
    except Exception:  # a bare Exception says that there is no such file or that it is damaged: train, and overwrite it
        trained = None
    if trained is None:
        trained = _TRAINERS[config.kind](texts, config)
        _add_specials(trained, config)
        write_cached(path, trained.to_str().encode())
    return _wrap(trained)


def pair_separators(tokenizer: "PreTrainedTokenizerFast") -> int:
    """Return how many [SEP] a tokeniser writes between the texts of a pair: 1, or 2 as RoBERTa's and fairseq's do."""
    return 2 if tokenizer.num_special_tokens_to_add(pair=True) == 4 else 1


def write_both_ends(tokenizer: "PreTrainedTokenizerFast") -> None:
    """Make a tokeniser that adds a start or an end alone, as Llama's and T5's do, add both, as texts are trained with.

    It is saved beside the model, so that the model reads the same later.
    """
    if tokenizer.num_special_tokens_to_add(pair=False) != 1:
        return
    start, end = str(tokenizer.cls_token), str(tokenizer.sep_token)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=[start, "$A", end],
        pair=[start, "$A", end, "$B:1", f"{end}:1"],
        special_tokens=[(start, tokenizer.cls_token_id), (end, tokenizer.sep_token_id)],
    )


def adds_special_tokens(tokenizer: "PreTrainedTokenizerFast") -> bool:
    """Return whether a tokeniser puts special tokens around a text."""
    return tokenizer.num_special_tokens_to_add(pair=False) > 0


def fixed_vocab_size(config: TokenizerConfig) -> int | None:
    """Return the size of the vocabulary where no text decides it (byte, existing), or else None.

    Raises:
        BadInput: the existing tokeniser cannot be loaded or lacks a special token.
        MissingExtra: tokenizers or transformers is not installed.
    """
    if config.kind == "byte":
        return len(SPECIALS) + 256
    if config.kind == "existing":
        # The largest id decides the size of a table: the numbers of an existing tokeniser may have holes.
        return max(_load_existing(config).get_vocab().values()) + 1
    return None


def _train_wordpiece(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train BERT's tokeniser (Wu et al. 2016, https://arxiv.org/abs/1609.08144), merges chosen by frequency as in BPE.

    The library numbers the continuing letters (##a, ##b ...) in the order of a hash map, and breaks ties between merges
    of the same frequency by these numbers, so that two runs differ. Naming all letters beforehand prevents it.
    """
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    _split_like_bert(tokenizer, config)
    words = _words(texts, tokenizer)
    letters = _letters(words, most=(config.vocab_size - len(SPECIALS)) // 4)
    inside = {letter for word in words for letter in word[1:]}
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.vocab_size,
        show_progress=False,
        special_tokens=[*SPECIALS, *(f"##{letter}" for letter in letters if letter in inside)],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
    )
    tokenizer.train_from_iterator(texts, trainer)
    vocabulary = tokenizer.get_vocab()  # rebuilt, because the trainer made the letters special tokens
    trained = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    _split_like_bert(trained, config)
    trained.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return trained


def _train_word(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    trained = Tokenizer(models.WordLevel({}, unk_token="[UNK]"))
    _split_like_bert(trained, config)
    _take_most_frequent(trained, texts, config)
    trained.decoder = decoders.WordPiece(prefix="##", cleanup=True)  # spaces between words, none before a full stop
    return trained


def _train_whitespace(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train a tokeniser of what stands between white space, the most frequent words; the rest is [UNK].

    It is for texts whose words somebody has set apart already, as those of Kim 2014
    (https://arxiv.org/abs/1408.5882): "it 's" is two words.
    """
    # a word that is written as a special token's name is no such token: it is cut after its bracket
    names = "|".join(re.escape(token[1:]) for token in SPECIALS)
    brackets = pre_tokenizers.Split(tokenizers.Regex(rf"\[(?={names})"), "isolated")
    trained = Tokenizer(models.WordLevel({}, unk_token="[UNK]"))
    trained.normalizer = _normalizer(config)
    trained.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), brackets])
    _take_most_frequent(trained, texts, config)
    return trained


def _take_most_frequent(tokenizer: Tokenizer, texts: Iterable[str], config: TokenizerConfig) -> None:
    vocabulary = _most_frequent(_words(texts, tokenizer), config.vocab_size, at_least=config.min_frequency)
    tokenizer.model = models.WordLevel(vocabulary, unk_token="[UNK]")


def _train_character(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    trained = Tokenizer(models.WordLevel(characters(texts, config), unk_token="[UNK]"))
    trained.normalizer = _normalizer(config, "NFC")
    trained.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
    trained.decoder = decoders.Fuse()
    return trained


def characters(texts: Iterable[str], config: TokenizerConfig) -> dict[str, int]:
    """Return the vocabulary of a character tokeniser: the special tokens and the most frequent characters."""
    counts: Counter[str] = Counter()
    normalizer = _normalizer(config, "NFC")
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    return _most_frequent(counts, config.vocab_size)


def _train_byte(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*SPECIALS, *letters])}
    trained = Tokenizer(models.BPE(vocabulary, []))
    trained.normalizer = _normalizer(config)
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trained.decoder = decoders.ByteLevel()
    return trained


def _train_bpe(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    trained = Tokenizer(models.BPE())
    trained.normalizer = _normalizer(config)
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        show_progress=False,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    trained.train_from_iterator(texts, trainer)
    return trained


_TRAINERS: dict[str, Callable[[Iterable[str], TokenizerConfig], Tokenizer]] = {
    "wordpiece": _train_wordpiece,
    "bpe": _train_bpe,
    "byte": _train_byte,
    "character": _train_character,
    "word": _train_word,
    "whitespace": _train_whitespace,
}


def _normalizer(config: TokenizerConfig, *forms: str) -> Any:
    lower = [normalizers.Lowercase()] if config.lowercase else []
    return normalizers.Sequence([*(getattr(normalizers, form)() for form in forms), *lower])


def _split_like_bert(tokenizer: Tokenizer, config: TokenizerConfig) -> None:
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=config.lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()


_SEPARATOR, _RUN = re.compile(r"[\x1c-\x1f]"), re.compile(r"(?:\S|[\x1c-\x1f])+")


def _words(texts: Iterable[str], tokenizer: Tokenizer) -> Counter[str]:
    """Count words as the tokeniser splits them. It never joins across white space, so each distinct run of other
    characters is split once instead of each time it occurs."""
    runs: Counter[str] = Counter()
    for text in texts:
        # what Python alone takes for white space is part of a word
        runs.update(_RUN.findall(text) if _SEPARATOR.search(text) else text.split())
    words: Counter[str] = Counter()
    for run, count in runs.items():
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(run)):
            words[word] += count
    return words


def _letters(words: Counter[str], *, most: int) -> list[str]:
    """Return the most frequent characters, sorted; a quarter of the vocabulary leaves room for words in any script."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            counts[letter] += count
    return sorted(sorted(counts, key=lambda letter: (-counts[letter], letter))[:most])


def _most_frequent(counts: Counter[str], vocab_size: int, *, at_least: int = 1) -> dict[str, int]:
    known = (token for token, count in counts.items() if token not in SPECIALS and count >= at_least)
    ranked = sorted(known, key=lambda token: (-counts[token], token))
    return {token: number for number, token in enumerate([*SPECIALS, *ranked[: vocab_size - len(SPECIALS)]])}


def _add_specials(tokenizer: Tokenizer, config: TokenizerConfig) -> None:
    # A byte-level word begins with its space, so the mask takes the space before it, as RoBERTa's does.
    tokens = [tokenizers.AddedToken(t, special=True, lstrip=t == "[MASK]" and config.kind == "bpe") for t in SPECIALS]
    tokenizer.add_special_tokens(tokens)  # pyright: ignore[reportUnknownMemberType]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]" if config.add_special_tokens else "$A",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1" if config.add_special_tokens else "$A $B:1",
        special_tokens=[("[CLS]", SPECIALS.index("[CLS]")), ("[SEP]", SPECIALS.index("[SEP]"))],
    )


def _library() -> Any:
    try:
        from transformers import PreTrainedTokenizerFast
    except ImportError as error:
        raise MissingExtra("transformers", "train") from error
    return PreTrainedTokenizerFast


def _wrap(tokenizer: Tokenizer) -> "PreTrainedTokenizerFast":
    vocabulary = tokenizer.get_vocab()
    # of several names the first one counts
    roles = {role: name for role, names in _ROLES.items() for name in reversed(names) if name in vocabulary}
    added = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    return _library()(
        tokenizer_object=tokenizer,
        model_input_names=["input_ids", "attention_mask"],  # no segment embeddings, so no token_type_ids
        clean_up_tokenization_spaces=False,  # the decoders of wordpiece and word do it; elsewhere it would change text
        **{role: added.get(token, token) for role, token in roles.items()},
    )


def read_tokenizer(path: Path) -> "PreTrainedTokenizerFast":
    """Read the tokeniser of a folder that save_pretrained wrote, or a tokenizer.json; no code of the folder is run.

    Raises:
        BadInput: there is none, or it cannot be read.
        MissingExtra: tokenizers or transformers is not installed.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise BadInput(f"{path}: holds no tokenizer that can be read (no {file.name})")
    beside = path / "tokenizer_config.json"
    try:
        settings = read_json(beside) if path.is_dir() and beside.exists() else None
        if isinstance(settings, dict) and "fast_tokenizer_files" in settings:
            raise ValueError(f"{beside.name} names fast_tokenizer_files, in the place of tokenizer.json")
        return _opened(path)
    except MissingExtra:
        raise
    except BaseException as error:  # a damaged file raises whatever its reader raises, a panic of Rust among it
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise BadInput(f"{path}: holds no tokenizer that can be read: {one_line(error)}") from error


def _opened(path: Path) -> "PreTrainedTokenizerFast":
    if path.is_dir():
        # Not AutoTokenizer: it follows config.json to a class that may build another tokeniser than the file's.
        return _library().from_pretrained(path, local_files_only=True)
    return _wrap(Tokenizer.from_file(str(path)))


def _load_existing(config: TokenizerConfig) -> "PreTrainedTokenizerFast":
    path = Path(config.path or "").expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.exists():
        raise BadInput(f"tokenizer.path {file} does not exist")
    try:
        loaded = read_tokenizer(path)
    except BadInput as error:
        raise BadInput([f"tokenizer.path is not a tokeniser: {fault}" for fault in error.faults]) from error
    _fill_roles(loaded, path)
    missing = [role for role in _STAND_INS if getattr(loaded, role) is None]
    if missing:
        raise BadInput(
            f"tokenizer.path {path} has no {', '.join(missing)}; train and evaluate need all of {', '.join(_STAND_INS)}"
        )
    return loaded


def _fill_roles(tokenizer: Any, path: Path) -> None:
    """Give a tokeniser a start, an end and padding where it has other names for them, or does not say which they are.

    A language model's has the roles bos and eos: they are its [CLS] and [SEP], eos alone both; and eos pads, as is
    usual, since what is padded is masked.
    """
    vocabulary, config = tokenizer.get_vocab(), path / "config.json"
    for role, names in _ROLES.items():  # older folders leave them to a class of transformers
        if getattr(tokenizer, role) is None:
            setattr(tokenizer, role, next((name for name in names if name in vocabulary), None))
    if tokenizer.eos_token is None and tokenizer.sep_token is None:
        with suppress(OSError, ValueError, LookupError, TypeError):  # no config.json, or it does not say
            tokenizer.eos_token = tokenizer.convert_ids_to_tokens(int(read_json(config)["eos_token_id"]))
    if tokenizer.cls_token is None:
        tokenizer.bos_token = tokenizer.bos_token or tokenizer.eos_token
    for role, others in _STAND_INS.items():
        if getattr(tokenizer, role) is None:
            setattr(tokenizer, role, next((token for other in others if (token := getattr(tokenizer, other))), None))
