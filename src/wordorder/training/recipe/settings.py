"""The section [training]: how a model is trained; the loop reads these fields and no others."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AfterValidator

from wordorder.errors import BadInput
from wordorder.files import MOST_COUNT, MOST_SEED, MOST_THREADS, MOST_TOKENS, MOST_WORKERS
from wordorder.section import Section, Several, unknown_choice
from wordorder.tasks import metric_names

FREE, LOOK = object(), object()
"""Markers of fields. FREE: an arm of a comparison may set it. LOOK: a resumed run may have another value, which changes
what is shown or kept, not the trained model."""

LAST = "last"
"""Value of `select` that takes the last checkpoint."""

Count = Annotated[int, Ge(1), Le(MOST_COUNT)]


def _whole_or_share(every: float | str) -> float | str:
    if isinstance(every, float) and every > 1 and not every.is_integer():
        raise ValueError("a whole number of steps, or a share of the run below 1")
    return every


Every = Annotated[
    Annotated[int | float, Gt(0), Le(MOST_COUNT)] | Literal["epoch", "never"], AfterValidator(_whole_or_share)
]
Positive = Annotated[int | float, Gt(0), Le(MOST_COUNT)]
NotNegative = Annotated[int | float, Ge(0)]
BelowOne = Annotated[float, Ge(0), Lt(1)]


_ELSEWHERE = (
    ("per_device_train_batch_size", "batch_size", "the examples of a step in all processes"),
    ("gradient_accumulation_steps", "micro_batch_size", "the examples that a process holds at once"),
    ("per_device_eval_batch_size", "eval_batch_size", "in each process"),
    ("num_train_epochs", "epochs", "a number"),
    ("lr_scheduler_type", "lr_schedule", "such as 'cosine'"),
    ("optim", "optimizer", "'adamw', 'sgd' or 'muon'"),
    ("eval_strategy", "evaluate_every", "steps, a share of the run, 'epoch' or 'never'"),
    ("eval_steps", "evaluate_every", "steps, a share of the run, 'epoch' or 'never'"),
    ("save_strategy", "save_every", "steps, a share of the run, 'epoch' or 'never'"),
    ("save_steps", "save_every", "steps, a share of the run, 'epoch' or 'never'"),
    ("save_total_limit", "keep_checkpoints", "a number"),
    ("logging_steps", "log_every", "steps, a share of the run, 'epoch' or 'never'"),
    ("metric_for_best_model", "select", "a metric, or 'last'"),
    ("load_best_model_at_end", "select", "a metric, or 'last'"),
    ("bf16", "precision", "precision = 'bf16'"),
    ("fp16", "precision", "precision = 'fp16'"),
    ("tf32", "precision", "precision = 'tf32'"),
    ("gradient_checkpointing", "activation_checkpointing", "true or false"),
    ("torch_compile", "compile", "a mode of torch.compile, such as 'default'"),
    ("dataloader_num_workers", "workers", "processes that make batches"),
    ("report_to", "trackers", "a list, such as ['tensorboard']"),
    ("use_cpu", "device", "device = 'cpu'"),
    ("label_smoothing_factor", "label_smoothing", "a share"),
    ("warmup_ratio", "warmup_steps", "below 1 a share of all steps"),
    ("num_beams", "task.beams", "a number"),
    ("generation_num_beams", "task.beams", "a number"),
    ("generation_max_length", "task.max_target_length", "a number"),
    ("predict_with_generate", "task.translate_while_training", "true or false"),
    ("resume_from_checkpoint", "no key", "pass --resume"),
)
"""Names of transformers.TrainingArguments, what they are here, and how it is said."""


def _selected(name: str) -> str:
    known = [*metric_names(), LAST]
    if name not in known:
        raise BadInput(unknown_choice("training.select", name, known))
    return name


def _installed(names: tuple[str, ...]) -> tuple[str, ...]:
    from wordorder.training.loop.log import tracker_faults

    if len(set(names)) < len(names):
        raise ValueError("a list of different names")
    if faults := tracker_faults(names):
        raise BadInput(faults)
    return names


def marked(marker: object) -> frozenset[str]:
    """Return the names of the fields with a marker."""
    fields = TrainingSettings.model_fields.items()
    return frozenset(name for name, field in fields if any(one is marker for one in field.metadata))


def looks() -> frozenset[str]:
    """Return the names that may differ between a run and its resumption."""
    return marked(LOOK)


class TrainingSettings(Section):
    """The section `[training]`.

    By default a run scores validation and saves ten times, keeps the best and the last checkpoint, and ends with the
    best by validation loss.
    """

    section: ClassVar[str] = "training"
    refused: ClassVar[Mapping[str, str]] = {name: f"is {ours} here, {meaning}" for name, ours, meaning in _ELSEWHERE}

    output_dir: Annotated[str | None, LOOK] = None
    """The run folder; `runs/<name of the recipe>` where nothing is said."""
    seed: Annotated[int, Ge(0), Le(MOST_SEED)] = 0
    """Seed of weights, order of the batches, dropout and training masks."""
    threads: Annotated[Annotated[int, Ge(1), Le(MOST_THREADS)] | None, LOOK] = None
    """CPU threads to compute with; torch's own number where nothing is said, and one in a comparison with workers. It
    may change the last digits of a result, as another machine may."""

    batch_size: Count = 32
    """Examples of an optimizer step, in all processes together."""
    micro_batch_size: Annotated[Count | None, FREE, LOOK] = None
    """Most examples that a process holds at once; the gradients of several micro-batches are added up. None: the share
    of the process in a step."""
    eval_batch_size: Annotated[Count | None, LOOK] = None
    """Examples of a batch of evaluation, in each process; None: as a micro-batch of training."""
    max_steps: Count | None = None
    """Optimizer steps of the run; it takes the place of epochs."""
    epochs: Positive = 3.0
    """Passes over the training data, where max_steps is not given."""
    workers: Annotated[int, Ge(0), Le(MOST_WORKERS), LOOK] = 0
    """Processes that make batches; 0 makes them in the process of training."""
    segments_per_step: Count = 1
    """Segments that a model with a memory reads, one after another, from the data.length tokens of each lane, and
    learns from together; for lanes."""
    eval_stride: Count | None = None
    """Tokens by which windows of data.length tokens advance when a model without memory is scored on running text, for
    lanes; None: they do not overlap."""

    random_positions: Annotated[Annotated[int, Ge(2), Le(MOST_TOKENS)] | None, FREE] = None
    """In training the tokens of a text stand at so many of the positions 0 .. random_positions - 1, drawn and in order
    (Ruoss et al. 2023); evaluation counts from 0. So a model reads texts of up to this length without positions that
    are new to it. For encoders and decoders of this package, and not for lanes. None: as in evaluation."""

    learning_rate: Annotated[float, Gt(0), FREE] = 5e-5
    """The peak learning rate."""
    encoding_learning_rate: Annotated[Positive | None, FREE] = None
    """Learning rate of the encoding's own parameters, as a multiple of learning_rate: position tables, biases,
    projections of positions, frequencies, and in real networks complex-order's projection to real channels. None: 1."""
    lr_schedule: Annotated[Literal["linear", "cosine", "constant", "inverse-sqrt", "warmup-stable-decay"], FREE] = (
        "linear"
    )
    """How the rate changes after the warm-up, see `wordorder.training.loop.schedule.factor`."""
    warmup_steps: Annotated[int | float, Ge(0), Le(MOST_COUNT), FREE] = 0
    """Steps in which the rate rises from 0; below 1 a share of all steps."""
    decay_steps: Annotated[Positive, FREE] = 0.2
    """Steps in which warmup-stable-decay falls; below 1 a share of all steps."""
    optimizer: Annotated[Literal["adamw", "sgd", "muon"], FREE] = "adamw"
    """torch's AdamW; SGD; or Muon (Jordan et al. 2024) for hidden matrices, with AdamW for all other parameters."""
    adam_beta1: Annotated[BelowOne, FREE] = 0.9
    """Decay of Adam's average of the gradient."""
    adam_beta2: Annotated[BelowOne, FREE] = 0.999
    """Decay of Adam's average of the squared gradient."""
    adam_epsilon: Annotated[float, Gt(0), FREE] = 1e-8
    """The number that Adam adds to the root of the squared gradient."""
    momentum: Annotated[BelowOne | None, FREE] = None
    """Momentum of sgd (None: 0) and of muon (None: 0.95)."""
    weight_decay: Annotated[NotNegative, FREE] = 0.0
    """Weight decay of all parameters but biases and norms: decoupled, and with sgd a part of the gradient."""
    decay_all_parameters: Annotated[bool, FREE] = False
    """Let weight decay act on biases and norms too, as fairseq does, and so TUPE."""
    max_grad_norm: Annotated[NotNegative, FREE] = 1.0
    """The gradient is scaled down to this norm; 0 leaves it as it is."""
    label_smoothing: Annotated[BelowOne, FREE] = 0.0
    """Share of the probability that is spread over all labels."""

    evaluate_every: Every = 0.1
    """Steps between two scores of validation; below 1 a share of the run; or "epoch", or "never". The last step is
    scored too."""
    save_every: Annotated[Every | None, LOOK] = None
    """Steps between two checkpoints, in the same way; None: as evaluate_every. The best one is saved whenever it is
    found."""
    keep_checkpoints: Annotated[Count, LOOK] = 2
    """Most checkpoints that are kept; the best is one of them."""
    keep_steps: Annotated[Several[Count], LOOK] = ()
    """Steps whose checkpoints are saved and never removed."""
    select: Annotated[str, AfterValidator(_selected)] = "loss"
    """The metric of validation that chooses the checkpoint, and the headline of a comparison; or "last"."""
    log_every: Annotated[Every, LOOK] = 50
    """Steps between two entries of the log, in the same way."""

    precision: Literal["float32", "tf32", "bf16", "fp16"] = "float32"
    """float32; tf32: its products in TF32 on NVIDIA GPUs; bf16, fp16: mixed precision, fp16 with a scaled loss."""
    compile: Literal["off", "default", "reduce-overhead", "max-autotune"] = "off"
    """Mode of torch.compile."""
    activation_checkpointing: Annotated[bool, FREE] = False
    """Compute activations again in the backward pass, which saves memory."""
    deterministic: bool = False
    """Refuse operations that are not deterministic, which is slower."""
    device: Literal["auto", "cpu"] = "auto"
    """cpu: although there is an accelerator."""
    fsdp: Annotated[Literal["off", "shard", "offload"], LOOK] = "off"
    """Several processes share out weights, gradients and optimizer (torch's FSDP2); offload: in the memory of CPUs."""
    trackers: Annotated[Several[str], AfterValidator(_installed), LOOK] = ("tensorboard",)
    """Experiment trackers: tensorboard, wandb, trackio, mlflow and the others of accelerate."""

    def faults(self) -> list[str]:
        faults: list[str] = []
        if self.max_steps is not None and self.max_steps < max(self.keep_steps, default=0):
            faults.append(
                f"training.keep_steps: must be at most training.max_steps = {self.max_steps}, got {self.keep_steps}"
            )
        if self.momentum is not None and self.optimizer == "adamw":
            faults.append("training.momentum is for optimizer sgd and muon; leave it out")
        if self.micro_batch_size is not None and self.micro_batch_size > self.batch_size:
            faults.append(
                f"training.micro_batch_size: must be at most training.batch_size = {self.batch_size}, got "
                f"{self.micro_batch_size}"
            )
        if self.select != LAST and self.evaluate_every == "never":
            faults.append(
                f"training.select: {self.select} is a score of validation, and evaluate_every is 'never'; "
                "set select = 'last'"
            )
        if self.optimizer == "muon" and self.fsdp != "off":
            faults.append("training.fsdp: muon needs whole matrices; leave fsdp out, or set optimizer to 'adamw'")
        return faults
