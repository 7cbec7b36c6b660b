"""lm-evaluation-harness on decoders with memory: every score against the model read by hand, segment by segment."""

import json
import math
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("lm_eval", reason="lm-eval is not installed; it comes with the extra eval")
sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

from lm_eval.api.instance import Instance
from saved_folder import WORDS, make_tokenizer, save
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

from wordorder.errors import BadInput
from wordorder.inference.lm_eval_model import WordOrderLM

MEMORY = {"encoding": "alibi", "memory_length": 6, "segment_length": 8}
TEXT = " ".join(WORDS[(7 * n) % len(WORDS)] for n in range(43))  # six segments, the last one short
# what lm_eval's own code does
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lm_eval"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:evaluate"),
]


def ask(*given, kind="loglikelihood"):
    return [Instance(request_type=kind, doc={}, arguments=each, idx=n) for n, each in enumerate(given)]


def by_hand(folder, tokens, *, segment=8):
    """Log-probabilities of tokens[1:], memory handed on."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    memory, found = None, []
    with torch.no_grad():
        for start in range(0, len(tokens) - 1, segment):
            piece = torch.tensor([tokens[start : start + segment + 1]])
            output = model(piece[:, :-1], memory=memory)
            memory = output.memory
            found += output.logits[0].double().log_softmax(-1).gather(1, piece[0, 1:, None])[:, 0].tolist()
    return found


def ids(text):
    return make_tokenizer()(text, add_special_tokens=False)["input_ids"]


@pytest.fixture(params=["look-ahead", "segment-recurrence"])
def folder(request, tmp_path):
    return save(tmp_path / "model", "decoder", "causal-lm", memory=request.param, **MEMORY)


def test_a_long_text_scores_as_running_text_does_and_the_memory_counts(folder):
    model = WordOrderLM(folder, batch_size=2)
    long, short = model.loglikelihood_rolling(ask((TEXT,), ("the union",), kind="loglikelihood_rolling"))
    assert long == pytest.approx(math.fsum(by_hand(folder, [3, *ids(TEXT)])), abs=1e-4)
    assert short == pytest.approx(math.fsum(by_hand(folder, [3, *ids("the union")])), abs=1e-5)
    alone = [by_hand(folder, [3, *ids(TEXT)][start : start + 9]) for start in range(0, 43, 8)]
    assert (
        abs(long - math.fsum(value for values in alone for value in values)) > 1e-3
    )  # each segment by itself is another score


def test_names_of_special_tokens_are_text_as_in_training(folder):
    encoded = WordOrderLM(folder, batch_size=2).tok_encode("the [SEP] union [MASK]")
    assert not {0, 2, 3, 4} & set(encoded)


def test_it_equals_the_score_of_evaluate_but_for_the_end_of_the_text(folder, tmp_path):
    from wordorder.data import DataSettings
    from wordorder.inference import Context, evaluate_model_dir

    sources = {}
    for name, text in {
        "source": " ".join(reversed(TEXT.split())),
        "validation_source": TEXT[9:],
        "test_source": TEXT,
    }.items():
        sources[name] = str(tmp_path / f"{name}.txt")
        Path(sources[name]).write_text(text)
    data, lanes = DataSettings(length=8, **sources), {"task": {"packing": "lanes", "eval_lanes": 1}}
    scores = evaluate_model_dir(folder, data, context=Context(kind="memory"), changes=lanes)
    tokens = [3, *ids(TEXT), 3]
    assert scores["tokens"] == len(tokens) - 1
    (found,) = WordOrderLM(folder).loglikelihood_rolling(ask((TEXT,), kind="loglikelihood_rolling"))
    assert -scores["loss"] * scores["tokens"] == pytest.approx(found + by_hand(folder, tokens)[-1], abs=1e-4)


def test_continuations_in_a_batch_are_scored_after_contexts_of_any_length(folder):
    pairs = [(TEXT, " war and peace"), ("the union", " is strong"), ("", "congress"), (TEXT[:60], " the")]
    for pair, (score, greedy) in zip(pairs, WordOrderLM(folder, batch_size=4).loglikelihood(ask(*pairs)), strict=True):
        before, after = ids(pair[0]), ids(pair[1])
        hand = by_hand(folder, [3, *before, *after])[-len(after) :]
        assert score == pytest.approx(math.fsum(hand), abs=1e-4)
        assert isinstance(greedy, bool)


def test_what_it_writes_is_what_generate_writes(folder):
    model, prompts = WordOrderLM(folder, batch_size=3), ["the union is", TEXT, "war"]
    told = {"until": ["peace"], "max_gen_toks": 9, "do_sample": False}
    found = model.generate_until(ask(*((prompt, told) for prompt in prompts), kind="generate_until"))
    own = AutoModelForCausalLM.from_pretrained(folder).eval()
    for prompt, text in zip(prompts, found, strict=True):
        given = torch.tensor([[3, *ids(prompt)]])
        written = own.generate(given, max_new_tokens=9, do_sample=False)[0, given.shape[1] :]
        expected = make_tokenizer().decode(written, skip_special_tokens=True).split("peace")[0]
        assert text == expected


def test_without_a_memory_it_is_lm_eval_s_own_windows(tmp_path):
    folder = save(tmp_path, "decoder", "causal-lm", encoding="learned")
    model = WordOrderLM(folder)
    assert model.max_length == 32
    (found,) = model.loglikelihood_rolling(ask((TEXT,), kind="loglikelihood_rolling"))
    own, tokens = AutoModelForCausalLM.from_pretrained(folder).eval(), [3, *ids(TEXT)]
    with torch.no_grad():
        first = own(torch.tensor([tokens[:32]])).logits[0]
        last = own(torch.tensor([tokens[-33:-1]])).logits[0, -11:]
    expected = -F.cross_entropy(torch.cat([first, last]).double(), torch.tensor(tokens[1:]), reduction="sum")
    assert found == pytest.approx(float(expected), abs=1e-4)


def test_a_task_from_local_files_runs_through_simple_evaluate(tmp_path, monkeypatch):
    import lm_eval
    from lm_eval.tasks import TaskManager

    folder = save(tmp_path / "model", "decoder", "causal-lm", memory="look-ahead", **MEMORY)
    rows = [{"text": TEXT, "options": ["war", "peace"], "answer": n % 2} for n in range(2)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = (
        f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {tmp_path / 'rows.jsonl'}}}}}\ntest_split: test\n"
    )
    tasks = {
        "tiny_choice": "output_type: multiple_choice\ndoc_to_text: '{{text}}'\ndoc_to_choice: '{{options}}'\n"
        "doc_to_target: answer\nmetric_list: [{metric: acc}]\n",
        "tiny_text": "output_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{text}}'\n"
        "metric_list: [{metric: word_perplexity}]\n",
    }
    (tmp_path / "tasks").mkdir()
    for name, text in tasks.items():
        (tmp_path / "tasks" / f"{name}.yaml").write_text(f"task: {name}\n{data}{text}")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    found = lm_eval.simple_evaluate(
        model="wordorder",
        model_args={"pretrained": folder, "device": "cpu"},
        tasks=list(tasks),
        task_manager=TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
        bootstrap_iters=0,
    )["results"]
    assert found["tiny_choice"]["acc,none"] in (0.0, 0.5, 1.0)
    nats = -math.fsum(by_hand(folder, [3, *ids(TEXT)]))
    assert found["tiny_text"]["word_perplexity,none"] == pytest.approx(math.exp(nats / 43), rel=1e-4)


def test_what_it_is_not_for_is_refused(tmp_path):
    with pytest.raises(BadInput, match="batch_size: auto fills"):
        WordOrderLM(save(tmp_path / "m", "decoder", "causal-lm", memory="look-ahead", **MEMORY), batch_size="auto")
    with pytest.raises(BadInput, match="trust_remote_code: no code is taken"):
        WordOrderLM(str(tmp_path / "m"), trust_remote_code=True)
    bare = save(tmp_path / "bare", "decoder", "causal-lm", encoding="alibi", bos_token_id=None)
    with pytest.raises(BadInput, match="no bos_token_id, which begins a text; pass prefix_token_id="):
        WordOrderLM(bare)
    assert WordOrderLM(bare, prefix_token_id=2).prefix_token_id == 2


def test_weights_that_are_pickled_only_are_not_read(folder, monkeypatch):
    from safetensors.torch import load_file

    path = Path(folder) / "model.safetensors"
    torch.save(load_file(path), Path(folder) / "pytorch_model.bin")
    path.unlink()
    monkeypatch.setattr("torch.load", lambda *_, **__: pytest.fail("a pickle was opened"))
    with pytest.raises(BadInput, match=r"no model\.safetensors"):
        WordOrderLM(folder)
