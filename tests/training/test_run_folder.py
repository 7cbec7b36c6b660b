"""A run writes into an empty folder or into one of its own, and refuses every other one before it writes anything."""

import shutil

import pytest

from wordorder.errors import BadInput
from wordorder.training import curve, fit, read_recipe, run

NAMES = ("recipe.toml", "data.json", "environment.json", "curve.jsonl", "metrics.json")


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    "names", [("recipe.toml", "model/__init__.py"), ("checkpoint-4/model.safetensors",), *((name,) for name in NAMES)]
)
def test_files_of_something_else_are_neither_overwritten_nor_removed(recipe_file, tmp_path, names, resume):
    folder = tmp_path / "mine"
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("[mine]\n")
    before = content(folder)
    with pytest.raises(Exception, match=r"not empty and holds no run|metrics\.json: cannot be read") as error:
        run(read_recipe(recipe_file), output_dir=folder, resume=resume, progress=False)
    assert isinstance(error.value, BadInput) or (resume and names == ("metrics.json",))
    assert content(folder) == before


def test_the_folder_of_the_recipe_itself_is_refused(recipe_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe_file.rename(tmp_path / "recipe.toml")
    before = content(tmp_path)
    recipe = read_recipe("recipe.toml", ["training.output_dir=."])
    with pytest.raises(BadInput, match=r"training\.output_dir: '\.' is not empty and holds no run \(recipe\.toml\)"):
        run(recipe, progress=False)
    assert content(tmp_path) == before


@pytest.mark.parametrize("moment", ["write_json", "write_text", "_write_environment", "choose_progress"])
@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_was_killed_while_it_began_is_started_again(recipe_file, tmp_path, monkeypatch, moment, resume):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(fit, moment, lambda *args, **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(read_recipe(recipe_file), output_dir=folder, progress=False)
    (folder / ".data.json.123").write_text("{")  # half-written
    assert run(read_recipe(recipe_file), output_dir=folder, resume=resume, progress=False).metrics["steps"] == 12
    for name in ("metrics.json", "environment.json", "recipe.toml", "data.json", curve.FILE):
        (folder / name).unlink()
        if moment == "write_json":  # once is enough
            assert run(read_recipe(recipe_file), output_dir=folder, resume=True, progress=False).metrics["steps"] == 12


def test_the_model_to_start_from_is_not_where_the_own_one_is_saved(recipe_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(read_recipe(recipe_file), progress=False)
    for path in (tmp_path / "run").glob("[!m]*-*"):  # as after a run that saved no checkpoints, killed at its end
        shutil.rmtree(path)
    (tmp_path / "run" / "metrics.json").unlink()
    before = content(tmp_path / "run")
    text = recipe_file.read_text()
    recipe_file.write_text(text[: text.index("[tokenizer]")] + "[model]\n" + text[text.index("[training]") :])
    for pretrained in ("run/model", str(tmp_path / "run" / "model")):
        recipe = read_recipe(recipe_file, [f"model.pretrained={pretrained}"])
        with pytest.raises(BadInput, match=r"model\.pretrained: .* where the run would save its own model"):
            run(recipe, progress=False)
    assert content(tmp_path / "run") == before
