"""The pages of the mechanisms: what they say of the code and the results is so, and their figures can be drawn."""

import importlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import wordorder
from wordorder.encodings import CATALOG, options_of

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FIGURES = DOCS / "figures" / "mechanisms"
RESULTS = ROOT / "evidence" / "results"
SPEED = ROOT / "benchmarks" / "results"
HEADINGS = ("Cost and options", "Measured results", "Differences from the paper")


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
    there = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
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
    equations = re.findall(r"^```math\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    assert equations, "an equation"
    as_code = re.findall(
        r'^\?\?\? example "As code"\n    ```text\n(.*?)^    ```$', text, flags=re.DOTALL | re.MULTILINE
    )
    assert as_code, "the equation in ASCII"
    assert all(re.search(r"=|->", block) for block in as_code)
    converter = pytest.importorskip("latex2mathml.converter", reason="latex2mathml comes with the extra docs")
    for equation in equations:
        mathml = ElementTree.fromstring(converter.convert(equation))
        left_over = [word for word in mathml.itertext() if "\\" in word]
        assert not left_over, f"latex2mathml does not know {left_over}"
    figures = re.findall(r"!\[([^\]]+)\]\((?:\.\./)?(figures/mechanisms/[\w.-]+\.svg)\)", text)
    drawn = {f"figures/mechanisms/{file.name}" for file in FIGURES.glob(f"{page.stem}-*.svg")}
    assert drawn <= {path for _, path in figures}, "all that are drawn of it"
    assert all(len(words) > 15 and (DOCS / path).is_file() for words, path in figures)
    if page.parent.name == "mechanisms":
        headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
        assert [heading for heading in headings if heading in HEADINGS] == list(HEADINGS)
    else:
        assert re.search(r"^## Differences from the", text, flags=re.MULTILINE)
        assert "## Measured results" in text


def test_facts_and_measurements_are_those_of_the_code_and_the_results(made: ModuleType):
    step = json.loads((SPEED / "encodings.json").read_text(encoding="utf-8"))["networks"]["decoder"]["alibi"]
    compared = json.loads((RESULTS / "compare-clm.json").read_text(encoding="utf-8"))["summary"]
    score = next(entry["perplexity"]["mean"] for entry in compared if entry["arm"] == "alibi")
    page = as_built(made, "mechanisms/alibi.md")
    for row in (
        f"| `alibi` | {CATALOG['alibi'].place} | 0 |",
        f" | {step['ratio']:.2f}× | any |",
        f"| alibi | perplexity {score:.3f}\N{NO-BREAK SPACE}±",
    ):
        assert row in page
    for name, count in (("tupe-a", "1,575,936"), ("tupe-r", "1,576,320"), ("untied-sum", "1,575,936")):
        assert f"| `{name}` | {CATALOG[name].place} | {count} |" in as_built(made, "tupe.md")


def test_differences_from_the_baseline_are_in_percent_or_points_and_say_whether_they_are_significant(made: ModuleType):
    files = [RESULTS / f"{name}.json" for name in ("compare-mlm", "compare-clm", "decision/questions_64")]
    masked, causal, questions = (
        {entry["arm"]: entry for entry in results["comparisons"] if entry["against"] == results["baseline"]}
        for results in (json.loads(file.read_text(encoding="utf-8")) for file in files)
    )
    rows = made.measured(["deberta", "none", "tupe-r", "rope"], "").splitlines()
    for entry, sign, said in (
        (masked["deberta"], "−", "% against rope; 8 seeds, significantly better |"),
        (masked["none"], "+", "% against rope; 8 seeds, significantly worse |"),
        (causal["tupe-r"], "−", "% against rope; 3 seeds, not significant |"),
    ):
        percent = abs(100 * math.expm1(-entry["difference"]))
        size = f"{sign}{percent:.{0 if percent >= 100 else 1}f}"
        assert [row for row in rows if f"| {entry['arm']} |" in row and f"| {size}{said}" in row], (size, rows)
    points = f"| +{questions['rope']['difference']:.3f} against none; 5 seeds, not significant |"
    assert [row for row in rows if "| rope |" in row and points in row]


def test_every_option_has_its_meaning_and_default(made: ModuleType):
    for name, kind in CATALOG.items():
        for key in options_of(kind):
            assert made.arguments_of(kind).get(key), f"{name}: the docstring does not say what {key} is"
    table = made.options(["rope", "rope-yarn", "complex-vanilla"], "")
    assert "| `base` (`rope`, `rope-yarn`) | `10000.0` | Sets the longest wavelength" in table
    assert "| `original_positions` (`rope-yarn`) | not set | Original length N" in table
    assert made.options(["alibi"], "") == "No options."


def test_scores_of_a_comparison_are_those_of_its_file(made: ModuleType):
    results = json.loads((RESULTS / "order-binding.json").read_text(encoding="utf-8"))
    lines = made.scores("order-binding").splitlines()[2:]
    assert len(lines) == len(results["summary"])
    means = [float(line.split(" | ")[1].split()[0]) for line in lines]
    assert means == sorted(means, reverse=True)
    best = next(entry for entry in results["comparisons"] if entry["arm"] == "complex-order")["retrained"]
    assert lines[0].startswith(f"| `complex-order` | 1.000 ± 0.000 | +{best['difference']:.3f} [")
    assert lines[0].endswith(", p < 0.001 | 960 |")
    assert any(line.startswith("| `none` |") and "| the baseline | 0 |" in line for line in lines)


def test_tables_are_put_in_as_the_site_is_built_and_are_not_typed(made: ModuleType):
    for page in sorted(DOCS.rglob("*.md")):
        name, written = page.relative_to(DOCS).as_posix(), page.read_text(encoding="utf-8")
        built = as_built(made, name)
        assert not re.search(r"^<!-- (facts|measured|scores|catalogue): ", built, flags=re.MULTILINE), name
        assert "| training time, encoder |" not in written
        assert set(named(page, "measured")) <= {*CATALOG, "memories"}, name
        for target in re.findall(r"\]\(([\w./-]+)[)#]", "\n".join(set(built.split("\n")) - set(written.split("\n")))):
            assert (page.parent / target).is_file(), f"{name}: {target}"
    with pytest.raises(ValueError, match=r"index\.md: there is no table <!-- catalogue: nothing -->"):
        made.filled("<!-- catalogue: nothing -->", "index.md")


def test_facts_say_what_is_refused(made: ModuleType):
    facts = made.facts(["rope", "cope"])
    assert re.search(r"^\| `cope` \|.*\| not defined \| \d\.\d\d× \|", facts, flags=re.MULTILINE)
    assert "Defined for decoders and segment-recurrence memory." in facts
    for use, reason in CATALOG["cope"].refused_in.items():
        assert f"- {made.USES[use]} (`cope`): {reason}." in facts
    together = made.facts(["tupe-a", "tupe-r"])
    assert together.count(CATALOG["tupe-a"].refused_in["cross-attention"]) == 1, "one reason is said once"
    assert "Defined for encoders, decoders, segment-recurrence memory and look-ahead memory." in together
    assert "Not defined" not in made.facts(["rope"])


def test_no_arm_is_refused_at_the_length_of_its_training(made: ModuleType):
    lines = made.longer_texts(sorted(CATALOG), "")
    table = {line.split(" | ")[1]: line.strip("| ").split(" | ")[2:] for line in lines if line.startswith("| [masked")}
    assert float(table["rope"][0]) < float(table["rope"][-1])
    assert table["tupe-r"] == ["4.64", *["longer than its position table"] * (len(table["rope"]) - 1)]
    assert lines[-1].startswith("A model with a position table")
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
