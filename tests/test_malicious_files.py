"""Malicious files, planted where people load them: none of them runs, and none is followed out of its folder.

Every trap leaves a mark when it is sprung; the first test springs them all on purpose, with the libraries' own readers.
"""

import json
import os
import pickle
import shutil
import signal
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from wordorder.data import TokenizerConfig, load_tokenizer
from wordorder.errors import BadInput
from wordorder.inference.continuation import Continuation
from wordorder.inference.predict import fill_mask
from wordorder.inference.saved_model import load_model, load_tokenizer_of
from wordorder.inspection.saved import class_of, load_saved
from wordorder.models import build_config, build_model
from wordorder.models.saved_folder import load_config, weight_files
from wordorder.training import read_recipe, run
from wordorder.training.checkpoints.checkpoint import damage, seal
from wordorder.training.recipe.pretrained import read_pretrained

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32}


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def code(mark: Path) -> str:
    """A module that leaves a mark when it is imported."""
    return f"import os\nos.mkdir({str(mark)!r})\nclass Evil:\n    pass\n"


@pytest.fixture
def mark(tmp_path: Path):
    """Where traps leave their mark; it must not be there when a test ends."""
    place = tmp_path / "sprung"
    yield place
    assert not place.exists(), "a trap was sprung"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder and a decoder with their tokeniser, as a run saves them."""
    place = tmp_path_factory.mktemp("models")
    tokenizer = load_tokenizer(TokenizerConfig(kind="byte"), [], cache_dir=place / "cache")
    for network, task in (("encoder", "masked-lm"), ("decoder", "causal-lm")):
        config = build_config(network, **SIZES, vocab_size=261, encoding="rope", pad_token_id=0)
        build_model(config, task, seed=0).save_pretrained(place / network)
        tokenizer.save_pretrained(place / network)
    return place


@pytest.fixture
def folder(models: Path, tmp_path: Path) -> Path:
    """A copy of the encoder's folder."""
    return Path(shutil.copytree(models / "encoder", tmp_path / "model"))


def changed(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def loads_and_answers(folder: Path) -> None:
    """Every way in which this package reads a model folder, with an answer at the end."""
    read_pretrained(folder)
    load_saved(folder, class_of(folder))
    load_tokenizer_of(folder)
    assert len(fill_mask(folder, ["a [MASK] b"], top_k=2)[0]) == 2


@pytest.mark.filterwarnings("ignore")
def test_the_traps_are_traps(tmp_path: Path):
    torch.save(Trap(tmp_path / "a"), tmp_path / "t.bin")
    torch.load(tmp_path / "t.bin", weights_only=False)
    pickle.loads(pickle.dumps(Trap(tmp_path / "b")))
    exec(code(tmp_path / "c"))
    assert all((tmp_path / name).is_dir() for name in "abc")


def test_pickles_beside_the_weights_are_not_read(folder: Path, mark: Path):
    for name in ("pytorch_model.bin", "optimizer.pt", "scheduler.pt", "training_args.bin", "rng_state.pth", "x.pkl"):
        torch.save({"weight": Trap(mark)}, folder / name)
    loads_and_answers(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "pytorch_model.bin.index.json"])
def test_weights_that_are_pickled_only_are_refused(folder: Path, mark: Path, name: str):
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Trap(mark)}, folder / name)
    for read in (load_model, read_pretrained, lambda place: load_saved(place, class_of(place))):
        with pytest.raises(BadInput, match=r"no model\.safetensors"):
            read(folder)


def test_a_pickle_that_is_called_safetensors_is_refused(folder: Path, mark: Path):
    torch.save({"weight": Trap(mark)}, folder / "model.safetensors")
    with pytest.raises(BadInput, match="no weights can be read from safetensors"):
        load_model(folder)


