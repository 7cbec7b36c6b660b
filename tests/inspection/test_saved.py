import errno
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

import wordorder
from wordorder import BadInput, RunFailed
from wordorder.inspection import default_folder, inspect_model, inspect_model_dir, numbers, saved
from wordorder.inspection.figures import Drawing
from wordorder.models import WordOrderEncoderModel, build_config, build_model

V, N = 30, 12


def save(place: Path, encoding: str, task: str = "masked-lm") -> Path:
    config = build_config(
        "encoder", vocab_size=V, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, encoding=encoding,
        max_position_embeddings=N, initializer_range=0.3,
    )  # fmt: skip
    model = WordOrderEncoderModel(config) if task == "none" else build_model(config, task, seed=0)
    model.save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder with a saved TUPE-R, to copy from."""
    return save(tmp_path_factory.mktemp("run") / "model", "tupe-r")


@pytest.fixture
def model_dir(kept: Path, tmp_path: Path) -> Path:
    """A run's folder of the test's own."""
    return Path(shutil.copytree(kept, tmp_path / "run" / "model"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small drawing in place of figures, where a test is not about them."""
    monkeypatch.setattr(
        saved, "draw", lambda found: {"map-x.png": Drawing(b"png", "x", "x", "x")} if found.maps else {}
    )


def names(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


def test_an_inspection_leaves_figures_numbers_maps_and_a_page(model_dir: Path):
    result = inspect_model_dir(model_dir)
    assert result.folder == model_dir.parent / "inspect"
    figures = {f"map-{part}.png" for part in ("absolute", "relative", "sum")} | {
        "profiles.png", "toeplitz.png",
    }  # fmt: skip
    assert names(result.folder) == set(result.files) == {*figures, "numbers.json", "maps.safetensors", "inspect.html"}
    written = json.loads((result.folder / "numbers.json").read_text(encoding="utf-8"))
    assert written == result.numbers
    assert written["files"] == list(result.files)
    model = WordOrderEncoderModel.from_pretrained(model_dir)
    for key, value in numbers(inspect_model(model, N)).items():
        assert written[key] == value
    assert written["model"]["encoding"] == "tupe-r"
    assert written["model"]["folder"] == str(model_dir)
    assert written["model"]["architecture"] == "WordOrderEncoderForMaskedLM"
    assert written["versions"]["wordorder"] == wordorder.__version__
    assert {"python", "torch", "transformers", "matplotlib"} < set(written["versions"])
    maps = load_file(result.folder / "maps.safetensors")
    assert_close(maps["sum"], result.inspection.maps["sum"].map.values_HNN)
    page = (result.folder / "inspect.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == len(figures)


@pytest.mark.usefixtures("quick")
def test_a_second_inspection_replaces_the_first_and_takes_its_own_leftovers_away(model_dir: Path, tmp_path: Path):
    out = tmp_path / "new" / "folder"
    first = inspect_model_dir(model_dir, out, length=8)
    before = {name: (out / name).read_bytes() for name in first.files}
    again = inspect_model_dir(model_dir, out, length=8)
    assert {name: (out / name).read_bytes() for name in again.files} == before
    (out / "mine.png").write_bytes(b"of the user")
    bare = inspect_model_dir(save(tmp_path / "rope", "rope"), out)
    assert bare.files == ("numbers.json",)
    assert names(out) == {"numbers.json", "mine.png"}
    assert "nothing to draw" in bare.numbers["notes"][0]


@pytest.mark.usefixtures("quick")
def test_only_files_that_an_inspection_writes_are_ever_removed(model_dir: Path):
    out = model_dir.parent / "out"
    (out / "sub").mkdir(parents=True)
    for name in ("sub/x", "thesis.tex", "gone.png"):
        (out / name).write_bytes(b"")
    files = ["../model", "sub/x", ".", "..", "sub", "thesis.tex", 3, "gone.png", "numbers.json"]
    (out / "numbers.json").write_text(json.dumps({"model": {}, "versions": {}, "files": files}), encoding="utf-8")
    inspect_model_dir(model_dir, out)
    assert (out / "sub" / "x").exists()
    assert (out / "thesis.tex").exists()
    assert not (out / "gone.png").exists()
    assert (model_dir / "config.json").exists()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("numbers.json", "not json"),
        ("numbers.json", "[]"),
        ("numbers.json", '{"mine": 1, "files": ["numbers.json"]}'),
        ("inspect.html", "<p>mine"),
        ("map-x.png", "mine"),
    ],
)
def test_a_file_of_something_else_is_never_replaced(model_dir: Path, name: str, content: str):
    out = model_dir.parent / "out"
    out.mkdir()
    (out / name).write_text(content, encoding="utf-8")
    with pytest.raises(BadInput, match=rf"holds {name}, which no inspection wrote"):
        inspect_model_dir(model_dir, out)
    assert (out / name).read_text(encoding="utf-8") == content
    assert names(out) == {name}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("task", ["none", "classification", "question-answering", "token-classification"])
