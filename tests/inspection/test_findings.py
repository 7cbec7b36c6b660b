import json
import math
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from matplotlib.colors import to_rgba
from torch.testing import assert_close

from wordorder import BadInput, Encoder
from wordorder.inspection import draw, figures, inspect_model, numbers, score_maps, toeplitz_share
from wordorder.inspection.figures import Drawing
from wordorder.inspection.page import page, tables

N = 12


def encoder(encoding, heads=2, cls="position-0", **options):
    torch.manual_seed(3)
    options = {**options, **{part: {"cls": cls} for part in encoding.split("+") if "tupe" in part}}
    model = Encoder(40, width=16, layers=1, heads=heads, max_positions=16, encoding=encoding, encoding_options=options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.4)
    return model


@pytest.fixture(scope="module")
def found():
    """What is found in one model per kind of encoding."""
    return {name: inspect_model(encoder(name), N) for name in ("tupe-a", "tupe-r", "learned+t5", "alibi")}


@pytest.mark.parametrize(
    ("encoding", "maps"),
    [
        ("tupe-a", ["absolute"]),
        ("tupe-r", ["absolute", "relative", "sum"]),
        ("learned+t5", ["relative"]),
        ("alibi", ["relative"]),
    ],
)
def test_each_map_has_profile_and_share(found, encoding, maps):
    inspection = found[encoding]
    assert list(inspection.maps) == maps
    for name, entry in inspection.maps.items():
        share = toeplitz_share(entry.map.values_HNN, skip_first="tupe" in encoding)
        assert entry.toeplitz.share == share.share
        assert entry.profile.mean_HW.shape[0] == 2
        assert entry.by_distance_alone == (name == "relative")
        assert entry.profile.distances_W.tolist()[-1] == N - (2 if "tupe" in encoding else 1)


@pytest.mark.parametrize(("threshold", "alone"), [(100.0, True), (3.0, False)])
def test_fire_depends_on_distance_alone_in_short_texts_only(threshold, alone):
    found = inspect_model(encoder("fire", first_threshold=threshold), N)
    assert found.maps["relative"].by_distance_alone == alone
    said = [note for note in found.notes if "distance alone" in note]
    assert said == (["Depends on distance alone at this length, share 1: relative."] if alone else [])
    assert len(found.answers()) == (not alone)


def test_every_model_is_told_what_it_does_not_have(found):
    assert any("[CLS]" in note for note in found["tupe-a"].notes)
    assert not any("[CLS]" in note for note in found["alibi"].notes)
    assert any("at this length, share 1: relative" in note for note in found["tupe-r"].notes)


@pytest.mark.parametrize("encoding", ["none", "learned", "untied-sum", "rope", "shaw", "complex-order"])
def test_where_nothing_is_on_scores_one_note_says_so_and_nothing_is_drawn(encoding):
    inspection = inspect_model(encoder(encoding), N)
    assert (inspection.maps, inspection.answers(), draw(inspection)) == ({}, [], {})
    (note,) = inspection.notes
    assert note.startswith(f"There is nothing to draw: encoding '{encoding}'")
    assert tables(inspection) == []
    assert numbers(inspection)["maps"] == {}


def test_the_answer_is_the_share_of_all_heads(found):
    share = found["tupe-r"].maps["absolute"].toeplitz.share
    first, second = found["tupe-r"].answers()
    assert first.startswith(f"absolute: {share:.1%} of what softmax sees of it depends on distance alone")
    assert f"{1 - share:.1%} does not (random numbers: {2 / (N - 1):.1%})" in first
    assert second.startswith("sum: ")
    assert found["alibi"].answers() == []


