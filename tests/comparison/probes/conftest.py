import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from wordorder.comparison.probes.probe import Trained

SIZES = {"max_position_embeddings": 8, "pad_token_id": 0}
WORDS = [f"w{number}" for number in range(40)]


class Made:
    """A model that somebody made by hand: from token ids to logits (B, T, V), or to (B, classes)."""

    def __init__(self, logits: Callable[[torch.Tensor], torch.Tensor], **config: Any) -> None:
        self.logits = logits
        self.config = SimpleNamespace(
            vocab_size=45, encoding="none", memory="none", model_type="made", **{**SIZES, **config}
        )
        self.seen: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, attention_mask: Any = None) -> Any:
        self.seen.append(input_ids)
        return SimpleNamespace(logits=self.logits(input_ids))


@pytest.fixture
def make_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trained]:
    """A model, and data of 40 words that every split has; keywords are those of [data] and [task]."""
    from documents import settings

    from wordorder.data import TokenizerConfig
    from wordorder.tasks import prepare

    def make(task: str, model: Any, *, words: int = 600, texts: int = 1, length: int = 8, **values: Any) -> Trained:
        folder = tmp_path / "texts"
        folder.mkdir(exist_ok=True)
        chance = torch.Generator().manual_seed(0)
        for split, count in (("train", 6), ("validation", 2), ("test", texts)):
            drawn = [torch.randint(0, 40, (words,), generator=chance).tolist() for _ in range(count)]
            rows = [
                {"text": " ".join([*WORDS, *(WORDS[n] for n in numbers)]), "label": "ab"[k % 2]}
                for k, numbers in enumerate(drawn)
            ]
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        data, options = settings(source=str(folder), task=task, length=length, **values)
        tokenizer = TokenizerConfig(kind="whitespace", vocab_size=64)
        prepared = prepare(data, options, tokenizer, seed=0, cache_dir=tmp_path / "c")
        assert prepared.statistics["vocab_size"] == 45
        recipe: Any = SimpleNamespace(data=data, task=options, training={}, segment_length=length)
        return Trained(
            recipe=recipe, model_dir=tmp_path / "model", model=model, prepared=prepared, device=torch.device("cpu")
        )

    return make


@pytest.fixture
def made() -> type[Made]:
    return Made


@pytest.fixture
def tiny_masked_model() -> Callable[[str], Any]:
    """A masked language model of one layer with random weights."""

    def make(encoding: str) -> Any:
        from wordorder.models import build_config, build_model

        sizes: dict[str, Any] = {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 32,
        }
        if encoding == "sinusoidal":
            sizes["encoding_options"] = {"embedding_scale": 1.0}  # embeddings are of the size of the sines already
        config = build_config(
            "encoder", vocab_size=45, max_position_embeddings=64, encoding=encoding, initializer_range=0.5, **sizes
        )
        return build_model(config, "masked-lm", seed=0).eval()

    return make
