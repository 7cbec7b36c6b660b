"""The slow part of a run: build the model, train it, test it, save it. Imports transformers; `run` does not."""

import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from wordorder.data import (
    EpochOrder,
    LengthGroupedEpochOrder,
    PreparedData,
    RunningText,
    Sharing,
    StreamOrder,
    TextStream,
)
from wordorder.durable import make_folder, write_json, write_text
from wordorder.errors import BadInput, RunFailed
from wordorder.launch import is_main
from wordorder.limits import one_line, read_json
from wordorder.models import build_model
from wordorder.tasks import TASKS, model_class
from wordorder.tasks.beam_search import Search
from wordorder.tasks.scores import Tally
from wordorder.training.checkpoints.checkpoint import checkpoints, clean, read_state, write_model
from wordorder.training.checkpoints.weights import check_body, load_body
from wordorder.training.loop.batch_digest import FedBatches, WithRows, of_all_processes
from wordorder.training.loop.carried_memory import Memories, has_memory
from wordorder.training.loop.evaluation import Evaluation, RunningTextEvaluation, TranslationEvaluation
from wordorder.training.loop.interruption import Interruption
from wordorder.training.loop.log import Log
from wordorder.training.loop.loop import Loop
from wordorder.training.loop.loss import StepLoss
from wordorder.training.loop.meter import Meter
from wordorder.training.loop.progress import Progress, choose_progress
from wordorder.training.loop.saving import Saving
from wordorder.training.loop.setup import prepare as prepare_model
from wordorder.training.loop.share import training_loader
from wordorder.training.loop.threads import cpu_threads
from wordorder.training.loop.training import Training
from wordorder.training.recipe.arguments import build_arguments, wants_tensorboard
from wordorder.training.recipe.training_section import BEAMS
from wordorder.training.recipe.pretrained import weights_content
from wordorder.training.recipe.recipe import Recipe
from wordorder.training.recipe.trackers import trackers_in
from wordorder.training.runs import curve
from wordorder.training.runs.advice import accumulation_advice, numbers_advice, scale_advice, sharding_advice
from wordorder.training.runs.environment import describe_environment
from wordorder.training.runs.folder import (
    DATA,
    ENVIRONMENT,
    LOGS,
    METRICS,
    MODEL,
    PRETRAINED,
    RECIPE,
    RunResult,
    read_result,
)
from wordorder.training.runs.model_card import write_run_card
from wordorder.training.runs.model_configuration import make_config as make_config
from wordorder.training.runs.passed_over import advise_of_reading, report_reading
from wordorder.training.runs.quiet import quiet_libraries
from wordorder.training.runs.word_vectors import start_from_word_vectors


