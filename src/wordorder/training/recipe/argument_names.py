"""The names of the section [training]: our defaults, our own names, and those that a recipe may not set."""

from typing import Any

DEFAULTS: dict[str, Any] = {
    "seed": 0,
    "per_device_train_batch_size": 32,
    # One place decides how often to look: a tenth of the run, evaluated and saved at the same steps, so that the best
    # model by validation loss is always on disk.
    "eval_strategy": "steps",
    "eval_steps": 0.1,
    "save_strategy": "steps",
    "save_steps": 0.1,
    "save_total_limit": 2,
    "load_best_model_at_end": True,
    "logging_steps": 50,
    "report_to": "tensorboard",
    "log_level": "error",
}
"""Default values of a recipe, where they differ from those of transformers.

Evaluate and save ten times, keep the best and the last checkpoint and end with the best by validation loss; seed 0;
32 examples a batch; TensorBoard logs. `per_device_eval_batch_size` follows the training batch size.
"""

WRITTEN_OUT = (
    "num_train_epochs",
    "learning_rate",
    "lr_scheduler_type",
    "warmup_steps",
    "optim",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "max_grad_norm",
    "gradient_accumulation_steps",
    "label_smoothing_factor",
    "dataloader_drop_last",
    "bf16",
    "fp16",
)
"""Names that decide what is learned and have the defaults of transformers. A resolved recipe writes them out, so that
it repeats its run with a version of transformers that has other defaults."""

_NO_UPLOAD = "a run uploads nothing; afterwards: wordorder push MODEL_DIR REPO"

FIXED: dict[str, str] = {
    "auto_find_batch_size": "it would change the batch size, and so the results, unseen",
    "accelerator_config": "the batches are made by wordorder.data",
    "batch_eval_metrics": "evaluation is always exact over all tokens",
    "dataloader_in_order": "a resumed run sees the batches that it would have seen, in their order",
    "data_seed": "data.seed and training.seed decide the order of the data",
    "deepspeed": "its checkpoints hold pickled files, which this package neither writes nor reads",
    "disable_tqdm": "progress is shown by this package",
    "do_eval": "every run evaluates",
    "do_predict": "every run is tested",
    "do_train": "every run trains",
    "enable_jit_checkpoint": "a run saves itself when it is interrupted or terminated",
    "eval_accumulation_steps": "evaluation keeps sums, not outputs",
    "eval_do_concat_batches": "evaluation keeps sums, not outputs",
    "eval_use_gather_object": "evaluation keeps sums, not outputs",
    "hub_always_push": _NO_UPLOAD,
    "hub_model_id": _NO_UPLOAD,
    "hub_private_repo": _NO_UPLOAD,
    "hub_revision": _NO_UPLOAD,
    "hub_strategy": _NO_UPLOAD,
    "hub_token": _NO_UPLOAD,
    "ignore_data_skip": "a resumed run sees the batches that it would have seen",
    "include_for_metrics": "evaluation is always exact over all tokens",
    "include_num_input_tokens_seen": "tokens are always counted",
    "label_names": "the task decides",
    "length_column_name": "the task decides how examples are grouped",
    "local_rank": "the launcher sets it",
    "logging_nan_inf_filter": "a loss that is not finite stops the run",
    "parallelism_config": "the launcher sets it",
    "prediction_loss_only": "evaluation is always exact over all tokens",
    "push_to_hub": _NO_UPLOAD,
    "remove_unused_columns": "the batches are made by wordorder.data",
    "restore_callback_states_from_checkpoint": "a resumed run restores all that it needs",
    "resume_from_checkpoint": "pass --resume",
    "skip_memory_metrics": "metrics.json has peak_memory_bytes",
    "save_on_each_node": "a run has one folder",
    "save_only_model": "every checkpoint can be resumed from",
    "train_sampling_strategy": "the task decides how examples are grouped",
}
"""Names of TrainingArguments that a recipe may not set, each with the reason."""

NO_EFFECT_ON_RESULTS = frozenset(
    "keep_steps threads fsdp fsdp_config dataloader_multiprocessing_context dataloader_num_workers "
    "dataloader_persistent_workers dataloader_pin_memory dataloader_prefetch_factor ddp_timeout debug log_level "
    "log_level_replica log_on_each_node logging_first_step logging_steps logging_strategy output_dir "
    "per_device_eval_batch_size project report_to run_name save_steps save_total_limit "
    "torch_empty_cache_steps trackio_bucket_id trackio_space_id trackio_static_space_id".split()
)
"""Names that may differ between a run and its resumption: they change what is shown or kept, not the trained model."""

RENAMED = {
    "gradient_checkpointing": "activation_checkpointing",
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
}
"""Names that transformers has renamed since the first version that this package supports; recipes may use both."""

BEAMS = 4
"""Number of beams of the search for a translation, where the recipe gives none."""

GENERATION: dict[str, Any] = {"predict_with_generate": bool, "generation_num_beams": int, "generation_max_length": int}
"""Names of [training] that transformers' Seq2SeqTrainingArguments has, for translation; see `OWN`."""

REMOVED_OPTIMIZERS = {"row_wise_adam": "adamw_torch_fused"}
"""Former values of `optim` that recipes may still have, each with the one to write instead."""

OWN: dict[str, Any] = {
    "decay_all_parameters": bool,
    "keep_steps": list[int],
    "threads": int,
    "segments_per_step": int,
    "eval_stride": int,
    "fsdp": bool,
    "fsdp_config": dict[str, bool],
    **GENERATION,
}
"""Names of [training] that transformers.TrainingArguments does not have, with their types.

`decay_all_parameters`: weight decay acts on biases and norms too, as in fairseq and so in TUPE; transformers leaves
them out. `keep_steps`: a checkpoint is saved after each of these steps and never removed; it is a model folder too.
`threads`: CPU threads to compute with, torch's own number where nothing is said; a run of a comparison with workers has
one then. It may change the last digits of a result, as another machine may.
`segments_per_step`: a model with a memory reads the data.length tokens of each lane that an optimizer step has in so
many segments, one after another, and learns from them together. `eval_stride`: a model without a memory is scored on
running text in windows of data.length tokens that advance by so many. Both are for data.packing lanes, see
[compare] history.
`fsdp`: several processes share out weights, gradients and optimizer (torch's FSDP2) instead of having all of them each;
`fsdp_config` may hold reshard_after_forward and cpu_offload, see docs/scaling.md. transformers has both names too, with
more ways to say the same.
`predict_with_generate`: each evaluation on validation also translates it all and gives its BLEU, which is slow; the
split on which scores are reported is translated at the end of every run. `generation_num_beams` (4 where nothing is
said; 1 is greedy search) and `generation_max_length` (data.length + 1: with the start token and the end) say how.
"""
