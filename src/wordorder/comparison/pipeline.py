"""The functions of lower layers that a comparison calls, in one place so that tests can replace them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordorder.training.loop.progress import AdviceOnce
from wordorder.training.recipe.pretrained import tokenizer_content

if TYPE_CHECKING:
    from wordorder.data import DataSettings, PreparedData, TokenizerConfig
    from wordorder.tasks import TaskOptions
    from wordorder.training import Recipe

_ADVICE = AdviceOnce()  # one for all trainings of a process, which would all say the same


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The key of prepared data: everything that it depends on."""

    data: DataSettings
    task: TaskOptions
    tokens: str
    """Digest or settings of the tokeniser: each saved model has a copy of the same one in its own folder."""
    tokenizer: TokenizerConfig = field(compare=False)


def prepare(recipe: Recipe, seed: int) -> PreparedData:
    """Return the prepared data of a recipe for the batches of one seed."""
    from wordorder.tasks import TASKS

    data, tokenizer = recipe.data, recipe.tokenizer
    tokens = tokenizer_content(tokenizer.path) if tokenizer.kind == "existing" else repr(tokenizer)
    prepared = _prepared(_Wanted(data=data, task=recipe.task, tokens=tokens, tokenizer=tokenizer))
    return TASKS[recipe.task.name].with_seed(prepared, seed)


@lru_cache(maxsize=2)
def _prepared(wanted: _Wanted) -> PreparedData:
    # the runs of a comparison follow each other and share it
    from wordorder.tasks import prepare as prepare_data

    return prepare_data(wanted.data, wanted.task, wanted.tokenizer, seed=0)


def forget_prepared() -> None:
    """Forget the prepared data of earlier comparisons of this process, whose files may have been changed since."""
    _prepared.cache_clear()


def train(recipe: Recipe, folder: Path, seed: int, *, test: bool = True) -> None:
    """Train one run, resumed from its newest checkpoint if there is one; the result is its files in the folder.

    Without `test` it is scored on the validation split alone.
    """
    from wordorder.training import run

    prepared = prepare(recipe, seed)
    prepared = prepared if test else replace(prepared, test=None)
    run(recipe, output_dir=folder, resume=True, progress=_ADVICE, prepared=prepared, seed=seed)


def cost(recipe: Recipe, model_dir: Path) -> Mapping[str, Any]:
    """Return parameters and FLOPs of a trained model, by `wordorder.cost.cost`."""
    from transformers import AutoConfig

    from wordorder.models.saved_folder import load_config

    return cost_of_config(recipe, load_config(AutoConfig, model_dir))


def cost_of_config(recipe: Recipe, config: Any) -> dict[str, Any]:
    """Return the cost of a model with this configuration at the recipe's segment, batch size and share of masks.

    What an encoding computes once per batch, such as TUPE's projections of the positions, is shared by its tokens.
    """
    from wordorder.cost import cost as cost_of
    from wordorder.tasks.masked_lm import MaskedLMOptions

    task = recipe.task
    masked = {"labelled_share": task.mask_probability} if isinstance(task, MaskedLMOptions) else {}
    return cost_of(
        config,
        task.name,
        length=recipe.segment_length,
        batch_size=recipe.training.micro_batch_size or recipe.training.batch_size,
        **masked,
    )


def probe(recipe: Recipe, model_dir: Path, run_folder: Path, options: Mapping[str, Mapping[str, Any]]) -> None:
    """Measure a trained model with probes; the result is one file per probe, also of one that fails."""
    from wordorder.comparison.probes.measure import measure_probes

    measure_probes(options, recipe, model_dir, run_folder, prepare=lambda: prepare(recipe, recipe.training.seed))


def encoding_parameters(recipe: Recipe, seed: int) -> int:
    """Count the parameters of a recipe's encoding before anything is trained."""
    from wordorder.training.runs.fit import make_config

    return cost_of_config(recipe, make_config(recipe, prepare(recipe, seed)))["parameters"]["encoding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Functions that a comparison calls; each at module level, because worker processes import it by name."""

    prepare: Callable[[Recipe, int], PreparedData] = prepare
    train: Callable[..., None] = train
    encoding_parameters: Callable[[Recipe, int], int] = encoding_parameters
    cost: Callable[[Recipe, Path], Mapping[str, Any]] = cost
    probe: Callable[[Recipe, Path, Path, Mapping[str, Mapping[str, Any]]], None] = probe
