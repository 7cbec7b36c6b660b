"""A model in training: put on accelerate as `[training]` of a recipe says, and all that the loop changes."""

# accelerate and transformers have types in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import math
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import (
    DistributedDataParallelKwargs,
    FullyShardedDataParallelPlugin,
    GradientAccumulationPlugin,
    TorchDynamoPlugin,
    set_seed,
)
from torch import Tensor, nn
from torch.distributed.fsdp import register_fsdp_forward_method
from transformers import (
    TrainerState,
    TrainingArguments,
    enable_full_determinism,
    get_scheduler,
)
from transformers.trainer_pt_utils import get_parameter_names
from transformers.trainer_utils import align_special_tokens
from transformers.training_args import OptimizerNames
from transformers.utils import logging

from wordorder.encodings import encoding_parameters
from wordorder.errors import RunFailed
from wordorder.training.checkpoints.checkpoint import last_good
from wordorder.training.checkpoints.weights import is_sharded
from wordorder.training.loop.batches import FedBatches
from wordorder.training.loop.carried_memory import Memories
from wordorder.training.loop.meter import Meter
from wordorder.training.loop.processes import Processes
from wordorder.training.loop.progress import Progress

UNDECAYED = (r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)")
"""Names of parameters that weight decay leaves alone, as in transformers; layers of `nn.LayerNorm` too."""


@dataclass(slots=True, kw_only=True)
class Parts:
    """The model in training, with its optimizer, learning rates, devices and processes."""

    args: TrainingArguments
    """The section [training] of the recipe."""
    accelerator: Any
    processes: Processes
    model: Any
    """The model; under FSDP2 its parameters are sharded in place."""
    wrapped: Any
    """The module that training calls: the model, or DDP or `torch.compile` around it."""
    optimizer: Any = None
    """None until training begins."""
    schedule: Any = None
    """The learning rates; None until training begins."""

    @property
    def device(self) -> torch.device:
        return self.args.device

    @property
    def learning_rate(self) -> float:
        found = self.optimizer.param_groups[0]["lr"] if follows_a_metric(self.args) else self.schedule.get_last_lr()[0]
        return float(found)


