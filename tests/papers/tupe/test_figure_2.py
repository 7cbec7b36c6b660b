import pytest
import torch
from torch.testing import assert_close

from wordorder import BadInput, Encoder
from wordorder.models import build_config, build_model
from wordorder.ops import Contiguous
from wordorder.papers.tupe import figure_2
from wordorder.papers.tupe.figure_2 import (
    WORDS,
    draw_correlations,
    first_layer,
    real_scores,
    word_position_correlations,
)

FOUR = ["word-word", "word-position", "position-word", "position-position"]
TWO = ["word-word", "position-position"]
CONSTANT = ["constant-word", "constant-position"]
V, N = 30, 7


def encoder(encoding="learned", **settings) -> Encoder:
    """A tiny encoder in which every weight, norms and biases included, is drawn anew."""
    torch.manual_seed(2)
    sizes = {"width": 24, "layers": 2, "heads": 4, "max_positions": 12, "dropout": 0.0, "padding_idx": 0}
    made = Encoder(V, encoding=encoding, **{**sizes, **settings})
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.5)
    return made.eval()


def queries_and_keys(model, ids):
    """What the first layer's projection gives in a real forward pass, (T, H, D) each, keys repeated for their heads."""
    caught = []
    attention = model.layers[0].attention
    hook = attention.qkv.register_forward_hook(lambda module, inputs, output: caught.append(output[0].double()))
    model(ids[None])
    hook.remove()
    q, k, _ = caught[0].split([heads * attention.head_dim for heads in attention.splits], -1)
    q, k = (x.unflatten(-1, (-1, attention.head_dim)) for x in (q, k))
    return q, k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)