def test_any_head_or_none_will_do(tmp_path: Path, task: str):
    result = inspect_model_dir(save(tmp_path / "m", "tupe-a", task))
    assert list(result.inspection.maps) == ["absolute"]
    assert result.folder == tmp_path / "inspect-m"


def test_the_folder_is_named_after_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert default_folder(Path("runs/a/seed-0/model")) == Path("runs/a/seed-0/inspect")
    assert default_folder(Path("runs/a/checkpoint-9")) == Path("runs/a/inspect-checkpoint-9")
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path / "model")
    assert default_folder(Path(".")) == tmp_path / "inspect"
    assert default_folder(Path("../model")) == Path("../inspect")
    (tmp_path / "model" / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "model" / "sub")
    assert default_folder(Path("..")) == tmp_path / "inspect"


@pytest.mark.usefixtures("quick")
def test_the_length_is_the_models_or_512_unless_given(model_dir: Path, tmp_path: Path):
    assert inspect_model_dir(model_dir).inspection.length == N
    assert inspect_model_dir(model_dir, length=5).inspection.length == 5
    config = build_config(
        "encoder", vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, encoding="alibi",
        max_position_embeddings=2048,
    )  # fmt: skip
    build_model(config, "masked-lm", seed=0).save_pretrained(tmp_path / "long")
    assert inspect_model_dir(tmp_path / "long").inspection.length == 512
    assert inspect_model_dir(tmp_path / "long", length=513).inspection.length == 513


