"""`wordorder cost RECIPE --gpu NAME`: predict the cost of a step and of the run on so many devices, and its limits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from wordorder.cli.cost_tables import print_checks, print_predictions, run_of
from wordorder.cli.output import print_json
from wordorder.errors import BadInput

if TYPE_CHECKING:
    from wordorder.inspection.hardware import Device
    from wordorder.inspection.measured_step import Check
    from wordorder.inspection.prediction import Layout, Prediction
    from wordorder.inspection.traced_step import Step
    from wordorder.training import Recipe

HERE = "here"
CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")
"""Both names that transformers has had for gradient checkpointing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of the command that are about devices."""

    gpu: str | None
    gpus: int
    strategy: str | None
    per_node: int | None
    precision: str | None
    checkpointing: bool | None
    global_batch: int | None
    overlap: bool
    check: bool

    @property
    def about_devices(self) -> bool:
        """True if the options ask about devices at all.

        Raises:
            BadInput: something is asked about unnamed devices, or about several of this machine.
        """
        if self.gpus < 1:
            raise BadInput(f"--gpus: must be at least 1, got {self.gpus}")
        if self.check and self.gpu not in (None, HERE):
            raise BadInput(f"--check: measures this machine, not {self.gpu}; leave --gpu out")
        if self.gpu is None and not self.check and self._needs_a_device:
            raise BadInput("--gpu: is missing; name one, such as --gpu h100, or --gpu here")
        if (self.check or self.gpu == HERE) and self.gpus > 1:
            raise BadInput(f"--gpus: this machine is measured as one device, got {self.gpus}; name a --gpu")
        if self.gpu not in (None, HERE):
            from wordorder.inspection.hardware import device_named

            layout_of(self, device_named(self.gpu))
        return self.check or self.gpu is not None

    @property
    def _needs_a_device(self) -> bool:
        """True if an option is given that only a named device could answer."""
        said = (self.strategy, self.per_node, self.precision, self.checkpointing, self.global_batch)
        return self.gpus > 1 or not self.overlap or any(option is not None for option in said)

    def of_recipe(self, recipe: "Recipe") -> "Asked":
        """Return these options with the recipe's own strategy where none is named."""
        sharded = "fsdp2" if recipe.training.get("fsdp") else "ddp"
        return replace(self, strategy=self.strategy or sharded)


def layout_of(asked: Asked, device: "Device") -> "Layout":
    """Return how the work is spread over the devices."""
    from wordorder.inspection.prediction import Layout

    return Layout(
        devices=asked.gpus,
        strategy=cast(Any, asked.strategy or "ddp"),
        per_node=device.per_node if asked.per_node is None else asked.per_node,
        overlap=asked.overlap,
    )


def device_of(asked: Asked, precisions: Iterable[str]) -> "Device":
    """Return the device of the catalogue, or measure this machine."""
    from wordorder.inspection.hardware import device_named
    from wordorder.inspection.machine import measure_here

    if asked.check or asked.gpu == HERE:
        return measure_here(half="bf16" in precisions)
    return device_named(cast(str, asked.gpu))


def step_of(recipe: "Recipe", asked: Asked) -> "Step":
    """Return what one device computes in a step of the recipe.

    Raises:
        BadInput: the batch does not divide among the devices.
    """
    from wordorder.cli.cost import counted_config
    from wordorder.inspection.traced_step import Step

    training, pieces = recipe.training, recipe.segments_per_step
    rows, accumulation = rows_of(recipe, asked.gpus, asked.global_batch)
    precision = asked.precision or ("bf16" if training.get("bf16") or training.get("fp16") else "float32")
    if precision not in ("bf16", "float32"):
        raise BadInput(f"--precision: must be bf16 or float32, got {precision!r}")
    chosen = asked.checkpointing
    return Step(
        config=counted_config(recipe)[0],
        task=recipe.data.task,
        length=recipe.segment_length,
        rows=rows,
        accumulation=accumulation * pieces,
        pieces=pieces,
        labelled_share=recipe.data.mask_probability,
        precision=precision,
        checkpointing=any(map(training.get, CHECKPOINTING)) if chosen is None else chosen,
        optimizer=str(training.get("optim")),
        clipped=bool(training.get("max_grad_norm", 1.0)),
    )


