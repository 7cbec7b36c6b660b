"""Put the study of the learning rate of complex-order's frequencies into docs/classification.md.

python evidence/train.py complex-order-rates complex-order-rates-sst2
python evidence/publish/publish_rates.py
"""

from statistics import fmean

from blocks import put
from publish_demo import RESULTS, ROOT

from wordorder.comparison.results_file import read_results
from wordorder.comparison.statistics.seeds import compare_seeds

PAGE = ROOT / "docs" / "classification.md"
FILES = {"TREC": "complex-order-rates", "SST-2": "complex-order-rates-sst2"}
NETWORKS = ("bag", "convolution", "transformer")
CONTROL, FULL = "none", "x1"
RATES = (CONTROL, FULL, "x0.1", "x0.01", "x0.001", "frozen")
LEVEL = 0.05


def table() -> str:
    """Write the accuracy of every network with each rate, marked where it differs from no positions or from rate 1.

    Each network is a family of nine tests: every rate against none, and the lower ones and frozen against 1.
    """
    titles = ("no positions", "1", "0.1", "0.01", "0.001", "frozen")
    lines = ["| | " + " | ".join(titles) + " |", "| :--- |" + " ---: |" * len(titles)]
    for name, file in FILES.items():
        results = read_results(RESULTS / f"{file}.json")
        scores: dict[str, list[float]] = {}
        for row in results.rows:
            score = row.score("accuracy")
            assert score is not None, f"{file}: a run of {row.arm} has no score"
            scores.setdefault(row.arm, []).append(score)
        for network in NETWORKS:
            own = {rate: scores[f"{network}+{rate}"] for rate in RATES}
            pairs = [(CONTROL, rate) for rate in RATES[1:]] + [(FULL, rate) for rate in RATES[2:]]
            marks = dict.fromkeys(RATES, "")
            for (one, other), test in compare_seeds(own, pairs, level=LEVEL, margin=0.0).items():
                marks[other] += ("†" if one == CONTROL else "\\*") * (test.p_adjusted <= LEVEL)
            lines.append(f"| {name}, {network} | " + " | ".join(f"{fmean(own[r]):.3f}{marks[r]}" for r in RATES) + " |")
    return "\n".join(lines)


def page_of(text: str) -> str:
    """Return the page with its table as the files have it."""
    return put(text, "rates", table())


if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
