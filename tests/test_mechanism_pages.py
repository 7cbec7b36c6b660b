"""The pages of the mechanisms: what they say of the code and the results is so, and their figures can be drawn."""

import importlib
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import wordorder
from wordorder.encodings import CATALOG

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FIGURES = DOCS / "figures" / "mechanisms"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "<!-- facts: " in path.read_text(encoding="utf-8"))
HEADINGS = ("Where it acts, and what it costs", "How ours differs", "When to use it")


def facts_names(page: Path) -> set[str]:
    return set(" ".join(re.findall(r"<!-- facts: ([a-z0-9 -]+) -->", page.read_text(encoding="utf-8"))).split())


def test_every_encoding_of_the_catalogue_has_its_page():
    named = [name for page in PAGES for name in facts_names(page)]
    assert sorted(named) == sorted(CATALOG)
    linked = re.findall(r"^\| \[`([a-z0-9-]+)`\]\(([\w./-]+)\) \|", (DOCS / "encodings.md").read_text("utf-8"), re.M)
    assert {name: (DOCS / target).resolve() for name, target in linked} == {
        name: page for page in PAGES for name in facts_names(page)
    }


@pytest.mark.parametrize(
    "page", [*PAGES, DOCS / "mechanisms" / "compositions.md", DOCS / "memory.md"], ids=lambda p: p.name
)
def test_a_page_has_an_equation_figures_and_its_sections(page: Path):
    text = page.read_text(encoding="utf-8")
    assert re.search(r"^```\n.* (=|->) .*^```$", text, flags=re.DOTALL | re.MULTILINE), "an equation"
    figures = re.findall(r"!\[([^\]]+)\]\((?:\.\./)?(figures/mechanisms/[\w.-]+\.svg)\)", text)
    assert figures
    assert all(len(words) > 15 and (DOCS / path).is_file() for words, path in figures)
    if page.parent.name == "mechanisms":
        headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
        assert [heading for heading in headings if heading in HEADINGS] == list(HEADINGS)
    else:
        assert "differ" in text
        assert "## When to use it" in text


def test_facts_and_measurements_are_those_of_the_code_and_the_results(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    publish = importlib.import_module("publish_mechanisms")
    stale = [
        page.name
        for page in sorted(DOCS.rglob("*.md"))
        if publish.filled(text := page.read_text(encoding="utf-8"), prefix=publish.up(page)) != text
    ]
    assert not stale, "run benchmarks/publish_mechanisms.py"


def test_facts_say_what_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    facts = importlib.import_module("publish_mechanisms").facts(["rope", "cope"])
    assert "| encoder | yes | refused |" in facts
    assert "| look-ahead | yes | refused |" in facts
    assert facts.count("- `cope`, ") == len(CATALOG["cope"].refused_in)


def test_no_arm_is_refused_at_the_length_of_its_training(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    publish = importlib.import_module("publish_mechanisms")
    lines = publish.longer_texts(sorted(CATALOG), "")
    table = {line.split(" | ")[1]: line.strip("| ").split(" | ")[2:] for line in lines if line.startswith("| [masked")}
    assert float(table["rope"][0]) < float(table["rope"][-1])
    assert table["tupe-r"] == ["4.64", *["longer than its table"] * (len(table["rope"]) - 1)]
    assert lines[-1].startswith("Of an arm with a table")
    assert publish.longer_texts(["rope"], "")[-1].startswith("| [causal")


def test_the_figures_are_drawn_alike_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed; it comes with the extra train")
    monkeypatch.syspath_prepend(str(DOCS / "figures"))
    draw = importlib.import_module("draw_mechanisms")
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    draw.draw([], steps=1, out=tmp_path / "all")
    draw.draw(["rope", "tupe"], steps=1, out=tmp_path / "again")
    assert torch.get_num_threads() == threads
    for file in (tmp_path / "again").iterdir():
        assert file.read_bytes() == (tmp_path / "all" / file.name).read_bytes(), file.name
    assert {file.name for file in (tmp_path / "all").iterdir()} == {file.name for file in FIGURES.iterdir()}
    shown = " ".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    for file in FIGURES.iterdir():
        assert f"figures/mechanisms/{file.name}" in shown, f"{file.name} is on no page"
        root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
        addresses = {value for node in root.iter() for key, value in node.attrib.items() if key.endswith("href")}
        assert all(address.startswith(("#", "data:")) for address in addresses), "nothing from elsewhere"


# ------------------------------------------------------------------------------- what the questions' answers promise


@pytest.mark.parametrize("length", [20, 200])
def test_only_the_positional_part_can_learn(length: int):
    """docs/faq.md: a frozen backbone."""
    encoder = wordorder.Encoder(50, width=32, layers=2, heads=4, max_positions=length, encoding="tupe-r", dropout=0.0)
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_("encoding" in name)
    (encoder(torch.randint(50, (2, length))).hidden ** 3).mean().backward()
    with_gradient = {name for name, p in encoder.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert "encoding.parts.tupe.table.weight" in with_gradient
    assert "encoding.parts.tupe.relative.table.weight" in with_gradient
    assert all("encoding" in name for name in with_gradient)


@pytest.mark.parametrize(
    ("encoding", "symmetric"),
    [("alibi", True), ("kerple", True), ("sandwich", True), ("rope", False), ("t5", False), ("tupe-r", False)],
)
def test_which_encodings_cannot_tell_left_from_right_in_encoders(encoding: str, symmetric: bool):
    """docs/faq.md and the pages of the three."""
    encoder = wordorder.Encoder(50, width=32, layers=1, heads=4, max_positions=9, encoding=encoding).eval()
    with torch.no_grad():  # numbers that start at 0 hide nothing
        for parameter in encoder.encoding.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    tokens = torch.randint(50, (1, 9))
    backwards = encoder(tokens.flip(1)).hidden.flip(1)
    assert torch.allclose(encoder(tokens).hidden, backwards, atol=1e-4) is symmetric


def test_two_content_scales_cannot_act_together_in_one_layer():
    """docs/mechanisms/compositions.md."""
    sizes = {"width": 32, "layers": 2, "heads": 4}
    for pair in (("tupe-a", "deberta"), ("tupe-a", "untied-sum"), ("untied-sum", "deberta")):
        with pytest.raises(ValueError, match=r"content scales|two variants"):
            wordorder.Encoder(50, **sizes, encoding="+".join(pair))
        wordorder.Encoder(50, **sizes, encoding=",".join(pair))
