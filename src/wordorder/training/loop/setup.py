"""Put the model, its optimizer and its learning rates on accelerate, as `[training]` of a recipe says."""

# accelerate and transformers have types in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
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
from transformers import Trainer, enable_full_determinism, get_scheduler
from transformers.debug_utils import DebugOption, DebugUnderflowOverflow
from transformers.trainer_pt_utils import get_parameter_names
from transformers.trainer_utils import align_special_tokens
from transformers.utils import logging

from wordorder.training.checkpoints.sharded import is_sharded
from wordorder.training.loop.processes import Processes

UNDECAYED = (r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)")
"""Names of parameters that weight decay leaves alone, as in transformers; layers of `nn.LayerNorm` too."""


@dataclass(slots=True, kw_only=True)
class Parts:
    """The model in training, with its optimizer, learning rates, devices and processes."""

    args: Any
    """The section [training] as transformers.TrainingArguments, whose fields have types in part."""
    accelerator: Any
    """Devices, precision, DDP and FSDP2."""
    processes: Processes
    """All processes of the run."""
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
        """Device of the model."""
        return self.args.device

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        found = self.optimizer.param_groups[0]["lr"] if follows_a_metric(self.args) else self.schedule.get_last_lr()[0]
        return float(found)

    def later(self) -> AbstractContextManager[None]:
        """Return a context in which gradients are added up and not yet exchanged between processes."""
        return self.accelerator.no_sync(model=self.wrapped)


def prepare(model: Any, args: Any, *, tokenizer: Any = None) -> Parts:
    """Seed the generators, and place a model on its device.

    Args:
        model: of transformers.
        args: see `wordorder.training.recipe.arguments.build_arguments`.
        tokenizer: whose special tokens the model's configurations name.
    """
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


def _accelerator(args: Any) -> Accelerator:
    fsdp = getattr(args, "fsdp_plugin_args", None)
    ddp = {
        "find_unused_parameters": args.ddp_find_unused_parameters,
        "bucket_cap_mb": args.ddp_bucket_cap_mb,
        "broadcast_buffers": args.ddp_broadcast_buffers,
        "static_graph": getattr(args, "ddp_static_graph", None),
    }
    said: Any = {name: value for name, value in ddp.items() if value is not None}
    return Accelerator(
        mixed_precision="bf16" if args.bf16 else "fp16" if args.fp16 else "no",
        # the loop adds up gradients itself, since a loss is divided by the tokens of the whole step
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
        kwargs_handlers=[DistributedDataParallelKwargs(**said)],
        dynamo_plugin=TorchDynamoPlugin(backend=args.torch_compile_backend, mode=args.torch_compile_mode),
        fsdp_plugin=None if fsdp is None else FullyShardedDataParallelPlugin(**fsdp),
    )


def prepare_training(parts: Parts, *, steps: int, decay_all: bool) -> None:
    """Make optimizer and learning rates, and wrap the model for its processes and its precision.

    Args:
        parts: from `prepare`; changed here.
        steps: of the whole run.
        decay_all: weight decay acts on biases and norms too.
    """
    args, model = parts.args, parts.model
    _checkpoint_activations(model, args)
    if args.neftune_noise_alpha is not None:
        model.get_input_embeddings().register_forward_hook(_noise(args.neftune_noise_alpha))
    if DebugOption.UNDERFLOW_OVERFLOW in args.debug:
        DebugUnderflowOverflow(model)
    optimizer = _optimizer(model, args, decay_all=decay_all)
    if is_sharded(model):  # by its owner: accelerate would wrap it once more
        parts.wrapped = parts.accelerator.prepare_model(model, device_placement=False, evaluation_mode=True)
        parts.optimizer = parts.accelerator.prepare(optimizer)
    else:
        parts.wrapped, parts.optimizer = parts.accelerator.prepare(model, optimizer)
    if parts.accelerator.is_fsdp2:
        parts.model = parts.wrapped
        if hasattr(parts.model, "generate"):  # it would meet sharded and whole tensors together
            register_fsdp_forward_method(parts.model, "generate")
    parts.schedule = get_scheduler(
        args.lr_scheduler_type,
        optimizer=parts.optimizer,
        num_warmup_steps=args.get_warmup_steps(steps),
        num_training_steps=steps,
        scheduler_specific_kwargs=args.lr_scheduler_kwargs,
    )


def follows_a_metric(args: Any) -> bool:
    """Tell whether the learning rate changes with validation scores and not with steps."""
    return str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)) in ("reduce_lr_on_plateau", "greedy")


def _checkpoint_activations(model: Any, args: Any) -> None:
    """Compute activations again in the backward pass where the arguments say so; transformers 5.18 renamed them."""
    for name in ("activation_checkpointing", "gradient_checkpointing"):
        if getattr(args, name, None):
            given = dict(getattr(args, f"{name}_kwargs") or {})
            own = {key: given.pop(key) for key in ("every_n_layers", "offload") if key in given}
            getattr(model, f"{name}_enable")(**{f"{name}_kwargs": given or None}, **own)
            return


def _noise(alpha: float) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    """Return a hook that adds noise U(-1, 1) alpha / sqrt(TC) to embeddings in training: NEFTune (Jain et al. 2023)."""

    def add(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        if not module.training:
            return output
        most = alpha / (output.shape[1] * output.shape[2]) ** 0.5
        return output + torch.zeros_like(output).uniform_(-most, most)

    return add


def _optimizer(model: Any, args: Any, *, decay_all: bool) -> Any:
    """Build the optimizer that `training.optim` names, with weight decay on the parameters that have it."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if decay_all:
        decayed = {name for name, _ in named}
    else:
        decayed = set(get_parameter_names(model, [nn.LayerNorm], list(UNDECAYED)))
    groups: Any = [
        {"params": [p for name, p in named if name in decayed], "weight_decay": args.weight_decay},
        {"params": [p for name, p in named if name not in decayed], "weight_decay": 0.0},
    ]
    kind, options = Trainer.get_optimizer_cls_and_kwargs(args, model)
    for name in ("params", "model", "optimizer_dict"):  # of optimizers that bring groups of their own, as GaLore does
        groups = options.pop(name, groups)
    optimizer = kind(groups, **options)
    if "bitsandbytes" in str(kind) and options.get("optim_bits") == 8:
        # installed by the user; no extra brings it
        from bitsandbytes.optim import GlobalOptimManager  # pyright: ignore[reportMissingImports]

        for module in model.modules():  # averages of embeddings in 8 bits make training unstable
            if isinstance(module, nn.Embedding):
                GlobalOptimManager.get_instance().register_module_override(module, "weight", {"optim_bits": 32})
    return optimizer