def rows_of(recipe: "Recipe", gpus: int, global_batch: int | None) -> tuple[int, int]:
    """Return the rows of a forward pass on each device, and the passes per step.

    Without a global batch they are those of the recipe, so that a step grows with the devices, as it does when the
    recipe is launched on them.

    Raises:
        BadInput: the global batch does not divide.
    """
    rows = int(recipe.training["per_device_train_batch_size"])
    passes = int(recipe.training.get("gradient_accumulation_steps") or 1) // recipe.segments_per_step
    if global_batch is None:
        return rows, max(1, passes)
    if global_batch < 1 or global_batch % gpus:
        below = max(gpus, global_batch // gpus * gpus)
        raise BadInput(
            f"--global-batch: {global_batch} rows do not divide among {gpus} GPUs; take {below} or {below + gpus}"
        )
    own = global_batch // gpus
    if own <= rows:
        return own, 1
    if own % rows:
        fit = max(n for n in range(1, rows + 1) if own % n == 0)
        raise BadInput(
            f"--global-batch: {own} rows for each GPU are not a multiple of training.per_device_train_batch_size "
            f"{rows}; set that to {fit}, or take another batch"
        )
    return rows, own // rows


def predictions(
    recipes: Mapping[str, "Recipe"], costs: Mapping[str, Mapping[str, Any]], asked: Asked
) -> "dict[str, tuple[Prediction, list[str]]]":
    """Return each arm's prediction, and the changes that would make it fit where it does not."""
    from wordorder.inspection.fitting import changes_that_fit
    from wordorder.inspection.prediction import predict
    from wordorder.inspection.traced_step import trace

    steps = {name: step_of(recipe, asked) for name, recipe in recipes.items()}
    device = device_of(asked, {step.precision for step in steps.values()})
    layout = layout_of(asked, device)
    found: dict[str, tuple[Prediction, list[str]]] = {}
    for name, step in steps.items():
        traced = trace(step, device="gpu" if device.asynchronous else "cpu")
        one = predict(step, traced, layout, device, model_flops_per_token=costs[name]["flops_per_token"])
        changes = [] if one.fits else changes_that_fit(step, traced, layout, device)
        found[name] = one, [change.what for change in changes]
    return found


def checks(recipes: Mapping[str, "Recipe"], costs: Mapping[str, Mapping[str, Any]], asked: Asked) -> "dict[str, Check]":
    """Measure each arm's step on this machine, and return it beside its prediction."""
    from wordorder.inspection.measured_step import check_prediction

    steps = {name: step_of(recipe, asked) for name, recipe in recipes.items()}
    device = device_of(asked, {step.precision for step in steps.values()})
    return {
        name: check_prediction(step, device, model_flops_per_token=costs[name]["flops_per_token"])
        for name, step in steps.items()
    }


def tell(
    recipes: Mapping[str, "Recipe"],
    costs: Mapping[str, Mapping[str, Any]],
    asked: Asked,
    *,
    json: bool,
    recipe: str,
) -> None:
    """Predict, or check, and print."""
    if asked.check:
        checked = checks(recipes, costs, asked)
        print_json({"recipe": recipe, "arms": checks_as_json(checked)}) if json else print_checks(checked)
        return
    found = predictions(recipes, costs, asked)
    print_json({"recipe": recipe, "arms": as_json(found, recipes)}) if json else print_predictions(found, recipes)


def as_json(
    found: "Mapping[str, tuple[Prediction, list[str]]]", recipes: Mapping[str, "Recipe"]
) -> list[dict[str, Any]]:
    """Return predictions as plain values."""
    return [
        {"arm": name, **one.as_dict(), "would_fit": changes, "run": run_of(recipes[name], one)}
        for name, (one, changes) in found.items()
    ]


def checks_as_json(found: "Mapping[str, Check]") -> list[dict[str, Any]]:
    """Return measured numbers beside predicted ones, as plain values."""
    return [
        {
            "arm": name,
            "measured_seconds": one.seconds,
            "measured_memory_bytes": one.memory_bytes,
            "time_ratio": one.time_ratio,
            "memory_ratio": one.memory_ratio,
            "predicted": one.predicted.as_dict(),
        }
        for name, one in found.items()
    ]
