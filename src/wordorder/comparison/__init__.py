"""Fair comparisons: arms x seeds on the same batches, with table and report made from the results file alone."""

from wordorder.comparison.compare import compare
from wordorder.comparison.report.html import write_report
from wordorder.comparison.report.table import markdown_table, render_table
from wordorder.comparison.report.verdict import verdict

__all__ = ["compare", "markdown_table", "render_table", "verdict", "write_report"]
