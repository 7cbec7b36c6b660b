"""docs/ecosystem.md: every block of Python runs on models that lie where the page says."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

from saved_folder import save
from transformers import AutoModelForMaskedLM, AutoTokenizer

from wordorder.models import build_config, build_model, lora_targets

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "ecosystem.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
LIBRARIES = ("peft", "sentence_transformers")
pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),  # peft 0.21
    pytest.mark.filterwarnings("ignore::DeprecationWarning:evaluate"),
]


@pytest.mark.parametrize("block", BLOCKS, ids=["pipelines", "peft", "sentences"])
def test_the_block_runs(block, tmp_path, monkeypatch, capsys):
    for library in LIBRARIES:
        if library in block and find_spec(library) is None:
            pytest.skip(f"{library} is not installed; the page names the extra")
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "runs/mine/model", "encoder", "masked-lm", encoding="tupe-r")
    memory = {"memory": "look-ahead", "memory_length": 8, "segment_length": 8}
    save(tmp_path / "runs/lm/model", "decoder", "causal-lm", encoding="alibi", **memory)
    exec(compile(block, "ecosystem.md", "exec"), {})
    told = capsys.readouterr().out
    if "pipeline(" in block:
        assert "the union is" in told
    if "sentence_transformers" in block:
        assert "(2, 16)" in told
    if "peft" in block:
        assert (tmp_path / "adapter/adapter_model.safetensors").exists()


def test_the_table_of_targets_is_that_of_the_code():
    sizes = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    rows = dict(re.findall(r"^\| (encoder,|encoder-decoder)[^|]*\| ([^|]*) \|", PAGE, flags=re.MULTILINE))
    encoder = build_model(build_config("encoder", encoding="rope", **sizes), "masked-lm", seed=0)
    starts = {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    seq2seq = build_model(build_config("seq2seq", encoding="rope", **sizes, **starts), "translation", seed=0)
    assert re.findall(r"`(\w+)`", rows["encoder,"]) == lora_targets(encoder)
    assert re.findall(r"`(\w+)`", rows["encoder-decoder"]) == lora_targets(seq2seq)


def test_models_and_tokenizers_upload_what_from_pretrained_reads(tmp_path, monkeypatch):
    import huggingface_hub
    import transformers.utils.hub as hub

    uploaded = []
    monkeypatch.setattr(
        hub, "create_and_tag_model_card", lambda repository, *rest, **more: huggingface_hub.ModelCard("# its card")
    )
    monkeypatch.setattr(
        huggingface_hub.HfApi,
        "create_repo",
        lambda self, name, **more: huggingface_hub.RepoUrl(f"https://hf.co/{name}"),
    )
    monkeypatch.setattr(
        huggingface_hub.HfApi,
        "create_commit",
        lambda self, operations, **more: uploaded.extend(file.path_in_repo for file in operations),
    )
    save(tmp_path / "model", "encoder", "masked-lm", encoding="tupe-r")
    AutoModelForMaskedLM.from_pretrained(tmp_path / "model").push_to_hub("me/my-model")
    AutoTokenizer.from_pretrained(tmp_path / "model").push_to_hub("me/my-model")
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= {*uploaded}


def test_the_folder_of_a_model_is_uploaded_by_a_command_that_exists():
    (written,) = re.findall(r"^hf upload (\S+) (\S+) (--\w+)", PAGE, flags=re.MULTILINE)
    command = [str(Path(sys.executable).with_name("hf")), "upload", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert written[2] in told
