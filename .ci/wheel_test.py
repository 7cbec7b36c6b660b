"""Build the wheel and use it in a bare environment that holds torch and nothing else.

Reinstalling torch would cost gigabytes, so the bare environment links to the files of torch and of torch's own
dependencies (read from their metadata) in the environment that runs this script. Anything else that wordorder imported
would be missing, and the test would fail.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "wheel-test"

PLAIN_TORCH = """
import importlib.util, sys
import wordorder, torch
for absent in ("transformers", "numpy", "typer", "safetensors"):
    assert importlib.util.find_spec(absent) is None, f"{absent} should not be here"
assert "site-packages" in wordorder.__file__, wordorder.__file__
tokens = torch.randint(0, 100, (2, 9))
for name in ("learned", "rope", "tupe-r"):
    encoder = wordorder.Encoder(100, width=32, layers=2, heads=4, max_positions=16, encoding=name)
    encoder(tokens).hidden.sum().backward()
import wordorder.errors
try:
    import wordorder.models
except ImportError as error:
    assert "pip install" in str(error), error
    assert "[models]" in str(error), error
else:
    raise AssertionError("wordorder.models needs transformers, which is not here")
print("plain torch: ok")
"""


def dependencies_of(root: str) -> list[metadata.Distribution]:
    """List a distribution and everything it requires here, without extras."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [root]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # required on another platform or Python only
        for requirement in found[name].requires or []:
            if "extra ==" not in requirement:
                waiting.append(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0])
    return list(found.values())


def link_distributions(distributions: list[metadata.Distribution], target: Path) -> None:
    """Link the top-level entries that the distributions installed into another site-packages folder."""
    for distribution in distributions:
        for top in {Path(str(file)).parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            source, link = Path(str(distribution.locate_file(top))).resolve(), target / top
            if source.exists() and not link.exists():
                link.symlink_to(source)


def built_wheel() -> Path:
    """Build the wheel with the tools of this environment, and check that it holds the sources and nothing else."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(BUILD), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = BUILD.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = (path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    expected = {path.relative_to(ROOT / "src").as_posix() for path in sources}
    assert packed == expected, f"the wheel differs from src: {sorted(packed ^ expected)}"
    return wheel


def main() -> None:
    """Build, install beside torch, use."""
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    wheel = built_wheel()
    bare = BUILD / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(bare)], check=True)
    python = bare / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True)
    paths = {"base": str(bare), "platbase": str(bare)}
    link_distributions(dependencies_of("torch"), Path(sysconfig.get_path("purelib", "venv", paths)))

    # -I: neither the working folder nor PYTHONPATH may lend the bare environment anything; warnings are errors but
    # for the one that torch itself gives when NumPy is absent.
    quiet = ["-W", "error", "-W", "ignore:Failed to initialize NumPy"]
    subprocess.run([str(python), "-I", *quiet, "-c", PLAIN_TORCH], check=True, cwd=BUILD)
    command = subprocess.run([str(bare / "bin" / "wordorder"), "list"], capture_output=True, text=True, cwd=BUILD)
    lines = command.stderr.splitlines()
    assert command.returncode == 2, command
    assert len(lines) == 1, command
    assert f"pip install '{wheel}[train]'" in lines[0], command
    print(f"console script without typer: {lines[0]}")


if __name__ == "__main__":
    main()
