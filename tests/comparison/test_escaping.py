"""Text from data stays text: whatever an arm, a source or an error is called, page and table keep their form."""

import html
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from comparison_example import example_results, read
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wordorder.comparison import markdown_table
from wordorder.comparison.report.html import json_in_html, report_page
from wordorder.inspection.page import Table, page

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "--><img src=x onerror=alert(1)>",
    "\"><svg onload=alert(1)>",
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "a|b\\|c\\\\|d",
    "![x](http://evil.example/x.png)[y](javascript:alert(1))",
    "`code` ~~~ # heading",
    "a\nb\r\nc\u2028d\u2029e\x0bf\x85g",
    "\x1b[31mred\x1b[0m[bold]",
    "&lt;script&gt;&amp;",
    "=1+1|cmd",
    "]]>",
]  # fmt: skip

texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.sampled_from(list("<>\"'&`|\\/=[](){}!-\n\r\t\u2028 ax;:#")), min_size=1, max_size=25),
)


class Form(HTMLParser):
    """The elements of a page with the names of their attributes, and the texts of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.addresses: list[str] = []
        self.scripts: list[str] = []
        self.comments = 0
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attrs)))
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += data

    def handle_comment(self, data: str) -> None:
        self.comments += 1


def results_with(text: str) -> dict[str, Any]:
    """Results in which every word that data decides is this text."""
    results = example_results({"rope": 40.0, "tupe-r": 30.0}, seeds=1)
    results = json.loads(json.dumps(results).replace('"rope"', json.dumps(text)))
    results["name"] = results["recipe"]["data"]["source"] = text
    results["environment"]["device"] = results["environment"][text] = text
    results["data"][text] = text
    failure = {"arm": text, "seed": 0, "stage": "seeds", "learning_rate": 0.1, "reason": text, "status": "failed"}
    results["failed"] = [failure]
    results["notes"] = [text]
    return results


PLAIN = Form(report_page(read(results_with("plain"))))


@settings(max_examples=25, deadline=None)
@given(texts)
@example("</script><!--\u2028\u2029&")
def test_the_page_keeps_its_form(text: str):
    found = Form(report_page(read(results_with(text))))
    assert found.elements == PLAIN.elements
    assert found.comments == 0
    assert all(address.startswith(("data:", "#")) for address in found.addresses)
    assert text in [arm["name"] for arm in json.loads(found.scripts[0])["arms"]]
    assert found.scripts[1] == PLAIN.scripts[1]


@settings(max_examples=100, deadline=None)
@given(st.recursive(texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)))
def test_json_in_a_page_cannot_end_its_element(value: object):
    text = json_in_html(value)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == value


def cells(line: str) -> int:
    """Cells of a row of a table, as GitHub's Markdown splits it: a backslash escapes the sign after it."""
    return len(re.findall(r"(?<!\\)\|", re.sub(r"\\\\", "", line)))


@settings(max_examples=60, deadline=None)
@given(texts)
def test_the_table_in_markdown_keeps_its_form(text: str):
    lines, plain = (markdown_table(read(results_with(name))).split("\n") for name in (text, "plain"))
    assert len(lines) == len(plain)
    assert [cells(line) for line in lines] == [cells(line) for line in plain]
    whole = "\n".join(lines)
    assert not re.search(r"[<>`\r\x85\u2028\u2029]|\]\(", whole)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_reader_of_the_table_sees_the_text(text: str):
    table = markdown_table(read(results_with(text))).split("\n")
    shown = {html.unescape(line.split(" | ")[0].removeprefix("| ").replace("\\|", "|")) for line in table}
    assert " ".join(text.splitlines()) in shown


class Inspected:
    """The part of an inspection that its page shows."""

    def __init__(self, text: str) -> None:
        self.notes = [text]
        self._text = text

    def answers(self) -> list[str]:
        return [self._text]


@pytest.mark.parametrize("text", HOSTILE)
def test_the_page_of_an_inspection_keeps_its_form(text: str):
    def form(word: str) -> list[tuple[str, ...]]:
        inspected: Any = Inspected(word)
        tables = [Table(title=word, columns=(word, word), rows=((word, word),))]
        return Form(page(inspected, {}, tables, name=word, encoding=word, facts=[(word, word)])).elements

    assert form(text) == form("plain")
