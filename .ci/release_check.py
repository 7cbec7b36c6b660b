"""Build the sdist and the wheel, check what they hold, and use the wheel outside of the repository.

One bare environment holds torch and nothing else, one what the extra `train` brings. Installing all that again would
cost gigabytes, so both link to the files of the distributions that the wheel's metadata require, in the environment
that runs this script. Anything else that wordorder imported would be missing, and the check would fail.

What has passed is copied into dist/.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
SDIST = ("src", "tests", "docs", "benchmarks", "evidence", "tools", "examples", "requirements")
FILES = ("Makefile", "mkdocs.yml", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "CITATION.cff")
MOST_BYTES = 920_000
"""Largest wheel: 825,000 for what there was before memories of one's own, three more memories, torch's
MultiheadAttention with an encoding, encodings that read or change the input of layers, and windows in Hugging Face's
caches, which take 22,000; then blocks of today and nine more encodings, which take 37,000; then flash attention with
tables that learn, and the norms of queries and keys of configurations, which take 10,000; then the same for terms by
content and on GPUs, which takes 12,000; then texts larger than memory, more encodings and packings of files, and
scores by text, which take 14,000.
"""
RECIPES = {
    *("demo", "demo_long", "masked_lm", "causal_lm", "classification", "translation", "memory"),
    "pretraining",
}
"""Recipes in the wheel: those that users start from. What reproduces a paper or a page is in evidence/."""

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
"""
HUGGING_FACE = """
import torch, transformers
import wordorder.models
assert "site-packages" in wordorder.__file__, wordorder.__file__
config = transformers.AutoConfig.for_model(
    "wordorder-encoder", vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, encoding="rope"
)
model = transformers.AutoModelForMaskedLM.from_config(config)
model.save_pretrained("saved")
again = transformers.AutoModelForMaskedLM.from_pretrained("saved")
tokens = torch.randint(0, 100, (2, 9))
assert torch.equal(model.eval()(tokens).logits, again.eval()(tokens).logits)
"""
COMMANDS = (("--version",), ("list", "recipes"), ("compare", "demo", "--dry-run"))


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it, with the tools of this environment."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def check_contents(sdist: Path, wheel: Path) -> Message:
    """Check that the wheel holds the sources and nothing else, and the sdist what a packager needs.

    Returns:
        The metadata of the wheel.
    """
    names = zipfile.ZipFile(wheel).namelist()
    packed = {name for name in names if ".dist-info/" not in name}
    sources = (path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    expected = {path.relative_to(ROOT / "src").as_posix() for path in sources}
    assert packed == expected, f"the wheel differs from src: {sorted(packed ^ expected)}"
    assert "wordorder/py.typed" in packed, "the wheel has no py.typed"
    recipes = {name.removeprefix("wordorder/recipes/") for name in packed if name.startswith("wordorder/recipes/")}
    assert recipes == {f"{name}.toml" for name in RECIPES}, f"the wheel has the recipes {sorted(recipes)}"
    assert wheel.stat().st_size <= MOST_BYTES, f"the wheel has {wheel.stat().st_size:,} bytes"
    assert not [name for name in packed if PurePosixPath(name).name.startswith("test_")], "the wheel has tests"

    with tarfile.open(sdist) as archive:
        inside = {PurePosixPath(name).relative_to(PurePosixPath(name).parts[0]) for name in archive.getnames()}
    tops = {path.parts[0] for path in inside if path.parts}
    assert {*SDIST, *FILES} <= tops, f"the sdist lacks {sorted({*SDIST, *FILES} - tops)}"
    assert not tops & {".venv", "runs", "site", "build", "dist"}, f"the sdist holds {sorted(tops)}"

    (file,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    found = HeaderParser().parsestr(zipfile.ZipFile(wheel).read(file).decode())
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## From a clone")[0]
    description = str(found.get_payload())
    assert [line for line in description.splitlines() if line and "](" not in line] == [
        line for line in readme.splitlines() if line and "](" not in line
    ], "the description is not the README"
    relative = re.findall(r"\]\((?!https?:|#)[^)]*", description)
    assert relative == [], f"an index cannot show {relative}"
    for key, value in (("Description-Content-Type", "text/markdown"), ("License-Expression", "MIT")):
        assert found[key] == value, f"{key}: {found[key]}"
    return found


def distributions_of(requirements: list[str], extra: str) -> list[metadata.Distribution]:
    """List the distributions here that requirements with an extra name, and all that those require."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(text, extra) for text in requirements]
    while waiting:
        text, extra = waiting.pop()
        if (text, extra) in seen:
            continue
        seen.add((text, extra))
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name == "wordorder":  # an extra that names another one
            waiting += [(other, wanted) for other in requirements for wanted in requirement.extras]
            continue
        if requirement.name not in found:
            found[requirement.name] = metadata.distribution(requirement.name)
            waiting += [(other, "") for other in found[requirement.name].requires or []]
        waiting += [(t, wanted) for t in found[requirement.name].requires or [] for wanted in requirement.extras]
    return list(found.values())


def environment(folder: Path, wheel: Path, linked: list[metadata.Distribution]) -> Path:
    """Make an environment that holds the wheel and links to distributions, and return its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    programs = folder / "bin"
    install = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True)
    target = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    for distribution in linked:
        for top in {Path(str(file)).parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            source, link = Path(str(distribution.locate_file(top))).resolve(), target / top
            if source.exists() and not link.exists():
                link.symlink_to(source)
    return programs


def run_python(programs: Path, code: str, folder: Path) -> None:
    """Run code with warnings as errors, but for the one that torch gives when NumPy is absent."""
    # -I: neither the working folder nor PYTHONPATH may lend the environment anything
    quiet = ["-W", "error", "-W", "ignore:Failed to initialize NumPy"]
    subprocess.run([str(programs / "python"), "-I", *quiet, "-c", code], check=True, cwd=folder)


def main() -> None:
    """Build, check, install beside torch alone and with the extra train, use."""
    with tempfile.TemporaryDirectory(prefix="wordorder-release-") as name:
        folder = Path(name)
        sdist, wheel = build(folder)
        found = check_contents(sdist, wheel)
        print(f"{wheel.name} and {sdist.name} ({sdist.stat().st_size / 1e6:.1f} MB): contents ok")

        blocks = re.findall(r"^```python\n(.*?)^```$", str(found.get_payload()), flags=re.DOTALL | re.MULTILINE)
        needs_models = re.compile(r"transformers|wordorder\.models")
        requirements = found.get_all("Requires-Dist") or []
        bare = environment(folder / "bare", wheel, distributions_of(requirements, ""))
        for code in [PLAIN_TORCH, *(block for block in blocks if not needs_models.search(block))]:
            run_python(bare, code, folder)
        command = subprocess.run([str(bare / "wordorder"), "list"], capture_output=True, text=True, cwd=folder)
        lines = command.stderr.splitlines()
        assert command.returncode == 2, command
        assert len(lines) == 1, command
        assert f"pip install '{wheel}[train]'" in lines[0], command
        print(f"beside torch alone: ok; without typer: {lines[0]}")

        full = environment(folder / "full", wheel, distributions_of(requirements, "train"))
        for code in [HUGGING_FACE, *(block for block in blocks if needs_models.search(block))]:
            run_python(full, code, folder)
        for arguments in COMMANDS:
            subprocess.run([str(full / "wordorder"), *arguments], check=True, cwd=folder, stdout=subprocess.DEVNULL)
            print(f"wordorder {' '.join(arguments)}: ok")

        (ROOT / "dist").mkdir(exist_ok=True)
        for file in (sdist, wheel):
            shutil.copy(file, ROOT / "dist")


if __name__ == "__main__":
    main()
