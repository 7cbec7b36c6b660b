"""The repository agrees with itself: versions, folders, licences; and it keeps its promises about files."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import wordorder

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SOURCES = sorted((ROOT / "src").rglob("*.py"))

# In pieces, so that this file does not match itself.
PRIVATE = ["/wo" + "rk/", "/tm" + "p/", "/ro" + "ot/", "/ho" + "me/", "/Us" + "ers/"]
REGISTRIES = ["pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "/sim" + "ple/", "index" + "-url ="]


def tracked_text_files() -> list[Path]:
    """List the files of the repository that hold text: those that git knows, or all where there is no git."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.splitlines() if listed.returncode == 0 else []
    files = [ROOT / name for name in names] or [path for path in (ROOT / "src").rglob("*") if path.is_file()]
    return [path for path in files if path.is_file() and b"\0" not in path.read_bytes()[:4096]]


def test_the_version_is_the_same_everywhere():
    version = wordorder.__version__
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "src/wordorder/__init__.py"
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    released = re.findall(
        r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert released[0] == version


def test_the_addresses_are_the_same_everywhere():
    urls = PYPROJECT["project"]["urls"]
    code, pages = urls["Repository"], urls["Documentation"]
    assert all(address.startswith((code, pages)) for address in urls.values())
    owner, name = code.removeprefix("https://github.com/").split("/")
    assert pages == f"https://{owner}.github.io/{name}/"
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").splitlines()
    assert {f"site_url: {pages}", f"repo_url: {code}"} <= set(site)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert {f'repository-code: "{code}"', f'url: "{pages}"'} <= set(citation)
    own = re.compile(rf"https://(?:github\.com/[\w-]+/{name}\b|[\w-]+\.github\.io/{name}\b)", flags=re.IGNORECASE)
    found = {
        address
        for path in tracked_text_files()
        for address in own.findall(path.read_text(encoding="utf-8", errors="replace"))
    }
    assert found <= {code, pages.rstrip("/")}


def test_the_base_install_needs_torch_alone():
    assert [re.split(r"[<>=~! ]", name)[0] for name in PYPROJECT["project"]["dependencies"]] == ["torch"]


def test_every_dependency_is_pinned_in_the_constraints():
    pinned = (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in pinned if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in pins), "exact versions, no addresses"
    known = {line.split("==")[0].lower().replace("_", "-") for line in pins}
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    wanted = {re.split(r"[\[<>=~! ]", item)[0].lower() for extra in extras for item in extra} - {"wordorder"}
    assert wanted | {"torch"} <= known
    assert "torch==2.13.0" in pins


@pytest.mark.parametrize("words", [PRIVATE, REGISTRIES], ids=["private paths", "registries"])
def test_no_file_names_a_private_path_or_a_registry(words: list[str]):
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in tracked_text_files()
        for word in words
        if word in path.read_text(encoding="utf-8", errors="replace")
    ]
    assert found == []


def test_nothing_is_unpickled():
    found: list[str] = []
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import) and any(alias.name in PICKLERS for alias in node.names):
                found.append(f"{where} imports a pickler")
            if isinstance(node, ast.ImportFrom) and node.module in PICKLERS:
                found.append(f"{where} imports a pickler")
            if isinstance(node, ast.Attribute) and node.attr in ("load", "save") and is_named(node.value, "torch"):
                if not (path.name == "weights.py" and node in weights_only_loads(tree)):
                    found.append(f"{where} calls torch.{node.attr}")
    assert found == []


def weights_only_loads(tree: ast.Module) -> list[ast.expr]:
    """Return the functions that are called with a literal weights_only=True."""
    return [
        call.func
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and any(
            word.arg == "weights_only" and isinstance(word.value, ast.Constant) and word.value.value is True
            for word in call.keywords
        )
    ]


PICKLERS = {"pickle", "cloudpickle", "dill", "joblib", "shelve"}


def is_named(node: ast.expr, name: str) -> bool:
    """Tell whether an expression is a bare name."""
    return isinstance(node, ast.Name) and node.id == name


def test_no_folder_has_a_name_that_says_nothing():
    empty = {"utils", "util", "common", "helpers", "helper", "misc", "base"}
    assert [path for path in SOURCES if {*path.parts[len(ROOT.parts) :], path.stem} & empty] == []


def test_every_module_says_what_it_is_for():
    assert [str(path) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))] == []
