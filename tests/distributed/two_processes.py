"""Run by two processes at once: python two_processes.py FOLDER CORPUS; each writes what it found as JSON.

What one process finds is compared with what one process alone finds by the tests, which have one already.
"""

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import tiny_recipes
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from tiny_recipes import ADAM, DROPOUT, LANES, NETWORKS, TASKS, flat, losses, network, train
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from wordorder.errors import BadInput, RunFailed, Stopped
from wordorder.models import build_model
from wordorder.training.checkpoints.weights import is_sharded, whole_weights
from wordorder.training.loop import accelerate, saving
from wordorder.training.loop.loop import Loop
from wordorder.training.loop.step_loss import StepLoss
from wordorder.training.runs import fit

RANK = int(os.environ["RANK"])
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def same_as_one(name, folder, corpus):
    recorded = []
    result = train(folder / name, corpus, *TASKS[name], rows=2, recorded=recorded)
    if RANK == 0:
        save_file(flat(recorded), folder / f"{name}.safetensors")
    return {"losses": losses(result), "metrics": {key: result.metrics[key] for key in ("validation", "test")}} | {
        key: result.metrics[key] for key in ("tokens", "steps", "batches", "best_step")
    }


for task in TASKS:
    CHECKS[task] = lambda folder, corpus, task=task: same_as_one(task, folder, corpus)


@check
def whole(folder, corpus):
    result = train(folder / "whole", corpus, *LANES, *DROPOUT, rows=2)
    return {"batches": result.metrics["batches"], "losses": losses(result)}


@check
def stopped(folder, corpus):
    """Only process 1 gets a signal, after step 4; then both go on."""
    original = Loop.micro_step

    def step(self, *args, **kwargs):
        if RANK == 1 and self.training.state.step == 3:
            os.kill(os.getpid(), signal.SIGUSR1)
        return original(self, *args, **kwargs)

    Loop.micro_step = step
    try:
        train(folder / "stopped", corpus, *LANES, *DROPOUT, rows=2)
    except Stopped as error:
        said = str(error)
    finally:
        Loop.micro_step = original
    dist.barrier()
    files = sorted(path.name for path in (folder / "stopped" / "checkpoint-4").iterdir())
    result = train(folder / "stopped", corpus, *LANES, *DROPOUT, rows=2, resume=True)
    return {"said": said, "files": files, "batches": result.metrics["batches"], "losses": losses(result)}


@check
def lost(folder, corpus):
    """The loss of process 1 alone is no number."""
    original, micro_step, done = StepLoss.__call__, Loop.micro_step, []

    def step(self, *args, **options):
        done[:] = [self.training.state.step]
        return micro_step(self, *args, **options)

    def loss(self, *args, **options):
        found, output = original(self, *args, **options)
        return found * float("nan") if RANK == 1 and done == [1] else found, output

    StepLoss.__call__, Loop.micro_step = loss, step
    try:
        train(folder / "lost", corpus, rows=2)
    except RunFailed as error:
        return {"said": str(error)}
    finally:
        StepLoss.__call__, Loop.micro_step = original, micro_step
    raise AssertionError("it went on")


@check
def full_disk(folder, corpus):
    original = saving.save_state

    def save_state(where, name, state):
        if where.name == ".saving-2" and name == "random":
            raise OSError(28, "No space left on device")
        original(where, name, state)

    saving.save_state = save_state
    try:
        train(folder / "full", corpus, rows=2)
    except RunFailed as error:
        return {"said": str(error)}
    finally:
        saving.save_state = original
    raise AssertionError("it went on")


@check
def not_removed(folder, corpus):
    original = saving.rotate

    def rotate(where, **arguments):
        raise OSError(13, "Permission denied")

    saving.rotate = rotate
    try:
        train(folder / "not-removed", corpus, rows=2)
    except RunFailed as error:
        return {"said": str(error)}
    finally:
        saving.rotate = original
    raise AssertionError("it went on")


@check
def refused(folder, corpus):
    try:
        train(folder / "refused", corpus, "training.fsdp=shard", rows=2)
    except BadInput as error:
        return {"faults": error.faults}
    raise AssertionError("it went on")


