"""Other names of the catalogue's encodings, for suggestions, and other mechanisms that share a name with one.

Loaded only where a name is unknown, and by `wordorder list`.
"""

import difflib
from collections.abc import Iterable

from wordorder.errors import BadInput

SYNONYMS = {
    "none": "nope",
    "sinusoidal": "absolute sin sine sinusoid cosine",
    "learned": "absolute bert gpt",
    "rope": "rotary rotation roformer",
    "rope@512": "window windowed sliding local swa",
    "rope-linear": "interpolation scaling",
    "rope-ntk": "ntk scaling",
    "rope-dynamic": "dynamic scaling",
    "rope-yarn": "yarn scaling",
    "rope-llama3": "llama3 scaling",
    "rope-longrope": "longrope scaling",
    "log-n": "temperature scalable-softmax ssmax",
    "t5": "relative bucket buckets",
    "shaw": "relative",
    "transformer-xl": "relative xl",
    "deberta": "relative disentangled",
    "relative-logits": "relative inkling",
    "cope": "contextual",
    "pope": "polar",
    "softmax-sink": "sink sinks off-by-one softmax1 gpt-oss",
    "fox": "forget forgetting",
    "path": "householder",
    "shift": "smear canon conv convolution token-shift",
}
"""Name, or a pattern that shows its grammar, -> words and hyphenated names that people look for."""

OTHER_MEANINGS = {
    "transformer-xl": 'The encoding alone: the memory of the same paper is memory = "segment-recurrence".',
    "pope": "Another method has the same name: Legendre polynomials as a table of absolute positions (2024,"
    " https://arxiv.org/abs/2405.04585).",
    "cope": "Another method has the same name: Clipped RoPE (2026, https://arxiv.org/abs/2602.05258), which fades out"
    " the slowest rotations of RoPE.",
}
"""Name -> a sentence on what else is called so, where a reader would expect that."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean 'rope'? " for "rotary": the names with this synonym, then those of like spelling, or ""."""
    written = name.lower().replace("_", "-").partition(":")[0]
    words = {written, *written.split("-")}
    meant = [ours for ours, synonyms in SYNONYMS.items() if words & {*synonyms.split()}]
    # Beside a synonym only what differs by a letter or two is worth a line.
    alike = difflib.get_close_matches(written, known, n=5, cutoff=0.75 if meant else 0.5)
    suggestions = dict.fromkeys([*meant, *alike])
    return f"did you mean {', '.join(map(repr, suggestions))}? " if suggestions else ""


def unknown_encoding(name: str, known: Iterable[str]) -> BadInput:
    """Return the error of a name that is not known."""
    return BadInput(
        f"unknown encoding {name!r}; {did_you_mean(name, known)}`wordorder list` shows all; join several with '+', or"
        " with ',' to take turns over the layers; one of your own must be registered first, by wordorder.encodings"
        ".register_encoding(name, class), or by --use FILE.py:CLASS=name (in `compare` also by --arm)"
    )
