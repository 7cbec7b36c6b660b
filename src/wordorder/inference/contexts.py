"""The context in which a causal language model predicts a token: its segment, a sliding window, or its memory."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from wordorder.errors import BadInput
from wordorder.tasks import TASKS, Task

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.data import Dataset

    from wordorder.data import DataConfig, RunningText

CONTEXTS = ("segment", "sliding", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The context that a causal language model is scored with; every token is predicted once in any case."""

    kind: Literal["segment", "sliding", "memory"] | None = None
    """Kind of context. "segment": each segment by itself, so that its first token is predicted from one token.
    "sliding": windows of a segment's length that advance by `stride`, each by itself; only the new tokens of each are
    scored. "memory": segments in lanes, with the memory carried through. None: "memory" for a model that has one, else
    "segment"."""
    stride: int | None = None
    """Tokens by which a sliding window advances; every token has at least length - stride + 1 tokens before it (fewer
    at the beginning of a stream), at length / stride times the cost. None: half of the length."""
    memory_length: int | None = None
    """Slots of the memory, for kind "memory"; None: as in training."""
    lanes: int | None = None
    """Lanes that the text is divided into, for kind "memory"; each begins without memory. None: data.eval_lanes."""
    length: int | None = None
    """Tokens of a segment or window; None: as in training."""

    def resolved(self, *, task: Task, remembers: bool) -> "Context":
        """Check the context against the model, and return it with the kind filled in.

        Args:
            task: of the model.
            remembers: whether the model has a memory.

        Raises:
            BadInput: the task has no context, the model no memory, or an option belongs to another kind.
        """
        if not task.running_text:
            if self == Context():
                return self
            raise BadInput(
                f"context, stride, lanes, length and memory length are for causal language models, not for {task.name}"
            )
        kind = self.kind or ("memory" if remembers else "segment")
        faults: list[str] = []
        if kind not in CONTEXTS:
            faults.append(f"context must be one of {', '.join(CONTEXTS)}, got {kind!r}")
        if kind == "memory" and not remembers:
            faults.append("context memory: the model has no memory; take context segment or sliding")
        owners = {"stride": "sliding", "memory_length": "memory", "lanes": "memory"}
        for name, owner in owners.items():
            value = getattr(self, name)
            if value is not None and kind != owner:
                faults.append(f"{name.replace('_', ' ')} is for context {owner}, not for {kind}; leave it out")
        for name in (*owners, "length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                faults.append(f"{name.replace('_', ' ')} must be at least 1, got {value}")
        if faults:
            raise BadInput(faults)
        return replace(self, kind=kind)

    def in_data(self, data: "DataConfig", *, remembers: bool) -> "DataConfig":
        """Return the data settings that this context needs; a decoder with a memory always reads lanes."""
        if remembers and TASKS[data.task].running_text and data.packing != "lanes":
            data = replace(data, packing="lanes")
        if self.lanes is not None:
            data = replace(data, eval_lanes=self.lanes)
        return data if self.length is None else replace(data, length=self.length)


def batches_in_context(
    text: "RunningText",
    context: Context,
    *,
    collate: Callable[[list[Any]], Mapping[str, "Tensor"]],
    batch_size: int,
    start_id: int | None = None,
) -> Iterator[Iterator[Mapping[str, "Tensor"]]]:
    """Yield streams of batches of a text; memory is carried within a stream where the context is memory."""
    from torch.utils.data import DataLoader

    def loader(dataset: "Dataset[Any]", rows: int) -> Iterator[Mapping[str, "Tensor"]]:
        return iter(DataLoader(dataset, batch_size=rows, collate_fn=collate))

    if context.kind == "memory":
        for lanes in text.scoring_lanes(most=batch_size):
            yield loader(lanes, lanes.rows)
        return
    stride = text.length if context.kind == "segment" else context.stride or max(1, text.length // 2)
    try:
        windows = text.windows(stride, start_id=start_id)
    except ValueError as error:
        raise BadInput(str(error)) from None
    yield loader(windows, batch_size)
