"""Turn Hugging Face's masks and position ids into typed positions; nothing else in the package reads padding."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict, TypeVar

import torch
from torch import Tensor

from wordorder.errors import BadInput
from wordorder.networks import DecoderOutput, EncoderOutput
from wordorder.networks.stack import one_input
from wordorder.ops import Arbitrary, Contiguous, Packed, Positions, gather_tokens
from wordorder.ops.execution import has_values, may_be_read
from wordorder.ops.mask import check_values
from wordorder.ops.tokens import check_tensor

Output = TypeVar("Output", EncoderOutput, DecoderOutput)


class NetworkInputs(TypedDict):
    """The arguments of a network in plain torch that say what it reads."""

    input_ids: Tensor | None
    inputs_embeds: Tensor | None
    positions: Positions
    key_padding_mask: Tensor | None


@dataclass(frozen=True)
class Texts:
    """The texts of a call by the names of `WordOrderPreTrainedModel`."""

    input_ids: Tensor | None
    attention_mask: Tensor | None
    position_ids: Tensor | None
    inputs_embeds: Tensor | None
    sequence_ids: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of texts and of tokens in each."""
        tokens = one_input(self.input_ids, self.inputs_embeds)
        if tokens.dim() < 2:
            axes = (
                "input_ids must be (batch, tokens)" if tokens is self.input_ids else "inputs_embeds must be (B, T, C)"
            )
            raise BadInput(f"{axes}, got {tuple(tokens.shape)}; a text alone is a batch of one: x[None]")
        beside = {"attention_mask": self.attention_mask, "position_ids": self.position_ids}
        check_beside(tokens.device, **beside, sequence_ids=self.sequence_ids)
        return tokens.shape[0], tokens.shape[1]

    def layout(self) -> "Layout":
        """Read masks and ids; see `layout_of`."""
        return layout_of(self.shape, self.attention_mask, self.position_ids, self.sequence_ids)


@dataclass(frozen=True)
class Layout:
    """The place of each text in the rows of a batch.

    Rows are turned until each text stands in the first columns, and turned back at the end: padding before or within a
    text then equals right padding by construction, and all rows share what depends on position.
    """

    positions: Positions
    valid_BT: Tensor | None = None
    """Bool, False where a (turned) token is padding; None = no padding."""
    column_BT: Tensor | None = None
    """The caller's column of each turned column; None = nothing is turned."""
    key_positions: Positions | None = None
    """Positions of all keys, those of a cache first, where they cannot be counted back from ``positions``."""

    @property
    def key_padding_mask(self) -> Tensor | None:
        """The padding of the (turned) tokens as the networks take it, True = padding; None = no padding."""
        return None if self.valid_BT is None else ~self.valid_BT

    def inputs(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> NetworkInputs:
        """Return what a network reads: these tokens, turned."""
        return {
            "input_ids": None if input_ids is None else self.turn(input_ids),
            "inputs_embeds": None if inputs_embeds is None else self.turn(inputs_embeds),
            "positions": self.positions,
            "key_padding_mask": self.key_padding_mask,
        }

    def turn(self, x: Tensor) -> Tensor:
        """Return (B, T, ...) with the text of each row moved to the first columns."""
        return x if self.column_BT is None else gather_tokens(x, self.column_BT)

    def turn_back(self, x: Tensor, *, axes: tuple[int, ...] = (1,)) -> Tensor:
        """Undo `turn` along every axis of ``axes``, which count tokens."""
        if self.column_BT is None:
            return x
        back_BT = self.column_BT.argsort(dim=1)
        for axis in axes:
            x = gather_tokens(x, back_BT, axis)
        return x

    def all_back(self, tensors: tuple[Tensor, ...] | None, axes: tuple[int, ...] = (1,)) -> tuple[Tensor, ...] | None:
        """Undo `turn` in the tensor of every layer."""
        return None if tensors is None else tuple(self.turn_back(tensor, axes=axes) for tensor in tensors)

    def output_back(self, output: Output) -> Output:
        """Undo `turn` in what a network returned: states by token, weights by query and key."""
        return replace(
            output,
            hidden=self.turn_back(output.hidden),
            all_hidden=self.all_back(output.all_hidden),
            attentions=self.all_back(output.attentions, (2, 3)),
        )


def check_beside(device: torch.device, **tensors: object) -> None:
    """Refuse masks and ids without values beside tokens with values: torch would turn rows by what memory holds."""
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor):
            check_values(name, tensor, device)


