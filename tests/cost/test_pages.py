"""docs/cost.md: the example runs."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cost.md"


def test_the_example_of_the_page_of_costs_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(compile(code, "cost.md", "exec"), {})
    assert "'total'" in capsys.readouterr().out