def test_the_code_of_a_folder_is_neither_run_nor_asked_about(folder: Path, mark: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # what somebody in a hurry answers
    classes = {"AutoConfig": "modeling_evil.Evil", "AutoModelForMaskedLM": "modeling_evil.Evil"}
    for name in ("modeling_evil", "configuration_evil", "tokenization_evil", "__init__", "setup"):
        (folder / f"{name}.py").write_text(code(mark))
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(code(mark))
    changed(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization_evil.Evil", None]})
    loads_and_answers(folder)
    changed(folder / "config.json", auto_map=classes)
    with pytest.raises(BadInput, match="auto_map"):
        load_model(folder)
    changed(folder / "config.json", model_type="wordorder-evil")  # a type that only the folder's code knows
    with pytest.raises(BadInput):
        load_model(folder)


def test_a_tokeniser_of_another_class_is_read_as_what_it_is(folder: Path, mark: Path):
    (folder / "tokenization_evil.py").write_text(code(mark))
    (folder / "vocab.pkl").write_bytes(pickle.dumps(Trap(mark)))
    changed(folder / "tokenizer_config.json", tokenizer_class="Evil", vocab_file="/etc/passwd", gguf_file="x.gguf")
    loads_and_answers(folder)


def test_a_chat_template_is_data(folder: Path, mark: Path):
    template = (
        "{{ ''.__class__.__mro__[1].__subclasses__() }}{% set x = cycler.__init__.__globals__.os.mkdir('MARK') %}"
    )
    changed(folder / "tokenizer_config.json", chat_template=template.replace("MARK", str(mark)))
    (folder / "chat_template.jinja").write_text(template.replace("MARK", str(mark)))
    loads_and_answers(folder)


def test_a_decoder_with_code_of_its_own_writes_with_ours(models: Path, tmp_path: Path, mark: Path):
    folder = Path(shutil.copytree(models / "decoder", tmp_path / "decoder"))
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(code(mark))
    Continuation(folder).search("a", max_new_tokens=2, beams=1)


@pytest.fixture
def swapped(models: Path, tmp_path: Path) -> Path:
    """A swapped BERT, whose configuration has the fields of transformers' below host."""
    from transformers import BertConfig, BertForMaskedLM

    from wordorder.models import swap_encoding

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    host = BertForMaskedLM(BertConfig(vocab_size=261, max_position_embeddings=32, **sizes))
    shutil.copytree(models / "encoder", tmp_path / "swapped")
    swap_encoding(host, "model+tupe-r").save_pretrained(tmp_path / "swapped")
    return tmp_path / "swapped"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"attn_implementation": "owner/kernel"}, "attn_implementation must be the name of a backend of this machine"),
        ({"_attn_implementation": {"": "owner/kernel"}}, "must be the name of a backend of this machine"),
        ({"transformers_weights": "elsewhere/model.safetensors"}, "transformers_weights"),
        ({"transformers_weights": "pytorch_model.bin"}, "transformers_weights"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
        ({"id2label": {"x": "y"}}, "id2label"),
    ],
)
def test_a_swapped_model_is_read_as_carefully(swapped: Path, fields: dict[str, object], said: str):
    load_model(swapped)
    (swapped / "elsewhere").mkdir()
    shutil.copy(swapped / "model.safetensors", swapped / "elsewhere")
    host = json.loads((swapped / "config.json").read_text())["host"]
    changed(swapped / "config.json", host={**host, **fields})
    with pytest.raises(BadInput, match=said):
        load_model(swapped)


def test_no_other_configuration_is_read_than_the_one_that_is_looked_at(folder: Path):
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.4.0.0.json").write_text(json.dumps({**settings, "hidden_act": "relu"}))
    changed(folder / "config.json", configuration_files=["config.4.0.0.json"])
    for read in (load_model, lambda place: load_config(class_of(place).config_class, place)):
        with pytest.raises(BadInput, match="configuration_files: another configuration"):
            read(folder)


