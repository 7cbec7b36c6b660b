"""The pages of the mechanisms: what they say of the code and the results is so, and their figures can be drawn."""

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import wordorder
from wordorder.encodings import CATALOG

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FIGURES = DOCS / "figures" / "mechanisms"
RESULTS = ROOT / "benchmarks" / "results"
HEADINGS = ("Where it acts, and what it costs", "How ours differs", "When to use it")


def named(page: Path, table: str) -> list[str]:
    """List the encodings of which the page has a table of this kind: facts, or measured."""
    found = re.findall(rf"^<!-- {table}: ([a-z0-9 -]+) -->$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return " ".join(found).split()


PAGES = sorted(path for path in DOCS.rglob("*.md") if named(path, "facts"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What makes the tables of the site."""
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("encoding_pages")


def as_built(made: ModuleType, name: str) -> str:
    """Return a page of docs/ with its tables."""
    return made.filled((DOCS / name).read_text(encoding="utf-8"), name)


def test_every_encoding_of_the_catalogue_has_its_page(made: ModuleType):
    on_pages = [name for page in PAGES for name in named(page, "facts")]
    assert sorted(on_pages) == sorted(CATALOG)
    linked = re.findall(r"^\| \[`([a-z0-9-]+)`\]\(([\w./-]+)\) \|", as_built(made, "encodings.md"), re.M)
    assert {name: (DOCS / target).resolve() for name, target in linked} == {
        name: page for page in PAGES for name in named(page, "facts")
    }


def entries(nav: list[Any], title: str = "") -> Iterator[tuple[str, str]]:
    """Yield every page of a nav with the title of the section that it stands in."""
    for entry in nav:
        if isinstance(entry, str):
            yield entry, title
        else:
            for name, of in entry.items():
                yield from entries(of, name) if isinstance(of, list) else [(of, title)]


def test_the_navigation_has_every_page_once_and_mechanisms_by_place(made: ModuleType):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed; it comes with the extra docs")
    nav = made.navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    found = list(entries(nav))
    there = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"log.md"}
    assert sorted(page for page, _ in found) == sorted(there)
    by_hand = {page for page, _ in entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])}
    for page, section in found:
        if page not in by_hand:
            place = CATALOG[named(DOCS / page, "facts")[0]].place
            assert section == ("Nowhere" if place == "nowhere" else f"On {place}")


@pytest.mark.parametrize(
    "page", [*PAGES, DOCS / "mechanisms" / "compositions.md", DOCS / "memory.md"], ids=lambda p: p.name
)
def test_a_page_has_an_equation_its_figures_and_its_sections(page: Path):
    text = page.read_text(encoding="utf-8")
    assert re.search(r"^```(math)?\n.* (=|->|\\to) .*^```$", text, flags=re.DOTALL | re.MULTILINE), "an equation"
    figures = re.findall(r"!\[([^\]]+)\]\((?:\.\./)?(figures/mechanisms/[\w.-]+\.svg)\)", text)
    drawn = {f"figures/mechanisms/{file.name}" for file in FIGURES.glob(f"{page.stem}-*.svg")}
    assert drawn <= {path for _, path in figures}, "all that are drawn of it"
    assert all(len(words) > 15 and (DOCS / path).is_file() for words, path in figures)
    if page.parent.name == "mechanisms":
        headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
        assert [heading for heading in headings if heading in HEADINGS] == list(HEADINGS)
    else:
        assert "differ" in text
        assert "## When to use it" in text


def test_facts_and_measurements_are_those_of_the_code_and_the_results(made: ModuleType):
    step = json.loads((RESULTS / "encodings.json").read_text(encoding="utf-8"))["networks"]["decoder"]["alibi"]
    compared = json.loads((RESULTS / "compare-clm.json").read_text(encoding="utf-8"))["summary"]
    score = next(entry["perplexity"]["mean"] for entry in compared if entry["arm"] == "alibi")
    page = as_built(made, "mechanisms/alibi.md")
    for row in (
        f"| acts on | {CATALOG['alibi'].place} |",
        "| parameters, BERT-Base | 0 |",
        f"| training step, decoder, none = 1 | {step['ratio']:.2f} |",
        f"| alibi | perplexity {score:.3f}\N{NO-BREAK SPACE}±",
    ):
        assert row in page
    assert "| parameters, BERT-Base | 1,575,936 | 1,576,320 | 1,575,936 |" in as_built(made, "tupe.md")


def test_tables_are_put_in_as_the_site_is_built_and_are_not_typed(made: ModuleType):
    for page in sorted(DOCS.rglob("*.md")):
        name, written = page.relative_to(DOCS).as_posix(), page.read_text(encoding="utf-8")
        built = as_built(made, name)
        assert not re.search(r"^<!-- (facts|measured|catalogue): ", built, flags=re.MULTILINE), name
        assert "| parameters, BERT-Base |" not in written
        assert set(named(page, "measured")) <= {*CATALOG, "memories"}, name
        for target in re.findall(r"\]\(([\w./-]+)[)#]", "\n".join(set(built.split("\n")) - set(written.split("\n")))):
            assert (page.parent / target).is_file(), f"{name}: {target}"
    with pytest.raises(ValueError, match=r"index\.md: there is no table <!-- catalogue: nothing -->"):
        made.filled("<!-- catalogue: nothing -->", "index.md")


def test_facts_say_what_is_refused(made: ModuleType):
    facts = made.facts(["rope", "cope"])
    assert "| encoder | yes | refused |" in facts
    assert "| look-ahead | yes | refused |" in facts
    assert facts.count("- `cope`, ") == len(CATALOG["cope"].refused_in)


def test_no_arm_is_refused_at_the_length_of_its_training(made: ModuleType):
    lines = made.longer_texts(sorted(CATALOG), "")
    table = {line.split(" | ")[1]: line.strip("| ").split(" | ")[2:] for line in lines if line.startswith("| [masked")}
    assert float(table["rope"][0]) < float(table["rope"][-1])
    assert table["tupe-r"] == ["4.64", *["longer than its table"] * (len(table["rope"]) - 1)]
    assert lines[-1].startswith("Of an arm with a table")
    assert made.longer_texts(["rope"], "")[-1].startswith("| [causal")


def test_the_figures_are_legible_on_a_dark_page(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed; it comes with the extra train")
    monkeypatch.syspath_prepend(str(DOCS / "figures"))
    dark = importlib.import_module("draw_mechanisms").DARK
    bright = {"stroke: #21918c", "stroke: #5ec962"}
    for file in FIGURES.iterdir():
        text = file.read_text(encoding="utf-8")
        used = set(re.findall(r"(?:fill|stroke): #[0-9a-f]{6}(?=[;\"])", text)) - bright
        assert all(f"[style*='{colour}']" in dark for colour in used), f"{file.name}: {used}"
        rules = re.findall(r"@media \(prefers-color-scheme: dark\) \{ (.*?)\} \*", text)
        assert rules == ["".join(f"{selector} {{{rule}}} " for selector, rule in dark.items())], file.name


@pytest.mark.slow
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
