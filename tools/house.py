"""Print what the source and the tests have, beside 8e4fa2c and the goals of the third edition: `python -m tools.house`.

`make lint` ends with it. A goal that is not met is no error: the table says where the work is, and `--places` lists
what a row counts. What needs a run is counted by two other programs; where one fails, its rows say so.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.figures import source
from tools.figures.source import Count

ROOT = Path(__file__).resolve().parents[1]
SRC, TESTS = ROOT / "src" / "wordorder", ROOT / "tests"
CORE = ("ops", "encodings", "attention", "memory", "networks")

ABOUT_THE_REPOSITORY = ("repository/*.py", "benchmarks/*.py", "**/test_page_of_*.py")
"""Tests of pages, versions, layout and the scripts of benchmarks/, not of the package."""

PROGRAMS = ("tools.figures.core", "tools.figures.comparison")
"""Modules that print numbers by name: JSON, in their last line."""
SECONDS = 300
"""Longest time of such a program."""

Figures = Mapping[str, int | str]
"""What the programs have printed: numbers, or the reason why one is missing."""
Measure = Callable[[Figures], tuple[str, Sequence[str]]]
"""Returns the text of a row for the present tree, and what it counts, one line each."""


class NotMeasured(Exception):
    """A number that is missing, with the reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    then: str
    """At 8e4fa2c, counted in the same way."""
    goal: str
    measure: Measure


def counted(form: str, *counts: Callable[[], Count]) -> Measure:
    """Return the measure that fills a form with counts, and lists the places of all of them."""

    def measure(_: Figures) -> tuple[str, Sequence[str]]:
        results = [count() for count in counts]
        places = [line for result in results for line in result.places]
        return form.format(*(result.number for result in results)), places

    return measure


def printed(*names: str) -> Measure:
    """Return the measure that shows numbers of the programs side by side.

    Raises:
        NotMeasured: by the measure, if a number is missing.
    """

    def measure(figures: Figures) -> tuple[str, Sequence[str]]:
        numbers = [figures.get(name, "") for name in names]
        for number in numbers:
            if isinstance(number, str):
                raise NotMeasured(number)
        return "; ".join(f"{number:,}" for number in numbers), ()

    return measure


def working_links(_: Figures) -> tuple[str, Sequence[str]]:
    """Measure the README: how many addresses resolve; listed are the others."""
    links = source.readme_links(ROOT)
    return f"{links.number - len(links.places)} of {links.number}", links.places


def tests_of_the_repository() -> Count:
    """Count the lines of the test files that are about the repository itself."""
    files = sorted({file for pattern in ABOUT_THE_REPOSITORY for file in TESTS.glob(pattern)})
    sizes = {file: source.lines_of(file) for file in files}
    return Count(sum(sizes.values()), tuple(f"{file.relative_to(TESTS)}: {size}" for file, size in sizes.items()))


ROWS = (
    Row(
        "lines of src; files of more than 450",
        "51,126; 5",
        "<= 38,000; 0",
        counted("{:,}; {}", lambda: source.lines(SRC), lambda: source.long_files(SRC)),
    ),
    Row(
        f"lines of {', '.join(CORE)}",
        "14,561",
        "<= 13,000",
        counted("{:,}", lambda: source.lines(*(SRC / folder for folder in CORE))),
    ),
    Row(
        "lines loaded by one Encoder forward; by `compare demo`",
        "13,262; 46,665",
        "<= 6,000; <= 28,000",
        printed("lines of an encoder", "lines of compare demo"),
    ),
    Row(
        "calls of a tupe-r layer; of a look-ahead segment with one layer; with two",
        "200; 511; 909",
        "<= 100; <= 150; <= 320",
        printed("calls of an encoder", "calls of a segment, layers 1", "calls of a segment, layers 2"),
    ),
    Row(
        "validations of a recipe in `compare demo` with 4 arms and one seed; encodings built",
        "17; 70",
        "<= 5; <= 8",
        printed("validations of a recipe", "encodings built"),
    ),
    Row(
        "functions from `prepare` to the first batch; types",
        "98; 16",
        "<= 50; <= 7",
        printed("functions to the first batch", "types to the first batch"),
    ),
    Row(
        "pronoun-like names among assigned names",
        "8.8%",
        "< 1%",
        counted("{:.1%}", lambda: source.pronoun_names(SRC)),
    ),
    Row("comment lines per 1,000", "15", ">= 40", counted("{:.0f}", lambda: source.comments(SRC))),
    Row(
        "lines that only check, among lines that do something",
        "12.8%",
        "-",
        counted("{:.1%}", lambda: source.checks(SRC)),
    ),
    Row(
        "type names in more than one file; of classes alone",
        "36; 8",
        "0; 0",
        counted(
            "{}; {}",
            lambda: source.repeated_type_names(SRC),
            lambda: source.repeated_type_names(SRC, classes_alone=True),
        ),
    ),
    Row(
        "source files of 60 lines or more without a test file of their name at the mirrored place",
        "180",
        "0",
        counted("{}", lambda: source.untested_files(SRC, TESTS)),
    ),
    Row(
        "lines of tests; of those of the repository itself",
        "51,089; 3,444",
        "<= 40,000; <= 800",
        counted("{:,}; {:,}", lambda: source.lines(TESTS), tests_of_the_repository),
    ),
    Row(
        "words of docs outside of what scripts write",
        "33,483",
        "<= 34,000",
        counted("{:,}", lambda: source.words_of_docs(ROOT / "docs")),
    ),
    Row("packaged recipes", "43", "8", counted("{}", lambda: source.recipes(SRC))),
    Row("README links that resolve in a checkout", "4 of 29", "all", working_links),
    Row(
        "files touched by a new backend, memory, option, metric, probe or column",
        "4 to 9",
        "1 and a line",
        lambda _: ("-", ()),
    ),
)

