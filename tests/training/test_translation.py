"""Translation from recipe to BLEU: trained, resumed, scored and used, against sacrebleu and loops by hand."""

import json
import math
import sys
from types import SimpleNamespace

import pytest
import torch
from sacrebleu import corpus_bleu
from safetensors.torch import load_file
from torch.nn import functional
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from wordorder.data import TokenizerConfig, load_tokenizer
from wordorder.data.tokens import encode_texts
from wordorder.errors import BadInput, MissingExtra
from wordorder.inference import evaluate_model_dir, translate
from wordorder.inference.predict import source_ids
from wordorder.tasks import TASKS
from wordorder.tasks.scores import TranslationTally, bleu_signature
from wordorder.training import read_recipe, run
from wordorder.training.loop.loop import Loop
from wordorder.training.loop.step_loss import StepLoss

CPU = torch.device("cpu")
ENGLISH, GERMAN = "a dog the cat sees runs and".split(), "ein Hund die Katze sieht läuft und".split()

RECIPE = """
[data]
source = "{folder}/train.en"
test_source = "{folder}/test.en"
validation_fraction = 0.1
length = 16

[task]
name = "translation"
target_source = "{folder}/train.de"
test_target_source = "{folder}/test.de"
beams = 3

[tokenizer]
kind = "word"
vocab_size = 200

[model]
network = "seq2seq"
hidden_size = 24
num_hidden_layers = 1
num_attention_heads = 2
max_position_embeddings = 16
encoding = "learned"

[training]
output_dir = "{folder}/run"
max_steps = 60
batch_size = 16
eval_batch_size = 7
learning_rate = 1e-2
lr_schedule = "constant"
log_every = 1
evaluate_every = 0.25
trackers = []
device = "cpu"
"""


def write_corpus(folder):
    """Sentences of two to nine words, translated word by word."""
    draw = torch.Generator().manual_seed(0)
    for name, count in (("train", 150), ("test", 23)):
        rows = [torch.randint(0, 7, (2 + n % 8,), generator=draw).tolist() for n in range(count)]
        rows = [row for n, row in enumerate(rows) if row not in rows[:n]]
        for ending, words in (("en", ENGLISH), ("de", GERMAN)):
            (folder / f"{name}.{ending}").write_text("".join(" ".join(words[i] for i in row) + "\n" for row in rows))


def write_recipe(folder):
    write_corpus(folder)
    (folder / "tiny.toml").write_text(RECIPE.format(folder=folder))
    return folder / "tiny.toml"


@pytest.fixture
def recipe_file(tmp_path):
    return write_recipe(tmp_path)


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("translation"))


@pytest.fixture(scope="session")
def trained(shared):
    return run(read_recipe(shared), progress=False)


def lines(shared, name):
    return (shared.parent / name).read_text().splitlines()


