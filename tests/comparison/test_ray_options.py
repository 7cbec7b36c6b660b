"""Options of `compare` that are for a Ray cluster are refused without one, or where they cannot be meant."""

import pytest

from wordorder.cli.main import main


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
def test_options_that_cannot_be_meant_are_refused(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
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
