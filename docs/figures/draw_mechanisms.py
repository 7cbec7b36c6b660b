"""Draw the figures of the mechanisms' pages, as SVG files that are the same in every run on one machine.

    python docs/figures/draw_mechanisms.py                    # all, into docs/figures/mechanisms: about two minutes
    python docs/figures/draw_mechanisms.py rope alibi         # some
    python docs/figures/draw_mechanisms.py --steps 2 --out x  # as the test does

A mechanism's own panels (`panels.py`) show what it computes, by the package's own classes. The panel `NAME-attention`
shows a small network (two layers of width 64, four heads) trained to predict the previous token, the same task for all:
the head that attends most to the previous token.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from panels import PANELS, Panel, shown
from torch.nn import functional as F

import wordorder

OUT = Path(__file__).parent / "mechanisms"
VOCABULARY, LENGTH, BATCH = 20, 24, 32
STYLE = {
    "svg.hashsalt": "wordorder",  # names of clip paths would be drawn by chance otherwise
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
DARK = {
    "text": "fill: #d9dce3",
    "[style*='fill: #ffffff']": "fill: #1e2129 !important",
    "[style*='stroke: #000000']": "stroke: #d9dce3 !important",
    "[style*='stroke: #440154']": "stroke: #c58fdc !important",
    "[style*='stroke: #3b528b']": "stroke: #7f9be0 !important",
}
"""What matplotlib draws on white, on the dark palette of the site."""
TRAINED: dict[str, dict[str, Any]] = {
    "none": {"encoding": "none"},
    "sinusoidal": {"encoding": "sinusoidal", "encoding_options": {"embedding_scale": 8.0}},
    "learned": {"encoding": "learned"},
    "rope": {"encoding": "rope"},
    "xpos": {"encoding": "xpos", "decoder": True},
    "pope": {"encoding": "pope"},
    "alibi": {"encoding": "alibi", "decoder": True},
    "kerple": {"encoding": "kerple", "decoder": True},
    "sandwich": {"encoding": "sandwich", "decoder": True},
    "t5": {"encoding": "t5"},
    "fire": {"encoding": "fire"},
    "shaw": {"encoding": "shaw"},
    "transformer-xl": {"encoding": "transformer-xl"},
    "deberta": {"encoding": "deberta"},
    "cope": {"encoding": "cope", "decoder": True},
    "dape": {"encoding": "dape", "decoder": True},
    "tupe": {"encoding": "tupe-r", "encoding_options": {"cls": "position-0"}},
}
"""The small network of each page; a decoder for symmetric biases, which cannot distinguish left from right."""


def trained(encoding: str, *, steps: int, decoder: bool = False, encoding_options: dict[str, Any] | None = None) -> Any:
    """Train a small network for some steps to predict the previous token of each token."""
    torch.manual_seed(0)
    network = wordorder.Decoder if decoder else wordorder.Encoder
    model = network(
        VOCABULARY,
        width=64,
        layers=2,
        heads=4,
        max_positions=LENGTH,
        encoding=encoding,
        encoding_options=encoding_options,
        dropout=0.0,
        attention_dropout=0.0,
    )
    head = torch.nn.Linear(64, VOCABULARY)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=generator)
        logits = head(model(tokens).hidden)[:, 1:]
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, :-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def attention_panel(model: Any, axes: Any) -> None:
    """Draw mean weights over 64 texts of the head that attends most to the previous token."""
    tokens = torch.randint(VOCABULARY, (64, LENGTH), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        weights = [layer.mean(0) for layer in model(tokens, return_attentions=True).attentions]
    share, layer, head = max(
        (float(of_head.diagonal(-1).mean()), layer, head)
        for layer, of_layer in enumerate(weights)
        for head, of_head in enumerate(of_layer)
    )
    shown(axes, weights[layer][head], low=0, high=1, bar="weight")
    axes.set_title(f"attention, layer {layer + 1}, head {head + 1}:\n{share:.2f} on the previous token")


def with_dark(svg: str) -> str:
    """Return a figure of matplotlib with the colours for a dark page beside those for a light one."""
    rules = "".join(f"{selector} {{{rule}}} " for selector, rule in DARK.items())
    before, style, after = svg.partition('<style type="text/css">')
    assert style, "matplotlib begins a figure by its style"
    return f"{before}{style}@media (prefers-color-scheme: dark) {{ {rules}}} {after}"


def save(draw: Callable[[Any], None], name: str, out: Path) -> None:
    """Save one panel in one file, which follows the palette of the page: a narrow screen puts them below each other."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.7, 3.0), layout="constrained", facecolor="white")
        draw(figure.add_subplot())
        file = out / f"{name}.svg"
        figure.savefig(file, metadata={"Date": None, "Creator": None, "Title": name})
    file.write_text(with_dark(file.read_text(encoding="utf-8")), encoding="utf-8")


def draw(names: Sequence[str], *, steps: int, out: Path) -> None:
    """Draw the panels of these mechanisms, or of all."""
    out.mkdir(parents=True, exist_ok=True)
    for name in names or dict.fromkeys((*PANELS, *TRAINED)):
        model = trained(**TRAINED[name], steps=steps) if name in TRAINED else None
        panels: dict[str, Panel] = PANELS.get(name, {})
        for panel, put in panels.items():
            save(lambda axes, put=put, model=model: put(axes, model), f"{name}-{panel}", out)
        if model is not None:
            save(lambda axes, model=model: attention_panel(model, axes), f"{name}-attention", out)


def main() -> None:
    """Draw the figures that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="mechanisms; default: all")
    parser.add_argument("--steps", type=int, default=200, help="training steps of the small networks")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order
    draw(arguments.names, steps=arguments.steps, out=arguments.out)


if __name__ == "__main__":
    main()
