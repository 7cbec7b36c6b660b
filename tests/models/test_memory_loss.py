"""What a memory learns from is part of a head's loss in training, once a step, and of no score."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from wordorder.models import build_config, build_model

SIZES = {"vocab_size": 29, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "encoding": "rope"}
MEMORY = {"memory": "compressive", "memory_length": 8, "segment_length": 6, "memory_options": {"rate": 2}}
IDS = torch.arange(40).view(2, 20) * 7 % 29


def built(kind, task, **fields):
    config = build_config(kind, **{**SIZES, **MEMORY, "hidden_dropout_prob": 0.0, **fields})
    return build_model(config, task, seed=1).double()


def test_micro_batches_of_a_step_add_up_to_one_memory_loss():
    model = built("decoder", "causal-lm", attention_probs_dropout_prob=0.0).train()
    state = model(IDS[:, :9]).memory
    ids, labels = IDS[:, 9:17], IDS[:, 10:18].clone()
    labels[1, 3:] = -100
    whole = model(ids, shift_labels=labels, memory=state)
    expected = F.cross_entropy(whole.logits.flatten(0, 1), labels.flatten())
    assert whole.memory_loss > 0
    assert_close(whole.loss, expected + whole.memory_loss)
    items, losses = (labels != -100).sum(), []
    for row in range(2):
        one = model(ids[[row]], shift_labels=labels[[row]], memory=state[row], num_items_in_batch=items)
        count = (labels[row] != -100).sum()
        losses.append(one.loss - one.memory_loss * count / items)
    assert_close(sum(losses), expected)


def test_a_model_that_is_scored_has_none():
    model = built("decoder", "causal-lm").eval()
    output = model(IDS[:, 9:17], labels=IDS[:, 9:17], memory=model(IDS[:, :9]).memory)
    assert output.memory_loss is None
    assert_close(output.loss, F.cross_entropy(output.logits[:, :-1].flatten(0, 1), IDS[:, 10:17].flatten()))


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        ("masked-lm", {"labels": IDS}),
        ("classification", {"labels": torch.tensor([0, 1])}),
        ("question-answering", {"start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 4])}),
    ],
)
def test_a_document_has_the_mean_of_its_segments(task, labels):
    model = built("encoder", task, attention_probs_dropout_prob=0.0, num_labels=3).train()
    output = model(IDS, **labels)
    state, losses = None, []
    for segment in IDS.split(6, dim=1):
        read = model.model(segment, memory=state)
        state = read.memory
        losses.append(read.memory_loss)
    assert_close(output.memory_loss, torch.stack(losses).mean())
    model.eval()
    assert_close(output.loss, model(IDS, **labels).loss + output.memory_loss)
    output.loss.backward()
    assert all(weight.grad.any() for weight in model.model.encoder.memory_weights.parameters())
