"""Models are uploaded to a stand-in of the hub over HTTP, and come back from it the same."""

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

from hub_stand_in import hub_in
from saved_folder import save
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM, pipeline
from typer.testing import CliRunner

from wordorder.cli.app import app
from wordorder.errors import BadInput, RunFailed
from wordorder.inference.push import push_model
from wordorder.models import graft
from wordorder.training import read_recipe

# what huggingface_hub 2.4 says to its own HTTP library when it uploads weights
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The stand-in in the place of the hub, in this process alone."""
    import huggingface_hub
    import transformers.utils.hub
    from huggingface_hub import constants

    (tmp_path / "hub").mkdir()
    with hub_in(tmp_path / "hub") as (hub, address):
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(transformers.utils.hub, "_hf_api", None)  # it keeps its first address
        monkeypatch.setenv("HF_TOKEN", hub.token)
        huggingface_hub.close_session()
        yield hub
        huggingface_hub.close_session()


def same(one, other):
    x = torch.tensor([[2, 5, 4, 7, 3]])
    with torch.no_grad():
        return torch.equal(one(x).logits, other(x).logits)


def test_the_command_uploads_model_tokenizer_and_card_and_they_come_back(tmp_path, hub):
    folder = save(tmp_path / "model", "encoder", "masked-lm", encoding="tupe-r")
    (tmp_path / "model" / "README.md").write_text("---\nlibrary_name: wordorder\n---\n\n# mine\n")
    for left_here in ("optimizer.safetensors", "training_args.json", "notes.txt"):
        (tmp_path / "model" / left_here).write_bytes(b"x")
    done = CliRunner().invoke(app, ["push", folder, "me/tiny", "--private", "--message", "first", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["repository"] == "me/tiny"
    assert set(told["files"]) == set(hub.files("me/tiny"))
    assert hub.private == {"me/tiny": True}
    names = set(hub.files("me/tiny"))
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= names
    assert {"optimizer.safetensors", "training_args.json", "notes.txt"}.isdisjoint(names)
    loaded = AutoModelForMaskedLM.from_pretrained("me/tiny").eval()
    assert same(loaded, AutoModelForMaskedLM.from_pretrained(folder).eval())
    assert AutoTokenizer.from_pretrained("me/tiny")("the union")["input_ids"] == [2, 5, 6, 3]
    assert len(pipeline("fill-mask", "me/tiny", device="cpu")("the [MASK] is strong")) == 5


def test_push_to_hub_of_a_model_and_of_its_tokenizer(tmp_path, hub):
    model = AutoModelForMaskedLM.from_pretrained(save(tmp_path / "m", "encoder", "masked-lm", encoding="tupe-a")).eval()
    model.push_to_hub("me/other")
    AutoTokenizer.from_pretrained(tmp_path / "m").push_to_hub("me/other")
    assert same(model, AutoModelForMaskedLM.from_pretrained("me/other").eval())
    assert AutoTokenizer.from_pretrained("me/other").mask_token == "[MASK]"


def test_push_to_hub_of_a_trainer(tmp_path, hub):
    from transformers import Trainer, TrainingArguments

    model = AutoModelForMaskedLM.from_pretrained(save(tmp_path / "m", "encoder", "masked-lm", encoding="rope"))
    arguments = TrainingArguments(
        str(tmp_path / "out"),
        max_steps=1,
        use_cpu=True,
        disable_tqdm=True,
        hub_model_id="me/trained",
        save_strategy="no",
    )
    row = {"input_ids": torch.tensor([2, 5, 4, 3]), "labels": torch.tensor([-100, -100, 6, -100])}
    trainer = Trainer(model, arguments, train_dataset=[row])
    trainer.train()
    trainer.push_to_hub()
    assert same(model.eval(), AutoModelForMaskedLM.from_pretrained("me/trained").eval())
    assert b"library_name: transformers" in hub.files("me/trained")["README.md"]  # transformers' own card


def test_what_cannot_be_uploaded_is_one_line(tmp_path, hub, monkeypatch):
    with pytest.raises(BadInput, match=r"holds no model \(no config\.json\); name the folder model/ of a run"):
        push_model(tmp_path, "me/tiny")
    folder = save(tmp_path / "m", "encoder", "masked-lm", encoding="rope")
    with monkeypatch.context() as patch:
        patch.setattr("wordorder.inference.push._check_weights", pytest.fail)  # the name is looked at first
        with pytest.raises(BadInput, match="REPO: "):
            push_model(folder, "me/tiny/too/deep")
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(RunFailed, match=r"me/tiny could not be uploaded: .*log in by hf auth login"):
        push_model(folder, "me/tiny")
    assert hub.head == {}
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(RunFailed, match=r"me/tiny could not be uploaded: .*check HF_TOKEN and HF_ENDPOINT"):
        push_model(folder, "me/tiny")
    (tmp_path / "m" / "model.safetensors").unlink()
    (tmp_path / "m" / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(BadInput, match="only safetensors are uploaded"):
        push_model(folder, "me/tiny")


@pytest.mark.parametrize("name", ["push_to_hub=true", "hub_model_id=me/x", "hub_token=x", "hub_strategy=end"])
def test_a_recipe_that_would_upload_is_told_how(recipe_file, name):
    with pytest.raises(BadInput, match=rf"training\.{name.split('=')[0]}: .*wordorder push MODEL_DIR REPO"):
        read_recipe(recipe_file, [f"training.{name}"])


def test_a_graft_with_damaged_weights_is_not_uploaded(tmp_path, hub):
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    grafted = graft(BertForMaskedLM(BertConfig(**sizes, intermediate_size=32)), "tupe-r")
    with torch.no_grad():
        grafted.bert.encoder.layer[0].output.dense.weight[0, 0] = float("nan")
    grafted.save_pretrained(tmp_path / "grafted")
    with pytest.raises(BadInput, match="weights are not finite"):
        push_model(tmp_path / "grafted", "me/grafted")
    assert hub.head == {}
