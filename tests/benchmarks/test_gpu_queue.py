"""The queue of small trainings, on a CPU: what is trained, what is not trained again, and what is refused."""

import json
import math

import pytest
import torch
from safetensors.torch import save_file

CPU = torch.device("cpu")


def job(name, network="decoder", encoding="rope", **training):
    model = {"width": 8, "layers": 1, "heads": 2, "encoding": encoding}
    known = {"length": 16, "batch_size": 4, "max_steps": 12, "learning_rate": 1e-2, "precision": "float32"}
    return {"name": name, "network": network, "model": model, "training": known | training}


@pytest.fixture
def queue_of(tmp_path, script):
    """Write a queue whose text counts to eleven again and again, and return it as read."""

    def write(*jobs):
        ids = (torch.arange(700) % 11).int()
        save_file({"train": ids[:500], "test": ids[500:]}, tmp_path / "ids.safetensors")
        file = tmp_path / "queue.json"
        file.write_text(json.dumps({"texts": "ids.safetensors", "jobs": [*jobs]}), encoding="utf-8")
        return script("gpu_queue").Queue(file)

    return write


@pytest.mark.parametrize("network", ["decoder", "encoder"])
def test_a_job_learns_and_is_the_same_each_time(script, queue_of, network):
    benchmark, queue = (
        script("gpu_queue"),
        queue_of(job("counting", network, max_steps=250, learning_rate=3e-2, seed=1)),
    )
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        first, second = (benchmark.train(queue.jobs[0], queue.texts, CPU) for _ in range(2))
    finally:
        torch.set_num_threads(threads)
    assert first["loss"] == second["loss"]
    assert first["test_loss"] == second["test_loss"]
    assert first["loss"][0] > first["loss"][-1]
    chance = math.log(11)
    assert first["test_loss"] < (0.1 if network == "decoder" else chance - 0.2)


@pytest.mark.slow
def test_jobs_are_trained_once_whatever_the_number_of_workers(script, queue_of):
    benchmark, written = script("gpu_queue"), []
    queue = queue_of(job("a"), job("b", "encoder", "tupe-a"), job("c", encoding="nonsense"))
    both = benchmark.run(queue, CPU, {}, lambda document: written.append(len(document["rows"])), workers=2)
    assert sorted(row["name"] for row in both["rows"]) == ["a", "b"]
    assert [fault.partition(":")[0] for fault in both["failed"]] == ["c"]
    assert len(written) == 3
    alone = benchmark.run(queue, CPU, {"rows": both["rows"][:1]}, lambda document: None, workers=1)
    assert alone["rows"][0] is both["rows"][0]
    scores = [{row["name"]: row["test_loss"] for row in document["rows"]} for document in (alone, both)]
    assert scores[0] == scores[1]
    other = queue_of(job("a", seed=1), job("b", "encoder", "tupe-a"))
    assert [row["name"] for row in both["rows"] if row["digest"] in {j["digest"] for j in other.jobs}] == ["b"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"networks": "decoder"}, r"job 'a': .* missing or unknown: \['networks'\]"),
        ({"network": "both"}, "network must be decoder or encoder, got 'both'"),
        ({"training": {"lr": 1}}, "training.lr is not read; known are .*learning_rate"),
        ({"training": {"precision": "fp8"}}, "precision must be bf16 or float32"),
    ],
)
def test_settings_that_are_not_read_end_it_before_anything_is_trained(queue_of, change, words):
    with pytest.raises(SystemExit, match=words):
        queue_of({**job("a"), **change})


def test_the_rate_rises_and_falls(script):
    settings = script("gpu_queue").Training(length=8, batch_size=1, max_steps=10, learning_rate=1.0, warmup_steps=4)
    assert [settings.rate(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert settings.rate(4) == 1.0
    assert settings.rate(9) == pytest.approx(1 / 6)
