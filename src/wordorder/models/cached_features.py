"""Features of keys and rows of the layers' input, as further layers of Hugging Face's caches.

They are reordered and cropped with the cache: those of keys are layers L to 2 L - 1 of the cache of a network of L
layers, and rows come after them.
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
    if len(cache.layers) > layers:
        return
    if len(cache.layers) and cache.get_seq_length():
        raise BadInput("the cache was filled without the gates of fox; begin with an empty one")
    if not lazy:
        cache.layers += [_empty_copy(layer) for layer in cache.layers]


def extend_features(cache: Any, layer: int, layers: int, features: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take the features of this step's keys of a layer, (B, H, T, F) by name, and return those of all keys so far."""
    if not features:
        return features
    joined_BHTF = torch.cat(tuple(features.values()), dim=-1)
    joined_BHSF = cache.update(joined_BHTF, joined_BHTF[..., :0], layer + layers)[0]
    sizes = [feature.shape[-1] for feature in features.values()]
    return dict(zip(features, joined_BHSF.split(sizes, dim=-1), strict=True))


class InputRows(DynamicLayer):
    """The last rows of a layer's input, (B, 1, N, C) in place of keys: as many as assisted decoding may take back."""

    spare = 128

    def extend(self, x_BTC: Tensor, count: int) -> Tensor:
        """Take the rows of this step, and return them behind the last ``count`` of earlier ones."""
        earlier = min(self.get_seq_length(), count)
        rows_B1NC, nothing_B1N0 = self.update(x_BTC[:, None], x_BTC[:, None, :, :0])
        needed = earlier + x_BTC.shape[1]
        kept = slice(-count - self.spare, None)
        self.keys, self.values = rows_B1NC[:, :, kept], nothing_B1N0[:, :, kept]
        return rows_B1NC[:, 0, rows_B1NC.shape[2] - needed :]

    def crop(self, tokens_to_remove: int) -> None:
        if -tokens_to_remove > self.spare:
            raise BadInput(f"at most {self.spare} tokens can be taken back, got {-tokens_to_remove}")
        super().crop(tokens_to_remove)


def extend_input(cache: Any, layer: int, layers: int, x_BTC: Tensor, count: int) -> Tensor:
    """Take the rows of this step's input of a layer, and return them behind the last ``count`` of earlier ones.

    Raises:
        BadInput: the cache was filled without such rows.
    """
    while len(cache.layers) < 2 * layers:  # as a cache that was made without a configuration grows
        cache.layers.append(DynamicLayer())
    cache.layers += [InputRows() for _ in range(3 * layers - len(cache.layers))]
    rows = cache.layers[2 * layers + layer]
    if not rows.get_seq_length() and cache.get_seq_length(layer):
        raise BadInput(
            "the cache was filled without the input of layers, which this encoding reads; begin with an empty one"
        )
    return rows.extend(x_BTC, count)


def _empty_copy(layer: Any) -> Any:
    """Return an empty layer of a cache with the settings of one that has not been filled."""
    empty = copy.deepcopy(layer)
    empty.is_initialized, empty.keys, empty.values = False, None, None
    return empty
