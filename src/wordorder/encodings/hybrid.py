"""Encodings that take turns over the layers: with "rope,rope,rope,none" every fourth layer has no encoding."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from wordorder.encodings.composition import Composition, content_scale
from wordorder.encodings.places import ContentScores, Encoding
from wordorder.encodings.position_terms import PositionTermsByLayer, Term, combine_terms
from wordorder.ops import Bias, Positions, Visibility


class Hybrid(Composition):
    """A composition in which some parts act in some layers only.

    Yang et al. 2025, "RoPE to NoPE and back again", https://arxiv.org/abs/2501.18795, for "rope*3,none"; Kazemnejad et
    al. 2023, https://arxiv.org/abs/2305.19466, for why a causal layer can do without an encoding.

    A part is one module for all layers that name it: what depends on positions alone is still computed once per
    forward. Layers with the same parts are of one kind, which has its own `PositionTerms` and content scale (a layer
    with TUPE scales by 1/sqrt(2 D), one without by 1/sqrt(D)). Encodings with parameters per layer hold them for the
    layers that name them, in the order of the layers.

    Args:
        parts: encodings by name, in the order in which layers name them.
        by_layer: the names of the parts of each layer. Parts that act before the first layer, on embeddings or in their
            place, must be in every layer.
        head_dim: channels per head, D.

    Raises:
        ValueError: two parts of a layer need different content scales, or both replace the token embeddings.
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
        """Return the layers (from 0) that have this part."""
        return tuple(layer for layer, kind in enumerate(self.kind_of_layer) if name in self.kinds[kind])

    def parts_of(self, layer: int) -> tuple[nn.Module, ...]:
        """Return the parts that act in layer ``layer`` (from 0) or before the first layer."""
        return tuple(self.parts[name] for name in self.kinds[self.kind_of_layer[layer]] if name in self.parts)

    def _together(self, terms: dict[str, Term], positions: tuple[Positions, Positions]) -> PositionTermsByLayer:
        """Return the terms of each kind of layer."""
        for name, term in terms.items():
            if isinstance(term, ContentScores):
                terms[name] = TermOfSomeLayers(term, self.layers_with(name))
        orders = [
            combine_terms(
                scale,
                [terms[name] for name in kind if name in terms],
                positions=positions,
                two_sided=self.two_sided,
            )
            for scale, kind in zip(self.scales, self.kinds, strict=True)
        ]
        return PositionTermsByLayer(tuple(orders), self.kind_of_layer)


@dataclass(frozen=True)
class TermOfSomeLayers(ContentScores):
    """A content term that only some layers have; its parameters are numbered by these layers.

    Args:
        layers: the layers that have it, from 0.
    """

    term: ContentScores
    layers: tuple[int, ...]

    def layer(self, index: int) -> ContentScores:
        """Return the term of layer ``index`` of the network."""
        return self.term.layer(self.layers.index(index))

    def all_keys_to_the_right(self) -> "TermOfSomeLayers":
        """Return the term with every key treated as one to the right."""
        return TermOfSomeLayers(self.term.all_keys_to_the_right(), self.layers)

    def scores(self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Visibility | Tensor | None) -> Tensor:
        """Return the scores of the first layer that has the term, (B, H, T, S)."""
        return self.layer(self.layers[0]).scores(q_BHTD, k_BHSD, scale, visible)

    def as_bias(
        self, q_BHTD: Tensor, k_BHSD: Tensor, scale: float, visible: Visibility | Tensor | None, *, rotated: bool
    ) -> tuple[Tensor | None, Bias]:
        """Return the vector and the bias of the first layer that has the term."""
        return self.layer(self.layers[0]).as_bias(q_BHTD, k_BHSD, scale, visible, rotated=rotated)