def test_numbers_are_json_and_those_of_the_findings(found):
    for encoding, inspection in found.items():
        value = json.loads(json.dumps(numbers(inspection), allow_nan=False))
        assert (value["length"], value["head_dim"]) == (N, 8)
        for name, entry in inspection.maps.items():
            written = value["maps"][name]
            assert written["toeplitz_share"] == entry.toeplitz.share
            assert written["chance"] == entry.toeplitz.chance
            assert_close(torch.tensor(written["toeplitz_share_by_head"]), entry.toeplitz.share_H.float())
            assert_close(torch.tensor(written["plain_toeplitz_share_by_head"]), entry.toeplitz.plain_share_H.float())
            assert_close(torch.tensor(written["rms_by_head"]), entry.toeplitz.rms_H.float())
            assert written["cls_left_out"] == ("tupe" in encoding)
            profile = written["profile"]
            assert profile["distance"] == entry.profile.distances_W.tolist()
            assert profile["count"] == entry.profile.count_W.tolist()
            assert_close(torch.tensor(profile["mean_by_head"]), entry.profile.mean_HW.float())
            assert_close(torch.tensor(profile["spread_by_head"]), entry.profile.spread_HW.float())


def test_cls_numbers_are_the_reset_per_head():
    model = encoder("tupe-r")
    cls = numbers(inspect_model(model, N))["cls"]
    theta1, theta2 = model.encoding.parts["tupe"].thetas()
    assert_close(torch.tensor(cls["from_cls_by_head"]), theta1.detach())
    assert_close(torch.tensor(cls["to_cls_by_head"]), theta2.detach())
    others = score_maps(model, N)["sum"].values_HNN[:, 1:, 1:].mean((-1, -2))
    assert_close(torch.tensor(cls["to_cls_above_others_by_head"]), theta2.detach() - others)
    assert numbers(inspect_model(encoder("tupe-a", cls="none"), N))["cls"] is None


def test_a_term_that_is_all_zero_has_no_share_and_no_answer(drawn):
    model = encoder("t5")
    with torch.no_grad():
        model.encoding.parts["t5"].table.weight.zero_()
    inspection = inspect_model(model, N)
    assert math.isnan(inspection.maps["relative"].toeplitz.share)
    assert numbers(inspection)["maps"]["relative"]["toeplitz_share"] is None
    assert numbers(inspection)["maps"]["relative"]["toeplitz_share_by_head"] == [None, None]
    assert inspection.answers() == []
    assert len(drawn(inspection)) == 3
    assert "–" in {cell for row in tables(inspection)[0].rows for cell in row}


@pytest.mark.parametrize("length", [-1, 0, 3, 1025])
def test_a_length_out_of_range_is_refused(length):
    with pytest.raises(BadInput, match=rf"length must lie in 4 \.\. 1024, .* got {length}"):
        inspect_model(encoder("alibi"), length)


def test_a_model_of_something_else_is_refused():
    with pytest.raises(BadInput, match="Linear has no encoder of this package"):
        inspect_model(torch.nn.Linear(2, 2), N)
    with pytest.raises(ValueError, match="max_positions=16"):
        inspect_model(encoder("tupe-a"), 17)


def test_the_shortest_length_works_for_all(drawn):
    for encoding, figures_of_it in (("tupe-r", 5), ("t5", 3)):
        assert len(drawn(inspect_model(encoder(encoding), 4))) == figures_of_it


@pytest.fixture
def drawn(monkeypatch):
    """Figures as matplotlib has them before they become files, by title."""
    kept = []
    monkeypatch.setattr(figures, "png_of", lambda figure: (kept.append(figure), b"")[1])

    def draw_kept(inspection):
        kept.clear()
        return dict(zip(draw(inspection), kept, strict=True))

    return draw_kept


def images(figure):
    return [axes.images[0].get_array() for axes in figure.axes if axes.images and axes.get_label() != "<colorbar>"]


