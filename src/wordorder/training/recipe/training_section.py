"""The section [training]: how a model is trained, under the names of transformers.TrainingArguments."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AfterValidator

from wordorder.errors import BadInput
from wordorder.limits import MOST_BEAMS, MOST_COUNT, MOST_SEED, MOST_THREADS, MOST_WORKERS
from wordorder.section import Section, unknown_choice
from wordorder.tasks import metric_names

BEAMS = 4
"""Number of beams of the search for a translation, where the recipe gives none."""

GENERATION = ("predict_with_generate", "generation_num_beams", "generation_max_length")
"""Names of [training] that are for translation."""

OWN = (
    *("decay_all_parameters", "encoding_learning_rate"),
    *("keep_steps", "threads", "segments_per_step", "eval_stride", "fsdp", "fsdp_config", "report_to"),
    *GENERATION,
)
"""Names of [training] that transformers.TrainingArguments does not have, or that mean less here."""

NO_EFFECT_ON_RESULTS = frozenset(
    "keep_steps threads fsdp fsdp_config dataloader_multiprocessing_context dataloader_num_workers "
    "dataloader_persistent_workers dataloader_pin_memory dataloader_prefetch_factor ddp_timeout log_level "
    "log_level_replica log_on_each_node logging_first_step logging_steps logging_strategy output_dir "
    "per_device_eval_batch_size report_to save_steps save_total_limit torch_empty_cache_steps".split()
)
"""Names that may differ between a run and its resumption: they change what is shown or kept, not the trained model."""

Count = Annotated[int, Ge(1), Le(MOST_COUNT)]
Positive = Annotated[float, Gt(0), Le(MOST_COUNT)]
NotNegative = Annotated[float, Ge(0)]
BelowOne = Annotated[float, Ge(0), Lt(1)]
Level = Literal["detail", "debug", "info", "warning", "error", "critical", "passive"]


def _steps(value: int) -> int:
    if value < 1 and value != -1:
        raise ValueError("at least 1, or -1 for num_train_epochs")
    return value


def _schedule(name: str) -> str:
    from transformers import SchedulerType

    return _one_of("lr_scheduler_type", name, [known.value for known in SchedulerType])


def _metric(name: str) -> str:
    return _one_of("metric_for_best_model", name, list(metric_names()))


def _one_of(name: str, value: str, known: list[str]) -> str:
    if value not in known:
        raise BadInput(unknown_choice(f"training.{name}", value, known))
    return value


class FsdpConfig(Section):
    """The table `training.fsdp_config`, for torch's FSDP2."""

    section: ClassVar[str] = "training.fsdp_config"

    reshard_after_forward: bool | None = None
    """Free the gathered weights of a layer after its forward pass, and gather them again for the backward pass."""
    cpu_offload: bool | None = None
    """Keep weights, gradients and optimizer state in the memory of the CPU."""


