"""What every test shares: one thread a process, no network, no GPU test without a GPU, and a tiny recipe.

Without a GPU, Triton's kernels run on the CPU in its interpreter; a test that needs it takes the fixture `interpreter`.
"""

import importlib
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

# Set before torch or transformers load: workers run side by side, and results must not depend on the number of cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch

# Set before Triton loads, whose decorators read it: without a GPU its kernels run on the CPU, in its interpreter. This
# is the one place that sets it; processes that tests start inherit it.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

RECIPE = """
[data]
source = "{source}"

[task]
name = "masked-lm"

[tokenizer]
vocab_size = 200

[model]
network = "encoder"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 32
encoding = "tupe-a"
hidden_dropout_prob = 0.2

[training]
output_dir = "{folder}/run"
max_steps = 12
batch_size = 4
learning_rate = 3e-3
log_every = 1
evaluate_every = 4
trackers = []
device = "cpu"
"""


@pytest.fixture
def registries_as_they_were() -> Iterator[None]:
    """Take out of the catalogues what a test registers."""
    from wordorder.own_classes import REGISTRIES

    before = [(registry, {*registry}) for registry in REGISTRIES.values()]
    yield
    for registry, names in before:
        for name in {*registry} - names:
            del registry[name]


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what tests cache out of the user's own cache, and what the user cached out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORDORDER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def interrupts_are_heard() -> None:
    """Hear Ctrl-C as in a terminal: a shell that starts the tests in the background has them ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Draw the same numbers in every run of a test, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def compiled_for_this_test_alone() -> Iterator[None]:
    """Forget what a test compiled: all tests of a process share one limit on how often a function is compiled anew."""
    yield
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


SCRIPTS = ("docs", "benchmarks", "evidence", "evidence/publish")
"""Folders of scripts that import each other by name."""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import a script by its name, as if it had been run from its folder."""
    for folder in SCRIPTS:
        monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / folder))
    return importlib.import_module


@pytest.fixture(scope="session")
def interpreter() -> None:
    """Skip where Triton's kernels cannot run on the CPU: it is missing, or a GPU is there and its tests run them."""
    triton = pytest.importorskip("triton", reason="Triton is not installed: pip install 'wordorder[triton]'")
    if not triton.knobs.runtime.interpret:
        pytest.skip("Triton compiles its kernels here (TRITON_INTERPRET is not 1): the tests marked gpu run them")
    from wordorder.attention.backends.triton.operators import self_test

    try:
        self_test(torch.device("cpu"))
    except Exception as error:  # a wrong number is none, and fails the tests
        if "0-dimensional arrays can be converted" in str(error):
            pytest.skip(f"Triton {triton.__version__} cannot be interpreted with this NumPy: {error}")
        raise


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two dozen documents of made-up words, in three classes that differ in their words."""
    folder = tmp_path_factory.mktemp("corpus")
    draw = random.Random(0)
    words = ["".join(draw.choice("abcdefghij") for _ in range(draw.randint(2, 5))) for _ in range(75)]
    for number in range(24):
        label = ("left", "middle", "right")[number % 3]
        known = words[25 * (number % 3) :][:30]
        text = " ".join(" ".join(draw.choice(known) for _ in range(8)) + "." for _ in range(12))
        (folder / label).mkdir(exist_ok=True)
        (folder / label / f"{number:02d}.txt").write_text(text)
    return folder


def write_recipe(folder: Path, corpus: Path) -> Path:
    path = folder / "tiny.toml"
    path.write_text(RECIPE.format(source=f"{corpus}/*/*.txt", folder=folder))
    return path


@pytest.fixture
def recipe_file(tmp_path: Path, corpus: Path) -> Path:
    """A recipe that trains for twelve steps in a second; its run folder is tmp_path / "run"."""
    return write_recipe(tmp_path, corpus)


@pytest.fixture(scope="session")
def shared_recipe_file(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """The same recipe, for runs that several tests only look at."""
    return write_recipe(tmp_path_factory.mktemp("shared"), corpus)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `gpu` where torch sees no CUDA device."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device"))


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """A folder of a tiny random Llama of transformers, with a tokenizer that has a start and an end, and no padding."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    folder = tmp_path_factory.mktemp("llama")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=280, special_tokens=["<s>", "</s>"], initial_alphabet=letters)
    tokenizer.train([str(path) for path in sorted(corpus.glob("*/*.txt"))], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)]
    )
    ends = {"bos_token": "<s>", "eos_token": "</s>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends).save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=288,  # rows to spare, as large models have them
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.1,
    )
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)  # as large models are saved
    return folder


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """A folder of a tiny random BERT of transformers."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    folder = tmp_path_factory.mktemp("bert")
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=special)
    tokenizer.train([str(path) for path in sorted(corpus.glob("*/*.txt"))], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{token[1:-1].lower()}_token": token for token in special}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=40,
        initializer_range=0.1,
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    return folder
