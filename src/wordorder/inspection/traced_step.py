"""Trace one training step of a model on shapes: what it computes and moves, and the memory that it needs."""

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode  # the only tensors that say CPU and hold nothing
from transformers import PreTrainedConfig, PreTrainedModel

from wordorder.inspection.as_on_device import AsOnDevice
from wordorder.inspection.counted_operations import CountedOperations, Phase, Work
from wordorder.inspection.hardware import Precision
from wordorder.models import model_class


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The work of one device between two steps of the optimizer. It says nothing of how many devices there are."""

    config: PreTrainedConfig
    """Configuration of the model."""
    task: str
    """Task of the model: "masked-lm", "classification", ..."""
    length: int
    """Number of tokens per row that the model reads at a time."""
    rows: int
    """Number of rows of one forward pass on one device: its micro-batch."""
    accumulation: int = 1
    """Number of forward and backward passes of a step."""
    pieces: int = 1
    """Number of these passes that go on with the same rows (training.segments_per_step)."""
    labelled_share: float = 0.15
    """Share of tokens that masked LM predicts."""
    precision: Precision = "float32"
    """Precision of a step; bf16 is autocast over float32 weights, as transformers' Trainer does it."""
    checkpointing: bool = False
    """True if each layer's inner activations are computed again in the backward pass."""
    optimizer: str = "adamw_torch"
    """Name of the optimizer, as in training.optim."""
    clipped: bool = True
    """True if gradients are clipped, which reads them once and writes them once."""

    @property
    def tokens(self) -> int:
        """Number of tokens of a step on one device; in translation those of both sides."""
        return self.rows * self.length * self.accumulation * (2 if self.task == "translation" else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Counts of one forward and backward pass of a `Step`."""

    parameters: int
    """Number of parameters of the model."""
    blocks: tuple[int, ...]
    """Number of parameters of each layer."""
    work: Mapping[Work, int]
    """Operations, with the number of equal ones."""
    operations: Mapping[Phase, int]
    """Number of operations that are issued, by phase."""
    activation_bytes: int
    """Bytes alive when most was, besides what the others count: what autograd keeps and what is at work."""
    logits_bytes: int
    """Bytes alive then of tensors with one number for each word."""
    copy_bytes: int
    """Bytes alive then of the weights' copies in 16 bits."""
    memory_bytes: int
    """Bytes of the slots of one micro-batch's memory."""


def trace(step: Step, *, device: Literal["gpu", "cpu"] = "gpu") -> Trace:
    """Run one forward and backward pass on shapes: no weights, no arithmetic.

    On a GPU's shapes attention is fused and in one kernel, see `AsOnDevice`; where `choose_backend` would take flex
    there, because a bias would be too large, it is counted written out all the same, so memory is an upper bound. On a
    CPU's shapes the backends run that a CPU would choose.

    Args:
        step: sizes.
        device: whose backends, kernels and autocast.

    Raises:
        BadInput: the network does not do the task.
        ValueError: length is beyond a learned table.
    """
    with ExitStack() as stack:
        model = _model(step, device, stack)
        inputs = _inputs(model, step, "meta" if device == "gpu" else "cpu")
        half = step.precision == "bf16"
        stack.enter_context(torch.autocast("cpu", torch.bfloat16, enabled=half))
        named = (getattr(step.config, name, None) for name in ("num_attention_heads", "num_key_value_heads"))
        heads: set[int] = {number for number in named if number}
        counted = CountedOperations(model, heads=heads, vocabulary=step.config.vocab_size)
        mode = AsOnDevice(counted, device=device, half=half, labelled_share=step.labelled_share)
        for block in blocks_of(model) if step.checkpointing else ():
            mode.watch(block)
        with counted:
            _run(model, inputs, counted, mode)
    slots = inputs.get("memory")
    return Trace(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        blocks=tuple(sum(p.numel() for p in block.parameters()) for block in blocks_of(model)),
        work=counted.work,
        operations=counted.operations,
        activation_bytes=counted.peak.get("activations", 0),
        logits_bytes=counted.peak.get("logits", 0),
        copy_bytes=counted.peak.get("copies", 0),
        memory_bytes=0 if slots is None else _bytes_of(slots.slots()),
    )


def blocks_of(model: PreTrainedModel) -> list[nn.Module]:
    """Return the layers that FSDP2 shards one by one: those that the model says must not be split."""
    names: Any = getattr(model, "_no_split_modules", None) or ()
    return [module for module in model.modules() if type(module).__name__ in names]


def full_memory(model: PreTrainedModel, token_ids: Tensor) -> Any:
    """Return the memory after as many segments as fill it; None where the model has none.

    Args:
        model: with a memory or without.
        token_ids: long (B, T) of one segment.
    """
    if getattr(model.config, "memory", "none") == "none":
        return None
    memory: Any = None
    with torch.no_grad():
        while memory is None or memory.length < model.config.memory_length:
            memory = model(input_ids=token_ids, memory=memory).memory
    return memory


def step_inputs(model: PreTrainedModel, step: Step, token_ids: Tensor) -> dict[str, Any]:
    """Return the arguments of the model in a step: tokens, labels, and a full memory where it has one.

    Args:
        model: of the step.
        step: its task decides the labels.
        token_ids: long (rows, length), of one side.
    """
    given: dict[str, Any] = {"input_ids": token_ids}
    memory = full_memory(model, token_ids)
    if memory is not None:
        given["memory"] = memory
    if step.task == "classification":
        given["labels"] = token_ids[:, 0] * 0
    elif step.task == "regression":
        numbers, several = token_ids[:, :1].float(), model.config.num_labels or 1
        given["labels"] = numbers[:, 0] if several == 1 else numbers.repeat(1, several)
    elif step.task == "question-answering":
        given |= {"start_positions": token_ids[:, 0] * 0, "end_positions": token_ids[:, 0] * 0}
    elif step.task == "token-classification":
        given["labels"] = token_ids * 0
    elif step.task == "translation":
        given |= {"decoder_input_ids": token_ids, "labels": token_ids}
    elif step.task == "masked-lm":
        count = max(1, round(step.labelled_share * token_ids.numel()))
        place = torch.arange(token_ids.numel(), device=token_ids.device).view_as(token_ids)
        given["labels"] = token_ids.masked_fill(place >= count, -100)
    elif not getattr(model.config, "adaptive_cutoffs", None):
        given["labels"] = token_ids
    return given


def _model(step: Step, device: str, stack: ExitStack) -> PreTrainedModel:
    network = step.config.model_type.removeprefix("wordorder-")
    with torch.device("meta"):
        model = model_class(network, step.task)(step.config)
    if device == "cpu":
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        _make_fake(model)
    model.train()
    if step.checkpointing:
        model.base_model.apply(checkpointed)
    return model


def _make_fake(model: nn.Module) -> None:
    """Give a model on meta parameters and buffers that say CPU; those that are shared stay shared.

    `nn.Module.to_empty` swaps a shared one twice, which fails while anything remembers the first one.
    """
    made: dict[Tensor, Tensor] = {}  # by identity
    for module in list(model.modules()):
        for held in (module._parameters, module._buffers):  # pyright: ignore[reportPrivateUsage]
            for name, old in held.items():
                if old is not None and old not in made:
                    new = torch.empty_like(old, device="cpu")
                    trained = isinstance(old, nn.Parameter)
                    made[old] = nn.Parameter(new, requires_grad=old.requires_grad) if trained else new
                if old is not None:
                    held[name] = cast("Any", made[old])


def checkpointed(module: nn.Module) -> None:
    """Switch gradient checkpointing on in a stack of layers; for `nn.Module.apply`.

    Transformers' own switch does more, for models that are trained on, and its name changes between versions.

    Args:
        module: any.
    """
    if hasattr(module, "gradient_checkpointing"):
        module.gradient_checkpointing = True  # pyright: ignore[reportArgumentType]


def _inputs(model: PreTrainedModel, step: Step, device: str) -> dict[str, Any]:
    token_ids = torch.zeros(step.rows, step.length, dtype=torch.long, device=device)
    with CountedOperations(model, heads=(), vocabulary=0):  # which answers what only contents could
        return step_inputs(model, step, token_ids)


def _run(model: PreTrainedModel, inputs: Mapping[str, Any], counted: CountedOperations, mode: AsOnDevice) -> None:
    with mode:
        output = model(**inputs)
        loss = output.loss if output.loss is not None else output.logits.sum()
    mode.forget_copies()
    memory = output.get("memory")  # is there until the next segment
    del output
    counted.phase = "backward"
    torch.autograd.backward(loss)
    del memory


def _bytes_of(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors.values())


def total_flops(work: Mapping[Work, int]) -> Counter[str]:
    """Return the FLOPs of a pass by kind of operation.

    Args:
        work: of a `Trace`.
    """
    found: Counter[str] = Counter()
    for one, times in work.items():
        found[one.kind] += one.flops * times
    return found
