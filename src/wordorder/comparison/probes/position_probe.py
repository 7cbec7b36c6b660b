"""Probe the hidden states, layer by layer, for absolute and relative position, with a linear regression.

After Wang and Chen 2020, "What Do Position Embeddings Learn?", https://arxiv.org/abs/2010.04903 (linear regression of
the position); Haviv et al. 2022, "Transformer Language Models without Positional Encodings Still Learn Positional
Information", https://arxiv.org/abs/2203.16634 (probes at every layer).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wordorder.comparison.probes import probe
from wordorder.comparison.probes.texts import (
    Ids,
    batches,
    blocks,
    causal_windows,
    enclosed,
    text_of,
    window_of_training,
)
from wordorder.data.randomness import counter_hash

ABSOLUTE, DISTANCE = "absolute position", "signed distance of two tokens"
_PAIR, _SIGNED = 0x9A12, 0x51D6  # keep these draws apart from each other and from others
_PENALTIES = tuple(10.0**power for power in range(-2, 5))
"""Penalties of ridge regression, chosen by cross-validation within the training half."""
_FEWEST_WINDOWS = 8

States = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionProbe(probe.Probe):
    """A probe of the variance of positions and distances that a linear function of the hidden states explains."""

    tokens: int = 4096
    """Number of tokens of running text whose states are read, in windows of data.length; half of the windows fit the
    regression, the other half score it."""
    reach: int = 8
    """The greatest distance, in tokens, of the pairs of tokens whose signed distance is predicted."""

    def __post_init__(self) -> None:
        probe.check_at_least("tokens", self.tokens, 1)
        probe.check_at_least("reach", self.reach, 1)

    def axes(self, task: str) -> probe.Axes:
        return probe.Axes(
            title="Positions in the hidden states",
            x="layer (0 = the embeddings)",
            x_kind="number",
            value="R² of a linear probe on other texts",
            higher_is_better=None,
            log=False,
            meaning="How much of a token's position, and of the distance of two tokens, a linear function of the "
            "hidden states says: 1 is all of it, 0 or less is nothing.",
        )

    def measure(self, trained: probe.Trained) -> probe.Measured:
        text, unit = text_of(trained), window_of_training(trained)
        if len(text) < _FEWEST_WINDOWS * unit:
            raise probe.CannotProbe(
                f"the text has {len(text):,} tokens, less than {_FEWEST_WINDOWS} windows of {unit} tokens"
            )
        if (architecture := getattr(trained.model.config, "architecture", "transformer")) != "transformer":
            raise probe.CannotProbe(f"architecture {architecture!r} gives no hidden states by layer")
        whole = blocks(text, unit, max(self.tokens, _FEWEST_WINDOWS * unit))
        states, first = _states(trained, whole)
        rows: list[probe.Row] = []
        for layer, states_WTC in enumerate(states):
            inner_WTC = states_WTC[:, first : first + unit]
            fit, held_out = inner_WTC[::2], inner_WTC[1::2]
            rows.append({"x": layer, "value": _position_r2(fit, held_out), "group": ABSOLUTE})
            if fit.shape[1] > 1:
                rows.append({"x": layer, "value": _distance_r2(fit, held_out, self.reach), "group": DISTANCE})
        return probe.Measured(rows=rows)


def _states(trained: probe.Trained, whole: list[Ids]) -> tuple[list[States], int]:
    """Return each layer's states (windows, T, C), and the place of a window's first token of text."""
    causal = trained.task.running_text
    special = trained.prepared.tokenizer.num_special_tokens_to_add(pair=False)
    first = 1  # [CLS], or [SEP] of running text, itself says where it stands
    if causal:
        read = [causal_windows(trained, block, len(block))[0][0] for block in whole]
    elif special:
        read = [enclosed(trained, block, block)[0] for block in whole]
    else:
        read, first = whole, 0
    found: list[list[States]] = []
    for _, batch in batches(trained, read):  # all are of one length, so they come in order
        output: Any = trained.model(**batch, output_hidden_states=True)
        layers = getattr(output, "hidden_states", None)
        if not layers:
            raise probe.CannotProbe("the network gives no hidden states by layer")
        found.append([layer.double().cpu().numpy() for layer in layers])
    return [np.concatenate(layer) for layer in zip(*found, strict=True)], first


def _position_r2(fit_WTC: States, held_out_WTC: States) -> float:
    def rows(states_WTC: States) -> tuple[States, States]:
        windows, tokens, channels = states_WTC.shape
        return states_WTC.reshape(-1, channels), np.tile(np.arange(tokens, dtype=np.float64), windows)

    return _r2(*rows(fit_WTC), *rows(held_out_WTC))


def _distance_r2(fit_WTC: States, held_out_WTC: States, reach: int) -> float:
    """Return R² of predicting j - i from the states of token i and a random neighbour j, side by side."""

    def rows(states_WTC: States, half: int) -> tuple[States, States]:
        windows, tokens, channels = states_WTC.shape
        most = min(reach, tokens - 1)
        count: Ids = np.arange(windows * tokens, dtype=np.int64)
        away = 1 + (counter_hash(half, _PAIR, count) % np.uint64(most)).astype(np.int64)
        sign = np.where(counter_hash(half, _SIGNED, count) % np.uint64(2), 1, -1)
        window, place = np.divmod(count, tokens)
        other = place + sign * away
        inside = (other >= 0) & (other < tokens)
        flat = states_WTC.reshape(-1, channels)
        pairs = np.concatenate([flat[count[inside]], flat[(window * tokens + other)[inside]]], axis=1)
        return pairs, (other - place)[inside].astype(np.float64)

    return _r2(*rows(fit_WTC, 0), *rows(held_out_WTC, 1))


def _r2(fit: States, wanted: States, held_out: States, truth: States) -> float:
    """Return R² on held-out rows of ridge regression on standardised states."""
    from sklearn import linear_model, pipeline, preprocessing

    untyped: Any = (linear_model, pipeline, preprocessing)
    models, steps, scaling = untyped
    regression = steps.make_pipeline(scaling.StandardScaler(), models.RidgeCV(alphas=_PENALTIES))
    return float(regression.fit(fit, wanted).score(held_out, truth))
