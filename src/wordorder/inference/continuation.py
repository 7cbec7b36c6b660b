"""Continue a text with a language model that a run saved, as readable text while it is written."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from wordorder.errors import BadInput
from wordorder.inference.predict import source_ids
from wordorder.inference.saved_model import best_device, load_model, task_of
from wordorder.training.loop.progress import quiet_libraries

_WINDOW = 16  # tokens that are decoded before a new one: what stands before it may decide about spaces


@dataclass(frozen=True, slots=True)
class Written:
    """One step of writing a continuation."""

    token: int | None
    """None: nothing more comes, and the text is what was still to be shown."""
    text: str
    """Text that can be read now and could not before; may be empty, since a token may be part of a character."""
    ended: bool = False
    """The model said that the text ends here."""


class Continuation:
    """A saved causal language model with its tokenizer and its start and end tokens."""

    def __init__(self, model_dir: str | Path) -> None:
        from wordorder.data.tokenizers import read_tokenizer
        from wordorder.models.saved_folder import check_tokenizer

        task = task_of(model_dir)
        if not task.running_text:
            raise BadInput(
                f"{model_dir}: the model was trained for {task.pipeline}, it cannot go on with a text; try wordorder"
                " predict"
            )
        with quiet_libraries():
            model, self.tokenizer = load_model(model_dir), read_tokenizer(Path(model_dir))
        check_tokenizer(self.tokenizer, model.config, Path(model_dir))
        self.model = model.to(best_device()).eval()
        end: int | list[int] | None = self.model.config.eos_token_id
        self.ends = frozenset([] if end is None else [end] if isinstance(end, int) else end)
        """Tokens that end a text."""

    def prompt_ids(self, prompt: str) -> Any:
        """Encode the prompt as in training, long (1, T): the start token, then its own tokens, without an end."""
        import torch

        start: int | None = self.model.config.bos_token_id
        ids = [] if start is None else [start]
        ids += source_ids(self.tokenizer, [prompt], strip=False)[0][1:-1]
        if not ids:
            raise BadInput("the prompt is empty, and the model does not say what a text begins with; give some text")
        return torch.tensor([ids])

    def write(
        self,
        prompt: str,
        *,
        max_new_tokens: int | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop_at_end: bool = True,
    ) -> Iterator[Written]:
        """Write token by token; see `wordorder.models.stream_tokens` for sampling and cost.

        Without ``stop_at_end`` an empty line is written where the model ends the text, and then another text.
        """
        from wordorder.models import stream_tokens

        ids = self.prompt_ids(prompt)
        tokens = stream_tokens(
            self.model,
            ids,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop=self.ends if stop_at_end else (),
        )
        return _read_as_text(tokens, Readable(self.tokenizer, ids[0].tolist()), self.ends, stops=stop_at_end)

    def search(self, prompt: str, *, max_new_tokens: int, beams: int, stop_at_end: bool = True) -> list[Written]:
        """Return the likeliest continuation that beam search finds; nothing can be shown before the search is done."""
        from wordorder.models import check_room
        from wordorder.tasks.beam_search import check_beams

        check_beams(self.model.config, beams)
        ids = self.prompt_ids(prompt)
        check_room(self.model.config, ids.shape[1], max_new_tokens)
        settings = self.model.generation_config
        settings.eos_token_id = sorted(self.ends) if stop_at_end and self.ends else None
        settings.pad_token_id = self.tokenizer.pad_token_id
        settings.cache_implementation = None  # these models make their own, whatever the folder names
        with quiet_libraries():  # it warns of max_position_embeddings, which bounds no encoding without a table
            found = self.model.generate(
                ids.to(self.model.device), num_beams=beams, do_sample=False, max_new_tokens=max_new_tokens
            )
        new = found[0, ids.shape[1] :].tolist()
        if stop_at_end:  # the search pads what is shorter than its longest text
            last = next((n for n, token in enumerate(new) if token in self.ends), len(new) - 1)
            new = new[: last + 1]
        readable = Readable(self.tokenizer, ids[0].tolist())
        return list(_read_as_text(iter(new), readable, self.ends, stops=stop_at_end))


def _read_as_text(
    tokens: Iterator[int], readable: "Readable", ends: Collection[int], *, stops: bool
) -> Iterator[Written]:
    for token in tokens:
        if token not in ends:
            yield Written(token, readable.add(token))
            continue
        yield Written(token, readable.rest() + ("" if stops else "\n\n"), ended=stops)
        readable = Readable(readable.tokenizer, [])
    yield Written(None, readable.rest())


class Readable:
    """Turns tokens into text as they come, so that text that was shown never has to be taken back.

    A token may be one byte of a character, and spaces depend on its neighbours. So a window of tokens is decoded with
    and without the newest one, and what both agree on is shown, but for a broken character at the end.
    """

    def __init__(self, tokenizer: Any, before: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self._tokens = list(before[-_WINDOW:])
        self._text = self._decoded(self._tokens)
        self._shown = len(self._text)

    def add(self, token: int) -> str:
        """Add a token, and return the text that becomes readable with it."""
        self._tokens.append(token)
        before, self._text = self._text, self._decoded(self._tokens)
        sure = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, self._text, strict=False)))
        if sure == len(self._text):
            sure = len(self._text.rstrip("\N{REPLACEMENT CHARACTER}"))
        piece = self._text[self._shown : sure]
        self._shown = max(self._shown, sure)
        if len(self._tokens) > 2 * _WINDOW:
            self._forget()
        return piece

    def rest(self) -> str:
        piece, self._shown = self._text[self._shown :], len(self._text)
        return piece

    def _forget(self) -> None:
        waiting, text = self._text[self._shown :], self._decoded(self._tokens[-_WINDOW:])
        if text.endswith(waiting):
            self._tokens, self._text, self._shown = self._tokens[-_WINDOW:], text, len(text) - len(waiting)

    def _decoded(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)
