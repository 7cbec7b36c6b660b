"""A recipe: one TOML file that says everything about a run, checked whole before anything slow starts."""

import copy
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from wordorder.errors import BadInput
from wordorder.hints import MOST_HINTS
from wordorder.section import Section, unknown_name
from wordorder.tasks.translation import TARGETS
from wordorder.training.recipe.comparison_section import SECTIONS, ArmConfig, CompareConfig, check_compare
from wordorder.training.recipe.files import parse_value, read_tables, set_dotted, split_key, to_toml
from wordorder.training.recipe.pretrained import ARM, SEED, is_host, place
from wordorder.training.recipe.sections import SOURCES, check_run
from wordorder.training.recipe.settings import TrainingSettings

if typing.TYPE_CHECKING:
    from wordorder.data import DataSettings, TokenizerConfig
    from wordorder.tasks import TaskOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe that has passed every check. Make one with `read_recipe`, and its variants with `with_overrides`."""

    name: str
    """The file's name without its ending; the name of the run folder when `training.output_dir` is not set."""
    path: Path
    """The file that was read."""
    data: "DataSettings"
    """The section [data], with its source found and length filled in from max_position_embeddings."""
    task: "TaskOptions"
    """The section [task]: its name, and its options."""
    tokenizer: "TokenizerConfig"
    """The section [tokenizer]."""
    network: str
    """Name of the network, such as "encoder" or "decoder"; of a model of transformers its type, such as "llama"."""
    model: Mapping[str, Any]
    """Fields of the network's configuration (without `network`): those of the recipe, or of the saved model that it
    starts from, and the defaults for what they leave out, see `wordorder.models.filled_fields`."""
    pretrained: str | None
    """Folder of the saved model whose weights a run starts from; None draws all weights from the seed."""
    training: TrainingSettings
    """The section [training]."""
    compare: CompareConfig | None
    """The section [compare]; None when the recipe has none."""
    raw: Mapping[str, Any]
    """The sections as they were read, overrides put in, without defaults."""
    arms: Mapping[str, "Recipe"]
    """Name of an arm -> its recipe; empty without [compare]."""

    @property
    def output_dir(self) -> Path:
        """The run folder: `training.output_dir`, or runs/<name of the recipe>."""
        return Path(self.training.output_dir or Path("runs") / self.name)

    @property
    def segment_length(self) -> int:
        """Number of tokens that the model reads at a time in training: data.length / segments_per_step."""
        assert self.data.length is not None  # reading a recipe fills it in
        return self.data.length // self.training.segments_per_step

    def with_overrides(self, overrides: Mapping[str, Any]) -> "Recipe":
        """Return the recipe with some values replaced, checked in the same way.

        Args:
            overrides: dotted name -> value; a table replaces the whole table that was there.

        Raises:
            BadInput: a name or value is wrong; every fault is listed.
        """
        return _check(_changed(copy.deepcopy(dict(self.raw)), overrides), self.path)

    def with_run(
        self,
        *,
        seed: int | None = None,
        rate: float | None = None,
        factor: float | None = None,
        fold: int | None = None,
        output_dir: Path | None = None,
    ) -> "Recipe":
        """Return the recipe of one run.

        No other value goes with or against these, so that nothing but their range is checked anew, except where the
        seed names the saved model that the run starts from.

        Args:
            seed, output_dir: of [training]; None leaves what is there, as everywhere.
            rate: training.learning_rate.
            factor: training.encoding_learning_rate.
            fold: data.fold.

        Raises:
            BadInput: a value is out of its range, or there is no saved model of this seed.
        """
        path = None if output_dir is None else str(output_dir)
        values = {"seed": seed, "learning_rate": rate, "encoding_learning_rate": factor, "output_dir": path}
        training = {name: value for name, value in values.items() if value is not None}
        data = {} if fold is None else {"fold": fold}
        changes = {f"training.{name}": value for name, value in training.items()}
        changes |= {f"data.{name}": value for name, value in data.items()}
        if SEED in str(self.raw["model"].get("pretrained")):
            return self.with_overrides(changes)
        return replace(
            self,
            data=self.data.having(**data),
            training=self.training.having(**training),
            raw=_changed(copy.deepcopy(dict(self.raw)), changes),
            arms={
                name: arm.with_run(seed=seed, rate=rate, factor=factor, fold=fold, output_dir=output_dir)
                for name, arm in self.arms.items()
            },
        )

    def for_arm(self, arm: ArmConfig) -> "Recipe":
        """Return the recipe of one arm: with its overrides, and without [compare], which is about all arms."""
        return self.arms[arm.name]

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return all sections with defaults filled in, as plain values; `read_recipe` of it gives the same recipe."""
        sections: dict[str, dict[str, Any]] = {
            # The sources stay as they were written, so that a run folder can move between machines.
            "data": _plain(self.data) | _as_written(self.raw["data"], SOURCES),
            "task": _plain(self.task) | _as_written(self.raw["task"], TARGETS),
            "tokenizer": _plain(self.tokenizer),
            # transformers' type is no network that a recipe may name
            "model": {
                "network": None if is_host(self.network) else self.network,
                "pretrained": self.pretrained,
                **self.model,
            },
            "training": _plain(self.training) | {"output_dir": str(self.output_dir)},
        }
        if self.compare is not None:
            pattern = str(self.raw["model"].get("pretrained"))
            if ARM in pattern or SEED in pattern:
                # Each arm and seed has a folder of its own, and it gives sizes and tokeniser.
                sections["model"], sections["tokenizer"] = dict(self.raw["model"]), dict(self.raw.get("tokenizer", {}))
            elif any("model.network" in arm.overrides for arm in self.compare.arms):
                sections["model"] = dict(self.raw["model"])  # another network need not know the first one's fields
            arms = [{"name": arm.name, **arm.overrides} for arm in self.compare.arms]
            sections["compare"] = _plain(self.compare) | {"arms": arms}
        return {
            section: {name: value for name, value in table.items() if value is not None}
            for section, table in sections.items()
            if table
        }

    def to_toml(self) -> str:
        """Return `to_dict` as the text of a TOML file."""
        return to_toml(self.to_dict())


def read_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe, without reading data or building a model.

    A relative `data.source` that is not found from the working directory is looked up in the folder that the
    environment variable WORDORDER_DATA names. A recipe with a `base` is laid over that one: `read_tables`.

    Args:
        path: the TOML file.
        overrides: `section.key=value`, the value written as in TOML; what is not TOML is taken as a string.

    Raises:
        BadInput: the file cannot be read; overrides are not of that form; or names or values are wrong. Every fault of
            a kind is listed, one a line.
    """
    path = Path(path)
    if path.stem in (".", ".."):  # it names the run folder, which would lie elsewhere
        raise BadInput(f"{path}: a recipe named {path.name!r} has no name for its run folder; rename it")
    raw = read_tables(path)
    faults: list[str] = []
    for override in overrides:
        dotted, equals, text = override.partition("=")
        if not equals:
            faults.append(f"--set {override}: write section.key=value")
        else:
            faults += [f"--set {override}: {fault}" for fault in _put(raw, {dotted.strip(): parse_value(text.strip())})]
    if faults:  # a malformed override is reported at once: checking the rest loads libraries for seconds
        raise BadInput(faults)
    return _check(raw, path)


