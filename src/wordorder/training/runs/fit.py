"""The slow part of a run: build the model, train it, test it, save it. Imports transformers; `run` does not."""

import importlib.metadata
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from wordorder import __version__
from wordorder.data import EpochOrder, LengthGroupedEpochOrder, PreparedData, RunningText
from wordorder.data.examples.collate import CollatePositions, WithPositions
from wordorder.data.tokenizers import adds_special_tokens
from wordorder.errors import BadInput, RunFailed
from wordorder.files import make_folder, write_json, write_text
from wordorder.launch import is_main, process_count
from wordorder.models import build_config, build_model, config_fields, host_config, load_host
from wordorder.tasks import TASKS, model_class
from wordorder.tasks.beam_search import Search
from wordorder.tasks.scores import Tally
from wordorder.tasks.translation import TranslationOptions
from wordorder.training.checkpoints.checkpoint import checkpoints, clean, read_state, write_model
from wordorder.training.checkpoints.weights import load_body
from wordorder.training.loop.accelerate import device_of, numerics, place
from wordorder.training.loop.batches import FedBatches, StepSampler, of_all_processes, training_loader
from wordorder.training.loop.carried_memory import Memories, has_memory
from wordorder.training.loop.evaluation import Evaluation, RunningTextEvaluation, TranslationEvaluation
from wordorder.training.loop.interruption import Interruption
from wordorder.training.loop.log import Log, running_trackers
from wordorder.training.loop.loop import Loop
from wordorder.training.loop.meter import Meter, cpu_threads
from wordorder.training.loop.progress import Progress, Shown, quiet_libraries
from wordorder.training.loop.saving import Saving
from wordorder.training.loop.step_loss import StepLoss
from wordorder.training.loop.training import Training
from wordorder.training.recipe.pretrained import find_word_vectors, is_host, naming_the_key, weights_content
from wordorder.training.recipe.recipe import Recipe
from wordorder.training.recipe.settings import LAST
from wordorder.training.runs import folder as files
from wordorder.training.runs.folder import (
    ENVIRONMENT,
    Environment,
    RunResult,
    curve_rows,
    read_checked,
    read_result,
    rewrite_curve,
)
from wordorder.training.runs.model_card import write_run_card
from wordorder.training.runs.unit_scores import write_unit_scores


