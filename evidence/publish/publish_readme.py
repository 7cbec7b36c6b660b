"""Write what was found, what it costs and the badges of README.md from committed results and pyproject.toml.

    python evidence/publish/publish_readme.py

A test holds the README and the files to what this makes.
"""

import json
import tomllib
from html import escape

from blocks import put
from choice_rules import control_of, differ_in_memory, standing_of
from publish_choice import flops_beside_control, named_in, results_of, score_of, taken, training_of, unit_of
from publish_demo import ROOT, SPEED

README = ROOT / "README.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOUND = {
    "In encoders that read 64 characters, some masked (2 layers of width 64)": "decision/masked_letters_64",
    "In the same, trained longer": "demo-long",
    "In decoders that predict the next of 64 characters (2 layers of width 64)": "decision/causal_letters_64",
    "In decoders that close brackets of an earlier segment": "memory-brackets",
}
"""Question -> the comparison that answers it, tuned for every model."""
NEAR = ("rope", "alibi", "t5", "tupe-a", "tupe-r")
CONTENT = ("shaw", "transformer-xl", "deberta")


def findings() -> str:
    """One sentence for each question: the best models, how good they are, after how much training."""
    lines: list[str] = []
    for question, file in FOUND.items():
        results = results_of(file)
        standing = standing_of(results)
        assert standing is not None
        name = taken(results, standing).replace(" or ", " and ") if standing.beside else taken(results, standing)
        verb = "are best" if standing.beside else "is best"
        first, control = named_in(results, standing)[0], control_of(results)
        best = f"{unit_of(results, standing)} {score_of(standing, first)}"
        if differ_in_memory(results):
            best += f" at {flops_beside_control(results)[first]:.1f} times the FLOPs"
            beside = f"{score_of(standing, control)} without a memory"
        else:
            beside = ", ".join(f"{score_of(standing, other)} with `{other}`" for other in ("rope", control))
        lines.append(f"- {question}, {name} {verb}: {best}, {beside} ({training_of(results)}).")
    return "\n".join(lines)


def costs() -> str:
    """How much longer a training step takes than without positions, of light encodings and of terms by content."""
    encoder = json.loads((SPEED / "encodings.json").read_text(encoding="utf-8"))["networks"]["encoder"]

    def more(names: tuple[str, ...]) -> str:
        ratios = sorted(encoder[name]["ratio"] - 1 for name in names)
        return f"{ratios[0]:.0%} to {ratios[-1]:.0%}"

    return (
        f"On a CPU a training step of a small encoder (4 layers of width 256, 128 tokens) takes {more(NEAR)} longer"
        f" with RoPE, ALiBi, T5 or TUPE than without positions, and {more(CONTENT)} longer with terms by content, such"
        " as DeBERTa's ([measured](docs/performance.md))."
    )


def badge(name: str, value: str) -> str:
    """A badge as a file, so that no server has to draw it."""
    left, right = (7 * len(text) + 12 for text in (name, value))
    box = f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">'
    back = f'<rect width="{left + right}" height="20" rx="3" fill="#555"/>'
    front = f'<path d="M{left} 0h{right - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3H{left}z" fill="#33658a"/>'
    style = 'fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle"'
    texts = "".join(
        f'<text x="{x}" y="14" textLength="{7 * len(text)}" {style}>{escape(text)}</text>'
        for x, text in ((left / 2, name), (left + right / 2, value))
    )
    return f"{box}<title>{escape(name)}: {escape(value)}</title>{back}{front}{texts}</svg>\n"


def files() -> dict[str, str]:
    """Path under docs/ -> text of every badge."""
    torch = PROJECT["dependencies"][0].removeprefix("torch>=")
    status = next(c for c in PROJECT["classifiers"] if c.startswith("Development Status")).split(" - ")[1]
    badges = {
        "python": ("python", PROJECT["requires-python"].removeprefix(">=") + "+"),
        "torch": ("pytorch", f"{torch}+"),
        "licence": ("licence", PROJECT["license"]),
        "status": ("status", status.lower()),
    }
    return {f"assets/badge-{name}.svg": badge(*texts) for name, texts in badges.items()}


def page_of(text: str) -> str:
    """The README with what the files say."""
    return put(put(text, "findings", findings()), "costs", costs())


if __name__ == "__main__":
    README.write_text(page_of(README.read_text(encoding="utf-8")), encoding="utf-8")
    for name, text in files().items():
        (ROOT / "docs" / name).write_text(text, encoding="utf-8")