def test_no_other_tokeniser_is_read_than_the_one_that_is_looked_at(folder: Path):
    (folder.parent / "elsewhere").mkdir()
    shutil.copy(folder / "tokenizer.json", folder.parent / "elsewhere" / "tokenizer.4.0.0.json")
    changed(folder / "tokenizer_config.json", fast_tokenizer_files=["../elsewhere/tokenizer.4.0.0.json"])
    with pytest.raises(BadInput, match="fast_tokenizer_files"):
        load_tokenizer_of(folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"constraints": [1]}', "constraints: such generation is code of the Hub"),
        ('{"num_beam_groups": 2, "num_beams": 2}', "num_beam_groups"),
        ('{"max_new_tokens": ', "generation_config.json cannot be read"),
        ("[]", "generation_config.json cannot be read"),
        ('{"max_new_tokens": "x"}', "generation_config.json cannot be read"),
    ],
)
def test_settings_of_generation_are_one_fault(models: Path, tmp_path: Path, text: str, said: str):
    folder = Path(shutil.copytree(models / "decoder", tmp_path / "decoder"))
    (folder / "generation_config.json").write_text(text)
    with pytest.raises(BadInput, match=said):
        Continuation(folder).search("a", max_new_tokens=2, beams=1)


def test_a_cache_that_a_folder_names_is_not_made(models: Path, tmp_path: Path):
    folder = Path(shutil.copytree(models / "decoder", tmp_path / "decoder"))
    wanted = Continuation(folder).search("a", max_new_tokens=2, beams=1)
    (folder / "generation_config.json").write_text('{"cache_implementation": "static"}')
    assert Continuation(folder).search("a", max_new_tokens=2, beams=1) == wanted


@pytest.mark.parametrize("name", ["attn_implementation", "experts_implementation"])
@pytest.mark.parametrize("value", ["owner/kernel", "owner/kernel@main", {"": "owner/kernel"}, "paged|owner/kernel", 3])
def test_no_backend_is_fetched_from_the_hub(folder: Path, name: str, value: object):
    changed(folder / "config.json", **{name: value})
    with pytest.raises(BadInput, match=f"{name} must be the name of a backend of this machine"):
        load_model(folder)


def test_quantised_models_are_refused(folder: Path):
    changed(folder / "config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    with pytest.raises(BadInput, match="quantization_config"):
        load_model(folder)


def test_adapters_are_refused_before_they_are_read(folder: Path, mark: Path):
    pytest.importorskip("peft", reason="without peft transformers looks for no adapters")
    fields = {"peft_type": "LORA", "base_model_name_or_path": "/etc", "r": 1, "target_modules": ["q"]}
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    torch.save({"weight": Trap(mark)}, folder / "adapter_model.bin")
    for read in (load_model, lambda place: load_saved(place, class_of(place))):
        with pytest.raises(BadInput, match="holds adapters"):
            read(folder)


@pytest.mark.parametrize(
    "name", ["../elsewhere.safetensors", "/etc/passwd", "a/../../x.safetensors", "pytorch_model.bin", "..", "", 3, None]
)
def test_an_index_of_shards_cannot_lead_out_of_the_folder(folder: Path, name: object):
    shutil.copy(folder / "model.safetensors", folder.parent / "elsewhere.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    for read in (weight_files, load_model, read_pretrained, lambda place: load_saved(place, class_of(place))):
        with pytest.raises(BadInput, match=r"no file of this folder"):
            read(folder)


def test_a_left_over_index_beside_whole_weights_is_not_followed(folder: Path):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "gone.safetensors"}}))
    loads_and_answers(folder)


def test_a_folder_of_the_hubs_cache_is_read_whose_files_are_links(folder: Path, tmp_path: Path):
    repository = tmp_path / "models--owner--name"
    snapshot = repository / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for number, path in enumerate(sorted(folder.iterdir())):
        path.rename(repository / "blobs" / f"{number:040x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:040x}")
    loads_and_answers(snapshot)
    assert load_tokenizer(TokenizerConfig(kind="existing", path=str(snapshot)), [], cache_dir=tmp_path).mask_token