class TrainingSettings(Section):
    """The section `[training]`: names of transformers.TrainingArguments, with our defaults, and a few more.

    By default a run evaluates and saves ten times, keeps the best and the last checkpoint, and ends with the best by
    validation loss. A name without a default here has that of transformers.
    """

    section: ClassVar[str] = "training"
    refused: ClassVar[Mapping[str, str]] = {
        "data_seed": "data.seed and training.seed decide the order of the data",
        "deepspeed": "its checkpoints hold pickled files; set training.fsdp=true instead",
        "resume_from_checkpoint": "pass --resume",
    }

    output_dir: str | None = None
    """The run folder; `runs/<name of the recipe>` where nothing is said."""
    seed: Annotated[int, Ge(0), Le(MOST_SEED)] = 0
    """Seed of weights, order of the batches, dropout and training masks."""
    per_device_train_batch_size: Count = 32
    """Examples of a batch, in each process."""
    per_device_eval_batch_size: Count | None = None
    """Examples of a batch of evaluation; that of training where nothing is said."""
    gradient_accumulation_steps: Count = 1
    """Batches whose gradients are added up for one optimizer step."""
    max_steps: Annotated[int, Le(MOST_COUNT), AfterValidator(_steps)] | None = None
    """Optimizer steps of the run; it takes the place of num_train_epochs."""
    num_train_epochs: Positive = 3.0
    """Passes over the training data, where max_steps is not given."""

    learning_rate: Annotated[float, Gt(0)] = 5e-5
    """The peak learning rate."""
    encoding_learning_rate: Positive | None = None
    """Learning rate of the encoding's own parameters, as a multiple of learning_rate: position tables, biases,
    projections of positions, frequencies, and in real networks complex-order's projection to real channels. Default:
    1."""
    lr_scheduler_type: Annotated[str, AfterValidator(_schedule)] = "linear"
    """How the rate changes with the steps: one of transformers' schedules, such as linear, cosine, constant,
    inverse_sqrt, warmup_stable_decay."""
    lr_scheduler_kwargs: dict[str, Any] | None = None
    """Options of the schedule."""
    warmup_steps: Annotated[float, Ge(0), Le(MOST_COUNT)] = 0
    """Steps in which the rate rises from 0; below 1 a share of all steps."""
    optim: Literal["adamw_torch", "adamw_torch_fused"] = "adamw_torch_fused"
    """The optimizer: torch's AdamW, with or without one kernel for all of its operations."""
    weight_decay: NotNegative = 0.0
    """Decoupled weight decay, of all parameters but biases and norms."""
    decay_all_parameters: bool | None = None
    """Let weight decay act on biases and norms too, as fairseq does, and so TUPE."""
    adam_beta1: BelowOne = 0.9
    """Decay of Adam's average of the gradient."""
    adam_beta2: BelowOne = 0.999
    """Decay of Adam's average of the squared gradient."""
    adam_epsilon: Annotated[float, Gt(0)] = 1e-8
    """The number that Adam adds to the root of the squared gradient."""
    max_grad_norm: NotNegative = 1.0
    """The gradient is scaled down to this norm; 0 leaves it as it is."""
    label_smoothing_factor: BelowOne = 0.0
    """Share of the probability that is spread over all labels."""

    eval_strategy: Literal["no", "steps", "epoch"] = "steps"
    """When validation is scored."""
    eval_steps: Positive = 0.1
    """Steps between two evaluations; below 1 a share of the run."""
    eval_delay: Annotated[float, Ge(0), Le(MOST_COUNT)] | None = None
    """Steps, or epochs, before the first evaluation."""
    eval_on_start: bool | None = None
    """Score validation before the first step too."""
    eval_stride: Count | None = None
    """Tokens by which windows of data.length tokens advance when a model without memory is scored on running text, for
    data.packing lanes."""
    save_strategy: Literal["no", "steps", "epoch", "best"] = "steps"
    """When a checkpoint is saved."""
    save_steps: Positive = 0.1
    """Steps between two checkpoints; below 1 a share of the run. The best checkpoint is one that was scored."""
    save_total_limit: Count = 2
    """Most checkpoints that are kept; the best is one of them."""
    keep_steps: list[Annotated[int, Ge(1)]] | None = None
    """Steps whose checkpoints are saved and never removed."""
    load_best_model_at_end: bool = True
    """End with the checkpoint that is best on validation; false ends with the last."""
    metric_for_best_model: Annotated[str, AfterValidator(_metric)] | None = None
    """The metric that says which checkpoint is best; the loss where nothing is said."""
    greater_is_better: bool | None = None
    """Whether more of that metric is better; known for all metrics of the tasks."""

    predict_with_generate: bool | None = None
    """For translation: translate all of validation at each evaluation and give its BLEU, which is slow. The reported
    split is translated at the end of every run."""
    generation_num_beams: Annotated[int, Ge(1), Le(MOST_BEAMS)] | None = None
    """For translation: beams of the search, 4 where nothing is said; 1 is greedy search."""
    generation_max_length: Annotated[int, Ge(2), Le(MOST_COUNT)] | None = None
    """For translation: most tokens of a translation, start and end included; data.length + 1 where nothing is said."""

    segments_per_step: Count | None = None
    """Segments that a model with a memory reads, one after another, from the data.length tokens of each lane, and
    learns from together; for data.packing lanes."""

    bf16: bool = False
    """Train in mixed precision with bfloat16."""
    fp16: bool = False
    """Train in mixed precision with float16 and a scaled loss."""
    tf32: bool | None = None
    """Multiply float32 matrices in TF32 on NVIDIA GPUs."""
    torch_compile: bool | None = None
    """Compile the model with torch.compile."""
    torch_compile_backend: str | None = None
    """Backend of torch.compile."""
    torch_compile_mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] | None = (
        None
    )
    """Mode of torch.compile."""
    gradient_checkpointing: bool | None = None
    """Compute activations again in the backward pass, which saves memory."""
    gradient_checkpointing_kwargs: dict[str, Any] | None = None
    """Options of torch.utils.checkpoint."""
    use_cache: bool | None = None
    """Keep keys and values in training too; for models that need it."""
    full_determinism: bool | None = None
    """Refuse operations that are not deterministic, which is slower."""
    use_cpu: bool | None = None
    """Train on the CPU although there is an accelerator."""
    threads: Annotated[int, Ge(1), Le(MOST_THREADS)] | None = None
    """CPU threads to compute with; torch's own number where nothing is said, and one in a comparison with workers. It
    may change the last digits of a result, as another machine may."""
    torch_empty_cache_steps: Count | None = None
    """Steps between two calls that return unused GPU memory."""

    fsdp: bool | None = None
    """Several processes share out weights, gradients and optimizer (torch's FSDP2)."""
    fsdp_config: FsdpConfig | None = None
    """Options of FSDP2: reshard_after_forward, cpu_offload."""
    average_tokens_across_devices: bool | None = None
    """Divide the loss by the predicted tokens of all processes; true where nothing is said."""
    ddp_backend: Literal["nccl", "gloo", "mpi", "xccl", "hccl", "cncl", "mccl"] | None = None
    """Communication of torch.distributed."""
    ddp_broadcast_buffers: bool | None = None
    """Option of DistributedDataParallel."""
    ddp_bucket_cap_mb: int | None = None
    """Option of DistributedDataParallel."""
    ddp_find_unused_parameters: bool | None = None
    """Option of DistributedDataParallel; false where nothing is said, since no model leaves a parameter unused."""
    ddp_static_graph: bool | None = None
    """Option of DistributedDataParallel."""
    ddp_timeout: int | None = None
    """Seconds after which a process gives up waiting for the others."""

    dataloader_drop_last: bool = False
    """Leave out the last batch of an epoch if it is smaller than the others."""
    dataloader_num_workers: Annotated[int, Ge(0), Le(MOST_WORKERS)] | None = None
    """Processes that make batches; 0 makes them in the process of training."""
    dataloader_multiprocessing_context: Literal["fork", "spawn", "forkserver"] | None = None
    """How these processes are started."""
    dataloader_persistent_workers: bool | None = None
    """Keep these processes between epochs."""
    dataloader_pin_memory: bool | None = None
    """Put batches into pinned memory."""
    dataloader_prefetch_factor: Count | None = None
    """Batches that each of these processes makes ahead."""

    logging_strategy: Literal["no", "steps", "epoch"] | None = None
    """When the training loss is logged."""
    logging_steps: Positive = 50
    """Steps between two entries of the log; below 1 a share of the run."""
    logging_first_step: bool | None = None
    """Log the first step too."""
    log_level: Level = "error"
    """Least severe messages of transformers that are shown."""
    log_level_replica: Level | None = None
    """The same, of all processes but the first."""
    log_on_each_node: bool | None = None
    """Show messages of the first process of each machine."""
    report_to: str | list[str] = "tensorboard"
    """Experiment trackers: tensorboard, wandb, trackio, mlflow and the others of accelerate; "none"; or "all"."""
