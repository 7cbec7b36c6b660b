"""Count lines, names, comments, checks, tests and links by reading the files; nothing of them is run."""

import ast
import io
import re
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LONGEST_FILE = 450
SHORT_FILE = 60
"""Lines below which a source file needs no test file of its own name."""

# Pronouns, participles and adverbs that the house style does not take for names of variables.
NO_NOUNS = frozenset(
    "own given found known kept there here said told wanted held made asked shown named others one rest whole left "
    "counted taken now before after former meant place where way its mine theirs everyones wide drawn begins speaks "
    "read".split()
)

FOR_TOOLS = ("pyright:", "noqa", "fmt:", "type:")
"""Words of a comment that a tool reads, not a reader."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number, and the places that it counts where they can be listed."""

    number: float
    places: tuple[str, ...] = ()


def python_files(folder: Path) -> list[Path]:
    """Return the Python files below a folder."""
    return sorted(folder.rglob("*.py"))


@cache  # several functions read the same files
def parsed(file: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


def lines_of(file: Path) -> int:
    """Return the number of lines of a file."""
    return len(file.read_text(encoding="utf-8").splitlines())


def lines(*folders: Path) -> Count:
    """Count the lines of the Python files below some folders, listed by folder."""
    sizes = {folder: sum(map(lines_of, python_files(folder))) for folder in folders}
    return Count(sum(sizes.values()), tuple(f"{folder.name}: {size:,}" for folder, size in sizes.items()))


def long_files(source: Path, limit: int = LONGEST_FILE) -> Count:
    """Count the files of more lines than the limit."""
    sizes = {file.relative_to(source): lines_of(file) for file in python_files(source)}
    places = tuple(f"{file}: {size}" for file, size in sizes.items() if size > limit)
    return Count(len(places), places)


def comments(source: Path) -> Count:
    """Return the comment lines per 1,000 lines, without those that only a tool reads."""
    comment_lines = total = 0
    for file in python_files(source):
        text = file.read_text(encoding="utf-8")
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        texts = [token.string for token in tokens if token.type == tokenize.COMMENT]
        comment_lines += sum(not any(word in text for word in FOR_TOOLS) for text in texts)
        total += len(text.splitlines())
    return Count(1000 * comment_lines / max(1, total))


def pronoun_names(source: Path) -> Count:
    """Return the share of assigned names that are no nouns, listed by file and line."""
    assigned = [
        (file, node)
        for file in python_files(source)
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    places = tuple(
        f"{file.relative_to(source)}:{node.lineno}: {node.id}" for file, node in assigned if node.id in NO_NOUNS
    )
    return Count(len(places) / max(1, len(assigned)), places)


def repeated_type_names(source: Path, *, classes_alone: bool = False) -> Count:
    """Count the type names that more than one file defines.

    A type is a class, or a name in CamelCase that is assigned: `Pair = tuple[int, int]`.
    """
    files: defaultdict[str, set[str]] = defaultdict(set)
    for file in python_files(source):
        for name in _types_in(parsed(file), classes_alone):
            files[name].add(str(file.relative_to(source)))
    places = tuple(f"{name}: {', '.join(sorted(of))}" for name, of in sorted(files.items()) if len(of) > 1)
    return Count(len(places), places)


def _types_in(tree: ast.Module, classes_alone: bool) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
    for node in tree.body if not classes_alone else ():
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        yield from (name for name in names if re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", name))


def checks(source: Path) -> Count:
    """Return the share of the lines that only check and refuse among all lines that do something.

    Lines that do something are no docstrings, comments, imports or blank lines. Those that check are `raise` and
    `assert` statements, the `if` above a `raise`, calls of functions whose names begin with check or refuse, and the
    bodies of such functions and of those named for a fault or a refusal.
    """
    checking = doing = 0
    for file in python_files(source):
        tree, text = parsed(file), file.read_text(encoding="utf-8").splitlines()
        documents, imports, check_lines = _documents(tree), _imports(tree), _check_lines(tree)
        code = {number for number, line in enumerate(text, 1) if line.strip() and not line.strip().startswith("#")}
        code -= documents
        checking += len(code & check_lines)
        doing += len(code - (imports - check_lines))
    return Count(checking / max(1, doing))


def _span(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _documents(tree: ast.Module) -> set[int]:
    """Return the lines of docstrings: of modules, classes, functions and attributes."""
    numbers: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            numbers |= _span(node)
    return numbers


def _imports(tree: ast.Module) -> set[int]:
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return {number for node in statements for number in _span(node)}


def _check_lines(tree: ast.Module) -> set[int]:
    numbers: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.Assert):
            numbers |= _span(node)
        elif isinstance(node, ast.If) and any(isinstance(statement, ast.Raise) for statement in node.body):
            numbers |= set(range(node.lineno, node.body[0].lineno)).union(*map(_span, node.body))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_check(node.name, of_faults=True):
            numbers |= _span(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _is_check(_called(node.value)):
            numbers |= _span(node)
    return numbers


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", None) or getattr(call.func, "id", "")


def _is_check(name: str, *, of_faults: bool = False) -> bool:
    name = name.lstrip("_")
    return name.startswith(("check", "refuse")) or (of_faults and name.endswith(("fault", "faults", "refusal")))


def untested_files(source: Path, tests: Path, limit: int = SHORT_FILE) -> Count:
    """Count the source files without a test file of their name in the folder of the same name.

    The test of `encodings/rope.py` is `encodings/test_rope.py`. Files of fewer lines than the limit and `__init__.py`,
    which re-exports only, are left out.
    """
    files = [file.relative_to(source) for file in python_files(source) if lines_of(file) >= limit]
    files = [file for file in files if file.name != "__init__.py"]
    places = tuple(str(file) for file in files if not (tests / file.with_name(f"test_{file.name}")).is_file())
    return Count(len(places), places)


def words_of_docs(docs: Path) -> Count:
    """Count the words of the pages as `wc -w` does, outside of what scripts write; at 8e4fa2c without the log too."""

    def words(page: Path) -> int:
        written = re.sub(r"^<!-- ([a-z-]+)[^>]* -->\n.*?^<!-- /\1 -->$", "", page.read_text("utf-8"), flags=re.M | re.S)
        return len(written.split())

    sizes = {page.relative_to(docs): words(page) for page in docs.rglob("*.md")}
    places = tuple(f"{page}: {size:,}" for page, size in sorted(sizes.items(), key=lambda item: -item[1]))
    return Count(sum(size for page, size in sizes.items() if page.name != "log.md"), places)


def recipes(source: Path) -> Count:
    """Count the recipes in the package."""
    places = tuple(str(file.relative_to(source)) for file in sorted((source / "recipes").rglob("*.toml")))
    return Count(len(places), places)


def addresses_in(page: str) -> list[str]:
    """Return the addresses of links, pictures and badges of a page of Markdown, outside of code blocks."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    addresses = re.findall(r"\]\(([^)\s]+)", prose)
    addresses += re.findall(r"^\[[^\]]+\]:\s*(\S+)", prose, flags=re.MULTILINE)
    return addresses + re.findall(r"(?:src|srcset|href)=[\"']?([^\"'\s>]+)", prose)


def readme_links(root: Path) -> Count:
    """Count the addresses of the README, listed those that lead nowhere in a plain checkout.

    Those are paths without a file, and addresses of the project itself, whose site and releases do not exist. Addresses
    of others are not asked.
    """
    urls: Mapping[str, str] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    repository = urls["Repository"].removeprefix("https://github.com")
    ours = (*urls.values(), f"https://raw.githubusercontent.com{repository}")
    addresses = addresses_in((root / "README.md").read_text(encoding="utf-8"))

    def resolves(address: str) -> bool:
        if "://" in address:
            return not address.startswith(ours)
        return (root / address.split("#")[0]).exists()

    return Count(len(addresses), tuple(address for address in addresses if not resolves(address)))


def mentions(folder: Path, pattern: str) -> Count:
    """Count the lines of the Python files below a folder, their paths included, that match a pattern."""
    regex = re.compile(pattern)
    places: list[str] = []
    for file in python_files(folder):
        name = file.relative_to(folder).as_posix()
        if regex.search(name):
            places.append(name)
        numbered = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        places += [f"{name}:{number}: {line.strip()}" for number, line in numbered if regex.search(line)]
    return Count(len(places), tuple(places))
