"""The panels that show what each mechanism computes; `draw_mechanisms.py` draws them.

A panel is a function of axes and of the small network that has learned with the mechanism, which few of them read.
"""

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor

import wordorder
from wordorder import encodings
from wordorder.attention import Call
from wordorder.attention.backends.far_and_near.regions import prepare
from wordorder.encodings import Terms, pattern_of
from wordorder.inspection import score_maps
from wordorder.ops import Arbitrary, Contiguous, Mask, ToeplitzBias, t5_bucket

Panel = Callable[[Any, Any], None]
COLOURS = [plt.get_cmap("viridis")(x / 4) for x in range(4)]


def shown(axes: Any, values: Tensor, *, low: float | None = None, high: float | None = None, bar: str = "") -> None:
    """Draw a matrix, query tokens downwards and key tokens to the right."""
    picture = axes.imshow(values.detach().float().numpy(), cmap="viridis", vmin=low, vmax=high, interpolation="nearest")
    axes.set_xlabel("key j")
    axes.set_ylabel("query i")
    axes.figure.colorbar(picture, ax=axes, shrink=0.8, label=bar)


def bias_of_heads(axes: Any, encoding: Any, reach: int, *, labels: str = "head {}", both: bool = True) -> None:
    """Draw one line per head: what is added to a score by the distance key - query."""
    distance = torch.arange(-reach, (reach if both else 0) + 1)
    with torch.no_grad():
        for head, line in enumerate(encoding.at_distance(distance)):
            axes.plot(distance, line, color=COLOURS[head % 4], label=labels.format(head + 1))
    axes.set_xlabel("distance j - i (tokens)")
    axes.set_ylabel("added to the score")
    axes.legend(frameon=False, fontsize=7.5)


def causal_mask_alone(axes: Any, _: Any) -> None:
    """Draw the attention of a causal network without encoding on one repeated token."""
    torch.manual_seed(0)
    decoder = wordorder.Decoder(2, width=16, layers=1, heads=1, encoding="none").eval()
    weights = decoder(torch.zeros(1, 16, dtype=torch.long), return_attentions=True).attentions[0][0, 0]
    shown(axes, weights, low=0, high=1, bar="weight")
    axes.set_title("a decoder without encoding,\none token repeated: 1 / (i + 1)")


