"""Describe the software and hardware of a run in environment.json, so that it can be repeated."""

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from wordorder import __version__
from wordorder.durable import write_json
from wordorder.launch import process_count
from wordorder.training.runs.folder import ENVIRONMENT, Environment, read_checked

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
    """Return the git commit of the package's own checkout, with `-modified` if files changed; None when installed."""
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
