"""A run on a streamed text that was killed goes on with the same examples and weights; what it passed over is told."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from wordorder.data import Sharing, StreamOrder, prepare
from wordorder.errors import BadInput
from wordorder.training import read_recipe, run
from wordorder.training.loop.batches import ShareOfBatches
from wordorder.training.loop.loop import Loop

RECIPE = """
[data]
source = "{folder}/text/*.jsonl"
validation_source = "{folder}/valid.jsonl"
task = "masked-lm"
streaming = true
shuffle_buffer = 10

[tokenizer]
kind = "byte"

[model]
network = "encoder"
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 32
encoding = "tupe-a"

[training]
max_steps = 18
per_device_train_batch_size = 2
gradient_accumulation_steps = 2
logging_steps = 1
eval_steps = 6
report_to = "none"
use_cpu = true
"""

MEMORY = (
    "data.task=causal-lm",
    "data.packing=lanes",
    "data.shuffle_buffer=1024",
    "data.length=16",
    "model.network=decoder",
    "model.encoding=transformer-xl",
    "model.memory=look-ahead",
    "model.memory_length=24",
)

KILLED = """
import os, signal, sys
from wordorder.training import read_recipe, run
from wordorder.training.loop.loop import Loop

recipe, folder, micro, *settings = sys.argv[1:]
micro_step, calls = Loop.micro_step, []

def step(self, *args, **kwargs):
    calls.append(1)
    if len(calls) == int(micro):
        os.kill(os.getpid(), signal.SIGKILL)
    return micro_step(self, *args, **kwargs)

Loop.micro_step = step
run(read_recipe(recipe, settings), output_dir=folder, progress=False)
"""


def line(number, words=30):
    return json.dumps({"text": f"document {number} " + " ".join(str(number * 7 + word) for word in range(words))})


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "text").mkdir()
    for file in range(3):
        lines = [line(10 * file + number) for number in range(10)]
        (tmp_path / "text" / f"{file}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "valid.jsonl").write_text("\n".join(line(number) for number in range(500, 504)))
    (tmp_path / "stream.toml").write_text(RECIPE.format(folder=tmp_path))
    return tmp_path


def go(corpus, folder, *settings, **arguments):
    recipe = read_recipe(corpus / "stream.toml", settings)
    return run(recipe, output_dir=corpus / folder, progress=False, **arguments)


def assert_same(found, expected):
    for name in ("batches", "validation", "tokens"):
        assert found.metrics[name] == expected.metrics[name]
    ours, theirs = (load_file(result.model_dir / "model.safetensors") for result in (found, expected))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.slow
def test_a_killed_run_reads_on_to_the_last_token(corpus):
    expected = go(corpus, "whole", *MEMORY)
    assert (corpus / "whole" / "checkpoint-12" / "data-0.json").exists()
    command = [sys.executable, "-c", KILLED, str(corpus / "stream.toml"), str(corpus / "killed"), "31", *MEMORY]
    assert subprocess.run(command, check=False, timeout=120).returncode == -9
    assert (corpus / "killed" / "checkpoint-12").is_dir()
    assert_same(go(corpus, "killed", *MEMORY, resume=True), expected)


class Enough(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize(("at", "settings"), [(9, ()), (17, ("data.task=causal-lm", "model.network=decoder"))])
def test_an_interrupted_run_reads_on_to_the_last_token(corpus, monkeypatch, at, settings):
    """As a kill would break it off, but without the price of a process."""
    settings = (*settings, "model.encoding=rope")
    expected, original = go(corpus, "whole", *settings), Loop.micro_step

    def micro_step(self, *args, **kwargs):
        if self.training.state.global_step + 1 == at:
            raise Enough
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "micro_step", micro_step)
        with pytest.raises(Enough):
            go(corpus, "broken", *settings)
    assert_same(go(corpus, "broken", *settings, resume=True), expected)


def test_what_the_processes_are_asked_for_is_what_they_have(corpus):
    """The batches that the trainer deals out are those that each process's share of the stream is made for."""
    recipe = read_recipe(corpus / "stream.toml")
    prepared = prepare(recipe.data, recipe.tokenizer, seed=0)
    for process in range(2):
        sharing = Sharing(batch=2, accumulation=2, steps=5, rank=process, world=2)
        order = StreamOrder(len(sharing))
        batches = list(ShareOfBatches(order, batch_size=2, drop_last=False, process=process, processes=2))
        assert [sharing.own(index) for batch in batches for _, index in batch] == list(range(20))
        examples = prepared.train.examples(sharing)
        assert len([example for batch in batches for example in examples.__getitems__(batch)]) == 20


