"""Many small trainings on one GPU at once: the step `queue` of `benchmarks/gpu.py`.

    python benchmarks/gpu.py --part queue --queue runs/queue.json

One small training is bound by its host, not by the GPU, so that several processes share one. A queue is a JSON with
resolved settings and the name of a file of token ids beside it::

    {"texts": "ids.safetensors",                     # int tensors "train" and "test", one row of ids each
     "jobs": [{"name": "rope, seed 0",
               "network": "decoder",                 # or "encoder", which restores masked tokens
               "model": {"width": 128, "layers": 4, "heads": 4, "encoding": "rope"},
               "training": {"length": 256, "batch_size": 32, "max_steps": 1000, "learning_rate": 1e-3, "seed": 0}}]}

``model`` holds arguments of `wordorder.Decoder` or `Encoder`; ``training`` those of `Training`. The vocabulary is the
largest id and one more, in encoders the mask, behind it. A job that the JSON of an earlier run holds, with the same
settings and texts, is not trained again. It needs torch, NumPy and safetensors.
"""

import dataclasses
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

import wordorder

MASKED = 0.15
"""Share of tokens that an encoder restores."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """The settings of one training; AdamW with a linear warm-up and decay."""

    length: int
    batch_size: int
    max_steps: int
    learning_rate: float
    seed: int = 0
    warmup_steps: int = 0
    adam_beta2: float = 0.999
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    precision: str = "bf16"

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        warm = min(1.0, (step + 1) / max(1, self.warmup_steps))
        left = (self.max_steps - step) / max(1, self.max_steps - self.warmup_steps)
        return self.learning_rate * min(warm, left, 1.0)


class Queue:
    """The jobs of a file, their token ids, and the digest by which each is known."""

    def __init__(self, file: Path) -> None:
        document = json.loads(file.read_text(encoding="utf-8"))
        texts = file.parent / document["texts"]
        self.texts = load_file(texts)
        missing = {"train", "test"} - self.texts.keys()
        if missing:
            raise SystemExit(f"{texts}: no tensor {', '.join(sorted(missing))}; a queue reads ids from train and test")
        of_texts = hashlib.sha256(texts.read_bytes()).hexdigest()
        self.jobs: list[dict[str, Any]] = document["jobs"]
        for job in self.jobs:
            check(job)
            job["digest"] = hashlib.sha256(json.dumps([job, of_texts], sort_keys=True).encode()).hexdigest()[:16]
        names = [job["name"] for job in self.jobs]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise SystemExit(f"{file}: several jobs have the name {', '.join(sorted(repeated))}")


def check(job: Mapping[str, Any]) -> None:
    """End with one line where a job's settings are not those that are read."""
    where = f"job {job.get('name')!r}"
    if unknown := sorted(job.keys() ^ {"name", "network", "model", "training"}):
        raise SystemExit(f"{where}: name, network, model and training are wanted; missing or unknown: {unknown}")
    if job["network"] not in ("decoder", "encoder"):
        raise SystemExit(f"{where}: network must be decoder or encoder, got {job['network']!r}")
    known = {field.name for field in dataclasses.fields(Training)}
    if unknown := sorted(job["training"].keys() - known):
        raise SystemExit(f"{where}: training.{unknown[0]} is not read; known are {', '.join(sorted(known))}")
    if job["training"].get("precision", "bf16") not in ("bf16", "float32"):
        raise SystemExit(f"{where}: training.precision must be bf16 or float32")


class Model(nn.Module):
    """A network with a head of its own; its loss is the mean over the tokens that it predicts, in nats."""

    def __init__(self, job: Mapping[str, Any], vocabulary: int) -> None:
        super().__init__()
        self.vocabulary, self.causal = vocabulary, job["network"] == "decoder"
        kind = wordorder.Decoder if self.causal else wordorder.Encoder
        self.network = kind(vocabulary + (not self.causal), **job["model"])
        self.head = nn.Linear(job["model"]["width"], vocabulary)

    def forward(self, ids_BT: Tensor, generator: torch.Generator) -> Tensor:
        """Return the loss of the next tokens, or of those that are masked."""
        if self.causal:
            logits_BTV, labels_BT = self.head(self.network(ids_BT[:, :-1]).hidden), ids_BT[:, 1:]
        else:
            hidden_BT = (torch.rand(ids_BT.shape, generator=generator) < MASKED).to(ids_BT.device)
            logits_BTV = self.head(self.network(ids_BT.masked_fill(hidden_BT, self.vocabulary)).hidden)
            labels_BT = ids_BT.masked_fill(~hidden_BT, -100)
        return F.cross_entropy(logits_BTV.float().flatten(0, 1), labels_BT.flatten())