REASONS: Mapping[str, str] = {
    "lines of src; files of more than 450": "to come: texts as one mapped table, recipes with one type, results as "
    "lines, one renderer of figures",
    "lines loaded by one Encoder forward; by `compare demo`": "the catalogue and the memories are imported whole",
    "calls of a tupe-r layer; of a look-ahead segment with one layer; with two": "each part converts positions anew, "
    "and a plan holds the fields of five backends",
    "validations of a recipe in `compare demo` with 4 arms and one seed; encodings built": "a configuration builds its "
    "encoding whenever it is made, and each file and each loaded model makes one",
    "functions from `prepare` to the first batch; types": "each option of a section is a function of its own",
    "pronoun-like names among assigned names": "names change in the folders that are rebuilt, one after the other",
    "comment lines per 1,000": "comments are written with the rebuilt folders",
    "type names in more than one file; of classes alone": "names change in the folders that are rebuilt",
    "source files of 60 lines or more without a test file of their name at the mirrored place": "tests move with the "
    "folders that are rebuilt",
    "lines of tests; of those of the repository itself": "of the repository: tests of the examples, of the scripts of "
    "benchmarks/, and of what pages claim of the code among them",
    "README links that resolve in a checkout": "links are absolute, for the package index",
    "files touched by a new backend, memory, option, metric, probe or column": "counted by hand, when one is added",
}
"""Row -> why its goal is not met."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Something that the package does without, and the words by which it would be seen again."""

    name: str
    pattern: str
    reason: str = ""
    """Why a part of it is still there."""


CUTS = (
    Cut("compatibility with unreleased versions", r"older_version|changed_defaults|RENAMED|merged_from|row_wise_adam"),
    Cut("defences beyond the loaders' own", r"normalizer_growth|PYTHONOPTIMIZE|MOST_UNPACKED|MOST_DEEP"),
    Cut(
        "streamed text",
        r"shuffle_buffer|StreamOrder|cache_shards|data\.streaming|\"streaming\"",
        "the error for the key says that texts are mapped from a file",
    ),
    Cut("adaptive softmax", r"adaptive_cutoffs|AdaptiveSoftmax|AdaptiveEmbedding"),
    Cut("Triton kernels of waves", r"wave_kernels"),
    Cut("aggregate and decision tables", r"decision_table|DecisionTable|def aggregate"),
    Cut("BLiMP and position probes", r"minimal_pairs|MinimalPairs|position_probe|PositionProbe"),
    Cut("formulas of GPU memory and time", r"peak_tflops|bytes_per_gpu|class GPUs"),
    Cut("push, recipe-schema, recipes as commands; own help", r"cli/push|cli/recipes|cli/help|names\.json"),
    Cut(
        "callbacks, NEFTune, debug hooks, other optimizers, transformers' trackers",
        r"Callback|neftune|DebugUnderflow|Adafactor|GaLore|transformers\.integrations",
    ),
    Cut(
        "networks of papers outside of papers/", r"networks/text|encodings/word_vectors|^conversion/|models/classifier"
    ),
    Cut(
        "writers of model cards",
        r"model_cards?\.py",
        "one writes; each of training and comparison has a file that collects what its card says",
    ),
)
"""Rows of the table of what goes, those of the first step."""


def run(program: str) -> Figures:
    """Return what a program prints; where it fails, the last line of its complaint under its own name."""
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", program]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {program: f"{program} takes more than {SECONDS} s"}
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        complaint = done.stderr.strip().splitlines() or ["no output"]
        return {program: f"{program}: {complaint[-1]}"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--places", action="store_true", help="list below each row what it counts")
    options = parser.parse_args(arguments)

    with ThreadPoolExecutor() as pool:
        figures = {name: figure for result in pool.map(run, PROGRAMS) for name, figure in result.items()}
    failures = "; ".join(str(figures[program]) for program in PROGRAMS if program in figures)

    columns = "{:" + str(max(len(row.name) for row in ROWS)) + "}  {:>14}  {:>14}  {}"
    print(columns.format("", "8e4fa2c", "now", "goal"))
    for row in ROWS:
        reason = REASONS.get(row.name, "")
        try:
            now, places = row.measure(figures)
        except NotMeasured as error:
            now, places, reason = "not measured", (), str(error) or failures
        print(columns.format(row.name, row.then, now, row.goal))
        for line in (*filter(None, [reason]), *(places if options.places else ())):
            print(f"    {line}")

    print("\nWhat went, and where it is still named:")
    for cut in CUTS:
        left = source.mentions(SRC, cut.pattern)
        print(f"{cut.name}: {f'{left.number} lines; {cut.reason}' if left.number else 'gone'}")
        for line in left.places if options.places else ():
            print(f"    {line}")


if __name__ == "__main__":
    main()