BLOCKS = [
    {"norm_placement": "pre"},
    {"norm_placement": "post"},
    {"norm_placement": "pre", "embedding_norm": True},
    {"norm_placement": "pre", "norm": "rms"},
    {"norm_placement": "post", "embedding_norm": False},
    {"norm_placement": "pre", "key_value_heads": 2},
]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("encoding", ["learned", "sinusoidal", "tupe-r", "learned+t5"])
@torch.no_grad()
def test_real_scores_are_those_of_the_forward_pass(encoding, block):
    model, ids = encoder(encoding, **block), torch.randint(V, (N,))
    q, k = queries_and_keys(model, ids)
    expected = model.encoding.scales[0] * torch.einsum("thd,shd->hts", q, k)
    assert_close(real_scores(model, ids), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_untied_sum_meets_positions_in_its_scores():
    model, ids = encoder("untied-sum"), torch.randint(V, (N,))
    q, k = queries_and_keys(model, ids)
    order = model.encoding.prepare(Contiguous(N)).layer(0)
    q, k = (x.transpose(0, 1)[None] for x in (q, k))
    expected = order.scale * order.move_queries(q) @ order.move_keys(k).transpose(-1, -2)
    assert_close(real_scores(model, ids), expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
@torch.no_grad()
def test_the_summands_follow_the_norms_word_by_word_and_position_by_position(block):
    """Every word at every position, the norms applied as autograd linearises them with their divisor held still."""
    model, ids = encoder("learned", **block), torch.tensor([3, 9, 9, 20])
    attention = model.layers[0].attention
    norms = [model.embedding_norm, *([model.layers[0].attention_norm] if model.layers[0].pre else [])]
    table = model.encoding.parts["learned"].table.weight
    words, positions, constants = torch.zeros(4, N, 24), torch.zeros(4, N, 24), torch.zeros(4, N, 24)
    for w, word in enumerate(ids):
        for p in range(N):
            three = [model.embedding.weight[word], table[p], torch.zeros(24)]
            for norm in norms:
                if isinstance(norm, torch.nn.Identity):
                    continue
                total = sum(three)
                if isinstance(norm, torch.nn.LayerNorm):
                    divisor = (total.var(correction=0) + norm.eps).sqrt()
                    three = [norm.weight * (x - x.mean()) / divisor for x in three]
                    three[2] = three[2] + norm.bias
                else:
                    three = [norm.weight * x / (total.square().mean() + norm.eps).sqrt() for x in three]
                assert_close(sum(three), norm(total), rtol=1e-4, atol=1e-5)
            words[w, p], positions[w, p], constants[w, p] = three
    layer = first_layer(model, ids, N)
    for side, rows in (
        (layer.query, slice(0, 24)),
        (layer.key, slice(24, 24 + attention.splits[1] * attention.head_dim)),
    ):
        weight, bias = attention.qkv.weight[rows], attention.qkv.bias[rows]
        for name, mean, added in (
            ("word", words.mean(1), 0),
            ("position", positions.mean(0), 0),
            ("constant", constants.mean((0, 1))[None], bias),
        ):
            projected = (mean @ weight.T + added).unflatten(-1, (-1, 6))
            expected = projected.repeat_interleave(4 // projected.shape[1], dim=1)
            assert_close(side.summand(name), expected.double(), rtol=1e-4, atol=1e-4)


def test_words_in_chunks_are_the_same_words(monkeypatch):
    model, ids = encoder(), torch.arange(V)
    whole = first_layer(model, ids, N)
    monkeypatch.setattr("wordorder.papers.tupe.figure_2._NUMBERS", 4 * N * 24)
    parts = first_layer(model, ids, N)
    for name in ("word", "position", "constant"):
        assert_close(whole.query.summand(name), parts.query.summand(name), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("encoding", "terms", "panels"),
    [
        ("learned", FOUR + CONSTANT, FOUR),
        ("sinusoidal", FOUR + CONSTANT, FOUR),
        ("learned+t5", FOUR + CONSTANT, FOUR),
        ("untied-sum", FOUR + CONSTANT, FOUR),
        ("tupe-a", [*TWO, "constant-word"], TWO),
        ("tupe-r", [*TWO, "constant-word"], TWO),
        ("t5", [*TWO, "constant-word"], TWO),
        ("alibi", [*TWO, "constant-word"], TWO),
    ],
)
@torch.no_grad()
def test_terms_panels_and_numbers(encoding, terms, panels):
    options = {"cls": "position-0"} if "tupe" in encoding else None
    model, ids = encoder(encoding, encoding_options=options), torch.tensor([3, 9, 9, 20, 11])
    found = word_position_correlations(model, N, words=ids)
    assert set(found.terms) == set(terms)
    assert list(found.panels) == panels
    assert (found.words, found.word_ids.tolist()) == (5, ids.tolist())
    layer, bias = first_layer(model, ids, N), model.encoding.prepare(Contiguous(N)).layer(0).bias
    for name, term in found.terms.items():
        query, key = name.split("-")
        scores = layer.scale * torch.einsum("thd,shd->hts", layer.query.summand(query), layer.key.summand(key))
        inner = slice(None)
        if name == "position-position":
            if terms != FOUR + CONSTANT:
                scores = bias.dense()[0].double()
                inner = slice(1 if "tupe" in encoding else 0, None)  # the reset of [CLS] is no correlation
            assert_close(found.position_position.values_HNN, scores.float(), rtol=1e-5, atol=1e-5)
        if query != "constant":
            assert_close(found.panels[name], scores.mean(0)[:5, :5], rtol=1e-5, atol=1e-5)
        scores = scores[:, inner, inner]
        centred = scores - scores.mean(-1, keepdim=True)
        assert_close(term.mean_H, scores.mean((-1, -2)), rtol=1e-5, atol=1e-6)
        assert_close(term.std_H, scores.std((-1, -2), correction=0), rtol=1e-5, atol=1e-6)
        assert_close(term.spread_H, centred.square().mean((-1, -2)).sqrt(), rtol=1e-5, atol=1e-6)
        assert term.spread == pytest.approx(centred.square().mean().sqrt().item(), rel=1e-5)


@torch.no_grad()
def test_without_a_norm_between_the_terms_are_the_paper_s_and_explain_everything():
    model, ids = encoder("learned", norm_placement="post", embedding_norm=False), torch.randint(1, V, (N,))
    found = word_position_correlations(model, N, words=ids)
    assert found.explained == pytest.approx(1, abs=1e-9)
    weight = model.layers[0].attention.qkv.weight
    query, key, _ = (x.double() for x in weight.split(24))
    w, p = model.embedding.weight[ids].double(), model.encoding.parts["learned"].table.weight[:N].double()
    for name, left, right in zip(FOUR, (w, w, p, p), (w, p, w, p), strict=True):
        # heads side by side: the mean over 4 heads of their products is a quarter of the whole product
        assert_close(found.panels[name], (left @ query.T) @ (right @ key.T).T / 6**0.5 / 4, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_explained_is_the_share_of_the_real_variance():
    model, ids = encoder("learned"), torch.randint(1, V, (N,))
    found = word_position_correlations(model, N, words=ids)
    layer = first_layer(model, ids, N)
    q, k = queries_and_keys(model, ids)
    real = layer.scale * torch.einsum("thd,shd->hts", q, k)
    ours = torch.zeros_like(real)
    for t in range(N):
        for s in range(N):
            left, right = (
                side.word_WHD[i] + side.position_NHD[i] + side.constant_HD
                for side, i in ((layer.query, t), (layer.key, s))
            )
            ours[:, t, s] = layer.scale * (left * right).sum(-1)
    rest, whole = (x - x.mean(-1, keepdim=True) for x in (real - ours, real))
    assert 0.3 < found.explained < 0.999
    assert found.explained == pytest.approx(1 - (rest.square().sum() / whole.square().sum()).item(), abs=1e-5)


def test_by_default_the_vocabulary_is_sampled_alike_in_every_call_without_padding():
    model = encoder()
    found = word_position_correlations(model, N)
    before = torch.get_rng_state()
    again = word_position_correlations(model, N)
    assert_close(torch.get_rng_state(), before)
    assert found.words == V - 1
    assert_close(found.word_ids, again.word_ids)
    assert len(found.word_ids) == N
    assert found.word_ids.tolist() == sorted(set(found.word_ids.tolist()) - {0})
    large = Encoder(WORDS + 50, width=8, layers=1, heads=1, max_positions=4, encoding="learned")
    assert word_position_correlations(large, 4).words == WORDS


def test_a_hugging_face_model_and_low_precision_work_too():
    config = build_config("encoder", vocab_size=V, hidden_size=16, num_hidden_layers=1, encoding="learned")
    model = build_model(config, "masked-lm", seed=0)
    wide = word_position_correlations(model, N)
    narrow = word_position_correlations(model.to(torch.bfloat16), N)
    assert narrow.terms["word-word"].spread == pytest.approx(wide.terms["word-word"].spread, rel=0.05)


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("none", "encoding 'none' has no word order"),
        ("rope", "encoding 'rope' turns queries and keys"),
        ("rope+tupe-a", "encoding 'rope' turns queries and keys"),
        ("shaw", "encoding 'shaw' lets words meet distances"),
    ],
)
def test_scores_that_are_no_sum_of_terms_are_refused_with_the_reason(encoding, said):
    with pytest.raises(BadInput, match=said):
        word_position_correlations(encoder(encoding), N)


def test_a_model_of_something_else_is_refused():
    with pytest.raises(BadInput, match="no encoder of this package"):
        word_position_correlations(torch.nn.Linear(2, 2), N)


@pytest.mark.parametrize(
    ("length", "words", "said"),
    [
        (0, None, "length must be positive, got 0"),
        (13, None, "max_positions=12"),
        (N, [], "words must be a row of token ids"),
        (N, [[1, 2]], "words must be a row of token ids"),
        (N, [0.5], "words must be a row of token ids"),
        (N, [1, V], r"0 \.\. 29, got 1 \.\. 30"),
        (N, [-1], r"0 \.\. 29, got -1"),
    ],
)
def test_lengths_and_words_out_of_range_are_refused(length, words, said):
    with pytest.raises(ValueError, match=said):
        word_position_correlations(encoder(), length, words=words)


@pytest.mark.parametrize(("encoding", "count"), [("learned", 4), ("tupe-r", 2)])
def test_panels_are_drawn_without_row_means_on_one_scale(encoding, count, monkeypatch):
    figures = []
    monkeypatch.setattr(figure_2, "png_of", lambda figure: (figures.append(figure), b"")[1])
    correlations = word_position_correlations(encoder(encoding), 12)
    drawing = draw_correlations(correlations)
    assert min(len(drawing.title), len(drawing.caption), len(drawing.alt)) > 5
    panels = [axes.images[0] for axes in figures[0].axes if axes.images and axes.get_label() != "<colorbar>"]
    assert len(panels) == count
    for image, panel in zip(panels, correlations.panels.values(), strict=True):
        assert_close(torch.tensor(image.get_array().data), panel - panel.mean(-1, keepdim=True))
    assert len({image.get_clim() for image in panels}) == 1