def check_token_types(
    token_type_ids: Tensor | None, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None
) -> None:
    """Accept the ``token_type_ids`` of BERT's tokenizers where they are all 0 (looked at on the CPU only)."""
    check_tensor("token_type_ids", token_type_ids)
    if token_type_ids is None:
        return
    if token_type_ids.is_floating_point() or token_type_ids.is_complex():
        raise BadInput(f"token_type_ids must be integers, all of them 0, got {token_type_ids.dtype}")
    tokens = input_ids if input_ids is not None else inputs_embeds
    check_tensor("input_ids" if inputs_embeds is None else "inputs_embeds", tokens)
    if tokens is not None and tokens.dim() > 1 and token_type_ids.shape != tokens.shape[:2]:
        raise BadInput(
            f"token_type_ids must be (batch, tokens) = {tuple(tokens.shape[:2])}, got {tuple(token_type_ids.shape)};"
            " leave them out, since these models have no segment embeddings"
        )
    if may_be_read(token_type_ids) and token_type_ids.any():
        raise BadInput(
            f"token_type_ids must be 0, got {int(token_type_ids.max())}: these models have no segment embeddings, so"
            " that [SEP] alone separates two texts; call the tokenizer with return_token_type_ids=False"
        )


class PackedInputs(TypedDict, total=False):
    """Hold what collators add to packed batches for flash attention, which ``position_ids`` say too."""

    cu_seq_lens_q: Tensor | None
    cu_seq_lens_k: Tensor | None
    max_length_q: Tensor | int | None
    max_length_k: Tensor | int | None
    seq_idx: Tensor | None


def refuse_mems(arguments: Mapping[str, object]) -> None:
    """Refuse ``mems=``, the name of Transformer-XL's memory in transformers, and say what it is called here."""
    if "mems" in arguments:
        kind = type(arguments["mems"]).__name__
        raise ValueError(
            f"mems is called memory here: pass memory=, what an earlier call gave as .memory; got a {kind}"
        )


def check_packing(packing: PackedInputs, position_ids: Tensor | None) -> None:
    """Refuse arguments that `forward` does not have, and packed texts that begin elsewhere than in ``position_ids``.

    Where they begin is compared on the CPU only.
    """
    refuse_mems(packing)
    for name in packing:
        if name not in PackedInputs.__annotations__:
            raise TypeError(f"forward() got an unexpected keyword argument {name!r}")
    for name in ("cu_seq_lens_q", "cu_seq_lens_k", "seq_idx"):
        value = packing.get(name)
        if value is None:
            continue
        if position_ids is None:
            raise BadInput(f"{name} says where packed texts begin: pass position_ids too, which begin anew with each")
        if not (may_be_read(position_ids) and may_be_read(value)):
            continue
        position_N, tokens = position_ids.flatten(), position_ids.numel()
        if name == "seq_idx":
            begins = value.shape == position_ids.shape and torch.equal(value.diff() != 0, position_ids[:, 1:] == 0)
        else:  # 0, the end of the first text, ..., the end of the last one
            start_N = value[:-1].long().repeat_interleave(value.diff().long())
            expected_N = torch.arange(len(start_N), device=start_N.device) - start_N
            begins = len(expected_N) <= tokens and torch.equal(position_N[: len(expected_N)].long(), expected_N)
        if not begins:
            raise BadInput(f"{name} and position_ids differ in where the packed texts begin; leave {name} out")