def sines(axes: Any, _: Any) -> None:
    """Draw the table that is added."""
    table = encodings.Sinusoidal(64)(torch.zeros(1, 128, 64), torch.arange(128)[None])[0]
    picture = axes.imshow(table.T.numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_xlabel("position p")
    axes.set_ylabel("channel")
    axes.figure.colorbar(picture, ax=axes, shrink=0.8)
    axes.set_title("PE[p, c], 64 channels")


def learned_table(axes: Any, model: Any) -> None:
    """Draw the cosine similarity of the learned vectors."""
    rows = torch.nn.functional.normalize(model.encoding.parts["learned"].table.weight.detach(), dim=-1)
    shown(axes, rows @ rows.T, low=-1, high=1, bar="cosine")
    axes.set(xlabel="position j", ylabel="position i")
    axes.set_title("learned vectors: cosine of P[i] and P[j]")


def turning_product(axes: Any, _: Any) -> None:
    """Draw the product of two equal vectors, rotated at their positions."""
    distance, ones = torch.arange(257), torch.ones(1, 1, 1, 64)
    for base, colour in ((100.0, COLOURS[0]), (10_000.0, COLOURS[1]), (500_000.0, COLOURS[2])):
        turn = encodings.Rotary(64, base=base)
        query = turn.rotate(ones, torch.zeros(1, 1, dtype=torch.long))
        keys = turn.rotate(ones.expand(1, 1, 257, 64), distance[None])
        axes.plot(distance, (keys @ query.mT)[0, 0, :, 0] / 64, color=colour, label=f"base {base:,.0f}")
    axes.set_xlabel("distance i - j (tokens)")
    axes.set_ylabel("q . k / 64")
    axes.legend(frameon=False, fontsize=7.5)
    axes.set_title("q = k = ones, 64 channels")


def angles(axes: Any, _: Any) -> None:
    """Draw the frequency of each pair for RoPE and its three stretched variants."""
    kinds = {
        "rope": encodings.Rotary(64),
        "rope-linear": encodings.LinearScaledRotary(64, factor=8.0),
        "rope-ntk": encodings.NTKAwareRotary(64, factor=8.0),
        "rope-yarn": encodings.YaRNRotary(64, max_positions=512, factor=8.0),
    }
    for (name, kind), colour in zip(kinds.items(), COLOURS, strict=True):
        axes.semilogy(kind.frequencies(dtype=torch.float64, device=None), color=colour, label=name)
    axes.set_xlabel("pair of channels")
    axes.set_ylabel("radians per token")
    axes.legend(frameon=False, fontsize=7.5)
    axes.set_title("frequencies at factor 8, from 512 tokens")


def fading_product(axes: Any, _: Any) -> None:
    """Draw the product of two equal vectors for RoPE and xPos."""
    distance, ones = torch.arange(2049), torch.ones(1, 1, 1, 64)
    fades, turns = encodings.XPos(64), encodings.Rotary(64)
    for name, kind, colour in (("rope", turns, COLOURS[2]), ("xpos", fades, COLOURS[0])):
        of_queries, _ = kind(Arbitrary(torch.tensor([[2048]])), Arbitrary(distance[None]))
        _, of_keys = kind(Arbitrary(torch.tensor([[2048]])), Arbitrary(distance[None]))
        product = of_keys.apply(ones.expand(1, 1, 2049, 64)) @ of_queries.apply(ones).mT
        axes.plot(2048 - distance, product[0, 0, :, 0] / 64, color=colour, label=name, linewidth=1)
    axes.set_xlabel("distance i - j (tokens)")
    axes.set_ylabel("q . k / 64")
    axes.legend(frameon=False, fontsize=7.5)
    axes.set_title("q = k = ones, 64 channels")


def growing_factor(axes: Any, _: Any) -> None:
    """Draw the factor of queries by position, smooth and in steps."""
    positions = Contiguous(4096)
    for name, floor, colour in (("as in Inkling", False, COLOURS[0]), ("floor, as in Llama 4", True, COLOURS[2])):
        of_queries, _ = encodings.LogN(max_positions=512, floor=floor)(positions, positions)
        axes.plot(of_queries.factor_B1T1[0, 0, :, 0], color=colour, label=name)
    axes.set_xlabel("position i")
    axes.set_ylabel("factor of the query")
    axes.legend(frameon=False, fontsize=7.5)
    axes.set_title("original length 512, alpha = 0.1")


def one_channel(kind: str) -> Panel:
    """Return a panel of what the fastest channel of PoPE, or pair of RoPE, adds by distance, for three contents."""

    def draw(axes: Any, _: Any) -> None:
        query, keys = Arbitrary(torch.tensor([[16]])), Arbitrary(torch.arange(17)[None])
        angle = torch.tensor([0.0, 0.9, 1.8])
        if kind == "rope":
            moves = encodings.Rotary(2)(query, keys)
            contents, key = torch.stack((angle.cos(), angle.sin()), dim=1), torch.tensor([1.0, 0.0])
        else:
            moves = encodings.PoPE(1, heads=1, layers=1, first_delta="zero")(query, keys)
            contents, key = torch.tensor([[0.2], [1.0], [2.0]]), torch.tensor([0.0])
        of_queries, of_keys = moves
        with torch.no_grad():
            moved = of_keys.apply(key.expand(1, 1, 17, -1))
            for number, content in enumerate(contents):
                products = (moved @ of_queries.apply(content.expand(1, 1, 1, -1)).mT)[0, 0, :, 0]
                axes.plot(16 - torch.arange(17), products, color=COLOURS[number], label=f"query {number + 1}")
        axes.set_xlabel("distance i - j (tokens)")
        axes.set_ylabel("added to q . k")
        axes.set_ylim(top=1.3 * axes.get_ylim()[1])
        axes.legend(frameon=False, fontsize=7.5, ncols=3)
        axes.set_title({"rope": "RoPE: content moves the peaks", "pope": "PoPE: content sets their height"}[kind])

    return draw


def adapted_bias(axes: Any, _: Any) -> None:
    """Draw what a network as it starts adds to the scores of one head, by distance, for three products q . k."""
    torch.manual_seed(11)
    encoding, query, keys = encodings.DAPE(4, layers=1), Contiguous(1, 64), Contiguous(65)
    with torch.no_grad():
        (term, bias), distance = (encoding(query, keys), encoding.base(query, keys)), 64 - torch.arange(65)
        axes.plot(distance, bias.dense()[0, 0, 0], color="black", linestyle=":", label="KERPLE alone")
        for product, colour in zip((-4.0, 0.0, 4.0), COLOURS, strict=False):
            q, k = torch.full((1, 4, 1, 1), product), torch.ones(1, 4, 65, 1)
            axes.plot(distance, term.scores(q, k, 1.0, None)[0, 0, 0], color=colour, label=f"q . k = {product:.0f}")
    axes.set_xlabel("distance i - j (tokens)")
    axes.set_ylabel("added to the score")
    axes.legend(frameon=False, fontsize=7.5)
    axes.set_title("a network as it starts, head 1")


def alibi(axes: Any, _: Any) -> None:
    """Draw the bias of four heads."""
    bias_of_heads(axes, encodings.ALiBi(4), 64)
    axes.set_title("-m_h |j - i|, 4 heads")


def kerple(axes: Any, _: Any) -> None:
    """Draw initial logarithmic kernels."""
    torch.manual_seed(3)
    bias_of_heads(axes, encodings.KERPLELog(4), 64)
    axes.set_title("initial logarithmic kernel, 4 heads")


def kerple_power(axes: Any, _: Any) -> None:
    """Draw initial power kernels."""
    torch.manual_seed(3)
    bias_of_heads(axes, encodings.KERPLEPower(4), 64)
    axes.set_ylim(-30, 1)  # one head may start so steep that no other would be seen
    axes.set_title("initial power kernel, 4 heads")


def sandwich(axes: Any, _: Any) -> None:
    """Draw the bias of four heads, far enough to see the logarithm."""
    bias_of_heads(axes, encodings.Sandwich(4), 256)
    axes.set_title("(p_i . p_j - 64) / ratio_h, 4 heads")


def buckets(axes: Any, _: Any) -> None:
    """Draw the bucket by distance, for encoders and decoders."""
    distance = torch.arange(-160, 161)
    both = t5_bucket(distance, buckets=32, max_distance=128, bidirectional=True)
    left = t5_bucket(distance, buckets=32, max_distance=128, bidirectional=False)
    axes.step(distance, both, where="mid", color=COLOURS[0], label="encoders")
    axes.step(distance, left, where="mid", color=COLOURS[2], label="decoders")
    axes.set_xlabel("distance j - i (tokens)")
    axes.set_ylabel("bucket")
    axes.legend(frameon=False, fontsize=7.5)
    axes.set_title("32 buckets up to 128 tokens")


def shares(axes: Any, _: Any) -> None:
    """Draw the share that f reads, by an instance whose f is the identity."""
    fire = encodings.FIRE(1, inner=1, bidirectional=False)
    with torch.no_grad():
        for weight, value in ((fire.inner_weight, 1.0), (fire.inner_bias, 0.0), (fire.outer_weight, 1.0)):
            weight.fill_(value)
        for query, colour in ((4096, COLOURS[2]), (512, COLOURS[1]), (128, COLOURS[0])):
            keys = torch.arange(query + 1)
            share = fire(Contiguous(1, query), Contiguous(query + 1)).dense()[0, 0, 0]
            axes.semilogx((query - keys)[:-1], share[:-1], color=colour, label=f"query at {query:,}")
    axes.set_xlabel("distance i - j (tokens)")
    axes.set_ylabel("share")
    axes.legend(frameon=False, fontsize=7.5)
    axes.set_title("psi(i - j) / psi(max(512, i)), c = 0.1")


def learned_function(axes: Any, model: Any) -> None:
    """Draw the learned bias at one query, by head."""
    (part,) = model.encoding.parts.values()
    place = torch.arange(24)
    with torch.no_grad():
        bias = part(Contiguous(24), Contiguous(24)).dense()[0, :, 12]
    for head, line in enumerate(bias):
        axes.plot(place - 12, line - line.max(), color=COLOURS[head], label=f"head {head + 1}")
    axes.set_xlabel("distance j - i (tokens)")
    axes.set_ylabel("bias minus its maximum")
    axes.legend(frameon=False, fontsize=7.5)
    axes.set_title("learned bias, query at 12")


def clipped_rows(axes: Any, _: Any) -> None:
    """Draw the table row that each pair reads."""
    place = torch.arange(24)
    rows = encodings.Shaw(8, layers=1, max_distance=8).row(place - place[:, None])
    shown(axes, rows, bar="row of the table")
    axes.set_title("clip(j - i, -8, 8) + 8")


def convolved(axes: Any, _: Any) -> None:
    """Draw how much of each row is in the input of attention, in a decoder whose weights fall from row to row."""
    encoding = encodings.TokenShift(24, layers=1)
    with torch.no_grad():
        encoding.weight[0] = torch.tensor([0.6, 0.4, 0.2])[:, None]
        rows, positions = torch.eye(24)[None], Contiguous(24)
        input_TC = (rows + encoding(positions, positions).layer(0).added(rows))[0]
    shown(axes, input_TC, low=0, bar="weight")
    axes.set(xlabel="row that is read", ylabel="input of attention at t")
    axes.set_title("reach 3, w = 0.6, 0.4, 0.2")


def relative_sines(axes: Any, _: Any) -> None:
    """Draw R(t), which the map W reads."""
    distance = torch.arange(-32, 33)
    table = encodings.TransformerXL(64, heads=1, head_dim=8, layers=1, sides="signed").sines(distance)
    picture = axes.imshow(
        table.T.numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto", extent=(-32.5, 32.5, 63.5, -0.5)
    )
    axes.set_xlabel("t = i - j (tokens)")
    axes.set_ylabel("channel")
    axes.figure.colorbar(picture, ax=axes, shrink=0.8)
    axes.set_title("R(t): sines above, cosines below")


def delta(axes: Any, _: Any) -> None:
    """Draw the row of P by distance, plain and in buckets."""
    distance = torch.arange(-600, 601)
    for name, options, colour in (
        ("k = 512", {}, COLOURS[2]),
        ("buckets = 256", {"buckets": 256}, COLOURS[0]),
    ):
        with torch.device("meta"):
            kind = encodings.DeBERTa(8, heads=1, head_dim=8, layers=1, max_distance=512, **options)
        axes.plot(distance, kind.row(distance), color=colour, label=name)
    axes.set_xlabel("i - j (tokens)")
    axes.set_ylabel("row of P")
    axes.legend(frameon=False, fontsize=7.5)
    axes.set_title("delta(i, j)")


def counts(axes: Any, _: Any) -> None:
    """Draw the positions that three queries count, with random gates of three means."""
    generator = torch.Generator().manual_seed(0)
    for wish, colour in ((2.0, COLOURS[0]), (0.0, COLOURS[1]), (-2.0, COLOURS[2])):
        gates = torch.sigmoid(wish + torch.randn(65, generator=generator))
        axes.plot(range(65), gates.cumsum(0).clamp(max=24), color=colour, label=f"mean score {wish:+.0f}")
    axes.set_xlabel("distance i - j (tokens)")
    axes.set_ylabel("position p")
    axes.legend(frameon=False, fontsize=7.5)
    axes.set_title("gates counted back from the query,\nmax_position = 24")


def forgotten(axes: Any, _: Any) -> None:
    """Draw the bias of a text whose gates are drawn at random but for two tokens that forget much."""
    fox = encodings.Fox(1, heads=1, layers=1)
    with torch.no_grad():
        fox.gates[0].weight.fill_(1.0)
        fox.gates[0].bias.zero_()
        x = torch.randn(1, 24, 1, generator=torch.Generator().manual_seed(0)) - 3
        x[0, [8, 16]] = -8
        positions = Contiguous(24)
        term = fox(positions, positions)
        term = term.with_features(term.features(x), (positions, positions))
        q = torch.zeros(1, 1, 24, 4)
        bias = term.scores(q, q, 1.0, None)[0, 0]
    shown(axes, bias.masked_fill(torch.ones(24, 24).triu(1).bool(), torch.nan), bar="added to the score")
    axes.set_title("random gates, tokens 8 and 16 forget")


def mixed_profiles(axes: Any, _: Any) -> None:
    """Draw the bias of a text whose tokens take turns between two profiles over eight distances."""
    encoding = encodings.RelativeLogits(2, heads=1, layers=1, rank=2, max_distance=8, bidirectional=False)
    with torch.no_grad():
        encoding.maps[0].weight.copy_(torch.eye(2))
        near = torch.arange(8) / 7  # of distances from the furthest to 0
        encoding.profiles[0].weight.copy_(torch.stack((near, 1 - near), dim=1))
        x, positions = torch.eye(2).repeat(12, 1)[None], Contiguous(24)
        term = encoding(positions, positions)
        term = term.with_features(term.features(x), (positions, positions))
        q = torch.zeros(1, 1, 24, 4)
        bias = term.scores(q, q, 1.0, None)[0, 0]
    shown(axes, bias.masked_fill(torch.ones(24, 24).triu(1).bool(), torch.nan), bar="added to the score")
    axes.set_title("every other token prefers what is far")


def exchanged_channels(axes: Any, _: Any) -> None:
    """Draw the scores of queries that ask for one of four channels, on a first key that tokens move between these."""
    encoding = encodings.PaTH(4, heads=1, head_dim=4, layers=1, rank=4)
    channels, tokens = torch.eye(4), 24
    with torch.no_grad():
        encoding.directions[0][0].weight.copy_(channels)
        for pair in range(3):  # tokens of the fourth kind exchange nothing
            encoding.directions[0][1].weight[:, pair].copy_(channels[pair] - channels[pair + 1])
        encoding.directions[0][1].weight[:, 3].zero_()
        encoding.betas[0].weight.zero_()
        encoding.betas[0].bias.fill_(20.0)
        kinds = torch.randint(4, (tokens,), generator=torch.Generator().manual_seed(1))
        x, positions = channels[kinds].expand(4, -1, -1), Contiguous(tokens)
        term = encoding(positions, positions)
        term = term.with_features(term.features(x), (positions, positions))
        q, k = channels[:, None, None].expand(-1, 1, tokens, -1), channels[0].expand(4, 1, tokens, -1)
        scores = q @ k.transpose(-1, -2) + term.scores(q, k, 1.0, None)
    picture = axes.imshow(scores[:, 0, :, 0].numpy(), cmap="viridis", aspect="auto", interpolation="nearest")
    axes.set_xlabel("query i")
    axes.set_ylabel("channel of the query")
    axes.set_yticks(range(4), range(1, 5))
    axes.figure.colorbar(picture, ax=axes, shrink=0.8, label="score of the first key")
    axes.set_title("tokens exchange channels of a key")


def tupe_map(part: str) -> Panel:
    """Return a panel of one of the maps of TUPE-R in the small network, first head."""

    def draw(axes: Any, model: Any) -> None:
        shown(axes, score_maps(model, 24)[part].values_HNN[0], bar="added to the score")
        axes.set_title(f"{part}, head 1")

    return draw


def waves(axes: Any, _: Any) -> None:
    """Draw the real part of three words in one channel."""
    embedding = wordorder.ComplexOrderEmbedding(3, 1)
    with torch.no_grad():
        embedding.amplitude.copy_(torch.tensor([[1.0], [0.7], [0.4]]))
        embedding.frequency.copy_(torch.tensor([[0.02], [0.15], [0.6]]))
        real, _imag = embedding(torch.arange(3)[:, None].expand(3, 64), torch.arange(64))
    for line, label, colour in zip(
        real[..., 0], ("r 1, w 0.02", "r 0.7, w 0.15", "r 0.4, w 0.6"), COLOURS, strict=False
    ):
        axes.plot(line, color=colour, label=label)
    axes.set_xlabel("position p")
    axes.set_ylabel("Re g(p)")
    axes.legend(frameon=False, fontsize=7.5, ncols=3, columnspacing=0.8, handlelength=1)
    axes.set_ylim(-1.1, 1.35)
    axes.set_title("three words, one channel")


def moved_by(axes: Any, _: Any) -> None:
    """Draw the product of a word with itself n tokens later, from two positions."""
    embedding = wordorder.ComplexOrderEmbedding(1, 64)
    distance = torch.arange(129)
    with torch.no_grad():
        embedding.amplitude.fill_(1.0)
        for start, colour, style in ((0, COLOURS[1], "-"), (1000, COLOURS[2], "--")):
            here = torch.complex(*embedding(torch.zeros(1, 1, dtype=torch.long), torch.tensor([start])))
            later = torch.complex(*embedding(torch.zeros(1, 129, dtype=torch.long), start + distance))
            axes.plot((later * here.conj()).real.mean(-1)[0], style, color=colour, label=f"from p = {start}")
    axes.set_xlabel("n tokens later")
    axes.set_ylabel("Re <g(p + n), g(p)> / 64")
    axes.legend(frameon=False, fontsize=7.5)
    axes.set_title("one word, 64 channels, initial frequencies")


def layers_of(pattern: str) -> Panel:
    """Return a panel of the encodings of eight layers."""

    def draw(axes: Any, _: Any) -> None:
        parts = [kind.names for kind in pattern_of(pattern)]
        names = list(dict.fromkeys(name for part in parts for name in part))
        grid = torch.tensor([[name in parts[layer % len(parts)] for layer in range(8)] for name in names])
        axes.imshow(grid.numpy(), cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
        axes.set_yticks(range(len(names)), names)
        axes.set_xticks(range(8), range(1, 9))
        axes.set_xlabel("layer")
        axes.set_title(pattern)

    return draw


def seen_by(kind: str) -> Panel:
    """Return a panel of the keys that each slot (above the line) and each token (below) attends to, M = N = 6."""

    def draw(axes: Any, _: Any) -> None:
        slots, tokens = 6, 6
        place = torch.arange(slots + tokens)
        causal = place[None] <= place[:, None]
        seen = causal.clone() if kind != "look-ahead-encoder" else torch.ones_like(causal)
        seen[:slots] = False
        if kind.startswith("look-ahead"):
            last = slots + 1 if kind == "look-ahead-decoder" else slots + tokens
            first = 1 if kind == "look-ahead-decoder" else slots
            ahead = (place[None] > place[:slots, None]) & (place[None] >= first) & (place[None] < last)
            seen = seen.float()
            seen[:slots] = 0.6 * ahead
        axes.imshow(seen.numpy(), cmap="Blues", vmin=0, vmax=1.2, extent=(0, 12, 12, 0))
        axes.axhline(slots, color="black", linewidth=0.8)
        axes.axvline(slots, color="black", linewidth=0.8)
        axes.set_xticks([3, 9], ["keys: slots", "keys: tokens"])
        axes.set_yticks([3, 9], ["slots", "tokens"], rotation=90, va="center")
        axes.tick_params(length=0)
        axes.set_title(kind.replace("-", " ").replace("look ahead", "look-ahead memory,").replace(" ,", ","))

    return draw


CENTRED = {"ha": "center", "va": "center", "fontsize": 8}


def far_and_near(high: int | None, of_tokens: int = 24) -> Panel:
    """Return a panel of the parts of the scores of 24 tokens, with a table that is constant from distance 4 on."""

    def draw(axes: Any, _: Any) -> None:
        places, zero = Contiguous(of_tokens), of_tokens - 1
        table = ToeplitzBias(torch.zeros(1, 2 * of_tokens - 1), of_tokens, may_hide=False, edges=(zero - 4, zero + 4))
        q_BHTD = torch.zeros(1, 1, of_tokens, 1)
        terms, mask = Terms(bias=table, scale=1.0), Mask(places, places, high=high)
        prepared = prepare(terms, mask, Call.of(q_BHTD, q_BHTD).with_terms(terms, mask))
        hidden, near, left, right = 0.0, 1.0, 0.35, 0.6
        place = torch.arange(of_tokens)
        distance = place[None] - place[:, None]
        part = torch.where((distance.abs() < 4) & (distance <= (of_tokens if high is None else high)), near, hidden)
        for region in prepared.regions:
            triangle = torch.ones(region.queries.stop - region.queries.start, region.keys.stop - region.keys.start)
            seen = triangle.triu() if region.side else triangle.tril()
            part[region.queries, region.keys] += (right if region.side else left) * seen
        axes.imshow(part.numpy(), cmap="Blues", vmin=0, vmax=1.3, interpolation="nearest")
        axes.text(5, 18, "far left", **CENTRED)
        if high is None:
            axes.text(18, 5, "far right", **CENTRED)
        axes.text(*((11.5, 11.5) if high is None else (10.2, 12.2)), "near", **CENTRED, rotation=-45, color="white")
        axes.set_xlabel("key j")
        axes.set_ylabel("query i")
        axes.set_title("encoder" if high is None else "decoder")

    return draw


PANELS: dict[str, dict[str, Panel]] = {
    "none": {"causal": causal_mask_alone},
    "sinusoidal": {"table": sines},
    "learned": {"table": learned_table},
    "rope": {"product": turning_product, "angles": angles},
    "log-n": {"factor": growing_factor},
    "xpos": {"product": fading_product},
    "pope": {"rope": one_channel("rope"), "pope": one_channel("pope")},
    "alibi": {"bias": alibi},
    "kerple": {"log": kerple, "power": kerple_power},
    "sandwich": {"bias": sandwich},
    "t5": {"buckets": buckets, "learned": learned_function},
    "fire": {"shares": shares, "learned": learned_function},
    "shaw": {"rows": clipped_rows},
    "transformer-xl": {"sines": relative_sines},
    "deberta": {"rows": delta},
    "cope": {"counts": counts},
    "dape": {"adapted": adapted_bias},
    "fox": {"bias": forgotten},
    "path": {"exchanged": exchanged_channels},
    "relative-logits": {"profiles": mixed_profiles},
    "shift": {"rows": convolved},
    "tupe": {part: tupe_map(part) for part in ("absolute", "relative", "sum")},
    "complex-order": {"waves": waves, "moved": moved_by},
    "compositions": {"mixed": layers_of("rope+tupe-a*3,none"), "plain": layers_of("rope*3,none")},
    "far-and-near": {"encoder": far_and_near(None), "decoder": far_and_near(0)},
    "memory": {kind: seen_by(kind) for kind in ("segment-recurrence", "look-ahead-decoder", "look-ahead-encoder")},
}
"""Panels by page and name."""
