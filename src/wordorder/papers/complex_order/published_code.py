"""The published code's classifiers of complex numbers, as they compute, defects included.

Wang et al. 2020, https://arxiv.org/abs/1912.12333, and https://github.com/iclr-complex-order/complex-order, whose text
classification code differs from the paper. Its results can be compared with these, and nothing else needs them:

- `ReferenceTextNetwork`: the Transformer, ``variant = "reference-code"`` of a classifier.
- `UnitaryTextRecurrent`: the recurrent network, ``recurrent_cell = "unitary"``.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wordorder.encodings.places import check_positive
from wordorder.encodings.wave_embedding import SLOWEST, WaveEmbedding, WavesAsReal
from wordorder.networks.complex_valued import PhaseDropout
from wordorder.networks.complex_valued.layers import modrelu_gain
from wordorder.networks.initialisation import Generators, NormParameters
from wordorder.ops import Contiguous, PositionsLike, check_key_padding, valid_tokens
from wordorder.ops.complex import Pair, conjugate, modulus_scores, multiply, split, stack
from wordorder.ops.pooling import without_padding, zero_if_empty
from wordorder.papers.complex_order.network import TextBody, TextOutput


class ReferenceWaves(WaveEmbedding):
    """A wave per word and channel, whose amplitudes start from N(0, 1) as in the published code, whatever the network.

    Args:
        vocabulary: number of token ids, V; positive.
        width: complex channels, D; positive.

    Shape:
        token ids (B, T), positions (T,), (1, T) or (B, T) -> real and imag, (B, T, D) each.
    """

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__(vocabulary, width, tables={"amplitude": "full", "frequency": "full"}, frequency_init="normal")

    def draw_parameters(self, std: float, generator_for: Generators | None = None) -> None:
        super().draw_parameters(1.0, generator_for)


class ReferenceOrderEmbedding(ReferenceWaves):
    """Complex-order embeddings of the published code: ``w_jd = 10000 ** (-2 floor(d / 2) / D)``, and row 0 of w zero.

    The code keeps row 0 of the amplitudes at 0, too; here that row is trained like any other.
    """

    def draw_frequencies(self, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        words, channels = shape
        d = torch.arange(channels, dtype=torch.float64, device="cpu")
        frequencies = (SLOWEST ** (2 * (d / 2).floor() / channels)).repeat(words, 1)
        if words > 1:
            frequencies[0] = 0
        return frequencies


class ReferenceVanillaEmbedding(ReferenceWaves):
    """The published code's "vanilla": it draws theta from N(0, 1) and multiplies it by the position after all.

    So it is complex-order with random frequencies, where the paper's baseline has no position.
    """


class ReferenceWords(nn.Module):
    """Published waves as stacked vectors, (B, T, 2C), with dropout of whole complex numbers.

    The published code drops amplitudes and angles apart.

    Args:
        waves: `ReferenceOrderEmbedding` or `ReferenceVanillaEmbedding`.
        dropout: of complex numbers.
    """

    def __init__(self, waves: ReferenceWaves, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = WavesAsReal(waves, 2 * waves.width, "pair")
        self.dropout = PhaseDropout(dropout)

    def forward(self, token_ids: Tensor, positions: PositionsLike) -> Tensor:
        return self.dropout(self.embedding(token_ids, positions))


def unconjugated_modulus_scores(q: Pair, k: Pair) -> Tensor:
    """Return ``|q k^T|``, without conjugation: (..., T, D) and (..., S, D) each -> (..., T, S).

    With queries ``exp(i w p)`` and keys ``exp(i w s)`` it depends on p + s, where Eq. 14 of the paper
    (`modulus_scores`, and the real part) depends on p - s.
    """
    return modulus_scores(q, conjugate(k))


class ReferenceAttention(nn.Module):
    """Attention as in the published code: real maps on both streams, scores ``|q k^T| / sqrt(d)`` without conjugation.

    Padding is attended to: the code's mask argument is never given.
    """

    def __init__(self, width: int, *, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTC: Tensor, y_BTC: Tensor) -> Pair:
        """Attend to every token: real and imaginary part, (B, T, C) each, to the same."""

        def heads(x_BTC: Tensor) -> Tensor:
            return x_BTC.view(*x_BTC.shape[:2], self.heads, self.head_dim).transpose(1, 2)

        q, k, v = ((heads(map_(x_BTC)), heads(map_(y_BTC))) for map_ in (self.query, self.key, self.value))
        weight_BHTS = self.dropout((unconjugated_modulus_scores(q, k) * self.head_dim**-0.5).softmax(-1))
        real, imag = ((weight_BHTS @ part).transpose(1, 2).flatten(2) for part in v)
        return self.out(real), self.out(imag)


class ReferenceNorm(NormParameters):
    """``weight (x - mean) / (std + 1e-6) + bias`` with the unbiased std; eps is not under the root."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Normalise (B, T, C); a token whose channels are all alike becomes the bias, with a finite gradient."""
        centred = x_BTC - x_BTC.mean(-1, keepdim=True)
        square = centred.square().sum(-1, keepdim=True) / (x_BTC.shape[-1] - 1)
        flat = square == 0  # the root has no derivative there
        std = square.masked_fill(flat, 1).sqrt().masked_fill(flat, 0)
        return self.weight * centred / (std + 1e-6) + self.bias


