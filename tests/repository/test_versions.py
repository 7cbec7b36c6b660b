"""The version and the requirements are the same wherever the repository states them."""

import re
import tomllib
from pathlib import Path

import wordorder

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_the_same_everywhere():
    version = re.escape(wordorder.__version__)
    assert re.search(rf"^version: {version}$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    headings = re.findall(r"^#+ .*?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == wordorder.__version__


def test_what_the_package_says_that_it_runs_on_is_tested():
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    tested = re.search(r'python: \["(.*)"\]', workflow)
    assert tested
    languages = [name.removeprefix("Programming Language :: Python :: ") for name in PROJECT["classifiers"]]
    assert tested[1].split('", "') == [version for version in languages if re.fullmatch(r"3\.\d+", version)]
    systems = {name.rpartition(" :: ")[2] for name in PROJECT["classifiers"] if name.startswith("Operating System")}
    assert systems == {"Linux", "MacOS"}
    assert set(re.findall(r"runs-on: (\w+)-latest", workflow)) == {"ubuntu", "macos"}
    assert "make other-cpu" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_base_install_needs_torch_alone():
    assert [re.split(r"[<>=~! ]", name)[0] for name in PROJECT["dependencies"]] == ["torch"]


def test_every_dependency_has_an_exact_version_in_the_constraints():
    lines = (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in pins), "exact versions, no addresses"
    names = {line.split("==")[0].lower().replace("_", "-") for line in pins}
    required = [item for extra in PROJECT["optional-dependencies"].values() for item in extra]
    assert {re.split(r"[\[<>=~! ]", item)[0].lower() for item in required} - {"wordorder"} | {"torch"} <= names
