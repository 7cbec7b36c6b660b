"""The lines of docs/scaling.md that start a comparison on a cluster are ones that the commands accept."""

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from wordorder.cli.app import app
from wordorder.cli.main import main

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8").partition("\n## Comparisons on a Ray cluster\n")[2]
SECTION = SECTION.partition("\n## ")[0]
BLOCKS = [(kind, text.replace("\\\n", " ")) for kind, text in re.findall(r"```(\w+)\n(.*?)```", SECTION, re.DOTALL)]
COMPARE = [
    found[0] for _, text in BLOCKS for line in text.splitlines() if (found := re.search(r"wordorder compare .*", line))
]


@pytest.mark.parametrize("line", COMPARE)
def test_every_comparison_of_the_page_is_understood(line, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.chdir(ROOT)
    words = line.replace(" recipe.toml", " demo").split()[1:]
    done = CliRunner().invoke(app, [*words, "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "[compare]" in done.output


def test_ray_has_the_command_of_the_page():
    scripts = pytest.importorskip("ray.scripts.scripts")
    (line,) = (line for _, text in BLOCKS for line in text.splitlines() if "symmetric-run" in line)
    options = re.findall(r"--[\w-]+", line.partition(" -- ")[0])
    known = {name for option in scripts.cli.commands["symmetric-run"].params for name in option.opts}
    assert options == ["--address", "--min-nodes"]
    assert known >= set(options)


def test_the_job_of_kubernetes_has_the_fields_of_a_ray_job():
    (job,) = (yaml.safe_load(text) for kind, text in BLOCKS if kind == "yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["spec"]["entrypoint"] in COMPARE
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        assert {"name", "image", "resources"} == set(container)
        assert isinstance(group["rayStartParams"], dict)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--address", "auto"], "--address: only for --engine ray"),
        (["--cpus-per-run", "2", "--gpus-per-run", "1"], "--gpus-per-run, --cpus-per-run: only for --engine ray"),
        (
            ["--engine", "ray", "--gpus-per-run", "3"],
            "--gpus-per-run: must be 0, or 0.0001 to 1, for a run",
        ),
        (
            ["--engine", "ray", "--cpus-per-run", "1.5"],
            "--cpus-per-run: must be 0.0001 to 1, or a whole number",
        ),
    ],
)
def test_options_that_cannot_be_meant_are_refused(words, said, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["wordorder", "compare", "demo", *words, "--dry-run"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_without_ray_the_remedy_is_named(monkeypatch):
    from wordorder.comparison.engines import ray
    from wordorder.errors import BadInput

    monkeypatch.setattr(ray, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"Ray is not installed; pip install 'wordorder\[ray\]'"):
        ray.RayCluster()