class ReferenceLayer(nn.Module):
    """The layer of the published code::

        x, y = attention(x, y)                        no residual around it
        x = x + drop(norm0(x)),   y = y + drop(y)     the imaginary stream misses its norm, and doubles
        x = x + drop(FF(norm1(x))),   y = y + drop(FF(norm1(y)))

    ``FF(t) = W2 drop(relu(W1 t + b1)) + b2``, real and the same on both streams.
    """

    def __init__(self, width: int, *, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.attention = ReferenceAttention(width, heads=heads, dropout=dropout)
        self.norms = nn.ModuleList(ReferenceNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, feedforward), nn.Linear(feedforward, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTC: Tensor, y_BTC: Tensor) -> Pair:
        """Apply the layer: real and imaginary part, (B, T, C) each, to the same."""
        x, y = self.attention(x_BTC, y_BTC)
        x, y = x + self.dropout(self.norms[0](x)), y + self.dropout(y)
        x, y = (part + self.dropout(self._feedforward(self.norms[1](part))) for part in (x, y))
        return x, y

    def _feedforward(self, x_BTC: Tensor) -> Tensor:
        return self.down(self.dropout(F.relu(self.up(x_BTC))))


class ReferenceTransformer(nn.Module):
    """The published text classification code's network from complex embeddings to hidden states.

    Wang et al. 2020, https://arxiv.org/abs/1912.12333; the code differs from the paper in what `ReferenceLayer` and
    `ReferenceAttention` say, and in this: there are two layers where the settings say one, the second of which gets the
    streams swapped; after it comes a norm.

    Args:
        width: complex channels, C; a multiple of heads.
        feedforward: inner channels.
        dropout: everywhere.
    """

    def __init__(self, width: int, *, heads: int = 8, feedforward: int = 512, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            ReferenceLayer(width, heads=heads, feedforward=feedforward, dropout=dropout) for _ in range(2)
        )
        self.final_norm = ReferenceNorm(width)
        self.features = 2 * width

    def forward(self, z: Pair) -> Pair:
        """Return both streams after the final norm, (B, T, C) each, the one that was imaginary first."""
        x, y = self.layers[0](*z)
        x, y = self.layers[1](y, x)
        return self.final_norm(x), self.final_norm(y)


class ReferenceTextNetwork(nn.Module):
    """`ReferenceTransformer` on texts as the published code feeds them: padded to one length, read backwards, no mask.

    Wang et al. 2020, https://arxiv.org/abs/1912.12333, whose text classification code pads (with a word like any other)
    and cuts every text to 53 tokens, numbers positions L - 1 .. 0, attends to padding and takes both parts of the last
    slot's state, normally padding at position 0, as the features (imaginary first). Two things differ here;
    `ReferenceWords` and `ReferenceOrderEmbedding` say which.

    Args:
        words: complex embeddings that start as the code's.
        length: tokens to which texts are padded, L.
        padding_idx: token id that fills them up.
    """

    def __init__(
        self, words: ReferenceWords, body: ReferenceTransformer, *, length: int = 53, padding_idx: int
    ) -> None:
        super().__init__()
        self.words, self.body, self.length, self.padding_idx = words, body, length, padding_idx

    @property
    def features(self) -> int:
        """Channels of the vector per text: both parts, 2C."""
        return self.body.features

    def forward(
        self,
        input_ids: Tensor | None = None,
        positions: PositionsLike | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> TextOutput:
        """Summarise texts.

        Args:
            input_ids: long (B, T), T at most ``length``; tokens first, padding after them.
            positions: None or ``Contiguous(T)``; the code numbers positions itself, backwards.
            inputs_embeds: refused: padding has an embedding of its own.
            key_padding_mask: bool (B, T), True = padding, which is then read as ``padding_idx``.

        Raises:
            ValueError: inputs_embeds or other positions are given, or texts are too long.
        """
        if input_ids is None or inputs_embeds is not None:
            raise ValueError("variant 'reference-code' reads token ids alone: it pads texts by a token id")
        T = input_ids.shape[1]
        # other offsets are tensors, which would have to be read
        counted = isinstance(positions, Contiguous) and isinstance(positions.offset, int) and positions == Contiguous(T)
        if positions is not None and not counted:
            raise ValueError("variant 'reference-code' numbers positions itself, backwards; leave them out")
        if T > self.length:
            raise ValueError(
                f"variant 'reference-code' pads texts to length {self.length}, got {T} tokens; shorten the text, or "
                "build the network with a larger length (Hugging Face models: max_position_embeddings)"
            )
        check_key_padding("key_padding_mask", key_padding_mask, input_ids.shape[0], T, device=input_ids.device)
        if key_padding_mask is not None:
            input_ids = input_ids.masked_fill(key_padding_mask, self.padding_idx)
        padded_BL = F.pad(input_ids, (0, self.length - T), value=self.padding_idx)
        backwards_L = torch.arange(self.length - 1, -1, -1, device=padded_BL.device)
        both_BLC = stack(self.body(split(self.words(padded_BL, backwards_L))))
        return TextOutput(both_BLC[:, -1], both_BLC[:, :T])


class UnitaryRecurrent(nn.Module):
    """The unitary recurrent network of Arjovsky et al., without Fourier transforms, as Wang et al.'s code has it.

    Arjovsky et al. 2016, https://arxiv.org/abs/1511.06464, Eq. 6, for a real input x, W complex::

        h_t = modReLU(W x_t + D3 R2 D2 P R1 D1 h_{t-1})
        modReLU(z) = z relu(|z| + b) / (|z| + 1e-6),   D = diag(exp(i w)),   R z = z - 2 v (v* z) / |v|^2

    P is a fixed permutation. The paper has a Fourier transform before R1 and its inverse before D3; the code published
    with Wang et al. 2020 (https://arxiv.org/abs/1912.12333) leaves both out, calls the network an LSTM, and feeds the
    real and the imaginary parts of a text one after the other, as a text twice as long: ``torch.cat(pair, dim=1)``.

    Args:
        inputs: real channels in, D.
        hidden: complex channels of a state, n.

    Shape:
        (B, T, D) -> states (real, imag), (B, T, n) each. A padding token leaves the state as it was.
    """

    permutation: Tensor

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input_weight = nn.Parameter(torch.empty(2 * hidden, inputs))
        self.angle = nn.Parameter(torch.empty(3, hidden))
        self.reflection = nn.Parameter(torch.empty(2, 2, hidden))  # which one, part, channel
        self.bias = nn.Parameter(torch.empty(hidden))
        self.register_buffer("permutation", torch.empty(hidden, dtype=torch.long))
        self.draw_parameters(0.0, None)

    def draw_parameters(self, std: float, generator_for: Generators | None) -> None:
        """Draw as the published code, whatever ``std``: W after Glorot, angles U(-pi, pi), reflections U(-1, 1), b 0.

        The permutation depends on the size alone, so that all arms and seeds have the same one.
        """
        del std
        if not getattr(self.permutation, "_is_hf_initialized", False):
            shuffled = torch.randperm(self.hidden, generator=torch.Generator().manual_seed(self.hidden), device="cpu")
            self.permutation.copy_(shuffled)
        glorot = math.sqrt(6 / (sum(self.input_weight.shape)))
        for name, bound in (("input_weight", glorot), ("angle", math.pi), ("reflection", 1.0)):
            generator = generator_for(name) if generator_for else None
            nn.init.uniform_(getattr(self, name), -bound, bound, generator=generator)
        nn.init.zeros_(self.bias)

    def forward(self, x_BTD: Tensor, *, key_padding_mask: Tensor | None = None) -> Pair:
        """Return the states of all tokens; ``key_padding_mask`` is bool (B, T), True = padding."""
        batch, tokens = x_BTD.shape[:2]
        check_key_padding("key_padding_mask", key_padding_mask, batch, tokens, device=x_BTD.device)
        driven = F.linear(x_BTD, self.input_weight).chunk(2, dim=-1)  # all steps in one product
        turns = list(zip(self.angle.cos(), self.angle.sin(), strict=True))
        real = imag = x_BTD.new_zeros(x_BTD.shape[0], self.hidden)
        states: list[Pair] = []
        for t in range(x_BTD.shape[1]):
            turned = self._turn((real, imag), turns)
            before = driven[0][:, t] + turned[0], driven[1][:, t] + turned[1]
            gain = modrelu_gain(before, self.bias)
            moved = before[0] * gain, before[1] * gain
            if key_padding_mask is not None:
                stay_B1 = key_padding_mask[:, t, None]
                moved = torch.where(stay_B1, real, moved[0]), torch.where(stay_B1, imag, moved[1])
            real, imag = moved
            states.append(moved)
        return torch.stack([a for a, _ in states], dim=1), torch.stack([b for _, b in states], dim=1)

    def _turn(self, h: Pair, turns: list[Pair]) -> Pair:
        h = _reflect(multiply(h, turns[0]), self.reflection[0])
        h = multiply((h[0][:, self.permutation], h[1][:, self.permutation]), turns[1])
        return multiply(_reflect(h, self.reflection[1]), turns[2])


def _reflect(h: Pair, v_2N: Tensor) -> Pair:
    v, w = v_2N
    scale = 2 / v_2N.square().sum()
    along = (h[0] @ v + h[1] @ w)[:, None] * scale, (h[1] @ v - h[0] @ w)[:, None] * scale
    back = multiply(along, (v, w))
    return h[0] - back[0], h[1] - back[1]


class UnitaryTextRecurrent(TextBody):
    """The recurrent classifier of the paper's code: a unitary network over real parts, and then over imaginary ones.

    See `UnitaryRecurrent`. A text of n tokens is read in 2n steps::

        h = R(... R(R(0, a_1), a_2) ... a_n, b_1) ... b_n),    features = [Re h ; Im h]

    Args:
        width: complex channels of the embeddings, C.
        hidden: complex channels of the state, H; positive. The code sets it to the length of the longest text.
    """

    def __init__(self, width: int, *, hidden: int) -> None:
        check_positive(hidden=hidden)
        super().__init__(features=2 * hidden)
        self.cell = UnitaryRecurrent(width, hidden)

    def forward(self, x_BTC: Tensor, *, key_padding_mask: Tensor | None = None) -> TextOutput:
        valid_BT = valid_tokens(key_padding_mask, x_BTC.shape[0], x_BTC.shape[1], device=x_BTC.device)
        twice = None if key_padding_mask is None else torch.cat((key_padding_mask, key_padding_mask), dim=1)
        states = stack(self.cell(torch.cat(split(x_BTC), dim=1), key_padding_mask=twice))
        # padding leaves the state as it is, so that the last column holds the text's last state
        features_BF = zero_if_empty(states[:, -1], valid_BT)
        return TextOutput(features_BF, without_padding(states[:, x_BTC.shape[1] :], valid_BT))
