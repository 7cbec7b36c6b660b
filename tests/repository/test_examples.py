"""The examples run, shortened, and show what they are for."""

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def printed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run an example in this process, which has the libraries loaded already, and return what it printed.

    It runs in a folder with a few small texts of which much can be guessed.
    """
    monkeypatch.setenv("WORDORDER_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"the state of the union is {number} times strong . " * 60)

    def run(name: str, *arguments: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def numbers_in(text: str, pattern: str) -> list[float]:
    return [float(number) for number in re.findall(pattern, text)]


def of_swap_the_encoding(printed_by: Callable[..., str]) -> None:
    text = printed_by("swap_the_encoding.py", "--steps", "60", "--encodings", "none", "tupe-r")
    losses = {line.split()[0]: float(line.split()[-1]) for line in text.splitlines()}
    assert losses["tupe-r"] < losses["none"]


def of_pretrain_on_your_text(printed_by: Callable[..., str]) -> None:
    text = printed_by("pretrain_on_your_text.py", "*.txt", "--steps", "4")
    assert "test perplexity" in text
    assert len([line for line in text.splitlines() if line.startswith("0.")]) == 3


def of_own_encoding(printed_by: Callable[..., str]) -> None:
    text = printed_by("own_encoding.py")
    assert "fault" not in text
    losses = {line.split()[0]: float(line.split()[-1]) for line in text.splitlines() if " loss " in line}
    assert losses["neighbours"] < losses["none"]


def of_fine_tune_with_tupe(printed_by: Callable[..., str]) -> None:
    text = printed_by("fine_tune_with_tupe.py", "--steps", "4", "--documents", "12")
    assert "drawn anew: dense.weight, dense.bias, classifier.weight, classifier.bias\n" in text
    assert len(numbers_in(text, r"test accuracy (\d\.\d+)")) == 2


def of_stream_with_memory(printed_by: Callable[..., str]) -> None:
    text = printed_by("stream_with_memory.py", "*.txt", "--steps", "6", "--tokens", "40", "--prompt", "the state")
    scores, written = text.split("\nthe state", 1)
    assert len(numbers_in(scores, r"(\d+\.\d+) bits per character")) == 2
    assert len(written.rstrip("\n")) <= 40


def of_complex_order_classifier(printed_by: Callable[..., str]) -> None:
    plain, waves = numbers_in(printed_by("complex_order_classifier.py", "--steps", "200"), r"accuracy (\d\.\d+)")
    assert plain < 0.6
    assert waves > 0.85


def of_tupe_on_bert(printed_by: Callable[..., str]) -> None:
    text = printed_by("tupe_on_bert.py", "--steps", "100")
    assert text.startswith("BertForMaskedLM: 10,176 parameters more")
    assert numbers_in(text, r"at most ([\d.e+-]+) apart")[0] < 1e-5
    plain, swapped = numbers_in(text, r"loss (\d\.\d+)")
    assert swapped < plain - 1
    assert text.endswith("saved and loaded: the same logits\n")


def of_compare_in_python(printed_by: Callable[..., str]) -> None:
    text = printed_by("compare_in_python.py", "*.txt", "--steps", "4")
    sizes = numbers_in(text.replace(",", ""), r"(\d+) parameters")
    assert max(sizes) / min(sizes) < 1.01
    assert "(2 seeds)" in text


def of_convert_a_checkpoint(printed_by: Callable[..., str]) -> None:
    text = printed_by("convert_a_checkpoint.py")
    assert "every number arrived: True" in text


def of_inspect_correlations(printed_by: Callable[..., str]) -> None:
    text = printed_by("inspect_correlations.py", "--folder", "figures")
    lines = [line for line in text.splitlines() if "prefers" in line]
    distances = [int(number) for line in lines for number in line.split(" at ")[1].split()]
    assert len(distances) == 8
    assert sum(distance % 3 == 0 for distance in distances) >= 7
    assert Path("figures/map-absolute.png").read_bytes()[:4] == b"\x89PNG"


def of_gemma_like_decoder(printed_by: Callable[..., str]) -> None:
    text = printed_by("gemma_like_decoder.py", "--text", "0.txt", "--window", "8", "--steps", "20")
    losses = re.findall(r"loss ([\d.]+), after 20 steps ([\d.]+)", text)
    assert len(losses) == 2
    assert all(float(last) < float(first) - 1 for first, last in losses)
    assert numbers_in(text, r"at most ([\d.e+-]+) apart")[0] < 1e-4
    assert "tokens in the cache, by layer: 7 7 7 7 7 32\n" in text
    bases = "{'rope:sliding': {'base': 10000.0}, 'rope:full': {'base': 1000000.0}}"
    assert f"read from Gemma 3: rope:sliding@8*5,rope:full {bases}\n" in text
    assert text.endswith("saved, loaded, and without a cache: the same text\n")


def of_conformer_block(printed_by: Callable[..., str]) -> None:
    text = printed_by("conformer_block.py", "--steps", "100")
    plain, relative = numbers_in(text, r"accuracy (\d\.\d+)")
    assert plain < 0.6
    assert relative > 0.9
    assert max(numbers_in(text, r"padded ([\d.e+-]+) apart")) < 1e-4


def of_forgetting_attention(printed_by: Callable[..., str]) -> None:
    text = printed_by("forgetting_attention.py", "--steps", "200")
    none, rope, fox = (numbers_in(line, r"(\d\.\d+) in \d+ tokens") for line in text.splitlines())
    assert none[0] < 0.7
    assert min(fox) > 0.9 > rope[1]  # rope's answers are for texts of the length of training
    assert max(numbers_in(text, r"cache ([\d.e+-]+) apart")) < 1e-4


FAST = {"complex_order_classifier", "tupe_on_bert", "convert_a_checkpoint", "inspect_correlations"}


@pytest.mark.usefixtures("catalogue_of_before")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(file.stem, marks=[] if file.stem in FAST else pytest.mark.slow)
        for file in sorted(EXAMPLES.glob("*.py"))
    ],
)
def test_an_example_shows_what_it_is_for(name: str, printed_by: Callable[..., str]):
    globals()[f"of_{name}"](printed_by)
