import pytest
import torch

from wordorder.comparison.probes.position_probe import ABSOLUTE, DISTANCE, PositionProbe
from wordorder.comparison.probes.probe import CannotProbe
from wordorder.comparison.probes.shuffled_windows import ShuffledWindows


def logits(ids):
    return torch.zeros(*ids.shape, 45)


def states(ids):
    """Layer 0 knows the word alone, layer 1 the position too, layer 2 the position in noise."""
    chance = torch.Generator().manual_seed(1)
    word = torch.nn.functional.one_hot(ids, 45).float()[..., :12]
    place = torch.arange(ids.shape[1]).expand(ids.shape).float()[..., None]
    noise = torch.randn(*ids.shape, 1, generator=chance) * 4
    return word, torch.cat((word, 0.3 * place), -1), torch.cat((word, place + noise), -1)


@pytest.mark.parametrize("task", ["masked-lm", "causal-lm", "classification"])
def test_what_the_states_hold_is_found_layer_by_layer(make_trained, made, task):
    options = {"max_pieces": 1} if task == "classification" else {}
    trained = make_trained(task, made(logits, states=states), words=3000, length=16, **options)
    rows = {(row["x"], row["group"]): row["value"] for row in PositionProbe(tokens=2000).measure(trained).rows}
    assert list(rows) == [(layer, group) for layer in range(3) for group in (ABSOLUTE, DISTANCE)]
    assert abs(rows[0, ABSOLUTE]) < 0.05
    assert abs(rows[0, DISTANCE]) < 0.05
    assert rows[1, ABSOLUTE] > 0.999
    assert rows[1, DISTANCE] > 0.999
    assert 0.3 < rows[2, ABSOLUTE] < 0.7
    assert rows[2, DISTANCE] < rows[1, DISTANCE] - 0.2


def test_what_scores_the_probe_did_not_fit_it(make_trained, made):
    def turned_in_every_other_window(ids):
        place = torch.arange(ids.shape[1]).expand(ids.shape).float()[..., None]
        place[1::2] = place.shape[1] - 1 - place[1::2]
        return (place,)

    trained = make_trained("causal-lm", made(logits, states=turned_in_every_other_window), words=1000, length=16)
    found = PositionProbe(tokens=600).measure(trained).rows
    assert found[0]["value"] < -1


def test_an_encoder_says_what_its_encoding_gives_it(make_trained, tiny_masked_model):
    found = {}
    for name in ("none", "sinusoidal"):
        trained = make_trained("masked-lm", tiny_masked_model(name), words=3000, length=16)
        with torch.no_grad():
            rows = PositionProbe(tokens=3000).measure(trained).rows
        found[name] = [row["value"] for row in rows if row["group"] == ABSOLUTE]
    assert len(found["none"]) == 3
    assert max(map(abs, found["none"])) < 0.1
    assert found["sinusoidal"][0] > 0.4


def test_it_is_the_same_each_time(make_trained, made):
    trained = make_trained("causal-lm", made(logits, states=states), words=500)
    assert PositionProbe(tokens=300).measure(trained).rows == PositionProbe(tokens=300).measure(trained).rows


def test_networks_and_texts_that_cannot_be_read(make_trained, made):
    with pytest.raises(CannotProbe, match="gives no hidden states by layer"):
        PositionProbe().measure(make_trained("masked-lm", made(logits)))
    with pytest.raises(CannotProbe, match="less than 8 windows of 62 tokens"):
        PositionProbe().measure(make_trained("masked-lm", made(logits, states=states), words=60, length=64))
    with pytest.raises(ValueError, match="reach must be at least 1, got 0"):
        PositionProbe(reach=0)


def test_states_of_lanes_say_nothing_of_the_token_that_a_window_begins_with(make_trained, made):
    def words_alone(ids):
        return (torch.nn.functional.one_hot(ids, 45).float(),)

    trained = make_trained("causal-lm", made(logits, states=words_alone), words=3000, length=8, packing="lanes")
    rows = {row["group"]: row["value"] for row in PositionProbe(tokens=4000).measure(trained).rows}
    assert abs(rows[ABSOLUTE]) < 0.05
    assert abs(rows[DISTANCE]) < 0.05


@pytest.mark.parametrize("probe", [PositionProbe(tokens=300), ShuffledWindows(tokens=300)])
def test_a_memory_that_reads_several_segments_is_not_measured_as_one_window(make_trained, made, probe):
    model = made(logits, states=states)
    model.config.memory = "segment-recurrence"
    trained = make_trained("causal-lm", model, words=500, packing="lanes")
    probe.measure(trained)  # data.length is one segment
    trained.recipe.segment_length = 4
    with pytest.raises(CannotProbe, match=r"data\.length 8 in segments of 4 tokens with its memory"):
        probe.measure(trained)


def test_networks_without_layers_are_skipped_before_they_are_run(make_trained, made):
    model = made(logits, architecture="convolution")
    with pytest.raises(CannotProbe, match="architecture 'convolution' gives no hidden states"):
        PositionProbe(tokens=300).measure(make_trained("causal-lm", model, words=500))
    assert model.seen == []
