"""Runs that an earlier version began are not gone on with where the default of an option is another now."""

import json

import pytest
from transformers import AutoModelForMaskedLM

import wordorder
from wordorder.errors import BadInput
from wordorder.training import read_recipe, run
from wordorder.training.runs.run import differences, older_version_fault

CLASSES = ("data.task=classification", "tokenizer.add_special_tokens=false")


def begun(folder, version):
    folder.mkdir(exist_ok=True)
    (folder / "environment.json").write_text(json.dumps({"packages": {"wordorder": version}}))
    return folder


@pytest.mark.parametrize(
    ("version", "settings", "said"),
    [
        ("0.1.0", ("model.encoding=t5",), "wordorder 0.1.0, in which the default was t5.scale = 1.0"),
        ("0.1.0", ("model.encoding=rope-yarn+t5",), "rope-yarn.ramp = 'turns' and t5.scale = 1.0"),
        ("0.1.0", ("model.encoding=t5", "model.encoding_options={scale = 1.0}"), None),
        ("0.1.0", ("model.encoding=rope",), None),
        ("0.1.0", ("model.encoding=tupe-r",), None),
        ("0.1.0", ("model.encoding=tupe-r", *CLASSES), "tupe-r.cls = 'position-0'"),
        ("0.1.0", ("model.encoding=tupe-r", "model.encoding_options={cls = 'none'}", *CLASSES), None),
        ("0.2.0", ("model.encoding=t5",), None),
    ],
)
def test_a_changed_default_is_named(recipe_file, tmp_path, version, settings, said):
    fault = older_version_fault(begun(tmp_path / "old", version), read_recipe(recipe_file, settings))
    assert (fault is None) if said is None else (said in fault and "start anew in another folder" in fault)


def test_a_folder_without_a_run_has_no_fault(recipe_file, tmp_path):
    recipe = read_recipe(recipe_file, ("model.encoding=t5",))
    assert older_version_fault(tmp_path / "none", recipe) is None
    (tmp_path / "environment.json").write_text("[]")
    assert older_version_fault(tmp_path, recipe) is None


def test_a_run_of_an_earlier_version_is_not_resumed(recipe_file, tmp_path):
    recipe = read_recipe(recipe_file, ("model.encoding=t5", "training.max_steps=2"))
    run(recipe, output_dir=tmp_path / "run", progress=False)
    path = tmp_path / "run" / "environment.json"
    environment = json.loads(path.read_text())
    assert environment["packages"]["wordorder"] == wordorder.__version__
    path.write_text(json.dumps({**environment, "packages": {"wordorder": "0.1.0"}}))
    finished = run(recipe, output_dir=tmp_path / "run", resume=True, progress=False)  # only read
    assert finished.metrics["steps"] == 2
    (tmp_path / "run" / "metrics.json").unlink()
    with pytest.raises(BadInput, match=r"--resume: .*the default was t5.scale = 1.0"):
        run(recipe, output_dir=tmp_path / "run", resume=True, progress=False)


def test_a_trained_encoder_declares_the_cls_that_its_tokenizer_adds(recipe_file, tmp_path):
    result = run(read_recipe(recipe_file, ("training.max_steps=1",)), output_dir=tmp_path / "run", progress=False)
    assert json.loads((result.model_dir / "config.json").read_text())["cls_token_id"] == 2


def test_fine_tuning_a_model_of_an_earlier_version_keeps_its_defaults(recipe_file, tmp_path):
    settings = ("model.encoding=t5", "training.max_steps=1")
    saved = run(read_recipe(recipe_file, settings), output_dir=tmp_path / "run", progress=False).model_dir
    path = saved / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "wordorder_version": "0.1.0"}))
    recipe = tmp_path / "fine.toml"
    text = recipe_file.read_text()
    model = text[text.index("[model]") : text.index("[training]")]
    recipe.write_text(text.replace(model, f'[model]\npretrained = "{saved}"\n\n').replace("vocab_size = 200", ""))
    assert not read_recipe(recipe).model.get("encoding_options")  # so that a run that was begun before goes on
    result = run(read_recipe(recipe, ("training.max_steps=1",)), output_dir=tmp_path / "fine", progress=False)
    model = AutoModelForMaskedLM.from_pretrained(result.model_dir)
    assert model.model.encoder.encoding.parts["t5"].scale == 1.0
    with pytest.warns(UserWarning, match="positions .* are dropped"):  # another encoding is still a name
        AutoModelForMaskedLM.from_pretrained(result.model_dir, encoding="rope")


def test_a_recipe_may_name_what_cls_gets(recipe_file, tmp_path):
    settings = ("model.encoding=tupe-r", "model.encoding_options.reset=reference-code", "training.max_steps=1")
    result = run(read_recipe(recipe_file, settings), output_dir=tmp_path / "run", progress=False)
    assert result.metrics["steps"] == 1


def test_a_run_with_names_that_had_no_effect_and_are_refused_now_goes_on_without_them():
    before = {"training": {"max_steps": 6, "bf16_full_eval": True, "use_liger_kernel": False}}
    assert differences(before, {"training": {"max_steps": 6}}) == []
    assert differences(before, {"training": {"max_steps": 7}}) == ["training.max_steps was 6, now 7"]
