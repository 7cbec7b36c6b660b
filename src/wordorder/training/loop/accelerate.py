"""Put a model on the devices and processes of a run, by accelerate."""

# accelerate and transformers have types in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import (
    DistributedDataParallelKwargs,
    FullyShardedDataParallelPlugin,
    GradientAccumulationPlugin,
    TorchDynamoPlugin,
    set_seed,
)
from torch import Tensor
from torch import distributed as _distributed
from torch.distributed.fsdp import register_fsdp_forward_method
from transformers import enable_full_determinism
from transformers.trainer_utils import align_special_tokens
from transformers.utils import logging

from wordorder.errors import BadInput, RunFailed
from wordorder.launch import process_count
from wordorder.training.checkpoints.state_files import pack_state, unpack_state
from wordorder.training.checkpoints.weights import is_sharded
from wordorder.training.loop.optimizers import Optimizers
from wordorder.training.recipe.settings import TrainingSettings

dist: Any = _distributed  # its functions have no types


class Processes:
    """The processes of one run. All of them must call every method at the same place of the program.

    What is exchanged goes over a group of its own on the CPU (gloo), so that no accelerator is waited for. Alone, a
    process asks nobody.
    """

    def __init__(self, index: int, count: int) -> None:
        self.index, self.count = index, count
        own_group = count > 1 and dist.get_backend() != "gloo"
        self._group: Any = dist.new_group(backend="gloo") if own_group else None

    @property
    def is_main(self) -> bool:
        """True in process 0, the only one that prints and writes."""
        return self.index == 0

    def greatest(self, *values: int) -> list[int]:
        return self._reduced(values, "max")

    def total(self, *values: int) -> list[int]:
        return self._reduced(values, "sum")

    def _reduced(self, values: tuple[int, ...], how: str) -> list[int]:
        if self.count == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(numbers, {"max": dist.ReduceOp.MAX, "sum": dist.ReduceOp.SUM}[how], group=self._group)
        return [int(number) for number in numbers]

    def everyones(self, state: Any) -> list[Any]:
        """Return the values of all processes, in order; they are what `save_state` takes, and small."""
        return self._gathered(state, everywhere=True)

    def given_to_main(self, state: Any) -> list[Any]:
        """Return the values of all processes, in order, in process 0; an empty list in the others."""
        return self._gathered(state, everywhere=False)

    def _gathered(self, state: Any, *, everywhere: bool) -> list[Any]:
        if self.count == 1:
            return [state]
        own = self._as_long_as_any(pack_state(state))
        found = [torch.empty_like(own) for _ in range(self.count if everywhere or self.is_main else 0)]
        if everywhere:
            dist.all_gather(found, own, group=self._group)
        else:
            dist.gather(own, found or None, dst=0, group=self._group)
        return [unpack_state(_content(piece)) for piece in found]

    def _as_long_as_any(self, content: bytes) -> Tensor:
        """Return the bytes after their length, padded to the length of the longest in any process."""
        (longest,) = self.greatest(len(content))
        room = 8 + longest
        filled = (len(content).to_bytes(8, "little") + content).ljust(room, b"\0")
        return torch.frombuffer(bytearray(filled), dtype=torch.uint8)

    def raise_first(self, fault: str | None) -> None:
        """Raise the first fault of any process in all of them, so that all end alike; do nothing without a fault."""
        if not self.greatest(fault is not None)[0]:
            return
        raise RunFailed(next(found for found in self.everyones(fault) if found is not None))


def _content(received: Tensor) -> bytes:
    raw = received.numpy().tobytes()
    return raw[8 : 8 + int.from_bytes(raw[:8], "little")]


@contextmanager
def first_process_first() -> Generator[None]:
    """Let the first process of each machine run a block before the others, which then find its results in a cache."""
    if process_count() == 1:
        yield
        return
    from accelerate import PartialState

    with PartialState().local_main_process_first():
        yield