def add_tokenizer(place: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"[UNK]": 0, "the": 1, "state": 2, "of": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(place)


def test_a_text_is_for_language_models(model_dir: Path):
    with pytest.raises(BadInput, match="--text is for a causal language model"):
        inspect_model_dir(model_dir, text="text.txt")


def spoil(place: Path, **changes: object) -> None:
    config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    (place / "config.json").write_text(json.dumps({**config, **changes}), encoding="utf-8")


SPOILERS = {
    "no folder": (shutil.rmtree, r"there is no such folder; name the folder model/ of a run"),
    "no config": (
        lambda place: (place / "config.json").unlink(),
        r"holds no model \(no config.json\); name the folder model/ of a run",
    ),
    "broken config": (lambda place: (place / "config.json").write_text("{"), "config.json cannot be read"),
    "config of a list": (lambda place: (place / "config.json").write_text("[]"), "does not hold a configuration"),
    "another type": (
        lambda place: spoil(place, model_type="bert"),
        "type 'bert'; inspect reads wordorder-encoder and wordorder-decoder",
    ),
    "another class": (lambda place: spoil(place, architectures=["BertModel"]), "'BertModel', which is none of"),
    "no class of models": (lambda place: spoil(place, architectures=["Nothing"]), "'Nothing', which is none of"),
    "unknown encoding": (lambda place: spoil(place, encoding="tupe-x"), "unknown encoding 'tupe-x'"),
    "no weights": (lambda place: (place / "model.safetensors").unlink(), "no weights can be read from safetensors"),
    "pickled weights": (
        lambda place: (place / "model.safetensors").rename(place / "pytorch_model.bin"),
        "no weights can be read from safetensors",
    ),
    "damaged weights": (lambda place: (place / "model.safetensors").write_bytes(b"nonsense"), "no weights can be read"),
    "weights of another size": (
        lambda place: spoil(place, max_position_embeddings=20),
        "weights have other sizes than config.json says: model.encoder.encoding.parts.tupe.table.weight",
    ),
    "sizes of another kind": (lambda place: spoil(place, hidden_size="a"), "'hidden_size' expected int, got str"),
}


@pytest.mark.parametrize("how", list(SPOILERS))
def test_what_is_no_model_is_one_clear_error_and_nothing_is_written(model_dir: Path, how: str):
    spoiler, said = SPOILERS[how]
    spoiler(model_dir)
    with pytest.raises(BadInput, match=said) as caught:
        inspect_model_dir(model_dir)
    assert len(caught.value.faults) == 1
    assert str(model_dir) in str(caught.value) or how == "unknown encoding"
    assert not (model_dir.parent / "inspect").exists()


def test_missing_weights_are_not_drawn_at_random(model_dir: Path):
    weights = load_file(model_dir / "model.safetensors")
    gone = next(name for name in weights if name.endswith("query_projection.weight"))
    save_file(
        {name: tensor for name, tensor in weights.items() if name != gone},
        model_dir / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(BadInput, match=f"weights are missing from the file: {gone}"):
        inspect_model_dir(model_dir)


@pytest.mark.parametrize(
    ("length", "said"),
    [(N + 1, f"max_position_embeddings={N}"), (3, r"4 \.\. 1024, .* got 3"), (5000, f"max_position_embeddings={N}")],
)
def test_a_length_that_does_not_fit_is_refused(model_dir: Path, length: int, said: str):
    with pytest.raises(BadInput, match=said):
        inspect_model_dir(model_dir, length=length)
    assert not (model_dir.parent / "inspect").exists()


def test_texts_that_cannot_be_read_are_refused(model_dir: Path, tmp_path: Path):
    config, text = WordOrderEncoderModel.from_pretrained(model_dir).config, tmp_path / "text.txt"
    with pytest.raises(BadInput, match=r"text.txt: cannot be read: no such file"):
        saved.first_tokens(model_dir, config, text, 9)
    text.write_bytes(b"caf\xe9")
    with pytest.raises(BadInput, match=r"text.txt: is not UTF-8 text"):
        saved.first_tokens(model_dir, config, text, 9)
    text.write_text("the state", encoding="utf-8")
    with pytest.raises(BadInput, match="holds no tokenizer"):
        saved.first_tokens(model_dir, config, text, 9)
    add_tokenizer(model_dir)
    text.write_text(" \n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"text.txt: holds no words"):
        saved.first_tokens(model_dir, config, text, 9)


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/inspect"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_model_is_loaded(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
):
    monkeypatch.setattr(saved, "load_saved", None)
    (tmp_path / "file").write_bytes(b"")
    out = where if where.startswith("/") else str(tmp_path / where)
    with pytest.raises(BadInput, match=f"{out}' cannot be written: .*; choose another one"):
        inspect_model_dir(model_dir, out)


def test_json_has_one_line_per_row_of_numbers_and_strings_as_they_are():
    value = {"rows": [[1, 2.5, None], [3, 4, 5]], "text": ["[a  b]", "line\nend"], "empty": []}
    text = saved._json(value)
    assert json.loads(text) == value
    assert len(text.splitlines()) == 11
    assert torch.tensor(json.loads(text)["rows"][1]).tolist() == [3, 4, 5]


@pytest.mark.usefixtures("quick")
def test_control_characters_in_a_folder_s_name_reach_no_terminal(model_dir: Path):
    evil = model_dir.rename(model_dir.with_name("evil\x1b[31m\x9b\u202ename"))
    result = inspect_model_dir(evil)
    for name in ("inspect.html", "numbers.json"):
        text = (result.folder / name).read_text(encoding="utf-8")
        assert "evil\\u001b[31m\\u009b\\u202ename" in text
        assert not any(letter in text for letter in "\x1b\x9b\u202e")
    assert json.loads((result.folder / "numbers.json").read_text(encoding="utf-8"))["model"]["folder"] == str(evil)


def test_a_full_disk_and_weights_that_are_nan_are_one_clear_error(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch, quick: None
):
    def full(folder: Path, contents: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(saved, "write_files", full)
        with pytest.raises(RunFailed, match=r"inspect: No space left on device; .*; choose another folder"):
            inspect_model_dir(model_dir)
    weights = load_file(model_dir / "model.safetensors")
    broken = {name: tensor * float("nan") for name, tensor in weights.items()}
    save_file(broken, model_dir / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput):
        inspect_model_dir(model_dir)
    model = WordOrderEncoderModel.from_pretrained(model_dir)
    with pytest.raises(BadInput, match=r"maps hold NaN or infinity \(.*\): take a checkpoint that is not broken"):
        inspect_model(model, 8)