def check_overrides(recipe: Recipe, overrides: Sequence[str]) -> None:
    """Refuse overrides of a comparison that change nothing, since every arm has a value of its own there."""
    arms = () if recipe.compare is None else recipe.compare.arms
    own = [[split_key(name) for name in arm.overrides] for arm in arms]
    faults: list[str] = []
    for override in overrides if arms else ():
        key = split_key(override.partition("=")[0])
        if all(any(key[: len(name)] == name for name in names) for names in own):
            dotted = ".".join(key)
            faults.append(
                f"--set {override}: every arm sets {dotted} itself, so that nothing would change; write other arms, "
                f'in a copy of the recipe or by --set \'compare.arms=[{{name="NAME", "{dotted}"=VALUE}}]\''
            )
    if faults:
        raise BadInput(faults)


def _changed(raw: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    if faults := _put(raw, overrides):
        raise BadInput(faults)
    return raw


def _put(raw: dict[str, Any], overrides: Mapping[str, Any]) -> list[str]:
    faults: list[str] = []
    for dotted, value in overrides.items():
        try:
            set_dotted(raw, dotted, copy.deepcopy(value))
        except ValueError as error:
            faults.append(str(error))
    return faults


def _as_written(table: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: table[name] for name in names if name in table}


def _plain(config: Section) -> dict[str, Any]:
    return {name: list(cast(Any, value)) if isinstance(value, tuple) else value for name, value in config}


def _check(raw: dict[str, Any], path: Path) -> Recipe:
    unknown = [name for name in raw if name not in SECTIONS]
    faults = [unknown_name("recipe", name, SECTIONS, hint=n < MOST_HINTS) for n, name in enumerate(unknown)]
    for section in SECTIONS:
        if section in raw and not isinstance(raw[section], dict):
            faults.append(f"{section}: must be a section, [{section}], got {raw[section]!r}")
    tables = {section: raw[section] for section in SECTIONS if isinstance(raw.get(section), dict)}
    faults += [f"recipe: section [{section}] is missing" for section in ("data", "task", "model") if section not in raw]
    compare, compare_faults = check_compare(tables["compare"]) if "compare" in tables else (None, [])
    recipe, own_faults = check_run(_placed(tables, compare, compare.arms[0] if compare and compare.arms else None))
    faults += own_faults + compare_faults + _fold_faults(tables.get("data", {}), compare)
    arms: dict[str, Recipe] = {}
    for arm in () if compare is None else compare.arms:
        try:
            arms[arm.name] = _of_arm(tables, compare, arm, path)
        except BadInput as error:
            # a fault of the recipe itself shows in every arm; it is said once, above
            faults += [f"arm {arm.name!r}: {fault}" for fault in error.faults if fault not in own_faults]
    if faults or recipe is None:
        raise BadInput(faults)
    return Recipe(**recipe, path=path, name=path.stem, compare=compare, raw=raw, arms=arms)


def _fold_faults(data: Mapping[str, Any], compare: CompareConfig | None) -> list[str]:
    if compare is None or not compare.folds:
        return []
    folds = data.get("folds")
    if folds is None:
        return ["compare.folds: the data is not divided; say into how many parts by data.folds"]
    if type(folds) is int and max(compare.folds) >= folds:
        return [f"compare.folds: data.folds = {folds} has the folds 0 to {folds - 1}, got {list(compare.folds)}"]
    return []


def _placed(tables: dict[str, Any], compare: CompareConfig | None, arm: ArmConfig | None) -> dict[str, Any]:
    """Return the sections with the arm's name and the first seed, if none is set, put into `model.pretrained`."""
    model = tables.get("model", {})
    pattern = model.get("pretrained")
    if compare is None or not isinstance(pattern, str):
        return tables
    seed = None if "seed" in tables.get("training", {}) else compare.seeds[0]
    placed = place(pattern, arm=arm.name if arm else None)
    training = tables.get("training", {})
    if SEED in pattern and seed is not None:
        training = {**training, "seed": seed}
    return {**tables, "model": {**model, "pretrained": placed}, "training": training}


def _of_arm(tables: dict[str, Any], compare: CompareConfig | None, arm: ArmConfig, path: Path) -> Recipe:
    """Return the recipe of an arm; BadInput with every fault of its overrides."""
    outside = [name for name in arm.overrides if name.partition(".")[0] not in ("model", "training")]
    if outside:
        fault = "an arm may only change [model] and [training], so that arms share data"
        raise BadInput([f"{name}: {fault}" for name in outside])
    if taken := [name for name in arm.overrides if name in ("training.seed", "training.output_dir")]:
        raise BadInput([f"{name}: is set by the comparison" for name in taken])
    raw = {section: copy.deepcopy(table) for section, table in tables.items() if section != "compare"}
    raw = _placed(_changed(raw, arm.overrides), compare, arm)
    recipe, faults = check_run(raw)
    if faults or recipe is None:
        raise BadInput(faults)
    return Recipe(**recipe, path=path, name=path.stem, compare=None, raw=raw, arms={})