def test_maps_are_drawn_per_head_with_wide_strips_for_cls(found, drawn):
    figure = drawn(found["tupe-r"])["map-sum.png"]
    values = found["tupe-r"].maps["sum"].map.values_HNN
    for head, image in enumerate(images(figure)):
        data, hidden = torch.tensor(image.data), torch.tensor(image.mask)
        assert data.shape == (N + 1, N + 1)  # a gap of one
        assert hidden[1].all()
        assert hidden[:, 1].all()
        assert not hidden[2:, 2:].any()
        assert_close(data[2:, 2:], values[head, 1:, 1:])
        assert_close(data[0, 2:], values[head, 0, 1:])
        assert_close(data[2:, 0], values[head, 1:, 0])
    axes = figure.axes[0]
    places = dict(zip([label.get_text() for label in axes.get_xticklabels()], axes.get_xticks(), strict=True))
    assert places["CLS"] == 0
    assert all(place == int(label) + 1 for label, place in places.items() if label != "CLS")


def test_strips_of_long_maps_are_wide_and_ticks_stay_with_their_positions():
    shown, ticks, labels = figures._with_strips(torch.arange(240.0)[None, :].expand(240, 240))
    assert shown.shape == (253, 253)
    assert shown[20, :10].unique().tolist() == [0]
    assert shown[20, 10:14].isnan().all()
    for place, label in zip(ticks[1:], labels[1:], strict=True):
        assert shown[20, int(place)] == int(label)


def test_maps_without_a_reset_are_drawn_as_they_are(found, drawn):
    for image, values in zip(
        images(drawn(found["alibi"])["map-relative.png"]), found["alibi"].maps["relative"].map.values_HNN, strict=True
    ):
        assert_close(torch.tensor(image.data), values)


def test_profiles_are_lines_of_each_head_with_their_spread(found, drawn):
    figure = drawn(found["tupe-r"])["profiles.png"]
    for head, axes in enumerate(figure.axes):
        lines = [line for line in axes.lines if len(line.get_xdata()) > 2]
        assert len(lines) == len(axes.collections) == 3
        for line, band, entry in zip(lines, axes.collections, found["tupe-r"].maps.values(), strict=True):
            assert_close(torch.tensor(line.get_xdata()), entry.profile.distances_W)
            assert_close(torch.tensor(line.get_ydata()), entry.profile.mean_HW[head])
            top = (entry.profile.mean_HW + entry.profile.spread_HW)[head].max()
            assert band.get_datalim(axes.transData).y1 == pytest.approx(top.item())
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["absolute", "relative", "sum"]


def test_bars_are_the_shares(found, drawn):
    axes = drawn(found["tupe-r"])["toeplitz.png"].axes[0]
    heights = [bar.get_height() for bar in axes.patches]
    expected = []
    for name in ("absolute", "sum"):  # the relative term's are full by construction
        shares = found["tupe-r"].maps[name].toeplitz.share_H.tolist()
        expected += [*shares, *(1 - share for share in shares)]
    assert heights == pytest.approx(expected)
    tops = [bar.get_y() + bar.get_height() for bar in axes.patches]
    assert tops == pytest.approx([top for shares in (expected[:2], expected[4:6]) for top in (*shares, 1, 1)])
    assert axes.lines[0].get_ydata()[0] == pytest.approx(2 / (N - 1))
    full = drawn(found["alibi"])["toeplitz.png"].axes[0]
    assert [bar.get_height() for bar in full.patches][:2] == pytest.approx([1, 1])
    lines = drawn(found["tupe-r"])["profiles.png"].axes[0].lines
    assert axes.patches[4].get_facecolor()[:3] == to_rgba(lines[2].get_color())[:3]  # one colour per map throughout


def test_many_heads_wrap_and_surplus_axes_are_hidden(drawn):
    figure = drawn(inspect_model(encoder("alibi", heads=8), N))["map-relative.png"]
    assert len(images(figure)) == 8
    assert len({round(axes.get_position().y0, 6) for axes in figure.axes if axes.images and axes.get_title()}) == 2
    odd = drawn(inspect_model(Encoder(9, width=30, layers=1, heads=5, max_positions=16, encoding="tupe-a"), N))
    for name in ("map-absolute.png", "profiles.png"):
        assert sum(not axes.get_visible() for axes in odd[name].axes) == 3