class LossWatch:
    """Looks at the loss of every micro-batch, without making an accelerator wait.

    On the CPU the number is at hand. Elsewhere it is copied in the background and looked at one step later, and before
    anything is saved.
    """

    def __init__(self, folder: Path, processes: Processes) -> None:
        self._folder, self._processes = folder, processes
        self._on_its_way: tuple[Tensor, int, Any] | None = None
        self._failure: str | None = None
        """Fault of this process that the other processes do not know yet."""
        self._micro_losses: list[float] = []
        self._step_loss = math.nan

    def step_loss(self) -> float:
        """Return the loss of the last step that was looked at, the sum of its micro-batches' shares."""
        if self._micro_losses:
            self._step_loss = math.fsum(self._micro_losses)
            self._micro_losses.clear()
        return self._step_loss

    def see(self, loss: Tensor, step: int) -> None:
        if loss.device.type == "cpu":
            self._look_at(float(loss), step)
            return
        self.settle()
        arrived = torch.Event(device=loss.device)
        # Only into pinned memory does a copy not wait for the device.
        pinned = torch.empty((), dtype=loss.dtype, pin_memory=loss.device.type == "cuda")
        copy = pinned.copy_(loss, non_blocking=True)
        arrived.record()
        self._on_its_way = (copy, step, arrived)

    def settle(self) -> None:
        if self._on_its_way is not None:
            copy, step, arrived = self._on_its_way
            self._on_its_way = None
            arrived.synchronize()
            self._look_at(float(copy), step)

    def _look_at(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            fault = f"the loss became {loss} at step {step}; {last_good(self._folder)}; try a lower learning rate"
            if self._processes.count == 1:
                raise RunFailed(fault)
            self._failure = self._failure or fault  # the others wait for this process's gradients: not before `agree`
        self._micro_losses.append(loss)

    def agree(self, requested: signal.Signals | None) -> signal.Signals | None:
        """Return the signal to stop for, if any process received one; called by all processes together."""
        if self._processes.count == 1:
            return requested
        number, failed = self._processes.greatest(requested or 0, self._failure is not None)
        if failed:
            self._processes.raise_first(self._failure)
        return signal.Signals(number) if number else None


@dataclass(slots=True, kw_only=True)
class Training:
    """All that the loop changes; a checkpoint holds it, and restoring a checkpoint sets it."""

    parts: Parts
    folder: Path
    meter: Meter
    progress: Progress
    digest: FedBatches
    memories: Memories | None = None
    """Memories that go from batch to batch, for texts in lanes."""
    state: TrainerState = field(default_factory=lambda: TrainerState())
    """Steps done, the log and the best score."""
    loss_sum: Tensor = field(init=False)
    """Sum of the losses since they were logged last, on the device."""
    logged_step: int = 0
    """Step at which they were."""
    saved_step: int = -1
    """Step of the checkpoint that was written last."""
    active: bool = False
    """True from the first step to the last."""
    watch: LossWatch = field(init=False)

    def __post_init__(self) -> None:
        self.loss_sum = torch.tensor(0.0, device=self.parts.device)
        self.watch = LossWatch(self.folder, self.parts.processes)

    @property
    def rows_of_a_step(self) -> int:
        """Number of examples that an optimizer step reads, in all processes together."""
        args = self.parts.args
        return args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size


def prepare(model: Any, args: TrainingArguments, *, tokenizer: Any = None) -> Parts:
    enable_full_determinism(args.seed) if args.full_determinism else set_seed(args.seed)
    logging.set_verbosity(args.get_process_log_level())
    accelerator = _accelerator(args)
    if not accelerator.is_fsdp2 and not is_sharded(model):
        model.to(args.device)
    model.config.use_cache = args.use_cache
    if tokenizer is not None:
        align_special_tokens(model, tokenizer)
    processes = Processes(args.process_index, args.world_size)
    return Parts(args=args, accelerator=accelerator, processes=processes, model=model, wrapped=model)


def _accelerator(args: TrainingArguments) -> Accelerator:
    fsdp = getattr(args, "fsdp_plugin_args", None)
    ddp = {
        "find_unused_parameters": args.ddp_find_unused_parameters,
        "bucket_cap_mb": args.ddp_bucket_cap_mb,
        "broadcast_buffers": args.ddp_broadcast_buffers,
        "static_graph": getattr(args, "ddp_static_graph", None),
    }
    compiled: Any = {"backend": args.torch_compile_backend, "mode": args.torch_compile_mode}
    said: Any = {name: value for name, value in ddp.items() if value is not None}
    return Accelerator(
        mixed_precision="bf16" if args.bf16 else "fp16" if args.fp16 else "no",
        # the loop adds up gradients itself, since a loss is divided by the tokens of the whole step
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
        kwargs_handlers=[DistributedDataParallelKwargs(**said)],
        dynamo_plugin=TorchDynamoPlugin(**compiled),
        fsdp_plugin=None if fsdp is None else FullyShardedDataParallelPlugin(**fsdp),
    )


def prepare_training(parts: Parts, *, steps: int, decay_all: bool, encoding_rate: float = 1.0) -> None:
    """Make optimizer and learning rates, and wrap the model for its processes and its precision.

    `encoding_rate` is the learning rate of the encodings' parameters, as a multiple of the others'.
    """
    args, model = parts.args, parts.model
    _checkpoint_activations(model, args)
    optimizer = _optimizer(model, args, decay_all=decay_all, encoding_rate=encoding_rate)
    if is_sharded(model):  # by its owner: accelerate would wrap it once more
        parts.wrapped = parts.accelerator.prepare_model(model, device_placement=False, evaluation_mode=True)
        parts.optimizer = parts.accelerator.prepare(optimizer)
    else:
        parts.wrapped, parts.optimizer = parts.accelerator.prepare(model, optimizer)
    if parts.accelerator.is_fsdp2:
        parts.model = parts.wrapped
        if hasattr(parts.model, "generate"):  # it would meet sharded and whole tensors together
            register_fsdp_forward_method(parts.model, "generate")
    options: Any = args.lr_scheduler_kwargs  # its type has a string, as a command line gives it
    if follows_a_metric(args) and args.greater_is_better:  # else a rising accuracy would count as no better
        options = {"mode": "max", **(options or {})}
    parts.schedule = get_scheduler(
        args.lr_scheduler_type,
        optimizer=parts.optimizer,
        num_warmup_steps=args.get_warmup_steps(steps),
        num_training_steps=steps,
        scheduler_specific_kwargs=options,
    )


def follows_a_metric(args: TrainingArguments) -> bool:
    """Tell whether the learning rate changes with validation scores and not with steps."""
    return str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)) in ("reduce_lr_on_plateau", "greedy")


def _checkpoint_activations(model: Any, args: TrainingArguments) -> None:
    for name in ("activation_checkpointing", "gradient_checkpointing"):
        if getattr(args, name, None):
            given = dict(getattr(args, f"{name}_kwargs") or {})
            own = {key: given.pop(key) for key in ("every_n_layers", "offload") if key in given}
            getattr(model, f"{name}_enable")(**{f"{name}_kwargs": given or None}, **own)
            return


def _optimizer(model: Any, args: TrainingArguments, *, decay_all: bool, encoding_rate: float) -> torch.optim.AdamW:
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if decay_all:
        decayed = {name for name, _ in named}
    else:
        decayed = set(get_parameter_names(model, [nn.LayerNorm], list(UNDECAYED)))
    groups: Any = [
        {"params": [p for name, p in named if name in decayed], "weight_decay": args.weight_decay},
        {"params": [p for name, p in named if name not in decayed], "weight_decay": 0.0},
    ]
    if encoding_rate != 1.0:
        own = set(map(id, encoding_parameters(model).values()))
        encodings = [
            {**group, "params": [p for p in group["params"] if id(p) in own], "lr": args.learning_rate * encoding_rate}
            for group in groups
        ]
        # the first group is the one whose rate is logged
        groups = [{**group, "params": [p for p in group["params"] if id(p) not in own]} for group in groups] + encodings
    return torch.optim.AdamW(
        groups,
        lr=args.learning_rate,
        betas=(float(args.adam_beta1), float(args.adam_beta2)),  # torch refuses an integer beside a float
        eps=args.adam_epsilon,
        fused=True if args.optim == OptimizerNames.ADAMW_TORCH_FUSED else None,
    )
