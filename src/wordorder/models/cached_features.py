"""Features of keys (layers L to 2 L - 1) and rows of the layers' input (after them) in Hugging Face's caches.

They are reordered and cropped with the cache.
"""

# transformers' caches are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import copy
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from wordorder.errors import BadInput


def make_room(cache: Any, layers: int) -> None:
    """Give a cache of so many layers one more beside each, of the same class, so that it rolls alike.

    Raises:
        BadInput: it was filled without features.
    """
    lazy = getattr(cache, "layer_class_to_replicate", None) is not None
    of_features = cache.layers[layers : 2 * layers]
    has_rows = len(cache.layers) > 2 * layers  # of an encoding that may have had no features
    if of_features and not (has_rows and not any(layer.get_seq_length() for layer in of_features)):
        return
    if len(cache.layers) and cache.get_seq_length():
        raise BadInput("the cache was filled without what this encoding reads of each key; begin with an empty one")
    if not lazy and not of_features:
        cache.layers += [_empty_copy(layer) for layer in cache.layers]


def extend_features(
    cache: Any, layer: int, layers: int, features: dict[str, Tensor], window: int | None = None
) -> dict[str, Tensor]:
    """Take the features of this step's keys of a layer, (B, H, T, F) by name, and return those of all keys so far."""
    if not features:
        return features
    joined_BHTF = torch.cat(tuple(features.values()), dim=-1)
    if window is not None:
        layer_with_window(cache, layer + layers, window - 1)
    joined_BHSF = cache.update(joined_BHTF, joined_BHTF[..., :0], layer + layers)[0]
    sizes = [feature.shape[-1] for feature in features.values()]
    return dict(zip(features, joined_BHSF.split(sizes, dim=-1), strict=True))


class LastRows(DynamicLayer):
    """The last ``count`` rows of keys and values, which later tokens read, and some that may be taken back."""

    spare = 128
    is_sliding = True

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count, self.cumulative_length = count, 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Take the rows of this step, and return them behind the last ``count`` of earlier ones."""
        span = min(self.cumulative_length, self.count) + key_states.shape[2]
        self.cumulative_length += key_states.shape[2]
        rows = super().update(key_states, value_states)
        limit = self.count + self.spare
        if rows[0].shape[2] > limit:
            self.keys, self.values = (held[:, :, -limit:] for held in rows)
            if key_states.shape[2] > 1:  # a view would hold on to a whole prompt
                self.keys, self.values = self.keys.clone(), self.values.clone()
        keys, values = (held[:, :, held.shape[2] - span :] for held in rows)
        return keys, values

    def get_seq_length(self) -> int:
        return self.cumulative_length

    @property
    def dropped(self) -> int:
        """Number of rows that are not held any more."""
        return 0 if self.keys is None else self.cumulative_length - self.keys.shape[2]

    def crop(self, tokens_to_remove: int) -> None:
        removed = min(-tokens_to_remove, self.cumulative_length)
        if self.dropped and self.cumulative_length - self.dropped - removed < self.count:
            raise BadInput(f"at most {self.spare} tokens can be taken back from a layer with a window, got {removed}")
        super().crop(tokens_to_remove)
        self.cumulative_length -= removed


def layer_with_window(cache: Any, index: int, count: int | None) -> Any:
    """Return layer ``index`` of a cache, which from now on holds the last ``count`` rows; None = it holds all."""
    while len(cache.layers) <= index:  # as a cache that was made without a configuration grows
        cache.layers.append(DynamicLayer())
    layer = cache.layers[index]
    if count is not None and type(layer) is DynamicLayer and not layer.is_initialized:
        layer = cache.layers[index] = LastRows(count)
    if count is None and isinstance(layer, LastRows) and layer.dropped:
        raise BadInput("the cache has dropped the keys beyond a window: begin with an empty one where tokens have gaps")
    return layer


def extend_input(cache: Any, layer: int, layers: int, x_BTC: Tensor, count: int) -> Tensor:
    """Take rows of a layer's input, and return them behind the last ``count`` of earlier steps."""
    rows = layer_with_window(cache, 2 * layers + layer, count)
    if not rows.get_seq_length() and cache.get_seq_length(layer):
        raise BadInput(
            "the cache was filled without the input of layers, which this encoding reads; begin with an empty one"
        )
    return rows.update(x_BTC[:, None], x_BTC[:, None, :, :0])[0][:, 0]


def _empty_copy(layer: Any) -> Any:
    """Return an empty layer of a cache with the settings of one that has not been filled."""
    empty = copy.deepcopy(layer)
    empty.is_initialized, empty.keys, empty.values = False, None, None
    return empty
