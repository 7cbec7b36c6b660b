"""Encodings that take turns over the layers: "rope,rope,rope,none" gives every fourth layer no encoding at all."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wordorder.encodings.composition import Composition, content_scale, queries_and_keys
from wordorder.encodings.order import HybridOrder, order_of
from wordorder.encodings.places import ContentScores, Encoding
from wordorder.ops import Bias, Positions, Visibility


class Hybrid(Composition):
    """A composition whose parts do not all act in every layer.

    Yang et al. 2025, "RoPE to NoPE and back again", https://arxiv.org/abs/2501.18795, for "rope*3,none"; Kazemnejad et
    al. 2023, https://arxiv.org/abs/2305.19466, for why a causal layer can do without an encoding.

    A part is one module, whichever layers name it: what positions alone decide is still computed once per forward.
    Layers with the same parts are of one kind, which has an `Order` and a content scale of its own (a layer with TUPE
    scales by 1/sqrt(2 D), one without by 1/sqrt(D)). Encodings with parameters per layer hold them for the layers that
    name them, in the order of the layers.

    Args:
        parts: encodings by name, in the order in which layers name them.
        by_layer: for each layer of the network the names of its parts. What acts before the first layer, on embeddings
            or in their place, is in every one of them.
        head_dim: channels per head, D.

    Raises:
        ValueError: as in `Composition`, of the parts of one layer.
    """

    def __init__(self, parts: Mapping[str, Encoding], by_layer: Sequence[Collection[str]], *, head_dim: int) -> None:
        own = [{name: part for name, part in parts.items() if name in names} for names in by_layer]
        super().__init__(own[0], head_dim=head_dim)
        self.parts.update({name: part for name, part in parts.items() if name not in own[0]})
        kinds = list(dict.fromkeys(tuple(of_layer) for of_layer in own))
        self.kinds: tuple[tuple[str, ...], ...] = tuple(kinds)
        """The names of the parts of each kind of layer."""
        self.kind_of_layer: tuple[int, ...] = tuple(kinds.index(tuple(of_layer)) for of_layer in own)
        self.scales: tuple[float, ...] = tuple(
            content_scale({name: parts[name] for name in kind}, head_dim) for kind in kinds
        )
        self.scale = self.scales[0]

    def layers_with(self, name: str) -> tuple[int, ...]:
        """The layers (from 0) that have this part."""
        return tuple(layer for layer, kind in enumerate(self.kind_of_layer) if name in self.kinds[kind])

    def parts_of(self, layer: int) -> tuple[nn.Module, ...]:
        """The parts that act in layer ``layer`` (from 0), or before the first one."""
        return tuple(self.parts[name] for name in self.kinds[self.kind_of_layer[layer]] if name in self.parts)

    def prepare(
        self,
        positions: Positions | Tensor | int,
        key_positions: Positions | Tensor | int | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> HybridOrder:
        """What positions alone decide, each part asked once; arguments as in `Composition.prepare`."""
        query, key = queries_and_keys(positions, key_positions)
        terms = self.terms(query, key, dtype=dtype, device=device)
        for name, term in terms.items():
            if isinstance(term, ContentScores):
                terms[name] = TermOfSomeLayers(term, self.layers_with(name))
        orders = [
            order_of(
                scale,
                [terms[name] for name in kind if name in terms],
                positions=(query, key),
                two_sided=self.two_sided,
            )
            for scale, kind in zip(self.scales, self.kinds, strict=True)
        ]
        return HybridOrder(tuple(orders), self.kind_of_layer)


@dataclass(frozen=True)
class TermOfSomeLayers(ContentScores):
    """A term by content that some layers have, whose parameters are numbered by those layers.

    Args:
        term: as its encoding prepared it.
        layers: that have it, from 0.
    """

    term: ContentScores
    layers: tuple[int, ...]

    def layer(self, index: int) -> ContentScores:
        """The term as layer ``index`` of the network sees it."""
        return self.term.layer(self.layers.index(index))

    def all_keys_to_the_right(self) -> "TermOfSomeLayers":
        """The term where every key counts as one to the right."""
        return TermOfSomeLayers(self.term.all_keys_to_the_right(), self.layers)

    def scores(self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Visibility | Tensor | None) -> Tensor:
        """The term of the first of its layers; see `ContentScores.scores`."""
        return self.layer(self.layers[0]).scores(q_BHTD, k_BHSD, scale, visible)

    def as_bias(
        self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Visibility | Tensor | None, *, rotated: bool
    ) -> tuple[Tensor | None, Bias]:
        """The term of the first of its layers; see `ContentScores.as_bias`."""
        return self.layer(self.layers[0]).as_bias(q_BHTD, k_BHSD, scale, visible, rotated=rotated)