def test_a_run_gives_loss_and_bleu_of_the_test(trained, shared):
    metrics, count = trained.metrics, len(lines(shared, "test.en"))
    assert set(metrics["test"]) == {"loss", "accuracy", "perplexity", "tokens", "bleu", "exact_match", "sentences"}
    assert set(metrics["validation"]) == {"loss", "accuracy", "perplexity", "tokens"}
    assert metrics["test"]["sentences"] == count
    words = sum(len(line.split()) for line in lines(shared, "test.de"))
    assert metrics["test"]["tokens"] == words + count  # and the [SEP] after each
    assert metrics["test"]["bleu"] > 1
    assert metrics["generation"] == {"num_beams": 3, "max_length": 17}
    assert metrics["bleu_signature"] == bleu_signature("13a")
    assert metrics["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert json.loads((trained.model_dir.parent / "metrics.json").read_text()) == metrics
    assert not any("validation_bleu" in row for row in trained.curve)


def test_source_and_target_tokens_are_counted_without_padding(trained, shared):
    data = json.loads((trained.model_dir.parent / "data.json").read_text())["train"]
    an_epoch = data["tokens"] + data["target_tokens"] + 3 * data["segments"]
    steps_an_epoch = math.ceil(data["segments"] / 16)
    epochs = 60 // steps_an_epoch
    assert epochs * an_epoch <= trained.metrics["tokens"] < (epochs + 1) * an_epoch


def test_loss_is_that_of_a_loop_over_sentences(trained, shared):
    model = AutoModelForSeq2SeqLM.from_pretrained(trained.model_dir).double().eval()
    tokenizer = AutoTokenizer.from_pretrained(trained.model_dir)
    total = count = right = 0
    for english, german in zip(lines(shared, "test.en"), lines(shared, "test.de"), strict=True):
        target = tokenizer(german, add_special_tokens=False)["input_ids"]
        given = torch.tensor([[tokenizer.cls_token_id, *target]])
        expected = torch.tensor([*target, tokenizer.sep_token_id])
        with torch.no_grad():
            source = torch.tensor([tokenizer(english)["input_ids"]])
            logits = model(input_ids=source, decoder_input_ids=given).logits[0]
        total += float(functional.cross_entropy(logits, expected, reduction="sum"))
        right += int((logits.argmax(-1) == expected).sum())
        count += len(expected)
    test = trained.metrics["test"]
    assert test["loss"] == pytest.approx(total / count, rel=1e-5)
    assert test["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-4)
    assert (test["accuracy"], test["tokens"]) == (right / count, count)


def test_bleu_is_sacrebleus_of_sentences_translated_one_by_one(trained, shared):
    model = AutoModelForSeq2SeqLM.from_pretrained(trained.model_dir).eval()
    tokenizer = AutoTokenizer.from_pretrained(trained.model_dir)
    written = []
    for english in lines(shared, "test.en"):
        ids = torch.tensor([tokenizer(english)["input_ids"]])
        found = model.generate(input_ids=ids, num_beams=3, max_length=17)  # start and end are the model's own
        written.append(tokenizer.decode(found[0], skip_special_tokens=True))
    expected = corpus_bleu(written, [lines(shared, "test.de")]).score
    assert trained.metrics["test"]["bleu"] == pytest.approx(expected, rel=1e-9)
    assert translate(trained.model_dir, lines(shared, "test.en"), num_beams=3) == written
    for beams in (0, 100_000):
        with pytest.raises(BadInput, match=f"beams must lie between 1 and .* got {beams}; 4 to 10 are usual"):
            translate(trained.model_dir, lines(shared, "test.en"), num_beams=beams)


def test_evaluation_gives_the_scores_of_the_run_whatever_the_batches(trained, shared):
    source, expected = str(shared.parent / "train.en"), trained.metrics["test"]
    for batch_size in (1, 5, 64):
        found = evaluate_model_dir(trained.model_dir, source, batch_size=batch_size, num_beams=3)
        with pytest.raises(BadInput, match="beams must lie between 1 and"):
            evaluate_model_dir(trained.model_dir, source, num_beams=100_000)
        assert found.pop("bleu_signature") == bleu_signature("13a")
        assert found == pytest.approx(expected, rel=1e-5)
    told = []
    whole = evaluate_model_dir(
        trained.model_dir,
        str(shared.parent / "test.en"),
        target=str(shared.parent / "test.de"),
        split="all",
        num_beams=3,
        progress=lambda done, total: told.append((done, total)),
    )
    assert {name: whole[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert told[-1] == (expected["sentences"], expected["sentences"])


def test_evaluation_and_translation_search_as_the_run_did(recipe_file):
    settings = ["task.beams=1", "task.max_target_length=4", "training.max_steps=20"]
    result = run(read_recipe(recipe_file, settings), progress=False)
    found = evaluate_model_dir(result.model_dir, str(recipe_file.parent / "train.en"))
    assert found["bleu"] == pytest.approx(result.metrics["test"]["bleu"], rel=1e-9)
    texts = lines(recipe_file, "test.en")
    written = translate(result.model_dir, texts)
    assert written == translate(result.model_dir, texts, num_beams=1, max_length=4)
    assert written != translate(result.model_dir, texts, num_beams=1, max_length=17)
    with pytest.raises(BadInput, match="max_length must be positive, got 0"):
        translate(result.model_dir, texts, max_length=0)


def test_evaluation_cuts_what_is_too_long_instead_of_leaving_it_out(trained, tmp_path):
    """Also where a part is what training takes, which leaves it out."""
    pairs = [(f"a dog {n}", f"ein Hund {n}") for n in range(5)] + [("a dog", "Hund " * 30), ("dog " * 30, "ein")]
    for side, name in enumerate(("x.en", "x.de")):
        (tmp_path / name).write_text("".join(pair[side] + "\n" for pair in pairs))
    found = evaluate_model_dir(
        trained.model_dir, str(tmp_path / "x.en"), target=str(tmp_path / "x.de"), split="all", num_beams=1
    )
    assert found["sentences"] == 7
    assert found["tokens"] == 5 * 4 + 16 + 2


def test_a_source_without_its_translations_is_bad_input(trained, shared):
    with pytest.raises(BadInput, match=r"is a file of lines.*task\.target_source"):
        evaluate_model_dir(trained.model_dir, str(shared.parent / "test.en"))


def test_nothing_comes_of_nothing_and_the_order_stays(trained):
    texts = ["the cat runs", "", " a dog sees the cat and the dog ", "  ", "a dog"]
    found = translate(trained.model_dir, texts, batch_size=2)
    assert [bool(text) for text in found] == [True, False, True, False, True]
    assert found[2] == translate(trained.model_dir, ["a dog sees the cat and the dog"])[0]
    assert found == translate(trained.model_dir, texts, batch_size=50)
    assert translate(trained.model_dir, ["", " "]) == ["", ""]


def test_sources_are_cut_into_tokens_as_training_cuts_them(tmp_path):
    text = "他说。」再见。」 [MASK] A b.) C d."
    for kind in ("bpe", "whitespace", "wordpiece"):
        config = TokenizerConfig(kind=kind, vocab_size=400)
        tokenizer = load_tokenizer(config, [text] * 9, cache_dir=tmp_path)
        trained_on = encode_texts([text], tokenizer)[0].ids.tolist()
        assert source_ids(tokenizer, [f" {text}\n"]) == [[tokenizer.cls_token_id, *trained_on, tokenizer.sep_token_id]]


def test_greedy_search_is_one_beam_and_a_translation_may_be_kept_short(trained, shared):
    texts = lines(shared, "test.en")
    model = AutoModelForSeq2SeqLM.from_pretrained(trained.model_dir).eval()
    tokenizer = AutoTokenizer.from_pretrained(trained.model_dir)
    for english, ours in zip(texts[:6], translate(trained.model_dir, texts[:6], num_beams=1), strict=True):
        source, written = torch.tensor([tokenizer(english)["input_ids"]]), [tokenizer.cls_token_id]
        while written[-1] != tokenizer.sep_token_id and len(written) < 17:
            with torch.no_grad():
                logits = model(input_ids=source, decoder_input_ids=torch.tensor([written])).logits
            written.append(int(logits[0, -1].argmax()))
        assert ours == tokenizer.decode(written, skip_special_tokens=True)
    assert all(len(text.split()) <= 3 for text in translate(trained.model_dir, texts, max_length=4))


def test_texts_and_translations_beyond_the_position_table_are_bad_input(trained):
    with pytest.raises(BadInput, match=r"text has 22 tokens, the model takes at most 16; shorten it: 'dog dog"):
        translate(trained.model_dir, ["dog", "dog " * 20])
    with pytest.raises(BadInput, match=r"max_length must be at most 17 for the model's position table, got 100"):
        translate(trained.model_dir, ["dog"], max_length=100)


def test_other_models_do_not_translate(tmp_path):
    config = {"model_type": "wordorder-encoder", "architectures": ["WordOrderEncoderForMaskedLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="trained for fill-mask, it cannot do translation"):
        translate(tmp_path, ["a"])


def test_bleu_while_training_chooses_the_checkpoint(recipe_file, monkeypatch):
    settings = ["task.translate_while_training=true", "training.select=bleu", "training.max_steps=6"]
    settings += ["training.evaluate_every=2", "training.save_every=2"]
    original, made_up = TranslationTally.scores, iter([1.0, 3.0, 2.0])

    def scores(self):
        found = original(self)
        assert found["sentences"] > 0
        return found | {"bleu": next(made_up, 9.0)}

    monkeypatch.setattr(TranslationTally, "scores", scores)
    result = run(read_recipe(recipe_file, settings), progress=False)
    assert [row["validation_bleu"] for row in result.curve if "validation_bleu" in row] == [1.0, 3.0, 2.0]
    assert result.metrics["best_step"] == 4
    assert result.metrics["validation"]["bleu"] == 3.0  # that of the kept step


def test_without_a_test_the_validation_split_is_translated(recipe_file):
    text = "\n".join(line for line in recipe_file.read_text().splitlines() if not line.startswith("test_"))
    recipe_file.write_text(text)
    settings = ["data.test_source=none", "training.max_steps=2", "task.beams=1"]
    result = run(read_recipe(recipe_file, settings), progress=False)
    assert "bleu" in result.metrics["validation"]
    assert not any("validation_bleu" in row for row in result.curve)


def test_progress_says_how_much_is_translated(recipe_file, capfd):
    run(read_recipe(recipe_file, ["training.max_steps=1", "task.max_target_length=4"]), progress=True)
    shown = capfd.readouterr().err.splitlines()
    assert shown[-1].startswith("run: test loss ")
    assert "bleu" in shown[-1]


class Enough(Exception):
    pass


@pytest.mark.slow
def test_a_run_that_was_broken_off_goes_on_bit_for_bit(recipe_file, tmp_path, monkeypatch):
    settings = [
        "training.max_steps=12",
        "training.micro_batch_size=8",
        "training.label_smoothing=0.1",
        "task.translate_while_training=true",
        "task.max_target_length=5",
        "model.hidden_dropout_prob=0.2",
        "training.log_every=3",
    ]
    recipe = read_recipe(recipe_file, settings)
    whole = run(recipe, progress=False, output_dir=tmp_path / "whole")
    original = Loop.micro_step

    def micro_step(self, *args, **kwargs):
        if self.training.state.step == 7:
            raise Enough
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "micro_step", micro_step)
        with pytest.raises(Enough):
            run(recipe, progress=False, output_dir=tmp_path / "broken")
    again = run(recipe, progress=False, output_dir=tmp_path / "broken", resume=True)
    assert [{**row, "train_seconds": 0} for row in again.curve] == [{**row, "train_seconds": 0} for row in whole.curve]
    for name in ("validation", "test", "tokens", "best_step"):
        assert again.metrics[name] == whole.metrics[name]
    ours, theirs = (load_file(result.model_dir / "model.safetensors") for result in (again, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_smoothing_changes_the_training_loss_and_no_score(shared, tmp_path):
    losses = {}
    for factor in (0.0, 0.3):
        settings = [f"training.label_smoothing={factor}", "training.max_steps=1", "training.learning_rate=1e-12"]
        result = run(read_recipe(shared, settings), progress=False, output_dir=tmp_path / str(factor))
        losses[factor] = result.curve[0]["loss"], result.metrics["test"]["loss"]
    assert losses[0.3][1] == pytest.approx(losses[0.0][1], rel=1e-6)
    # Weights that are all but equal at first give every token about the same probability, so smoothing costs little.
    assert losses[0.3][0] != losses[0.0][0]
    assert losses[0.3][0] == pytest.approx(losses[0.0][0], rel=0.1)


def by_hand(logits, labels, epsilon):
    """The smoothed loss of one row after the other: a share of each label is spread over all tokens."""
    losses = []
    for row, label in zip(logits.flatten(0, -2).log_softmax(-1), labels.flatten().tolist(), strict=True):
        if label != -100:
            losses.append(-(1 - epsilon) * row[label] - epsilon * row.mean())
    return torch.stack(losses).mean()


@pytest.mark.parametrize("task", ["translation", "causal-lm"])
def test_what_the_trainer_smooths_is_the_loss_by_hand(task):
    from transformers.trainer_pt_utils import LabelSmoother

    labels = torch.tensor([[4, 5, 6], [7, 8, -100]])
    smoothed = TASKS[task].before_smoothing({"input_ids": labels, "labels": labels}, start=2, padding=0)
    logits = torch.randn(2, 3, 9)
    loss = LabelSmoother(0.2)({"logits": logits}, smoothed["labels"])
    if task == "translation":
        assert smoothed["decoder_input_ids"].tolist() == [[2, 4, 5], [2, 7, 8]]
        torch.testing.assert_close(loss, by_hand(logits, labels, 0.2))
    else:
        torch.testing.assert_close(loss, by_hand(logits[:, :-1], labels[:, 1:], 0.2))
    assert labels.tolist() == [[4, 5, 6], [7, 8, -100]]
    assert TASKS["masked-lm"].before_smoothing({"labels": labels}, start=2, padding=0) == {"labels": labels}


def test_the_model_gets_what_is_smoothed(recipe_file, monkeypatch):
    """The loss of the first step is the smoothed loss of the first batch, by the model's own logits."""
    seen = []
    original = StepLoss.__call__

    def loss(self, model, batch, **options):
        with torch.no_grad():
            logits = model(**batch).logits
        seen.append(by_hand(logits, batch["labels"], 0.2))
        return original(self, model, batch, **options)

    monkeypatch.setattr(StepLoss, "__call__", loss)
    settings = ["training.label_smoothing=0.2", "training.max_steps=1"]
    settings += ["model.hidden_dropout_prob=0.0", "model.attention_probs_dropout_prob=0.0"]
    result = run(read_recipe(recipe_file, settings), progress=False)
    assert result.curve[0]["loss"] == pytest.approx(float(seen[0]), rel=1e-5)


def test_bleu_of_processes_is_that_of_all_sentences():
    references = ["ein Hund sieht die Katze", "die Katze läuft und läuft", "ein Hund", "und die Katze sieht ein"]
    written = ["ein Hund sieht eine Katze", "die Katze läuft", "der Hund", "und die Katze sieht ein"]
    whole, mine, theirs = (TranslationTally(CPU) for _ in range(3))
    for start in range(0, 4, 2):
        whole.add_translations(written[start : start + 2], references[start : start + 2])
    mine.add_translations(written[1:], references[1:])
    theirs.add_translations(written[:1], references[:1])
    others = iter((theirs._loss, theirs._correct, theirs._count, theirs._counts))
    mine.reduce(lambda tensor: tensor + next(others), lambda rows: rows)
    for tally in (whole, mine):
        found = tally.scores()
        assert found["bleu"] == pytest.approx(corpus_bleu(written, [references]).score, rel=1e-12)
        assert found["sentences"] == 4


def test_a_text_whose_full_stops_stand_apart_is_scored_without_a_warning(caplog):
    tally = TranslationTally(CPU)
    tally.add_translations(["a ."] * 200, ["a ."] * 200)
    assert tally.scores()["bleu"] == pytest.approx(corpus_bleu(["a ."] * 200, [["a ."] * 200], force=True).score)
    assert not caplog.records


def test_without_sacrebleu_nothing_is_trained(recipe_file, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    monkeypatch.setattr(Loop, "micro_step", lambda *a, **k: pytest.fail("it was trained"))
    with pytest.raises(MissingExtra, match=r"sacrebleu is not installed; run: pip install .*\[train\]'"):
        run(read_recipe(recipe_file), progress=False)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["training.select=bleu"], "only with task.translate_while_training"),
        (["training.select=macro_f1"], "task translation has no macro_f1"),
        (
            ["task.beams=0"],
            "task.beams: must be at least 1 and at most 1,024",
        ),
        (["task.max_target_length=1"], "task.max_target_length: must be at least 2, got 1"),
        (["task.max_target_length=18"], "task.max_target_length: 18: length 17 is longer"),
        (["task.translate_while_training=1"], "task.translate_while_training: must be true or false"),
        (["model.label_smoothing=0.1", "training.label_smoothing=0.1"], "say it once"),
        (["data.length=17"], "data.length: length 17 is longer than the position table"),
        (["task.target_source=nowhere.de"], "task.target_source: no file matches 'nowhere.de'"),
        (["model.network=encoder"], "'encoder' cannot do the task 'translation'"),
    ],
)
def test_what_is_wrong_is_one_fault(shared, settings, words):
    with pytest.raises(BadInput) as caught:
        read_recipe(shared, settings)
    (fault,) = caught.value.faults
    assert words in fault


def test_other_tasks_do_not_translate(shared):
    text = shared.read_text().replace('name = "translation"', 'name = "causal-lm"').replace("seq2seq", "decoder")
    path = shared.with_name("causal.toml")
    path.write_text("\n".join(line for line in text.splitlines() if "target_source" not in line))
    with pytest.raises(BadInput, match=r"task\.beams is only for task translation, not for causal-lm") as caught:
        read_recipe(path)
    assert len(caught.value.faults) == 1


def test_a_generator_that_gives_white_space_is_trimmed():
    from wordorder.tasks.beam_search import Search, Translator

    tokens = SimpleNamespace(
        cls_token_id=2, sep_token_id=3, pad_token_id=0, batch_decode=lambda ids, skip_special_tokens: [" a b "]
    )
    asked = {}
    model = SimpleNamespace(generate=lambda **given: asked.update(given))
    assert Translator(model, tokens, Search(num_beams=2, max_length=5))(torch.tensor([[2, 9, 3]])) == ["a b"]
    assert asked["attention_mask"].tolist() == [[1, 1, 1]]
    assert (asked["num_beams"], asked["max_length"], asked["do_sample"]) == (2, 5, False)