@dataclass(slots=True, kw_only=True)
class Parts:
    """The model in training, with its optimizers, devices and processes."""

    settings: TrainingSettings
    accelerator: Any
    processes: Processes
    model: Any
    """The model; under FSDP2 its parameters are sharded in place."""
    wrapped: Any
    """The module that training calls: the model, or DDP or `torch.compile` around it."""
    optimizers: Any = None
    """None until training begins."""

    @property
    def device(self) -> torch.device:
        return self.accelerator.device

    @property
    def micro_batch_size(self) -> int:
        """Examples of a batch of this process: its share of a step, or fewer."""
        share = -(-self.settings.batch_size // self.processes.count)
        return min(share, self.settings.micro_batch_size or share)

    @property
    def eval_batch_size(self) -> int:
        """Examples of a batch of evaluation."""
        return self.settings.eval_batch_size or self.micro_batch_size


def place(model: Any, settings: TrainingSettings, *, tokenizer: Any = None) -> Parts:
    """Put a model on its device; BadInput where the devices do not go with the recipe."""
    enable_full_determinism(settings.seed) if settings.deterministic else set_seed(settings.seed)
    logging.set_verbosity_error()
    accelerator = _accelerator(settings)
    if not accelerator.is_fsdp2 and not is_sharded(model):
        model.to(accelerator.device)
    model.config.use_cache = False
    if tokenizer is not None:
        align_special_tokens(model, tokenizer)
    processes = Processes(accelerator.process_index, accelerator.num_processes)
    return Parts(settings=settings, accelerator=accelerator, processes=processes, model=model, wrapped=model)


@contextmanager
def numerics(settings: TrainingSettings) -> Generator[None]:
    """Let torch compute as the recipe says, and give back at the end how it computed before."""
    products, convolutions = torch.backends.cuda.matmul, cast(Any, torch.backends.cudnn)
    before = products.allow_tf32, convolutions.allow_tf32, convolutions.deterministic, convolutions.benchmark
    deterministic = torch.are_deterministic_algorithms_enabled()
    if settings.precision == "tf32":
        products.allow_tf32 = convolutions.allow_tf32 = True
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32, convolutions.deterministic, convolutions.benchmark = before
        torch.use_deterministic_algorithms(deterministic)


def device_of(settings: TrainingSettings) -> torch.device:
    """Return the device of a run, before its processes have theirs."""
    accelerator = None if settings.device == "cpu" else torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if accelerator is None else accelerator


def _accelerator(settings: TrainingSettings) -> Accelerator:
    on_cpu = device_of(settings).type == "cpu"
    shards = settings.fsdp != "off" and process_count() > 1
    _check_processes(shards=shards, on_cpu=on_cpu)
    state: Any = AcceleratorState
    state._reset_state(reset_partial_state=True)  # an earlier run of this process may have had others
    compiled: Any = {} if settings.compile == "off" else {"backend": "inductor", "mode": settings.compile}
    return Accelerator(
        cpu=on_cpu,
        mixed_precision=settings.precision if settings.precision in ("bf16", "fp16") else "no",
        # the loop adds up gradients itself, since a loss is divided by the tokens of the whole step
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
        # no model of this package leaves a parameter unused, so DDP need not look for them in each batch
        kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=False)],
        dynamo_plugin=TorchDynamoPlugin(**compiled),
        fsdp_plugin=_shards(settings) if shards else None,
    )


def _shards(settings: TrainingSettings) -> FullyShardedDataParallelPlugin:
    return FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        state_dict_type="FULL_STATE_DICT",
        reshard_after_forward=True,
        cpu_ram_efficient_loading=False,
        cpu_offload=settings.fsdp == "offload",
    )


def _check_processes(*, shards: bool, on_cpu: bool) -> None:
    if process_count() == 1:
        return
    for name, remedy in (
        ("FSDP", "say it in the recipe, training.fsdp='shard', and launch with --multi_gpu instead of --use_fsdp"),
        ("DEEPSPEED", "its checkpoints hold pickled files; set training.fsdp='shard' in the recipe instead"),
    ):
        if os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() in ("true", "1"):
            raise BadInput(f"[training]: accelerate's configuration asks for {name}: {remedy}")
    if shards and on_cpu:
        raise BadInput(
            "training.fsdp shares weights out over accelerators, and none is used here: accelerate would train with "
            "whole weights in each process (DDP) and not say so; set training.fsdp='off'"
        )


def begin(parts: Parts) -> None:
    """Make the optimizers, and wrap the model for its processes and its precision."""
    settings, model = parts.settings, parts.model
    if settings.activation_checkpointing:
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable()
    parts.optimizers = Optimizers(model, settings)
    if is_sharded(model):  # by its owner: accelerate would wrap it once more
        parts.wrapped = parts.accelerator.prepare_model(model, device_placement=False, evaluation_mode=True)
        parts.optimizers.prepare(parts.accelerator)
    else:
        parts.wrapped, *parts.optimizers.made = parts.accelerator.prepare(model, *parts.optimizers.made)
    if parts.accelerator.is_fsdp2:
        parts.model = parts.wrapped
        if hasattr(parts.model, "generate"):  # it would meet sharded and whole tensors together
            register_fsdp_forward_method(parts.model, "generate")