def test_shards_within_the_folder_are_read(folder: Path):
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    parts = {"model-1.safetensors": names[:3], "model-2.safetensors": names[3:]}
    for file, held in parts.items():
        save_file({name: tensors[name] for name in held}, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {name: file for file, held in parts.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    loads_and_answers(folder)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"hidden_size": 32}, "weights have other sizes than config.json says"),
        ({"num_hidden_layers": 3}, "weights are missing from the file"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps must be positive"),
        ({"hidden_size": "16"}, "hidden_size"),
        ({"num_hidden_layers": 10_001}, "num_hidden_layers must be at most 10,000"),
        ({"id2label": {"x": "y"}}, "id2label must have the numbers of the classes as keys"),
    ],
)
def test_a_configuration_of_another_model_is_refused(folder: Path, fields: dict[str, object], said: str):
    changed(folder / "config.json", **fields)
    for read in (load_model, lambda place: load_saved(place, class_of(place))):
        with pytest.raises(BadInput, match=said):
            read(folder)


def test_weights_that_are_cut_short_are_refused(folder: Path):
    path = folder / "model.safetensors"
    content = path.read_bytes()
    for length in (0, 4, 100, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(BadInput, match=r"no weights can be read from safetensors"):
            load_model(folder)


def test_config_json_of_any_shape_is_one_fault(folder: Path):
    for text in (
        '{"model_type": ',
        "[]",
        "3",
        '{"architectures": 3}',
        '{"model_type": [1], "architectures": ["x"]}',
        "\x00",
    ):
        (folder / "config.json").write_text(text)
        for read in (load_model, read_pretrained, class_of):
            with pytest.raises(BadInput) as caught:
                read(folder)
            assert "\n" not in str(caught.value)


# Checkpoints of a run


RECIPE = """
[data]
source = "{source}"

[task]
name = "masked-lm"
[tokenizer]
kind = "byte"
{model}
[training]
output_dir = "{folder}/run"
max_steps = 4
evaluate_every = 2
batch_size = 2
trackers = []
device = "cpu"
"""
MODEL = "[model]\nnetwork = 'encoder'\nencoding = 'rope'\n" + "\n".join(f"{k} = {v}" for k, v in SIZES.items())


def recipe_from(folder: Path, model: str = MODEL) -> Path:
    source = folder / "texts.txt"
    source.write_text("\n\n".join(f"{n} word order and memory. " * 6 for n in range(12)))
    text = RECIPE.format(source=source, folder=folder, model=model)
    path = folder / "tiny.toml"
    path.write_text(text.replace('[tokenizer]\nkind = "byte"\n', "") if "pretrained" in model else text)
    return path


def test_a_pipe_in_the_place_of_a_file_does_not_hang(folder: Path):
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    signal.alarm(20)  # opening a pipe waits for somebody who writes
    try:
        with pytest.raises(BadInput, match="pipe or a device"):
            load_model(folder)
    finally:
        signal.alarm(0)


def test_a_run_is_resumed_from_a_checkpoint_full_of_traps_without_springing_one(tmp_path: Path, mark: Path):
    recipe = read_recipe(recipe_from(tmp_path))
    run(recipe, progress=False)
    folder = tmp_path / "run"
    (folder / "metrics.json").unlink()
    shutil.rmtree(folder / "checkpoint-4")
    checkpoint = folder / "checkpoint-2"
    (checkpoint / "manifest.json").unlink()
    for name in (
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "training_args.bin",
        "scaler.pt",
        "pytorch_model.bin",
    ):
        torch.save({"state": Trap(mark)}, checkpoint / name)
    (checkpoint / "modeling_evil.py").write_text(code(mark))
    seal(checkpoint)  # a stranger can write a manifest too
    assert run(recipe, resume=True, progress=False).metrics["steps"] == 4


def sealed(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a").write_text("x")
    (folder / "b").write_text("y")
    seal(folder)
    return folder


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "a/../../outside", "..", ""])
def test_a_manifest_cannot_name_what_lies_elsewhere(tmp_path: Path, name: str):
    folder = sealed(tmp_path / "checkpoint-1")
    (tmp_path / "outside").write_text("x")
    entries = json.loads((folder / "manifest.json").read_text())
    entries[name] = entries.pop("b")
    (folder / "manifest.json").write_text(json.dumps(entries))
    assert damage(folder) is not None


