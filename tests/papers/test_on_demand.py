"""What is in papers/ is loaded where a recipe or a saved model names it, and nowhere else."""

import json
import subprocess
import sys

import pytest

from wordorder.errors import BadInput
from wordorder.models import NETWORK_TASKS, build_config
from wordorder.models.factory import HEADS, class_with_head

LOADED = "\nimport sys\nprint([name for name in sys.modules if name.startswith('wordorder.papers')])"

SMALL = [
    "compare.seeds=[0]", "compare.workers=1", "training.max_steps=2", "training.evaluate_every=1",
    "training.save_every=1", "training.device=cpu", "model.hidden_size=16", "model.num_hidden_layers=1",
]  # fmt: skip
"""A comparison of two steps in one process."""

CLASSIFIER = {"vocab_size": 9, "hidden_size": 4, "num_attention_heads": 2, "num_labels": 3, "architecture": "recurrent"}


def last_line_of(code: str) -> str:
    """Return the last line that a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_comparison_of_encoders_loads_nothing_of_papers(tmp_path):
    code = f"""
from wordorder.cli.app import app
settings = {SMALL!r} + ["training.output_dir={tmp_path}/out"]
try:
    app(["compare", "demo", *(part for setting in settings for part in ("--set", setting))])
except SystemExit as end:
    assert end.code == 0
"""
    assert last_line_of(code + LOADED) == "[]"
    assert (tmp_path / "out" / "results.json").is_file()


LOADS = [
    "AutoConfig.for_model('wordorder-classifier', **FIELDS)",
    "AutoConfig.from_pretrained(FOLDER)",
    "AutoModel.from_pretrained(FOLDER).config",
    "AutoModelForSequenceClassification.from_pretrained(FOLDER, classifier_dropout=0.25).config",
    "wordorder.models.build_config('classifier', **FIELDS)",
]


def test_models_load_nothing_of_papers_until_its_model_type_is_named(tmp_path):
    from wordorder.models import build_model

    build_model(build_config("classifier", **CLASSIFIER), "classification", seed=0).save_pretrained(tmp_path)
    # each name in a process of its own, whose imports are done once
    code = f"""
import json, os, sys, wordorder, wordorder.models, wordorder.networks, wordorder.encodings
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification
from wordorder.errors import BadInput
from wordorder.models import build_config, build_model
build_model(build_config("encoder", vocab_size=9, hidden_size=8, num_attention_heads=2), "masked-lm", seed=0)
try:
    build_config("perceptron")
except BadInput as error:
    assert "classifier" in str(error)
assert not [name for name in sys.modules if name.startswith("wordorder.papers")]
FOLDER, FIELDS = {str(tmp_path)!r}, {CLASSIFIER!r}
for load in {LOADS!r}:
    child = os.fork()
    if not child:
        config = eval(load)
        print(json.dumps([type(config).__name__, config.architecture, config.num_labels]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, load
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert lines == [["WordOrderClassifierConfig", "recurrent", 3]] * len(LOADS)


def test_the_tasks_of_each_network_are_those_of_its_heads():
    for network, tasks in NETWORK_TASKS.items():
        assert tasks == tuple(task for task, head in HEADS.items() if class_with_head(network, head))
    with pytest.raises(BadInput, match="known: encoder, decoder, seq2seq, classifier"):
        build_config("perceptron")