def train_and_test(
    recipe: Recipe, prepared: PreparedData, folder: Path, *, start: Path | None, shown: bool | Progress
) -> RunResult:
    """Train, test and save a model.

    Args:
        recipe: resolved.
        prepared: the data for the recipe's seed.
        folder: the run folder; made when missing.
        start: a whole checkpoint to go on from, or None.
        shown: whether to show progress; or what to tell it to.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    there = {path.name for path in folder.iterdir()} if folder.exists() else set[str]()
    try:
        with cpu_threads(recipe.training.get("threads")):
            return _train_and_test(recipe, prepared, folder, start=start, shown=shown)
    except BadInput:  # nothing was started: a streamed text, which is read while it is trained on, is bad
        if is_main() and not checkpoints(folder):
            _take_back(folder, there, missing)
        raise


def _take_back(folder: Path, there: Collection[str], missing: Sequence[Path]) -> None:
    """Remove the files that a run wrote before its first step, and the folders made for them, innermost first."""
    for name in {curve.FILE, DATA, RECIPE, ENVIRONMENT, PRETRAINED, LOGS} - set(there):
        if name == LOGS:
            shutil.rmtree(folder / name, ignore_errors=True)
        else:
            (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # something else is in it
        for path in missing:
            path.rmdir()


def _train_and_test(
    recipe: Recipe, prepared: PreparedData, folder: Path, *, start: Path | None, shown: bool | Progress
) -> RunResult:
    seed = recipe.training["seed"]
    config = make_config(recipe, prepared)
    if recipe.pretrained is not None and start is None:
        check_body(config, Path(recipe.pretrained))
    model = build_model(config, model_class(recipe.network, recipe.data.task), seed=seed)
    # A checkpoint holds all weights, so the folder that the run started from is not read again.
    pretrained = _start_from(model, recipe) if recipe.pretrained is not None and start is None else None
    vectors = start_from_word_vectors(model, prepared) if recipe.pretrained is None and start is None else None
    arguments = build_arguments(recipe.training, folder, TASKS[recipe.data.task].metrics)
    examples, order = _training_examples(recipe, prepared, arguments)
    if is_main():
        make_folder(folder)
        clean(folder)
        curve.rewrite(folder, read_state(start)["log_history"] if start else ())
        write_json(folder / DATA, prepared.statistics)
        write_text(folder / RECIPE, recipe.to_toml())
        _write_environment(folder, arguments.device, seed=seed, resumed=start is not None)
    progress = choose_progress(folder.name, shown=shown and is_main()) if isinstance(shown, bool) else shown
    if pretrained is not None:
        if is_main():
            write_json(folder / PRETRAINED, pretrained)
        new, unused = (", ".join(pretrained[name]) or "none" for name in ("new", "unused"))
        progress.say(f"weights from {recipe.pretrained}; new: {new}; not used: {unused}")
    if vectors is not None:
        progress.say(vectors)
    for advice in (
        scale_advice(recipe, prepared),
        numbers_advice(recipe, prepared),
        sharding_advice(recipe),
        None if isinstance(prepared.train, TextStream) else accumulation_advice(recipe, len(order)),
    ):
        if advice is not None:
            progress.advise(advice)
    advise_of_reading(prepared, progress)
    meter = Meter(arguments.device, targets=TASKS[recipe.data.task].translates)
    logs = _logs(recipe, folder, start)
    try:
        reporters = recipe.training.get("report_to")
        with trackers_in(folder / LOGS, reporters), quiet_libraries(), Interruption() as interruption:
            parts = prepare_model(model, arguments, tokenizer=prepared.tokenizer)
            segments = recipe.segments_per_step
            groups = arguments.gradient_accumulation_steps // segments
            training = Training(
                parts=parts,
                folder=folder,
                meter=meter,
                progress=progress,
                digest=FedBatches(rows=groups),
                memories=_memories(prepared, config, groups),
            )
            evaluation = _evaluation(recipe, prepared, training)
            keep_steps = recipe.training.get("keep_steps") or ()
            saving = Saving(training, tokenizer=prepared.tokenizer, examples=examples, keep_steps=keep_steps)
            loop = Loop(
                training,
                loader=training_loader(examples, order, arguments, collate=WithRows(prepared.collate)),
                order=order,
                loss=StepLoss(training, _before_smoothing(recipe, prepared)),
                evaluation=evaluation,
                validation=prepared.validation,
                saving=saving,
                log=Log(training, tokenizer=prepared.tokenizer, callbacks=[logs] if logs else []),
                interruption=interruption,
                decay_all=bool(recipe.training.get("decay_all_parameters")),
            )
            _train(loop, saving, start)
        with quiet_libraries():
            return _finish(training, evaluation, saving, prepared, seed=seed)
    except torch.OutOfMemoryError as error:
        text = str(error).splitlines()[0]
        raise RunFailed(f"out of memory: {text}; lower training.per_device_train_batch_size") from error
    finally:
        meter.close()
        progress.close()
        if logs:
            logs.close()


def _memories(prepared: PreparedData, config: Any, groups: int) -> Memories | None:
    return Memories(groups, carries=has_memory(config)) if isinstance(prepared.validation, RunningText) else None


def _evaluation(recipe: Recipe, prepared: PreparedData, training: Training) -> Evaluation:
    common: dict[str, Any] = {
        "collate": prepared.collate,
        "make_tally": _make_tally(recipe, prepared),
        "headline": _headline(recipe),
    }
    if not TASKS[recipe.data.task].translates:
        if not isinstance(prepared.validation, RunningText):
            return Evaluation(training, **common)
        stride = recipe.training.get("eval_stride")
        return RunningTextEvaluation(training, segments=recipe.segments_per_step, stride=stride, **common)
    assert recipe.data.length is not None  # reading a recipe fills it in
    search = Search(
        num_beams=recipe.training.get("generation_num_beams") or BEAMS,
        # one more than a target has: the token that it starts from counts too
        max_length=recipe.training.get("generation_max_length") or recipe.data.length + 1,
    )
    always = bool(recipe.training.get("predict_with_generate"))
    reported = prepared.validation if prepared.test is None else prepared.test
    tokenizer = prepared.tokenizer
    return TranslationEvaluation(
        training, tokenizer=tokenizer, search=search, always=always, reported=reported, **common
    )


def _make_tally(recipe: Recipe, prepared: PreparedData) -> Callable[[torch.device, Any], Tally]:
    classes = len(prepared.label_names) or None
    task = TASKS[recipe.data.task]
    return lambda device, examples: task.tally(device, classes=classes, examples=[examples])


def _before_smoothing(recipe: Recipe, prepared: PreparedData) -> Callable[[dict[str, Any]], dict[str, Any]]:
    start, padding = (int(getattr(prepared.tokenizer, f"{role}_token_id")) for role in ("cls", "pad"))
    return partial(TASKS[recipe.data.task].before_smoothing, start=start, padding=padding)


def _headline(recipe: Recipe) -> str:
    chosen = recipe.training.get("metric_for_best_model")
    return chosen if chosen not in (None, "loss") else TASKS[recipe.data.task].progress_metric


def _start_from(model: Any, recipe: Recipe) -> dict[str, Any]:
    """Load the body of the saved model, and return its folder and which weights are loaded, new and unused."""
    folder = Path(str(recipe.pretrained))
    found = load_body(model, folder, with_head=TASKS[recipe.data.task].predicts_tokens)
    return {
        "folder": str(folder),
        "content": weights_content(folder),
        "loaded": len(found.loaded),
        "new": list(found.new),
        "unused": list(found.unused),
    }


def _training_examples(recipe: Recipe, prepared: PreparedData, arguments: Any) -> tuple[Any, EpochOrder]:
    """Return the training examples by (epoch, index), and their order.

    Lanes come as they are; examples of unequal length are grouped, so that little is padded; all others come in a plain
    random order.
    """
    train, task = prepared.train, TASKS[recipe.data.task]
    seed, segments = recipe.training["seed"], recipe.segments_per_step
    if isinstance(train, TextStream):
        sharing = Sharing(
            batch=arguments.per_device_train_batch_size,
            accumulation=arguments.gradient_accumulation_steps,
            steps=arguments.max_steps,
            rank=arguments.process_index,
            world=arguments.world_size,
            parts=segments,
        )
        return train.examples(sharing), StreamOrder(len(sharing))
    if isinstance(train, RunningText):
        micro_batches = arguments.gradient_accumulation_steps // segments
        rows = arguments.per_device_train_batch_size * micro_batches * arguments.world_size
        lanes = train.training_lanes(rows, seed=seed, parts=segments)
        return lanes, EpochOrder(len(lanes), seed=seed, shuffle=False)
    lengths = getattr(train, "lengths", None)
    if task.grouped_by_length and lengths is not None:
        # the batch of all processes, so that they read together what one would
        batch = arguments.per_device_train_batch_size * arguments.world_size
        return train, LengthGroupedEpochOrder(lengths, batch_size=batch, seed=seed)
    return train, EpochOrder(len(train), seed=seed)


def _logs(recipe: Recipe, folder: Path, start: Path | None) -> Any:
    if not is_main() or not wants_tensorboard(recipe.training):
        return None
    from wordorder.training.runs.tensorboard import TensorBoardLogs

    return TensorBoardLogs(folder / LOGS, first_step=read_state(start)["global_step"] + 1 if start else 0)


def _train(loop: Loop, saving: Saving, start: Path | None) -> None:
    state = read_state(start) if start else None
    if start is None or state is None or state["global_step"] < state["max_steps"]:
        loop.train(start)
    else:
        saving.restore_finished(start)  # killed after the last step


def _finish(
    training: Training, evaluation: Evaluation, saving: Saving, prepared: PreparedData, *, seed: int
) -> RunResult:
    """Test the model, save it, and report its scores last of all."""
    model, folder, progress = training.parts.model, training.folder, training.progress
    scores: dict[str, Any] = {"validation": evaluation.scores(prepared.validation)}
    twice = prepared.validation is prepared.test  # under data.protocol best-checkpoint-on-test
    if prepared.test is not None:
        scores["test"] = scores["validation"] if twice else evaluation.scores(prepared.test)
    counted, processes = training.counted(), training.parts.processes
    metrics: dict[str, Any] = {
        **scores,
        "optimistic": twice or prepared.test is None,
        "train_seconds": counted["seconds"],
        "tokens": counted["tokens"],
        "tokens_per_second": counted["tokens"] / max(counted["seconds"], 1e-9),
        "peak_memory_bytes": counted["peak_bytes"],
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "steps": training.state.global_step,
        "seed": seed,
        "best_step": training.kept_step,
        "batches": of_all_processes(processes.everyones(training.digest.found())),
    }
    if isinstance(evaluation, TranslationEvaluation):
        metrics["bleu_signature"] = evaluation.signature
        metrics["generation"] = asdict(evaluation.search)
    report_reading(prepared, folder, progress, training.parts.args)
    weights = saving.gathered_weights()
    if is_main():

        def fill(staging: Path) -> None:
            saving.save_for_use(staging, weights)
            write_run_card(staging, folder, metrics)

        write_model(folder / MODEL, fill)
        curve.rewrite(folder, training.state.log_history)  # its rows were appended without waiting for the disk
        write_json(folder / METRICS, metrics)  # last of all: it says that all the rest is there
    training.parts.accelerator.wait_for_everyone()
    split, last = list(scores.items())[-1]
    progress.say(f"{'optimistic ' if twice else ''}{split} {evaluation.in_short(last)}")
    if is_main():
        return read_result(folder)
    return RunResult(metrics=metrics, model_dir=folder / MODEL, curve=curve.rows(training.state.log_history))


def _write_environment(folder: Path, device: torch.device, *, seed: int, resumed: bool) -> None:
    """Write environment.json of this start; it keeps those of the starts before it."""
    path = folder / ENVIRONMENT
    environment = describe_environment(device, seed=seed)
    if resumed and path.exists():
        try:
            before: Any = read_json(path)
            environment["earlier_starts"] = [*before.pop("earlier_starts", []), before]
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise RunFailed(
                f"{path}: cannot be read: {one_line(error)}; remove it, and --resume makes it anew"
            ) from None
    write_json(path, environment)
