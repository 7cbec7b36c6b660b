"""The model `wordorder` of lm-evaluation-harness: decoders of this package, whose memory is carried over a text.

Import this module and lm_eval knows the name ``wordorder``; or use its command line through

    python -m wordorder.inference.lm_eval_model --model wordorder --model_args pretrained=runs/lm/model --tasks ...
"""

# lm_eval is typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

from wordorder.data.tokens import encode_texts
from wordorder.errors import BadInput, MissingExtra

try:
    from lm_eval.api.registry import register_model
    from lm_eval.models.huggingface import HFLM
except ImportError as error:
    raise MissingExtra("lm-eval", "eval") from error

import wordorder.models  # registers the model types  # noqa: F401  # pyright: ignore[reportUnusedImport]
from wordorder.models import SegmentCache, longest_text
from wordorder.models.pretrained import CACHE
from wordorder.models.saved_folder import check_model_of

NAME = "wordorder"
_ENDLESS = 10**9  # tokens that a model with a memory takes; lm_eval wants a number

_HFLM: Any = HFLM


@register_model(NAME)
class WordOrderLM(_HFLM):
    """lm_eval's Hugging Face model for `WordOrderDecoderForCausalLM`, with and without a memory.

    Every text begins with the token that begins a text in training (``bos_token_id`` of the configuration), and none
    of the tokeniser's own special tokens is put in. A model with a memory reads a text of any length from its
    beginning, segment after segment of ``segment_length`` tokens, each beside the memory of those before, as it did in
    training: nothing is cut off, and `loglikelihood_rolling` predicts each token once from all that stands before it,
    so that it equals the model's score of running text. A model without one is evaluated as lm_eval evaluates any.

    Args:
        pretrained: folder, name on the hub, or a loaded model.
        **arguments: those of `lm_eval.models.huggingface.HFLM`.

    Raises:
        BadInput: the model is no decoder of this package, its folder holds what is not read (weights that are pickled
            only, adapters, code), or its configuration does not say what a text begins with.
    """

    def __init__(self, pretrained: Any, **arguments: Any) -> None:
        if arguments.get("trust_remote_code"):
            raise BadInput("trust_remote_code: no code is taken from a model's folder; leave it out")
        arguments.setdefault("device", "cuda" if torch.cuda.is_available() else "cpu")
        if isinstance(pretrained, str) and Path(pretrained).is_dir():
            check_model_of(AutoModelForCausalLM, Path(pretrained))
        super().__init__(pretrained, **{**arguments, "backend": "causal", "use_safetensors": True})
        config = self.model.config
        if config.model_type != "wordorder-decoder":
            raise BadInput(f"pretrained: must be a decoder of this package, got {config.model_type!r}; take model hf")
        if config.bos_token_id is None and self.custom_prefix_token_id is None:
            raise BadInput(
                "pretrained: its config.json has no bos_token_id, which begins a text; pass prefix_token_id=..."
            )
        self.remembers: bool = config.memory != "none"
        if self.remembers and str(self.batch_size).startswith("auto"):
            raise BadInput(
                "batch_size: auto fills a model's longest text, and one with a memory has none; pass a number"
            )

    @property
    def prefix_token_id(self) -> int:
        given = self.custom_prefix_token_id
        return int(self.model.config.bos_token_id if given is None else given)

    @property
    def eot_token_id(self) -> int:
        end = self.model.config.eos_token_id
        return self.prefix_token_id if end is None else int(end)

    @property
    def max_length(self) -> int:
        """Maximum number of tokens that are read; 10**9 for a model with a memory."""
        if self.remembers:
            return _ENDLESS
        return int(self._max_length or longest_text(self.model.config))

    def tok_encode(
        self, string: str, add_special_tokens: Any = None, left_truncate_len: int | None = None, **_: Any
    ) -> list[int]:
        del add_special_tokens
        ids = cast("list[int]", encode_texts([string], self.tokenizer)[0].ids.tolist())
        return ids[-left_truncate_len:] if left_truncate_len else ids

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        before, after = super()._encode_pair(context, continuation)
        return [self.prefix_token_id, *before], after

    def tok_batch_encode(
        self, strings: list[str], padding_side: str = "left", left_truncate_len: int | None = None, **_: Any
    ) -> tuple[Tensor, Tensor]:
        """Return prompts as one padded batch, each with the start token, and its mask."""
        rows = [[self.prefix_token_id, *self.tok_encode(text)] for text in strings]
        rows = [torch.tensor(row[-left_truncate_len:] if left_truncate_len else row) for row in rows]
        pad = int(self.tokenizer.pad_token_id)
        ids = torch.nn.utils.rnn.pad_sequence(rows, True, pad, padding_side)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], True, 0, padding_side)
        return ids, mask

    def _model_call(self, inps: Tensor, attn_mask: Any = None, labels: Any = None) -> Tensor:
        if not self.remembers:
            return super()._model_call(inps, attn_mask, labels)
        # Rows are padded on the right, where nothing that counts looks; the cache cuts them where training does.
        with torch.no_grad(), self._autocast():
            return self.model(inps, **{CACHE: SegmentCache(self.model.config)}).logits

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Return the log-likelihood of each text, in nats, given all tokens before; without a memory, in windows.

        With a memory a text of any length takes the space of one segment.
        """
        if not self.remembers:
            return super().loglikelihood_rolling(requests, disable_tqdm=disable_tqdm)
        found: list[float] = []
        for request in requests:
            (text,) = request.args
            found.append(self._running_score(self.tok_encode(text)))
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), found[-1])
        return found

    @torch.no_grad()
    def _running_score(self, tokens: list[int]) -> float:
        text = torch.tensor([[self.prefix_token_id, *tokens]], device=self.device)
        total, memory = 0.0, None
        for start in range(0, text.shape[1] - 1, int(self.model.config.segment_length)):
            piece = text[:, start : start + int(self.model.config.segment_length) + 1]
            with self._autocast():
                output = self.model(piece[:, :-1], memory=memory)
            memory = output.memory
            total -= float(F.cross_entropy(output.logits[0].double(), piece[0, 1:], reduction="sum"))
        return total

    def _autocast(self) -> Any:
        kind = self.mixed_precision_dtype
        return torch.autocast(device_type=self.device.type, dtype=kind, enabled=kind is not None)


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
