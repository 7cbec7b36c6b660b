"""The files of .github can be read, name what the repository has, and ask for no more rights than they need."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed; it comes with the extra models")

ROOT = Path(__file__).resolve().parents[1]
GITHUB = ROOT / ".github"
if not GITHUB.is_dir():
    pytest.skip("an sdist has no .github", allow_module_level=True)
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
TEMPLATES = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


def read(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(workflow: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def test_the_workflows_are_there():
    assert [path.stem for path in WORKFLOWS] == ["docs", "release", "tests"]
    assert [path.stem for path in TEMPLATES] == ["bug", "feature"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_targets_of_the_makefile_and_fixed_actions(path: Path):
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}, "a job asks for more itself"
    made: set[str] = set()
    for step in steps(workflow):
        assert ("uses" in step) != ("run" in step), step
        assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step.get("uses", "a/b@v1")), step
        for line in step.get("run", "").splitlines():
            program, *words = line.split()
            assert program in ("make", "test"), line
            if program == "make":
                made |= {word for word in words if "=" not in word}
    assert made
    assert made <= TARGETS, "no target of the Makefile"
    for job in workflow["jobs"].values():
        assert job.get("needs", next(iter(workflow["jobs"]))) in workflow["jobs"]


def test_together_they_run_all_that_make_check_runs():
    (check,) = re.findall(r"^check: (.*?)  ##", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    run = " ".join(step.get("run", "") for step in steps(read(GITHUB / "workflows" / "tests.yml"))).split()
    assert set(check.split()) <= set(run)
    test = read(GITHUB / "workflows" / "tests.yml")["jobs"]["test"]
    classifiers = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    supported = re.findall(r"Python :: (3\.\d+)", classifiers)
    assert test["strategy"]["matrix"]["python"] == supported


def test_a_release_is_published_by_a_trusted_publisher_alone():
    jobs = read(GITHUB / "workflows" / "release.yml")["jobs"]
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi"
    assert publish["needs"] == "build"
    assert publish["steps"][-1]["uses"].startswith("pypa/gh-action-pypi-publish@")
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    assert "secrets." not in text
    assert "password" not in text
    files = [
        step["with"]["path"] for job in jobs.values() for step in job["steps"] if "artifact" in step.get("uses", "")
    ]
    assert files == ["dist/", "dist/"]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_an_issue_template_has_what_github_asks_for(path: Path):
    template = read(path)
    assert template["name"]
    assert template["description"]
    ids = [field["id"] for field in template["body"]]
    assert len(set(ids)) == len(ids)
    assert all(field["attributes"]["label"] for field in template["body"])
    assert {field["type"] for field in template["body"]} <= {"textarea", "input", "checkboxes", "dropdown", "markdown"}


def test_links_of_the_issue_menu_lead_to_pages_of_the_project():
    links = read(GITHUB / "ISSUE_TEMPLATE" / "config.yml")["contact_links"]
    assert all(link["name"] and link["about"] for link in links)
    pages = "https://wordorder.github.io/wordorder/"
    for link in links:
        if link["url"].startswith(pages):
            name = link["url"].removeprefix(pages).removesuffix(".html") + ".md"
            assert (ROOT / "docs" / name).is_file(), name
    folders = [
        (update["package-ecosystem"], update["directory"]) for update in read(GITHUB / "dependabot.yml")["updates"]
    ]
    assert folders == [("github-actions", "/"), ("pip", "/requirements")]