def train_and_test(
    recipe: Recipe, prepared: PreparedData, folder: Path, *, start: Path | None, shown: bool | Progress
) -> RunResult:
    """Train, test and save a model, anew or from a whole checkpoint; `shown` may be what progress is told to."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    there = {path.name for path in folder.iterdir()} if folder.exists() else set[str]()
    try:
        with cpu_threads(recipe.training.threads), numerics(recipe.training):
            return _train_and_test(recipe, prepared, folder, start=start, shown=shown)
    except BadInput:  # nothing was started: an epoch has not one batch
        if is_main() and not checkpoints(folder):
            _take_back(folder, there, missing)
        raise


def _take_back(folder: Path, there: Collection[str], missing: Sequence[Path]) -> None:
    for name in {files.CURVE, files.DATA, files.RECIPE, files.ENVIRONMENT, files.PRETRAINED} - set(there):
        (folder / name).unlink(missing_ok=True)
    if files.LOGS not in there:
        shutil.rmtree(folder / files.LOGS, ignore_errors=True)
    with suppress(OSError):  # something else is in it
        for path in missing:
            path.rmdir()


def _train_and_test(
    recipe: Recipe, prepared: PreparedData, folder: Path, *, start: Path | None, shown: bool | Progress
) -> RunResult:
    settings, task = recipe.training, TASKS[recipe.task.name]
    seed = settings.seed
    config = make_config(recipe, prepared)
    state = None if start is None else read_state(start)
    # A checkpoint holds all weights, so the folder that the run started from is not read again.
    begins, pretrained, vectors, origin = start is None, None, None, dict[str, Any]()
    saved_model = None if recipe.pretrained is None else Path(recipe.pretrained)
    if is_host(recipe.network):
        with quiet_libraries(), naming_the_key():
            model, origin = load_host(**_host_parts(recipe, prepared), seed=seed, weights=begins)
    else:
        model: Any = build_model(config, model_class(recipe.network, recipe.task.name), seed=seed)
        if begins and saved_model is not None:
            origin = load_body(model, saved_model, with_head=task.predicts_tokens)
        elif begins:
            vectors = _start_from_word_vectors(model, prepared)
    if begins and saved_model is not None:
        pretrained = {"folder": str(saved_model), "content": weights_content(saved_model), **origin}
    if is_main():
        make_folder(folder)
        clean(folder)
        rewrite_curve(folder, state.log if state else ())
        write_json(folder / files.DATA, prepared.statistics)
        write_text(folder / files.RECIPE, recipe.to_toml())
    progress = shown if not isinstance(shown, bool) else Shown(folder.name) if shown and is_main() else Progress()
    if pretrained is not None:
        if is_main():
            write_json(folder / files.PRETRAINED, pretrained)
        new, unused = (_listed(pretrained[name]) for name in ("new", "unused"))
        progress.say(f"weights from {recipe.pretrained}; new: {new}; not used: {unused}")
    if vectors is not None:
        progress.say(vectors)
    for line in prepared.log.lines():
        progress.advise(line)
    meter = Meter(device_of(settings), targets=task.translates)
    first_step = state.step + 1 if state else 0
    try:
        with quiet_libraries(), Interruption() as interruption, ExitStack() as stack:
            parts = place(model, settings, tokenizer=prepared.tokenizer)
            # after the processes know each other, since trackers ask which one they are in
            trackers = stack.enter_context(running_trackers(settings.trackers, folder, first_step=first_step))
            if is_main():
                write_environment(folder, parts.device, seed=seed, resumed=start is not None)
            # what the process reads in each step
            examples, order = _training_examples(recipe, prepared)
            in_lanes = isinstance(prepared.validation, RunningText)
            batches = StepSampler(
                order,
                batch_size=settings.batch_size,
                micro_batch_size=parts.micro_batch_size,
                segments=settings.segments_per_step if in_lanes else 1,
                process=parts.processes.index,
                processes=parts.processes.count,
            )
            pinned = parts.device.type == "cuda"
            collate: Any = prepared.collate
            if settings.random_positions is not None:
                examples = WithPositions(examples, largest=settings.random_positions, seed=seed)
                collate = CollatePositions(collate)
            loader = training_loader(examples, batches, collate=collate, workers=settings.workers, pinned=pinned)
            groups = batches.micro_batches(0) // batches.segments
            training = Training(
                parts=parts,
                folder=folder,
                meter=meter,
                progress=progress,
                digest=FedBatches(rows=groups),
                memories=Memories(groups, carries=has_memory(config)) if in_lanes else None,
            )
            evaluation = _evaluation(recipe, prepared, training)
            saving = Saving(training, tokenizer=prepared.tokenizer)
            cls, pad = (int(getattr(prepared.tokenizer, f"{role}_token_id")) for role in ("cls", "pad"))
            loop = Loop(
                training=training,
                batches=batches,
                loader=loader,
                loss=StepLoss(parts, partial(task.before_smoothing, start=cls, padding=pad)),
                evaluation=evaluation,
                validation=prepared.validation,
                higher_is_better=_higher_is_better(recipe),
                saving=saving,
                log=Log(training, trackers=trackers),
                interruption=interruption,
            )
            if start is not None and state is not None and state.step >= state.steps and not state.score_due:
                saving.restore_finished(start)  # killed after the last step
            else:
                loop.train(start)
        with quiet_libraries():
            return _finish(training, evaluation, saving, prepared, seed=seed)
    except torch.OutOfMemoryError as error:
        text = str(error).splitlines()[0]
        raise RunFailed(f"out of memory: {text}; lower training.micro_batch_size") from error
    finally:
        meter.close()
        progress.close()


def make_config(recipe: Recipe, prepared: PreparedData) -> Any:
    """Build the model's configuration: the recipe's fields, completed by vocabulary, classes and ids of the data.

    Of a model of transformers that of its folder, with the recipe's encoding.
    """
    if is_host(recipe.network):
        config = host_config(**_host_parts(recipe, prepared))
        config.pad_token_id = prepared.tokenizer.pad_token_id  # as training sets it
        return config
    tokens = prepared.statistics["vocab_size"]  # not len(tokenizer): an existing tokenizer's numbers may have holes
    known: dict[str, Any] = {"vocab_size": tokens, "pad_token_id": prepared.tokenizer.pad_token_id}
    if recipe.pretrained is None and adds_special_tokens(prepared.tokenizer):  # every text begins with [CLS]
        known["cls_token_id"] = prepared.tokenizer.cls_token_id
    known |= _labels(recipe, prepared)
    task = TASKS[recipe.task.name]
    if task.writes:
        # What generation starts and ends with: every text is [CLS] text [SEP], but in lanes [SEP] alone parts texts.
        in_lanes = isinstance(prepared.validation, RunningText)
        end = prepared.tokenizer.sep_token_id
        start = end if in_lanes else prepared.tokenizer.cls_token_id
        ends = {"bos_token_id": start, "decoder_start_token_id": start, "eos_token_id": end}
        if recipe.model.get("memory", "none") != "none":
            ends["segment_length"] = recipe.segment_length
        known |= {name: value for name, value in ends.items() if name in config_fields(recipe.network)}
    fields = {**known, **recipe.model}
    if fields["vocab_size"] < tokens:
        raise BadInput(f"model.vocab_size: must be at least the tokenizer's {tokens}, got {fields['vocab_size']}")
    return build_config(recipe.network, **fields)


def _labels(recipe: Recipe, prepared: PreparedData) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if prepared.label_names:
        fields["id2label"] = dict(enumerate(prepared.label_names))
        fields["label2id"] = {name: number for number, name in enumerate(prepared.label_names)}
        fields["num_labels"] = len(prepared.label_names)
    return fields | TASKS[recipe.task.name].model_fields(prepared)


def _host_parts(recipe: Recipe, prepared: PreparedData) -> dict[str, Any]:
    kind = model_class(recipe.network, recipe.task.name)
    labels = _labels(recipe, prepared)
    return {"folder": Path(str(recipe.pretrained)), "kind": kind, "fields": recipe.model, "labels": labels}


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join([*names[:_MOST_NAMES], *([f"and {more} more"] if more > 0 else [])]) or "none"


def _start_from_word_vectors(model: Any, prepared: PreparedData) -> str | None:
    named = getattr(model.config, "word_vectors", None)
    if named is None:
        return None
    path, places = find_word_vectors(named)
    if path is None:
        raise BadInput(f"model.word_vectors: there is no file {' or '.join(str(place) for place in places)}")
    try:
        vocabulary = prepared.tokenizer.get_vocab()
        words = model.load_word_vectors(path, vocabulary)
    except ValueError as error:
        raise BadInput(f"model.word_vectors: {error}") from None
    return f"word vectors from {path}: {words} words found, {len(vocabulary) - words} of the vocabulary not"


def _evaluation(recipe: Recipe, prepared: PreparedData, training: Training) -> Evaluation:
    task, settings = TASKS[recipe.task.name], recipe.training

    def make_tally(device: torch.device, examples: Any) -> Tally:
        return task.tally(device, recipe.task, classes=prepared.label_names, examples=[examples])

    headline = task.progress_metric if settings.select in ("loss", LAST) else settings.select
    common: dict[str, Any] = {"collate": prepared.collate, "make_tally": make_tally, "headline": headline}
    if isinstance(recipe.task, TranslationOptions):
        assert recipe.data.length is not None  # reading a recipe fills it in
        search = Search(
            num_beams=recipe.task.beams,
            # one more than a target has: the token that it starts from counts too
            max_length=recipe.task.max_target_length or recipe.data.length + 1,
        )
        return TranslationEvaluation(
            training,
            tokenizer=prepared.tokenizer,
            search=search,
            always=recipe.task.translate_while_training,
            bleu_tokenizer=recipe.task.bleu_tokenizer,
            reported=prepared.validation if prepared.test is None else prepared.test,
            **common,
        )
    if isinstance(prepared.validation, RunningText):
        segments, stride = settings.segments_per_step, settings.eval_stride
        return RunningTextEvaluation(training, segments=segments, stride=stride, **common)
    return Evaluation(training, **common)


def _higher_is_better(recipe: Recipe) -> bool:
    task, generated = TASKS[recipe.task.name], recipe.data.generated is not None
    metrics = task.metrics_of(generated)
    return any(metric.higher_is_better for metric in metrics if metric.key == recipe.training.select)


def _training_examples(recipe: Recipe, prepared: PreparedData) -> tuple[Any, EpochOrder]:
    """Return the training examples by (epoch, index), and their order: lanes come as they are."""
    train, task, settings = prepared.train, TASKS[recipe.task.name], recipe.training
    if isinstance(train, RunningText):
        lanes = train.training_lanes(settings.batch_size, seed=settings.seed, parts=settings.segments_per_step)
        return lanes, EpochOrder(len(lanes), seed=settings.seed, shuffle=False)
    lengths = getattr(train, "lengths", None)
    if task.grouped_by_length and lengths is not None:
        # the whole step, so that its examples depend neither on the processes nor on the size of micro-batches
        return train, LengthGroupedEpochOrder(lengths, batch_size=settings.batch_size, seed=settings.seed)
    return train, EpochOrder(len(train), seed=settings.seed)


def _finish(
    training: Training, evaluation: Evaluation, saving: Saving, prepared: PreparedData, *, seed: int
) -> RunResult:
    model, folder, progress = training.parts.model, training.folder, training.progress
    twice = prepared.validation is prepared.test  # under data.protocol best-checkpoint-on-test
    reported = prepared.validation if prepared.test is None else prepared.test
    found, units = evaluation.scores_and_units(reported)
    state, meter, processes = training.state, training.meter, training.parts.processes
    kept = None if training.parts.settings.select == LAST else state.best_step
    step = kept or state.step  # of the weights that the model has now
    on_validation = found if reported is prepared.validation else _logged(state.log, step)
    scores: dict[str, Any] = {"validation": on_validation or evaluation.scores(prepared.validation)}
    if prepared.test is not None:
        scores["test"] = found
    (tokens,), (peak,) = processes.total(meter.tokens), processes.greatest(meter.peak_bytes)
    metrics: dict[str, Any] = {
        **scores,
        "optimistic": twice or prepared.test is None,
        "train_seconds": meter.seconds,
        "tokens": tokens,
        "tokens_per_second": tokens / max(meter.seconds, 1e-9),
        "peak_memory_bytes": peak,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "steps": state.step,
        "seed": seed,
        "best_step": step,
        "batches": of_all_processes(processes.everyones(training.digest.found())),
    }
    if isinstance(evaluation, TranslationEvaluation):
        metrics["bleu_signature"] = evaluation.signature
        metrics["generation"] = asdict(evaluation.search)
    weights = saving.gathered_weights()
    if is_main():

        def fill(staging: Path) -> None:
            saving.save_for_use(staging, weights)
            write_run_card(staging, folder, metrics)

        if prepared.log:
            write_json(folder / files.READING, prepared.log.summary())
        write_model(folder / files.MODEL, fill)
        if units is not None:
            fingerprint = str(prepared.statistics["fingerprint"])
            write_unit_scores(folder, units, reported.unit_documents, data=fingerprint)
        rewrite_curve(folder, state.log)  # its rows were appended without waiting for the disk
        write_json(folder / files.METRICS, metrics)  # last of all: it says that all the rest is there
    training.parts.accelerator.wait_for_everyone()
    split, last = list(scores.items())[-1]
    progress.say(f"{'optimistic ' if twice else ''}{split} {evaluation.in_short(last)}")
    if is_main():
        return read_result(folder)
    return RunResult(metrics=metrics, model_dir=folder / files.MODEL, curve=curve_rows(state.log))


def _logged(log: Sequence[Mapping[str, Any]], step: int) -> dict[str, float]:
    rows = [row for row in log if row["step"] == step and "eval_loss" in row] or [{}]
    return {name.removeprefix("eval_"): value for name, value in rows[-1].items() if name.startswith("eval_")}


_MOST_NAMES = 12  # of weights, in a line
_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "accelerate", "datasets", "numpy")


def write_environment(folder: Path, device: torch.device, *, seed: int, resumed: bool) -> None:
    """Write versions, device, threads, command line, commit and seed of this start, beside those of earlier starts."""
    path = folder / ENVIRONMENT
    name = platform.processor() or platform.machine()
    if device.type == "cuda":
        name = f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    environment: dict[str, Any] = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
        "seed": seed,
        "python": platform.python_version(),
        "packages": {"wordorder": __version__}
        | {package: version for package in _PACKAGES if (version := _version(package)) is not None},
        "platform": platform.platform(),
        "device": f"{device.type}: {name}",
        "processes": process_count(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "commit": _package_commit(),
    }
    if resumed and path.exists():
        before = read_checked(path, Environment)
        environment["earlier_starts"] = [*before.pop("earlier_starts", []), before]
    write_json(path, environment)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package_commit() -> str | None:
    root = Path(__file__).resolve().parents[4]
    if not (root / ".git").exists() or not (root / "src" / "wordorder").is_dir():
        return None

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()

    try:
        commit, changed = git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-modified" if changed else commit