def test_figures_are_png_files_with_words_for_who_cannot_see_them(found):
    drawings = draw(found["tupe-r"])
    assert list(drawings) == [
        "map-absolute.png", "map-relative.png", "map-sum.png", "profiles.png", "toeplitz.png",
    ]  # fmt: skip
    for drawing in drawings.values():
        assert drawing.png.startswith(b"\x89PNG")
        assert min(len(drawing.title), len(drawing.caption), len(drawing.alt)) > 5
    assert f"{found['tupe-r'].maps['absolute'].toeplitz.share_H[0]:.2f}" in drawings["toeplitz.png"].alt
    assert "before the reset" in drawings["map-relative.png"].caption
    assert "before the reset" not in drawings["map-sum.png"].caption


def test_maps_of_some_layers_are_drawn_too():
    model = Encoder(9, width=16, layers=2, heads=2, max_positions=16, encoding="rope,tupe-r")
    drawings = draw(inspect_model(model, N))
    assert drawings["map-relative-layer-2.png"].title == "Map: relative (layer 2)"
    assert drawings["map-relative-layer-2.png"].caption.startswith("What the encoding adds to the scores from how far")


def test_tables_hold_the_numbers(found):
    (shares,) = tables(found["tupe-r"])
    assert [row[0] for row in shares.rows] == ["1", "2", "all"]
    columns = dict(zip(shares.columns, zip(*shares.rows, strict=True), strict=True))
    entry = found["tupe-r"].maps["absolute"].toeplitz
    assert columns["absolute: Toeplitz"] == tuple(f"{x:.3f}" for x in (*entry.share_H.tolist(), entry.share))
    assert columns["absolute: rest"] == tuple(f"{1 - x:.3f}" for x in (*entry.share_H.tolist(), entry.share))
    assert "relative: rms" in columns
    assert "relative: Toeplitz" not in columns
    assert f"random numbers: {2 / (N - 1):.3f}" in shares.title


class Page(HTMLParser):
    """Collects tags with their attributes, and the text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_the_page_needs_nothing_else_and_takes_names_as_text(found):
    drawings = {"a.png": Drawing(b"one", "A", "caption & co", 'alt "one"'), "b.png": Drawing(b"two", "B", "c", "d")}
    evil = "<script>alert(1)</script>&\"'"
    text = page(
        found["tupe-a"], drawings, tables(found["tupe-a"]), name=evil, encoding="tupe-a", facts=[("torch", evil)]
    )
    parsed = Page(text)
    assert "script" not in {tag for tag, _ in parsed.tags}
    assert parsed.text.count(evil) == 3  # title, heading, facts
    pictures = [attributes for tag, attributes in parsed.tags if tag == "img"]
    assert [picture["alt"] for picture in pictures] == [drawing.alt for drawing in drawings.values()]
    assert [picture["src"] for picture in pictures] == [f"data:image/png;base64,{x}" for x in ("b25l", "dHdv")]
    assert "caption & co" in parsed.text
    addresses = [value for _, attrs in parsed.tags for key, value in attrs.items() if key in ("src", "href")]
    assert all(address.startswith("data:") for address in addresses)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    for said in (*found["tupe-a"].notes, *found["tupe-a"].answers()):
        assert said in parsed.text
    for table in tables(found["tupe-a"]):
        assert table.title in parsed.text
        assert all(cell in parsed.text for row in table.rows for cell in row)


def test_maps_of_an_own_encoding_are_drawn_under_their_own_names(found):
    (own,) = found["alibi"].maps.values()
    drawings = draw(replace(found["alibi"], maps={"near": own}))
    assert any("One part of what the encoding adds" in drawing.caption for drawing in drawings.values())
