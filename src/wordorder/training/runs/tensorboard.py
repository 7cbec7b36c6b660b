"""Write TensorBoard logs into <run folder>/logs."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback


class TensorBoardLogs(TrainerCallback):
    """Callback that writes train/..., validation/... against the step.

    Not transformers' own callback: that one takes its folder from an environment variable.

    Args:
        folder: made when missing.
        first_step: entries that a killed run wrote from this step on are dropped by the viewer.
    """

    def __init__(self, folder: Path, *, first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=first_step)  # pyright: ignore[reportUnknownVariableType]

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the values of an entry of the log."""
        for name, value in kwargs.get("logs", {}).items():
            if isinstance(value, int | float) and name != "epoch":
                group, _, rest = name.partition("_")
                tag = f"validation/{rest}" if group == "eval" else f"train/{name}"
                self._writer.add_scalar(tag, value, state.global_step)

    def close(self) -> None:
        """Flush and close the file."""
        self._writer.close()
