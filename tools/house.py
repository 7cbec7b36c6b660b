"""Measure the shape of the source, and print each number beside its goal: `python -m tools.house`.

It reads the files and runs nothing of them. Goals that are not met are no error: the table says where the work is.
The first edition had 1,207 annotations with `Any` and 219 casts; the goals are half of that.
"""

import argparse
import ast
import importlib.util
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src" / "wordorder"

FILES = 16
FOLDERS_WITH_MORE = {"encodings": "one file per published encoding"}

ARGUMENTS = 12
WIDER = {
    "TransformerOptions": "sizes and style of a network in one value, so that nothing else repeats them",
    "Call": "a record of what is known of a call, which a pure function reads",
    "WordOrderConfig": "the keys of Hugging Face's config.json",
    "WordOrderClassifierConfig": "the keys of Hugging Face's config.json",
}

TASKS = (
    "masked-lm",
    "causal-lm",
    "classification",
    "token-classification",
    "regression",
    "question-answering",
    "translation",
)
"""Names of tasks as recipes write them, those to come included."""

SIX = 6
"""Lines of code, without blank ones, comments, docstrings and imports, from which a repetition counts."""

Graph = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One line of the table."""

    name: str
    """What is measured."""
    today: str
    """What the source has now."""
    goal: str
    """What it should have."""
    places: tuple[str, ...] = ()
    """Where it was found, as ``file:line: text``."""
    reason: str = ""
    """The reason why the goal is not met, or what the number leaves out."""


def modules(source: Path = SRC) -> dict[str, Path]:
    """Return the Python files of a package by their module names."""
    found: dict[str, Path] = {}
    for file in sorted(source.rglob("*.py")):
        parts = file.relative_to(source.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def parsed(file: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return _tree(file.read_text(encoding="utf-8"))


@cache  # each measure reads all files again
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def imported(file: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield the known modules that a file imports anywhere: in functions and for type checkers too."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known or node.module in known:
                    yield full if full in known else node.module


def graph_of(known: Mapping[str, Path]) -> Graph:
    """Return the modules that each module imports."""
    return {name: sorted({other for other in imported(file, known) if other != name}) for name, file in known.items()}


def circles(graph: Graph) -> list[list[str]]:
    """Return the groups of modules that all reach each other (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in graph:
        if module not in index:
            visit(module)
    return found


def files_by_folder(source: Path = SRC) -> Counter[str]:
    """Count the Python files of every folder, those of its own folders left out."""
    return Counter(str(file.parent.relative_to(source)) for file in source.rglob("*.py"))


def arguments_of(node: ast.ClassDef) -> int:
    """Return how many arguments the constructor of a class has, self left out: of a dataclass, its fields."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            return len(part.args.args) - 1 + len(part.args.kwonlyargs)
    if any("dataclass" in ast.unparse(d) or ast.unparse(d) == "strict" for d in node.decorator_list):
        return sum(isinstance(p, ast.AnnAssign) and "ClassVar" not in ast.unparse(p.annotation) for p in node.body)
    return 0


def constructors(source: Path = SRC) -> list[tuple[int, str, bool]]:
    """Return (arguments, class, whether `__init__` is written out) of all classes that are built with arguments."""
    found: list[tuple[int, str, bool]] = []
    for file in sorted(source.rglob("*.py")):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ClassDef) and (count := arguments_of(node)):
                written = any(isinstance(part, ast.FunctionDef) and part.name == "__init__" for part in node.body)
                found.append((count, node.name, written))
    return sorted(found, key=lambda item: (-item[0], item[1]))


def task_names_of(node: ast.AST, constants: Mapping[str, set[str]]) -> set[str]:
    """Return the names of tasks that one side of a comparison holds, written there or in a constant."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return {name for item in node.elts for name in task_names_of(item, {})}
    if isinstance(node, ast.Constant):
        return {node.value} & set(TASKS) if isinstance(node.value, str) else set()
    name = getattr(node, "id", None) or getattr(node, "attr", "")
    return constants.get(name, set())


def task_comparisons(source: Path = SRC) -> list[str]:
    """Return the places outside tasks/ that compare something with the name of a task, or match it.

    The key `problem_type` of Hugging Face's configurations also has the value "regression", and is no task.
    """
    trees = {
        file: parsed(file) for file in sorted(source.rglob("*.py")) if file.relative_to(source).parts[0] != "tasks"
    }
    constants: dict[str, set[str]] = {}
    for tree in trees.values():
        for node in tree.body:
            if isinstance(node, ast.Assign):
                targets, value = node.targets, node.value
            elif isinstance(node, ast.AnnAssign):
                targets, value = [node.target], node.value
            else:
                continue
            if isinstance(value, ast.Tuple | ast.List | ast.Set) and (names := task_names_of(value, {})):
                constants.update((ast.unparse(target), names) for target in targets)
    found: list[str] = []
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
                sides = (node.left, *node.comparators)
            elif isinstance(node, ast.MatchValue):
                sides = (node.value,)
            else:
                continue
            named = any(task_names_of(side, constants) for side in sides)
            if named and "problem_type" not in ast.unparse(sides[0]):
                found.append(f"{file.relative_to(source)}:{node.lineno}: {ast.unparse(node)}")
    return found


def annotations_of(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the annotations that a node itself carries."""
    for name in ("annotation", "returns"):
        if isinstance(found := getattr(node, name, None), ast.expr):
            yield found


def any_annotations(source: Path = SRC) -> list[str]:
    """Return the annotations with `Any` in them, those in quotes included."""
    found: list[str] = []
    for file in sorted(source.rglob("*.py")):
        for node in ast.walk(parsed(file)):
            for annotation in annotations_of(node):
                if re.search(r"\bAny\b", text := ast.unparse(annotation)):
                    found.append(f"{file.relative_to(source)}:{annotation.lineno}: {text}")
    return found


def casts(source: Path = SRC) -> list[str]:
    """Return the calls of `typing.cast`."""
    return [
        f"{file.relative_to(source)}:{node.lineno}: {ast.unparse(node)}"
        for file in sorted(source.rglob("*.py"))
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("cast", "typing.cast")
    ]


def private_methods(classes: Sequence[ast.ClassDef]) -> set[str]:
    """Return the methods whose names begin with one underscore."""
    names = {part.name for node in classes for part in node.body if isinstance(part, ast.FunctionDef)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def trainer_methods() -> set[str] | None:
    """Return the private methods of transformers.Trainer, read from its source; None where it is not installed."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        return None
    tree = parsed(Path(spec.submodule_search_locations[0]) / "trainer.py")
    return private_methods([node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Trainer"])


def trainer_overrides(private: set[str], source: Path = SRC) -> list[str]:
    """Return the private methods of Trainer that classes derived from it define anew."""
    classes = {
        node.name: (file, node)
        for file in sorted(source.rglob("*.py"))
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.ClassDef)
    }

    def derives(name: str, seen: frozenset[str] = frozenset()) -> bool:
        plain = name.split(".")[-1]
        if plain.lstrip("_") in ("Trainer", "Seq2SeqTrainer"):
            return True
        if plain not in classes or plain in seen:
            return False
        return any(derives(ast.unparse(base), seen | {plain}) for base in classes[plain][1].bases)

    return sorted(
        f"{file.relative_to(source)}:{node.lineno}: {name}.{method}"
        for name, (file, node) in classes.items()
        if derives(name)
        for method in private_methods([node]) & private
    )


def code_lines(file: Path) -> list[tuple[int, str]]:
    """Return (line number, text) of the lines of code, without blank ones, comments, docstrings and imports."""
    text = file.read_text(encoding="utf-8")
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        bare = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if isinstance(node, ast.Import | ast.ImportFrom) or bare:
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if number not in left_out)
    return [(number, line) for number, line in lines if line and not line.startswith("#")]


def signature_lines(file: Path) -> set[int]:
    """Return the numbers of the lines in which functions declare their arguments."""
    found: set[int] = set()
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.update(range(node.lineno, node.body[0].lineno))
    return found


def in_signature(place: str, source: Path = SRC) -> bool:
    """Tell whether a repetition begins in the arguments of a function."""
    name, line, _ = place.split(":", 2)
    return int(line) in signature_lines(source / name)


def repetitions(source: Path = SRC, length: int = SIX) -> list[str]:
    """Return the pairs of places with the same lines of code, at least `length` of them; each run counts once."""
    files = {str(file.relative_to(source)): code_lines(file) for file in sorted(source.rglob("*.py"))}
    windows: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, lines in files.items():
        texts = [text for _, text in lines]
        for start in range(len(texts) - length + 1):
            windows[tuple(texts[start : start + length])].append((name, start))
    alike = {
        (one, other)
        for places in windows.values()
        for one, other in combinations(places, 2)
        if one[0] != other[0] or other[1] - one[1] >= length
    }
    found: list[str] = []
    for one, other in sorted(alike):
        if ((one[0], one[1] - 1), (other[0], other[1] - 1)) in alike:
            continue  # a later part of a run that is counted already
        run = length
        while ((one[0], one[1] + run - length + 1), (other[0], other[1] + run - length + 1)) in alike:
            run += 1
        first, second = (f"{name}:{files[name][start][0]}" for name, start in (one, other))
        found.append(f"{first}: {run} lines as in {second}")
    return found


def measures(source: Path = SRC) -> list[Measure]:
    """Measure a package."""
    files = sorted(source.rglob("*.py"))
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    folders = files_by_folder(source)
    more = {folder: count for folder, count in folders.items() if folder not in FOLDERS_WITH_MORE}
    fullest, most = max(more.items(), key=lambda item: item[1], default=("-", 0))
    groups = circles(graph_of(modules(source)))
    wide = [item for item in constructors(source) if item[1] not in WIDER]
    written = next((f"{count} ({name})" for count, name, has_init in wide if has_init), "0")
    record = next((f"{count} ({name})" for count, name, has_init in wide if not has_init), "0")
    compared = task_comparisons(source)
    anything, cast_calls = any_annotations(source), casts(source)
    private = trainer_methods()
    overrides = trainer_overrides(private or set(), source)
    repeated = repetitions(source)
    return [
        Measure(
            name="lines of src (.py)",
            today=f"{lines:,}",
            goal="<= 38,000",
            reason="the loop on accelerate and the types of recipes, results and run folders were added; what is left "
            "is equations, public docstrings, error texts and features that the pages name",
        ),
        Measure(name="files", today=str(len(files)), goal="about 280"),
        Measure(
            name=f"most files in one folder ({', '.join(FOLDERS_WITH_MORE)} aside)",
            today=f"{most} ({fullest})",
            goal=f"<= {FILES}",
            places=tuple(f"{folder}: {count}" for folder, count in sorted(more.items()) if count > FILES),
        ),
        Measure(
            name="import circles, lazy and TYPE_CHECKING included",
            today=str(len(groups)),
            goal="0",
            places=tuple(" <-> ".join(group) for group in groups),
        ),
        Measure(
            name="widest constructor that is written out",
            today=written,
            goal=f"<= {ARGUMENTS}",
            places=tuple(f"{name}: {count}" for count, name, has_init in wide if has_init and count > ARGUMENTS),
        ),
        Measure(
            name="widest dataclass",
            today=record,
            goal="-",
            places=tuple(f"{name}: {count}" for count, name, has_init in wide if not has_init and count > ARGUMENTS),
        ),
        Measure(
            name="places that compare a task with a string outside tasks/",
            today=f"{len(compared)} in {len({place.split(':')[0] for place in compared})} files",
            goal="0",
            places=tuple(compared),
        ),
        Measure(
            name="annotations with Any",
            today=str(len(anything)),
            goal="<= 603",
            places=tuple(anything),
            reason="most stand where transformers, datasets, accelerate and tables of JSON or TOML have no types",
        ),
        Measure(name="casts", today=str(len(cast_calls)), goal="<= 109", places=tuple(cast_calls)),
        Measure(
            name="private transformers.Trainer methods overridden",
            today=str(len({place.split(".")[-1] for place in overrides})) if private else "transformers is missing",
            goal="0",
            places=tuple(overrides),
        ),
        Measure(
            name=f"pairs of places with {SIX} identical lines of code or more",
            today=str(len(repeated)),
            goal="<= 40",
            places=tuple(repeated),
            reason=f"{sum(in_signature(place, source) for place in repeated)} begin in the arguments of a function: "
            "networks and encodings write theirs out, since torch and transformers read them",
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--places", action="store_true", help="list below each line where it was found")
    options = parser.parse_args(arguments)
    found = measures()
    name, today = (max(len(getattr(measure, field)) for measure in found) for field in ("name", "today"))
    print(f"{'':{name}}  {'today':{today}}  goal")
    for measure in found:
        print(f"{measure.name:{name}}  {measure.today:{today}}  {measure.goal}")
        if measure.reason:
            print(f"    {measure.reason}")
        for place in measure.places if options.places else ():
            print(f"    {place}")


if __name__ == "__main__":
    main()