def take_token_types(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Take ``token_type_ids`` out of the arguments of ``generate`` after `check_token_types`."""
    tokens = args[0] if args else kwargs.get("inputs", kwargs.get("input_ids"))
    check_token_types(kwargs.pop("token_type_ids", None), tokens, kwargs.get("inputs_embeds"))


def tokens_of(attention_mask: Tensor) -> Tensor:
    """Return the mask as bool, and refuse one that is added to scores (on the CPU only)."""
    if attention_mask.is_floating_point() and may_be_read(attention_mask):
        other = attention_mask[(attention_mask != 0) & (attention_mask != 1)]
        if other.numel():
            raise BadInput(
                f"attention_mask must be 1 for a token and 0 for padding, got {float(other[0]):g}; make one of a mask"
                " that is added to scores (0 = token) by attention_mask == 0"
            )
    return attention_mask.bool()


def layout_of(
    shape: tuple[int, int],
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    sequence_ids: Tensor | None = None,
) -> Layout:
    """Read masks and ids as Hugging Face means them.

    * ``attention_mask`` (B, T), 1 = token, 0 = padding anywhere: the 1s of a row are counted from position 0.
    * ``position_ids`` (B or 1, T): each 0 begins a new packed sequence, and packed sequences do not see each other.
    * ``sequence_ids`` (B, T): the packed sequence that a token belongs to; with ``position_ids``, or counted from its
      first token. All equal, they allow any ``position_ids`` in one sequence.
    """
    _check_ids("attention_mask", attention_mask, shape)
    _check_ids("position_ids", position_ids, shape)
    _check_ids("sequence_ids", sequence_ids, shape)
    valid_BT = None if attention_mask is None else tokens_of(attention_mask)
    if sequence_ids is not None:
        position_BT = _within(sequence_ids, valid_BT) if position_ids is None else position_ids.expand(shape)
        return Layout(Packed(position_BT, sequence_ids), valid_BT)
    if position_ids is not None:
        position_BT = position_ids.expand(shape)
        return Layout(Packed(position_BT, (position_BT == 0).cumsum(1)), valid_BT)
    if valid_BT is None:
        return Layout(Contiguous(shape[1]))
    # tokens before padding, each in their order; a stable sort would do, but ONNX has none
    order_BT = torch.arange(shape[1], device=valid_BT.device) + shape[1] * (~valid_BT).long()
    column_BT = order_BT.argsort(dim=1)
    return Layout(Contiguous(shape[1]), valid_BT.gather(1, column_BT), column_BT)


def cached_layout(
    shape: tuple[int, int], held: int, attention_mask: Tensor | None, position_ids: Tensor | None
) -> Layout:
    """Return the layout of new tokens behind the ``held`` tokens of a cache, in the caller's columns as its keys are.

    The 1s of a row of ``attention_mask`` (B, held + T) are counted from position 0; of ``position_ids`` (B or 1, T) the
    last one counts, and earlier tokens stand right before it.
    """
    _check_ids("position_ids", position_ids, shape)
    valid_BS = cached_mask(shape, held, attention_mask)
    if valid_BS is not None and (not has_values(valid_BS) or padding_within(valid_BS) is not None):
        counted_BS = (valid_BS.cumsum(1) - 1).clamp(min=0)
        if position_ids is not None:
            counted_BS = counted_BS + (position_ids[:, -1:] - counted_BS[:, -1:])
            _check_steps(position_ids, counted_BS[:, held:], valid_BS[:, held:])
        return Layout(Arbitrary(counted_BS[:, held:]), valid_BS, key_positions=Arbitrary(counted_BS))
    offset: int | Tensor = held
    if position_ids is not None:
        offset = position_ids[:, -1] - (shape[1] - 1)
        counted_BT = Contiguous(shape[1], offset).index_BT()
        _check_steps(position_ids, counted_BT, None if valid_BS is None else valid_BS[:, held:])
    elif valid_BS is not None:
        offset = held - valid_BS.int().argmax(dim=1)
    return Layout(Contiguous(shape[1], offset), valid_BS)


def cached_mask(shape: tuple[int, int], held: int, attention_mask: Tensor | None) -> Tensor | None:
    """Return the mask of a cache's tokens and the new ones, (B, held + T), as bool; None where nothing is padded."""
    if attention_mask is None:
        return None
    check_tensor("attention_mask", attention_mask)
    whole = shape[0], held + shape[1]
    if attention_mask.shape != whole:
        raise ValueError(
            f"attention_mask must be (batch, tokens) = {whole}, the {held} tokens of the cache included, got"
            f" {tuple(attention_mask.shape)}"
        )
    return tokens_of(attention_mask)


def padding_within(valid_BS: Tensor) -> tuple[int, int] | None:
    """Return row and column of the first padding between tokens of a row with values; None where there is none."""
    between_BS = (~valid_BS & (valid_BS.cumsum(1) > 0))[:, :-1] & valid_BS[:, 1:]
    if not between_BS.any():
        return None
    row, column = (int(index) for index in between_BS.nonzero()[0])
    return row, column


def _check_ids(name: str, ids: Tensor | None, shape: tuple[int, int]) -> None:
    """Refuse a mask or ids that are not (batch, tokens); position ids may have one row for all, and are integers."""
    check_tensor(name, ids)
    rows = (shape[0], 1) if name == "position_ids" else (shape[0],)
    if ids is not None and (ids.dim() != 2 or ids.shape[0] not in rows or ids.shape[1] != shape[1]):
        raise ValueError(f"{name} must be (batch, tokens) = {tuple(shape)}, got {tuple(ids.shape)}")
    if ids is not None and name != "attention_mask" and ids.is_floating_point():
        raise ValueError(f"{name} must be integers, got {ids.dtype}")


def _check_steps(position_BT: Tensor, counted_BT: Tensor, valid_BT: Tensor | None) -> None:
    """Refuse positions with gaps, or that begin again, since a cache is one text without gaps."""
    # as `may_be_read`, but also where a transformation such as vmap is at work
    if torch.compiler.is_compiling() or position_BT.device.type != "cpu":
        return
    wrong_BT = position_BT != counted_BT
    if (wrong_BT if valid_BT is None else wrong_BT & valid_BT).any():
        raise ValueError(
            "position_ids with a cache must grow by one from token to token; for packed sequences, or positions with"
            " gaps, leave the cache out (use_cache=False)"
        )


def _within(sequence_BT: Tensor, valid_BT: Tensor | None) -> Tensor:
    """Return the position of each token within its run of equal sequence ids, padding aside."""
    steps_T = torch.arange(sequence_BT.shape[1], device=sequence_BT.device)
    starts_BT = torch.ones_like(sequence_BT, dtype=torch.bool)
    starts_BT[:, 1:] = sequence_BT[:, 1:] != sequence_BT[:, :-1]
    if valid_BT is not None:
        starts_BT[:, 1:] |= valid_BT[:, 1:] != valid_BT[:, :-1]
    return steps_T - torch.where(starts_BT, steps_T, 0).cummax(dim=1).values
