"""Language models that are watched while they read."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast

from wordorder import BadInput, Decoder, LookAheadMemory, SegmentRecurrence
from wordorder.inspection import (
    LossByContext,
    draw_reading,
    inspect_language_model,
    inspect_model_dir,
    language_model_numbers,
    loss_by_context,
    reading_habits,
)
from wordorder.inspection.page import reading_tables
from wordorder.models import WordOrderDecoderForCausalLM, build_config, build_model

V, M, N = 30, 6, 4


def decoder(memory, *, layers=3, encoding="rope"):
    torch.manual_seed(2)
    network = Decoder(V, width=16, layers=layers, heads=2, encoding=encoding, memory=memory).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return network


def indifferent(memory, **sizes):
    """A decoder whose scores are all 0."""
    network = decoder(memory, encoding="none", **sizes)
    with torch.no_grad():
        for layer in network.layers:
            layer.attention.qkv.weight[:16] = 0.0
            layer.attention.qkv.bias[:16] = 0.0
    return network


def language_model(memory="none", *, task_class=None, **fields):
    if memory != "none":
        fields = {"memory_length": M, "segment_length": N, **fields}
    config = build_config(
        "decoder", vocab_size=V, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, memory=memory,
        initializer_range=0.3, **{"encoding": "rope", "max_position_embeddings": 64, **fields},
    )  # fmt: skip
    return build_model(config, "causal-lm", seed=0).eval()


def text(length=80):
    return torch.randint(1, V, (length,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", [SegmentRecurrence, LookAheadMemory])
def test_an_indifferent_model_gives_every_token_that_it_sees_the_same(kind):
    found = reading_habits(indifferent(kind(M)), text(), length=N)
    assert found.weights_LHO.shape == (3, 2, M + N)
    assert found.tokens == 80 - 2 * N  # two segments until the memory is full
    for distance in range(M + N):
        seers = [1 / (M + t + 1) for t in range(N) if distance <= M + t]
        assert_close(found.weights_LHO[:, :, distance], torch.full((3, 2), sum(seers) / len(seers)).double())
        assert found.count_O[distance] == len(seers) * found.tokens / N
    share = sum(M / (M + t + 1) for t in range(N)) / N
    assert_close(found.on_memory_LH, torch.full((3, 2), share).double())
    assert found.half_L.tolist() == [4, 4, 4]
    assert (found.alpha_LHA is None) == (kind is SegmentRecurrence)


def test_what_an_indifferent_slot_keeps_is_the_share_of_the_keys_that_it_had_seen():
    alpha_LHA = reading_habits(indifferent(LookAheadMemory(M)), text(), length=N).alpha_LHA
    assert alpha_LHA.shape == (2, 2, M)
    for age in range(M):
        shares = []
        for segment in range(2, 20):  # counted: the memory is full
            place = segment * N - 1 - age
            entered, column = divmod(place, N)
            seen = min(M, entered * N) + column + 1
            for look in range(entered + 1, segment + 1):  # up to the first token of the segment
                new = look * N - max(place, (look - 1) * N)
                seen, share = seen + new, seen / (seen + new)
            shares.append(share)
        assert_close(alpha_LHA[:, :, age], torch.full((2, 2), sum(shares) / 18).double())


@pytest.mark.parametrize("memory", [None, SegmentRecurrence(M, same_length=True), LookAheadMemory(M)])
def test_weights_by_distance_are_those_that_the_model_returns(memory):
    network, ids, state = decoder(memory), text(26), None
    total, count = torch.zeros(3, 2, M + N), torch.zeros(M + N)
    for number in range(6):  # the seventh segment is ragged
        more = {} if memory is None else {"memory": state}
        output = network(ids[None, number * N : (number + 1) * N], return_attentions=True, **more)
        state = output.memory
        if memory is not None and number < 2:
            continue
        for layer, weights in enumerate(output.attentions):
            slots = weights.shape[-1] - N
            for t in range(N):
                for s in range(slots + t + 1):
                    distance = slots + t - s
                    if getattr(memory, "same_length", False) and distance >= M:
                        assert not weights[0, :, t, s].any()
                        continue
                    total[layer, :, distance] += weights[0, :, t, s].detach()
                    count[distance] += layer == 0
    found = reading_habits(network, ids, length=N)
    reached = int((count > 0).sum())
    assert_close(found.weights_LHO.float(), (total / count)[..., :reached])
    assert_close(found.count_O.float(), count[:reached])


def test_a_start_token_stands_before_every_window():
    network, ids = decoder(None), text(12)
    found = reading_habits(network, ids, length=4, start_id=7)
    rows = F.pad(ids.view(3, 4), (1, 0), value=7)
    weights = network(rows, return_attentions=True).attentions[1]
    assert_close(found.weights_LHO[1, :, 4].float(), weights[:, :, 4, 0].mean(0).detach())
    assert found.tokens == 15


def test_a_text_that_never_fills_the_memory_is_counted_from_its_beginning():
    found = reading_habits(indifferent(LookAheadMemory(40)), text(12), length=4)
    assert found.tokens == 12
    assert found.alpha_LHA.shape == (2, 2, 8)
    none = reading_habits(indifferent(LookAheadMemory(40)), text(3), length=4)
    assert none.alpha_LHA is None


@pytest.mark.parametrize("memory", ["none", "segment-recurrence", "look-ahead"])
def test_the_loss_by_context_is_that_of_the_same_tokens_read_by_hand(memory):
    model, ids = language_model(memory), text()
    found = loss_by_context(model, ids, contexts=[9, 0, 3], block=3, blocks=4)
    assert found.contexts == (0, 3, 9)
    assert found.tokens == 12
    starts = [9, 31, 53, 76]
    for context, loss in zip(found.contexts, found.losses, strict=True):
        losses = []
        for start in starts:
            state, pieces, end = None, [], start + 3
            read = ids[start - context : end]
            while len(read):
                pieces.insert(0, read[-N:] if memory != "none" else read)
                read = read[: -len(pieces[0])]
            for piece in pieces:
                given = {} if memory == "none" else {"memory": state}
                output = model(piece[None], **given)
                state = output.memory
            losses.append(F.cross_entropy(output.logits[0, -3:].double(), ids[start + 1 : end + 1]))
        assert loss == pytest.approx(float(sum(losses).detach() / 4), abs=1e-6)
    assert found.errors[-1] == 0
    assert min(found.errors[:-1]) > 0


@pytest.mark.parametrize("memory", ["none", "look-ahead"])
def test_a_model_that_does_not_look_back_has_no_effective_context(memory):
    model = language_model(memory, encoding="none")
    with torch.no_grad():
        for layer in model.model.decoder.layers:
            layer.attention.out.weight.zero_()
            layer.attention.out.bias.zero_()
    found = loss_by_context(model, text(400))
    assert len(found.contexts) > 2
    assert found.losses == pytest.approx([found.losses[0]] * len(found.losses), abs=1e-6)
    assert found.effective() == 0


def test_contexts_go_to_what_the_model_and_the_text_allow():
    assert loss_by_context(language_model(), text(400)).contexts == (0, 16, 32, 48)
    assert loss_by_context(language_model(), text(400), start_id=1).contexts == (0, 16, 32, 47)
    assert loss_by_context(language_model(), text(40)).contexts == (0, 4)
    assert loss_by_context(language_model("look-ahead"), text(400)).contexts == (0, 4, 8, 16)  # a block is a segment
    learned = language_model(encoding="learned", max_position_embeddings=32)
    assert loss_by_context(learned, text(400), start_id=1).contexts == (0, 15)


def test_the_effective_context_is_where_the_loss_comes_near_the_last_for_good():
    found = LossByContext((0, 16, 32, 64), (3.0, 2.005, 2.5, 2.0), (0.1, 0.1, 0.1, 0.0), 16, 16)
    assert found.effective() == 64
    assert found.effective(1.0) == 16
    assert LossByContext((0, 16, 32), (2.0, 2.009, 2.0), (0.0,) * 3, 16, 16).effective() == 0
    assert LossByContext((0, 16, 32), (3.0, 1.9, 2.0), (0.0,) * 3, 16, 16).effective() == 16


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"block": 0}, "block, blocks and segments must be positive"),
        ({"contexts": [-1]}, r"contexts must lie in 0 \.\. 63"),
        ({"contexts": [0, 64]}, r"contexts must lie in 0 \.\. 63 for 80 tokens and blocks of 16"),
        ({"contexts": []}, "contexts must lie"),
    ],
)
def test_contexts_that_do_not_fit_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        loss_by_context(language_model(), text(), **arguments)


def test_what_cannot_be_watched_is_refused():
    with pytest.raises(BadInput, match="the text has 32 tokens; 33 or more are needed"):
        loss_by_context(language_model(), text(32))
    with pytest.raises(BadInput, match="Linear has no decoder of this package"):
        reading_habits(torch.nn.Linear(2, 2), text(), length=4)
    with pytest.raises(ValueError, match="length must be positive and the text have a token"):
        reading_habits(decoder(None), text(), length=0)
    with pytest.raises(BadInput, match="length must be at least 1, got 0"):
        inspect_language_model(language_model(), text(), length=0)
    with pytest.raises(BadInput, match=r"length 11 .* of which memory_length=6 are the memory's"):
        inspect_language_model(
            language_model("look-ahead", encoding="learned", max_position_embeddings=16), text(), length=11
        )


@pytest.mark.parametrize(
    ("memory", "fields", "said"),
    [
        ("none", {}, "no memory"),
        ("segment-recurrence", {}, "only in look-ahead memory do slots read on"),
        ("look-ahead", {"num_hidden_layers": 1}, "one layer"),
        ("look-ahead", {"memory_length": 90}, "never full"),
        ("look-ahead", {"segment_length": 90}, "no longer than one segment"),
        ("look-ahead", {}, None),
    ],
)
def test_what_is_not_there_is_said(memory, fields, said):
    config = build_config(
        "decoder", vocab_size=V, hidden_size=16, num_attention_heads=2, memory=memory, encoding="alibi",
        max_position_embeddings=64,
        **{"num_hidden_layers": 2, **({} if memory == "none" else {"memory_length": M, "segment_length": N}), **fields},
    )  # fmt: skip
    found = inspect_language_model(build_model(config, "causal-lm", seed=0).eval(), text())
    assert len(found.notes) == (said is not None)
    assert said is None or said in found.notes[0]
    answers = " ".join(found.answers())
    assert "Effective context" in answers
    assert ("slots of the memory" in answers) == (memory != "none")
    assert ("right before a segment keeps" in answers) == (found.habits.alpha_LHA is not None)
    drawings = draw_reading(found)
    assert set(drawings) == {"attention.png", "context.png"} | (
        {"alpha.png"} if found.habits.alpha_LHA is not None else set()
    )
    assert all(d.png.startswith(b"\x89PNG") and d.alt and d.caption for d in drawings.values())
    assert len(reading_tables(found)) == 2
    json.dumps(language_model_numbers(found), allow_nan=False)


def test_a_difference_that_is_none_has_no_minus():
    found = inspect_language_model(language_model("look-ahead"), text())
    context = replace(found.context, contexts=(0, 8, 16), losses=(2.0, 1.99999, 2.0), errors=(0.0, 0.0, 0.0))
    table = reading_tables(replace(found, context=context))[0]
    assert [row[3] for row in table.rows] == ["+0.0000", "+0.0000", "+0.0000"]
    context = replace(context, losses=(1.9, 2.1, 2.0))
    table = reading_tables(replace(found, context=context))[0]
    assert [row[3] for row in table.rows] == ["-0.1000", "+0.1000", "+0.0000"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run") / "model"
    language_model("look-ahead", eos_token_id=2, bos_token_id=2).save_pretrained(place)
    words = Tokenizer(models.WordLevel({"[UNK]": 0, **{f"w{i}": i for i in range(1, V)}}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(place)
    (place.parent / "text.txt").write_text(" ".join(f"w{i}" for i in text(300)), encoding="utf-8")
    return place


def test_a_saved_language_model_leaves_figures_numbers_and_a_page(kept):
    result = inspect_model_dir(kept, text=kept.parent / "text.txt")
    names = {"attention.png", "context.png", "alpha.png", "reading.safetensors", "inspect.html", "numbers.json"}
    assert {path.name for path in result.folder.iterdir()} == set(result.files) == names
    written = json.loads((result.folder / "numbers.json").read_text(encoding="utf-8"))
    assert written == result.numbers
    assert written["text_tokens"] == 300
    assert written["model"]["memory"] == "look-ahead"
    model = WordOrderDecoderForCausalLM.from_pretrained(kept).eval()
    by_hand = inspect_language_model(model, text(300))
    for name, value in language_model_numbers(by_hand).items():
        assert written[name] == value
    tensors = load_file(result.folder / "reading.safetensors")
    assert_close(tensors["attention"], by_hand.habits.weights_LHO.float())
    assert_close(tensors["alpha"], by_hand.habits.alpha_LHA.float())
    page = (result.folder / "inspect.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 3
    assert "Effective context" in page
    shutil.rmtree(result.folder)


def test_models_without_memory_read_windows_that_begin_as_in_training(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "model")
    language_model(bos_token_id=1, eos_token_id=2).save_pretrained(tmp_path / "model")
    numbers = inspect_model_dir(tmp_path / "model", text=kept.parent / "text.txt").numbers
    assert numbers["length"] == 63
    model = WordOrderDecoderForCausalLM.from_pretrained(tmp_path / "model").eval()
    assert numbers["context"]["loss"] == list(loss_by_context(model, text(300), start_id=1).losses)
    assert not math.isclose(numbers["context"]["loss"][0], loss_by_context(model, text(300)).losses[0], rel_tol=1e-6)


def test_bad_input_is_one_clear_error_before_anything_is_written(kept, tmp_path):
    with pytest.raises(BadInput, match="no text is named; give --text FILE"):
        inspect_model_dir(kept)
    source = kept.parent / "text.txt"
    (tmp_path / "short.txt").write_text("w1 w2 w3", encoding="utf-8")
    with pytest.raises(BadInput, match="the text has 3 tokens; 9 or more"):
        inspect_model_dir(kept, text=tmp_path / "short.txt")
    shutil.copytree(kept, tmp_path / "model")
    config = json.loads((kept / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "architectures": ["WordOrderDecoderModel"]}))
    with pytest.raises(BadInput, match="which is none of this package's causal language models"):
        inspect_model_dir(tmp_path / "model", text=source)
    assert not (kept.parent / "inspect").exists()


def test_a_recurrent_memory_that_was_never_full_is_said_too():
    found = inspect_language_model(language_model("segment-recurrence", memory_length=90), text())
    assert [note.split(":")[0] for note in found.notes] == [
        "The memory was never full, the text is too short",
        "No weights by age of slots",
    ]


def test_windows_that_begin_with_a_token_leave_a_place_for_it():
    model = language_model(encoding="learned", max_position_embeddings=16)
    context = loss_by_context(model, text(), start_id=1)
    assert context.block == 15


def test_a_loss_that_is_no_number_is_refused():
    model = language_model()
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(BadInput, match="loss is not a finite number"):
        loss_by_context(model, text())