def train(job: Mapping[str, Any], texts: Mapping[str, Tensor], device: torch.device) -> dict[str, Any]:
    """Train one job, and return its losses, its score on the test text and its pace.

    Batches, masks and weights are drawn on the CPU from the seed: they are the same for every encoding and device.
    """
    settings = Training(**job["training"])
    vocabulary = 1 + int(max(ids.max() for ids in texts.values()))
    torch.manual_seed(settings.seed)
    model = Model(job, vocabulary).to(device)
    wordorder.networks.initialise(model.network, seed=settings.seed)
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, settings.adam_beta2))
    generator = torch.Generator().manual_seed(settings.seed)
    span = torch.arange(settings.length + model.causal)
    losses: list[Tensor] = []
    started = time.monotonic()
    for step in range(settings.max_steps):
        starts_B1 = torch.randint(len(texts["train"]) - len(span) + 1, (settings.batch_size, 1), generator=generator)
        ids_BT = texts["train"][starts_B1 + span].long().to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
            loss = model(ids_BT, generator)
        optimizer.zero_grad()
        loss.backward()
        if settings.max_grad_norm:
            nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = settings.rate(step)
        optimizer.step()
        losses.append(loss.detach())
    curve = torch.stack(losses).cpu()
    pace = settings.max_steps / (time.monotonic() - started)
    finite = bool(curve.isfinite().all())
    return {
        **{key: job[key] for key in ("name", "digest", "network", "model", "training")},
        "loss": [float(part.mean()) for part in curve.tensor_split(min(20, len(curve)))] if finite else None,
        "test_loss": score(model, texts["test"], settings, device) if finite else None,
        "steps_per_second": pace,
    }


@torch.no_grad()
def score(model: Model, ids: Tensor, settings: Training, device: torch.device) -> float:
    """Return the loss of the whole test text in nats a token, by windows side by side; the rest is left out."""
    model.eval()
    generator, size = torch.Generator().manual_seed(0), settings.length + model.causal
    windows = ids.long().unfold(0, size, settings.length)
    if not len(windows):
        raise SystemExit(f"the test text has {len(ids)} tokens, fewer than the {size} of a window")
    total, count = 0.0, 0
    with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
        for batch in windows.split(settings.batch_size):
            loss = float(model(batch.to(device), generator))
            total, count = total + loss * len(batch), count + len(batch)
    return total / count


def work(jobs: Any, results: Any, texts: dict[str, Tensor], device: str) -> None:
    """Train the jobs that come, one after the other, until there are no more."""
    torch.set_num_threads(1)
    while (job := jobs.get()) is not None:
        try:
            results.put(train(job, texts, torch.device(device)))
        except Exception as error:  # the next job may do better
            results.put({"name": job["name"], "failed": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"})


def run(
    queue: Queue,
    device: torch.device,
    earlier: Mapping[str, Any],
    write: Callable[[dict[str, Any]], None],
    *,
    workers: int | None = None,
) -> dict[str, Any]:
    """Train all jobs that ``earlier`` does not hold, several at once, and call ``write`` after each.

    Args:
        queue: jobs and token ids.
        device: for all.
        earlier: the document of an earlier run.
        write: takes the document so far.
        workers: processes; None = one for each core but one, at most 16.
    """
    digests = {job["digest"] for job in queue.jobs}
    rows = [row for row in earlier.get("rows", []) if row.get("digest") in digests]
    done = {row["digest"] for row in rows}
    left = [job for job in queue.jobs if job["digest"] not in done]
    count = max(1, min(len(left), workers or max(1, min(16, (os.cpu_count() or 2) - 1))))
    document: dict[str, Any] = {"workers": count, "rows": rows, "failed": [], "jobs": len(queue.jobs)}
    context = torch.multiprocessing.get_context("spawn")
    jobs, results = context.Queue(), context.Queue()
    for job in [*left, *[None] * count]:
        jobs.put(job)
    arguments = (jobs, results, queue.texts, str(device))
    processes = [context.Process(target=work, args=arguments, daemon=True) for _ in range(count if left else 0)]
    for process in processes:
        process.start()
    started, steps = time.monotonic(), 0
    for number in range(1, len(left) + 1):
        row = next_row(results, processes)
        if row is None:
            document["failed"].append(f"{len(left) - number + 1} jobs: every process has ended")
            break
        if "failed" in row:
            document["failed"].append(f"{row['name']}: {row['failed']}")
        else:
            rows.append(row)
            steps += row["training"]["max_steps"]
        seconds = time.monotonic() - started
        document["steps_per_second"] = steps / seconds
        rest = math.ceil(seconds / number * (len(left) - number))
        words = row.get("failed") or f"test loss {row['test_loss']}, {row['steps_per_second']:.1f} steps/s"
        print(f"{number} of {len(left)}, {rest} s left: {row['name']}: {words}", flush=True)
        write(document)
    for process in processes:
        process.join()
    return document


def next_row(results: Any, processes: list[Any]) -> dict[str, Any] | None:
    """Return the next result; None where no process lives that could bring one."""
    while True:
        try:
            return results.get(timeout=2)
        except Empty:
            if not any(process.is_alive() for process in processes):
                return None