def test_a_link_in_a_checkpoint_is_damage_whatever_it_leads_to(tmp_path: Path):
    folder = sealed(tmp_path / "checkpoint-1")
    assert damage(folder) is None
    (folder / "b").rename(tmp_path / "outside")
    (folder / "b").symlink_to(tmp_path / "outside")
    assert "b is no plain file" in str(damage(folder))


def test_a_pipe_in_a_checkpoint_is_damage_and_does_not_hang(tmp_path: Path):
    folder = sealed(tmp_path / "checkpoint-1")
    (folder / "b").unlink()
    os.mkfifo(folder / "b")
    entries = json.loads((folder / "manifest.json").read_text())
    entries["b"]["bytes"] = 0
    (folder / "manifest.json").write_text(json.dumps(entries))
    assert "b is no plain file" in str(damage(folder))


@pytest.mark.parametrize("size", ["Infinity", "NaN", "1e999", "[]", '"3"', "null"])
def test_a_manifest_with_a_size_that_is_none_is_damage(tmp_path: Path, size: str):
    folder = sealed(tmp_path / "checkpoint-1")
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"bytes": 1', f'"bytes": {size}'))
    assert damage(folder) is not None


# Recipes


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../x", "a\\b", "/x", "~", "-x", ".hidden", "a\nb", "x\x00"])
def test_the_name_of_an_arm_is_the_name_of_a_folder_within(tmp_path: Path, name: str):
    recipe = recipe_from(tmp_path)
    recipe.write_text(recipe.read_text() + f"\n[compare]\n[[compare.arms]]\nname = {json.dumps(name)}\n")
    with pytest.raises(BadInput, match="name must be letters, digits"):
        read_recipe(recipe)


@pytest.mark.parametrize("name", ["../x", "extrapolation/../x", "..", "/x"])
def test_the_name_of_a_probe_is_a_known_one(tmp_path: Path, name: str):
    from wordorder.comparison.probes.measure import check_probes

    recipe = recipe_from(tmp_path)
    table = f"\n[compare]\n[compare.probes]\n{json.dumps(name)} = {{}}\n[[compare.arms]]\nname = 'a'\n"
    recipe.write_text(recipe.read_text() + table)
    with pytest.raises(BadInput, match="probe"):
        check_probes(read_recipe(recipe))


@pytest.mark.parametrize("name", ["...toml", "..toml"])
def test_a_recipe_without_a_name_has_no_run_folder(tmp_path: Path, name: str):
    shutil.copy(recipe_from(tmp_path), tmp_path / name)
    try:
        recipe = read_recipe(tmp_path / name, ["training.output_dir=''"])
    except BadInput:
        return
    assert recipe.output_dir.parent == Path("runs")
    assert recipe.output_dir.name not in ("", ".", "..")


def test_a_recipe_is_data(tmp_path: Path, mark: Path):
    """Names that would be code somewhere else are values here, or faults."""
    evil = f"__import__('os').mkdir({str(mark)!r})"
    for override in (
        f"training.lr_scheduler_kwargs={{x={json.dumps(evil)}}}",
        f"model.encoding={json.dumps(evil)}",
        f"model.hidden_act={json.dumps(evil)}",
        f"data.source={json.dumps(f'$(mkdir {mark})')}",
        f"data.source={json.dumps('{{' + evil + '}}')}",
        f"tokenizer.kind={json.dumps(evil)}",
        "data.source=hub:pandas",
        "data.source=hub:../x",
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                read_recipe(recipe_from(tmp_path), [override]).to_toml()
            except BadInput:
                continue


@pytest.mark.parametrize("name", ["pandas", "csv", "webdataset", "./x", "../x", "/etc", "a/b/c", "~/x", "a b"])
def test_hub_names_are_names_on_the_hub(name: str):
    from wordorder.data.named import read_hub

    with pytest.raises(BadInput, match="no name on the hub"):
        read_hub(name)


def test_a_configuration_class_by_itself_reads_a_folder_too(folder: Path):
    kind = class_of(folder).config_class
    assert load_config(kind, folder).hidden_size == 16