def test_several_epochs_of_the_text_are_one_training(corpus):
    result = go(corpus, "run", "training.max_steps=60", "training.eval_steps=60")
    assert result.metrics["steps"] == 60
    data = json.loads((corpus / "run" / "data.json").read_text())
    assert data["train"]["streamed"]
    assert data["train"]["files"] == 3
    assert "test" not in data
    assert result.metrics["optimistic"]


@pytest.mark.slow
def test_what_cannot_be_read_is_an_error_or_is_skipped_and_told(corpus, capsys):
    path = corpus / "text" / "1.jsonl"
    path.write_text(path.read_text() + '{"text": 3}\n{"text": broken\n')
    shutil.copy(corpus / "text" / "0.jsonl", corpus / "text" / "4.jsonl")
    text = json.loads(line(501))["text"]
    with (corpus / "text" / "4.jsonl").open("a") as file:
        file.write(json.dumps({"text": text.upper()}) + "\n" + json.dumps({"text": f" {text}\n"}) + "\n")
    with pytest.raises(BadInput, match=r"1\.jsonl line 11 column 'text' holds int, not text; set data.skip_unreadable"):
        go(corpus, "refused")
    run(
        read_recipe(corpus / "stream.toml", ("data.skip_unreadable=true", "training.max_steps=90")),
        output_dir=corpus / "run",
    )
    found = json.loads((corpus / "run" / "reading.json").read_text())
    assert found["unreadable"]["count"] == 2
    assert found["unreadable"]["files"] == {str(path): 2}
    assert "1.jsonl line 12 is not JSON" in found["unreadable"]["first"][1]
    assert found["copies"]["count"] == found["leaks"]["count"] == 1
    told = capsys.readouterr().err
    assert "2 lines, records or files could not be read and were skipped" in told
    assert "1 training texts stand in validation or test too, but for case" in told


@pytest.mark.skipif(sys.platform == "darwin", reason="file names are UTF-8 there")
@pytest.mark.parametrize("streaming", ["true", "false"])
def test_a_file_whose_name_is_not_utf_8_is_named_with_escapes(corpus, streaming):
    path = corpus / "text" / os.fsdecode(b"caf\xe9.jsonl")
    path.write_text((corpus / "text" / "0.jsonl").read_text() + '{"text": broken\n')
    of_streams = ("data.shuffle_buffer=10",) if streaming == "true" else ("data.shuffle_buffer=1024",)
    settings = (f"data.streaming={streaming}", "data.skip_unreadable=true", *of_streams)
    go(corpus, "run", *settings, "training.max_steps=90", "training.eval_steps=90")
    written = (corpus / "run" / "reading.json").read_text(encoding="utf-8")
    assert r"caf\udce9.jsonl line 11 is not JSON" in written
    assert json.loads(written)["unreadable"]["files"] == {str(path): 1}


@pytest.mark.parametrize("kept", [False, True])
def test_a_bad_line_at_the_start_leaves_nothing_behind(corpus, kept):
    for path in (corpus / "text").glob("*.jsonl"):
        path.write_text('{"text": broken\n' * 2 + path.read_text())
    folder = corpus / "new" / "run"
    if kept:
        folder.mkdir(parents=True)
        (folder / ".note").write_text("mine")
    before = sorted(corpus.rglob("*"))
    with pytest.raises(BadInput, match="is not JSON"):
        go(corpus, "new/run", "training.report_to=tensorboard")
    assert sorted(corpus.rglob("*")) == before


def test_a_clean_run_leaves_no_report(corpus):
    go(corpus, "run", "training.max_steps=2", "training.eval_steps=2")
    assert not (corpus / "run" / "reading.json").exists()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("training.max_steps=-1",), "training.max_steps must be given with data.streaming"),
        (("training.dataloader_num_workers=2",), "training.dataloader_num_workers must be 0 with data.streaming"),
        (("tokenizer.kind=bpe", "tokenizer.vocab_size=300"), "data.tokenizer_documents must say on how many"),
    ],
)
def test_what_streaming_cannot_do_is_said_before_anything_is_read(corpus, settings, expected):
    with pytest.raises(BadInput, match=expected):
        read_recipe(corpus / "stream.toml", settings)


def test_another_text_is_not_resumed(corpus):
    go(corpus, "run", "training.max_steps=6", "training.keep_steps=[6]")
    (corpus / "run" / "metrics.json").unlink()
    path = corpus / "text" / "2.jsonl"
    path.write_text(path.read_text().replace("document", "documemt"))
    with pytest.raises(BadInput, match="the data has changed since"):
        go(corpus, "run", "training.max_steps=6", "training.keep_steps=[6]", resume=True)
