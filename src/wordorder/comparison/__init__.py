"""Fair comparisons: arms x seeds on the same batches, with table and report made from the results file alone."""

from wordorder.comparison.compare import compare
from wordorder.comparison.engines.ray import RayCluster
from wordorder.comparison.report.html import write_report
from wordorder.comparison.report.table import markdown_table, render_table
from wordorder.comparison.report.verdict import verdict
from wordorder.comparison.results_file import Results, read_results

__all__ = [
    "RayCluster",
    "Results",
    "compare",
    "markdown_table",
    "read_results",
    "render_table",
    "verdict",
    "write_report",
]
