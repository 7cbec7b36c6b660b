"""Features of keys in Hugging Face's caches: further layers of the cache, which are reordered and cropped with it."""

# transformers' caches are typed in part only
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import copy
from typing import Any

import torch
from torch import Tensor

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


def _empty_copy(layer: Any) -> Any:
    """Return an empty layer of a cache with the settings of one that has not been filled."""
    empty = copy.deepcopy(layer)
    empty.is_initialized, empty.keys, empty.values = False, None, None
    return empty