@check
def together(folder, corpus):
    """What is asked for in one recipe: bf16, accumulation, checkpointing, compilation, with a memory."""
    original = accelerate.TorchDynamoPlugin
    accelerate.TorchDynamoPlugin = lambda **asked: original(**(asked and {"backend": "aot_eager"}))  # in seconds
    compiled = ("training.compile=default",)
    found = {}
    for name, extra in (
        ("plain", ()),
        ("checkpointed", ("training.activation_checkpointing=true",)),
        ("compiled", compiled),
    ):
        recorded = []
        half = ("training.precision=bf16", tiny_recipes.TWICE, "training.max_steps=2")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler's
            result = train(folder / name, corpus, *LANES, *half, *extra, rows=2, recorded=recorded)
        found[name] = losses(result)
        if RANK == 0:
            save_file(flat(recorded), folder / f"{name}.safetensors")
    return found


def shard(model):
    """FSDP2 as accelerate's plugin does it: each layer, then the rest."""
    for module in model.modules():
        if type(module).__name__ in model._no_split_modules:
            fully_shard(module)
    fully_shard(model)
    return model


def read(model, ids, memory=None, **more):
    kwargs = {"memory": memory} if getattr(model.config, "memory", "none") != "none" else {}
    return model(input_ids=ids, labels=ids, **kwargs, **more)


@check
def fully_sharded(folder, corpus):
    found = {}
    for name in NETWORKS:
        sharded, plain = shard(network(name)), network(name)
        torch.manual_seed(0)
        segments = torch.randint(5, 40, (2, 4, 8))  # two segments of four rows, of which each process reads two
        mine = slice(2 * RANK, 2 * RANK + 2)
        memories = [None, None]
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        for segment in segments:
            outputs = read(sharded, segment[mine], memories[0]), read(plain, segment, memories[1])
            memories = [getattr(output, "memory", None) for output in outputs]
            for output in outputs:
                output.loss.backward()
        loss = outputs[0].loss.detach().clone()
        dist.all_reduce(loss)
        named = dict(sharded.named_parameters())
        gradients = {key: weight.grad.full_tensor() for key, weight in named.items()}
        expected = {key: weight.grad for key, weight in plain.named_parameters()}
        weights = whole_weights(sharded, keep=RANK == 0)
        if RANK == 0:
            sharded.save_pretrained(folder / f"sharded-{name}", state_dict=weights)
        found[name] = {
            "shared": all(isinstance(weight, DTensor) for weight in named.values()) and is_sharded(sharded),
            "own_part": sum(weight.to_local().numel() for weight in named.values())
            / sum(weight.numel() for weight in named.values()),
            "loss": float(loss) / 2 - float(outputs[1].loss.detach()),
            "gradients": tiny_recipes.largest_difference(gradients, expected),
            "kept": weights is not None,
        }
    return found


@check
def replicated(folder, corpus):
    """With DDP, what `sharded` does with FSDP2."""
    result = train(folder / "replicated", corpus, *ADAM, rows=2)
    return {"losses": losses(result), "metrics": {key: result.metrics[key] for key in ("validation", "test")}}


@check
def sharded(folder, corpus):
    """Train with weights that are sharded over CPUs already, which accelerate would not do."""
    made = []

    def build(*args, **kwargs):
        made.append(shard(build_model(*args, **kwargs)))
        return made[-1]

    fit.build_model = build
    try:
        result = train(folder / "sharded", corpus, *ADAM, rows=2)
        dist.barrier()
        if RANK == 0:
            for name in ("metrics.json", "checkpoint-4"):
                (folder / "sharded" / name).rename(folder / "sharded" / f"first-{name}")
        dist.barrier()
        again = train(folder / "sharded", corpus, *ADAM, rows=2, resume=True)
    finally:
        fit.build_model = build_model
    return {
        "shared": [is_sharded(model) for model in made],
        "losses": losses(result),
        "metrics": {key: result.metrics[key] for key in ("validation", "test")},
        "again": losses(again),
        "again_metrics": {key: again.metrics[key] for key in ("validation", "test")},
    }


def main():
    faulthandler.enable()  # a process that dies in torch says where
    faulthandler.dump_traceback_later(
        float(os.environ.get("PATIENCE", 500)), exit=True
    )  # who waits for the other says where
    folder, corpus = map(Path, sys.argv[1:3])
    chosen = sys.argv[3:] or list(CHECKS)
    found = {}
    for name in chosen:
        since = time.process_time()
        try:
            found[name] = CHECKS[name](folder, corpus)
        except Exception:
            found[name] = {"failed": traceback.format_exc()}
            print(found[name]["failed"], flush=True)
        print(f"{name}: {time.process_time() - since:.1f} s", flush=True)
        (folder / f"found-{RANK}.json").write_text(json.dumps(found))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
