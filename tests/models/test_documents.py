"""Encoder heads read documents of any length: segments in turn, with a memory of the ones before."""

import math

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import AutoModelForSequenceClassification

from wordorder import BadInput, Encoder, LookAheadMemory
from wordorder.models import build_config, build_model, check_length
from wordorder.models.encoder import pool_document, read_document

MEMORIES = ("segment-recurrence", "look-ahead")
HEADS = ("masked-lm", "classification", "token-classification", "question-answering")
M, N, T = 6, 5, 23
LENGTHS = (T, 12, 3)


def build(task="masked-lm", memory="look-ahead", encoding="tupe-r", **fields):
    sizes = {
        "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "pad_token_id": 0,
        "max_position_embeddings": M + N, "initializer_range": 0.3, "num_labels": 3,
    }  # fmt: skip
    if memory != "none":
        fields = {"memory_length": M, "segment_length": N, **fields}
    config = build_config("encoder", encoding=encoding, memory=memory, **{**sizes, **fields})
    return build_model(config, task, seed=1).double().eval()


def document(rows=2, length=T):
    return torch.randint(1, 50, (rows, length))


def scores(output):
    return torch.stack([output.start_logits, output.end_logits], -1) if "start_logits" in output else output.logits


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("task", ["masked-lm", "token-classification", "question-answering"])
def test_a_document_is_its_segments_read_by_hand(task, memory):
    model, x = build(task, memory), document()
    by_hand, kept = [], None
    for start in range(0, T, N):
        output = model(x[:, start : start + N], memory=kept)
        kept = output.memory
        by_hand.append(scores(output))
    whole = model(x)
    assert_close(scores(whole), torch.cat(by_hand, 1), rtol=0, atol=1e-12)
    assert whole.memory.length == M
    assert whole.memory.position == T
    for name, tensor in kept.state_dict().items():
        assert_close(whole.memory.state_dict()[name], tensor, rtol=0, atol=1e-12)
    assert not torch.allclose(scores(whole)[:, N:], scores(model(x[:, N:])))  # it does remember


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("encoding", ["tupe-r", "alibi", "rope", "learned", "sinusoidal", "shaw"])
@pytest.mark.parametrize("left", [False, True])
def test_documents_of_unequal_length_give_what_each_alone_gives(encoding, memory, left):
    model, x = build(memory=memory, encoding=encoding), document(3)
    mask = torch.stack([torch.arange(T) < length for length in LENGTHS]).long()
    if left:
        x = torch.stack([row.roll(T - length) for row, length in zip(x, LENGTHS, strict=True)])
        mask = mask.flip(1)
    together = model(x, mask)
    for row in range(3):
        there = mask[row].bool()
        alone = model(x[row][there][None])
        assert_close(together.logits[row][there], alone.logits[0], rtol=0, atol=1e-10)
    assert together.memory.position.tolist() == list(LENGTHS)


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
@pytest.mark.parametrize("left", [False, True])
def test_classes_of_unequal_documents_are_those_of_each_alone(pooling, left):
    model, x = build("classification", document_pooling=pooling), document(3)
    mask = torch.stack([torch.arange(T) < length for length in LENGTHS]).long()
    if left:
        x = torch.stack([row.roll(T - length) for row, length in zip(x, LENGTHS, strict=True)])
        mask = mask.flip(1)
    together = model(x, mask).logits
    for row in range(3):
        assert_close(together[row], model(x[row][mask[row].bool()][None]).logits[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_document_can_be_read_on_with_the_memory_of_its_beginning(memory):
    model, x = build(memory=memory), document()
    begun = model(x[:, : 2 * N])
    assert_close(model(x[:, 2 * N :], memory=begun.memory).logits, model(x).logits[:, 2 * N :], rtol=0, atol=1e-12)


@pytest.mark.parametrize("memory", MEMORIES)
def test_gradients_reach_every_segment_from_its_own_outputs_alone(memory):
    model = build(memory=memory)
    x = torch.randn(1, T, 32, dtype=torch.float64, requires_grad=True)
    logits = model(inputs_embeds=x).logits
    for start in range(0, T, N):
        (gradient,) = torch.autograd.grad(logits[:, start : start + N].square().sum(), x, retain_graph=True)
        reached = gradient[0].abs().sum(-1) > 0
        assert reached.tolist() == [start <= column < start + N for column in range(T)]


@pytest.mark.parametrize("memory", MEMORIES)
def test_every_head_learns_from_every_segment(memory):
    x = document()
    labels = {
        "masked-lm": x, "token-classification": x % 3, "classification": torch.tensor([0, 2]),
    }  # fmt: skip
    for task, wanted in labels.items():
        model = build(task, memory)
        vectors = model.get_input_embeddings()(x).detach().requires_grad_()
        model(inputs_embeds=vectors, labels=wanted).loss.backward()
        assert (vectors.grad.abs().sum(-1) > 0).all(), task
    model = build("question-answering", memory)
    loss = model(x, start_positions=torch.tensor([3, 20]), end_positions=torch.tensor([21, 22])).loss
    start, end = model(x).start_logits, model(x).end_logits
    wanted = (F.cross_entropy(start, torch.tensor([3, 20])) + F.cross_entropy(end, torch.tensor([21, 22]))) / 2
    assert_close(loss, wanted)


def test_the_loss_is_over_all_labelled_tokens_with_sparse_predictions_too():
    x = document()
    labels = torch.where(torch.rand(2, T) < 0.3, x, -100)
    dense, sparse = build(), build(sparse_prediction=True)
    assert (labels[:, N:] != -100).any()
    found = dense(x, labels=labels)
    wanted = F.cross_entropy(found.logits[labels != -100], labels[labels != -100])
    assert_close(found.loss.double(), wanted, rtol=1e-5, atol=0)
    assert_close(sparse(x, labels=labels).loss, found.loss)


class SlowEncoder:
    """A pre-norm encoder of one head with look-ahead memory, written from the equations, key by key."""

    def __init__(self, encoder, *, layers, slope):
        self.p, self.layers, self.slope = dict(encoder.named_parameters()), layers, slope
        self.width = encoder.embedding.weight.shape[1]

    def normed(self, x, name):
        centred = x - x.mean()
        return centred / (centred.square().mean() + 1e-5).sqrt() * self.p[f"{name}.weight"] + self.p[f"{name}.bias"]

    def heads(self, layer, x):
        name = f"layers.{layer}"
        inside = self.p[f"{name}.attention.qkv.weight"] @ self.normed(x, f"{name}.attention_norm")
        return (inside + self.p[f"{name}.attention.qkv.bias"]).split(self.width)

    def softmax(self, q, place, keys):
        """Read-out and normaliser of one query over keys (place, k, v)."""
        s = torch.stack([(q * k).sum() / math.sqrt(self.width) - self.slope * abs(place - j) for j, k, _ in keys])
        weights = s.exp() / s.exp().sum()
        return sum(w * v for w, (_, _, v) in zip(weights, keys, strict=True)), s.exp().sum().log()

    def rest(self, layer, x, read):
        name = f"layers.{layer}"
        x = x + self.p[f"{name}.attention.out.weight"] @ read + self.p[f"{name}.attention.out.bias"]
        up = self.p[f"{name}.feedforward.up.weight"] @ self.normed(x, f"{name}.feedforward_norm")
        up = F.gelu(up + self.p[f"{name}.feedforward.up.bias"])
        return x + self.p[f"{name}.feedforward.down.weight"] @ up + self.p[f"{name}.feedforward.down.bias"]

    def read(self, tokens, first, kept, length):
        """States of a segment, and the slots after it: (place, embedding, read-outs, normalisers)."""
        own = [(first + n, self.p["embedding.weight"][token]) for n, token in enumerate(tokens)]
        slots = [(place, x) for place, x, _, _ in kept]
        found = {place: ([], []) for place, _ in own}
        refreshed = {place: ([], []) for place, _ in slots}
        embedded = own
        for layer in range(self.layers):
            parts = {place: self.heads(layer, x) for place, x in [*slots, *own]}
            everything = [(place, k, v) for place, (_, k, v) in parts.items()]
            segment = [entry for entry in everything if entry[0] >= first]
            new_own, new_slots = [], []
            for place, x in own:
                read, normaliser = self.softmax(parts[place][0], place, everything)
                found[place][0].append(read.detach())
                found[place][1].append(normaliser.detach())
                new_own.append((place, self.rest(layer, x, read)))
            for (place, x), (_, _, reads, normalisers) in zip(slots, kept, strict=True):
                if layer == self.layers - 1:
                    continue
                read, normaliser = self.softmax(parts[place][0], place, segment)
                before, after = normalisers[layer].exp(), normaliser.exp()
                merged = (before * reads[layer] + after * read) / (before + after)
                refreshed[place][0].append(merged.detach())
                refreshed[place][1].append((before + after).log().detach())
                new_slots.append((place, self.rest(layer, x, merged)))
            own, slots = new_own, new_slots
        left = [(place, x, *refreshed[place]) for place, x, _, _ in kept]
        left += [(place, x.detach(), *found[place]) for place, x in embedded]
        return torch.stack([self.normed(x, "final_norm") for _, x in own]), left[-length:]


@pytest.mark.parametrize(("encoding", "slope"), [("none", 0.0), ("alibi", 2.0**-8)])
@pytest.mark.parametrize(("length", "cuts"), [(3, (4, 4, 4)), (4, (4, 4, 4)), (9, (4, 2, 5, 1)), (30, (3, 5, 4))])
def test_look_ahead_in_an_encoder_is_that_of_the_equations(encoding, slope, length, cuts):
    encoder = Encoder(
        11, width=6, layers=3, heads=1, encoding=encoding, dropout=0.0, attention_dropout=0.0,
        memory=LookAheadMemory(length),
    ).double()  # fmt: skip
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    slow = SlowEncoder(encoder, layers=3, slope=slope)
    ids, state, kept, start = torch.randint(11, (sum(cuts),)), None, [], 0
    ours, theirs = [], []
    for count in cuts:
        tokens = ids[start : start + count]
        output = encoder(tokens[None], memory=state)
        hidden, kept = slow.read(tokens.tolist(), start, kept, length)
        ours.append(output.hidden[0])
        theirs.append(hidden)
        state, start = output.memory, start + count
        assert_close(ours[-1], hidden, rtol=0, atol=1e-10)
        for layer in range(2):
            assert_close(
                state.slots[f"normalisers.{layer}"][0, :, 0],
                torch.stack([n[layer] for *_, n in kept]),
                rtol=0,
                atol=1e-10,
            )
            assert_close(
                state.slots[f"read_outs.{layer}"][0, :, 0],
                torch.stack([r[layer] for _, _, r, _ in kept]),
                atol=1e-10,
                rtol=0,
            )
    upstream = torch.randn(sum(cuts), 6, dtype=torch.float64)
    names, parameters = zip(*encoder.named_parameters(), strict=True)
    gradients = [torch.autograd.grad((torch.cat(found) * upstream).sum(), parameters) for found in (ours, theirs)]
    for name, mine, its in zip(names, *gradients, strict=True):
        assert_close(mine, its, rtol=0, atol=1e-9, msg=name)


def test_the_first_layers_normaliser_is_over_all_that_was_read():
    encoder = Encoder(11, width=8, layers=3, heads=2, encoding="none", dropout=0.0, memory=LookAheadMemory(40)).double()
    ids, state = torch.randint(11, (1, 17)), None
    for cut in (4, 7, 1, 5):
        start = 0 if state is None else state.position
        state = encoder(ids[:, start : start + cut], memory=state).memory
        layer = encoder.layers[0]
        read = layer.attention_norm(encoder.embedding(ids[0, : start + cut]))
        q, k, _ = (part.view(-1, 2, 4).transpose(0, 1) for part in layer.attention.qkv(read).split(8, -1))
        expected = torch.logsumexp(q @ k.mT / 2.0, -1)
        assert_close(state.slots["normalisers.0"][0].T, expected.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_pooling_is_over_the_tokens_alone(dtype):
    hidden = torch.randn(3, 7, 5).to(dtype)
    mask = torch.tensor([[1] * 7, [0] * 4 + [1] * 3, [1] * 2 + [0] * 5])
    for row in range(3):
        tokens = hidden[row][mask[row].bool()]
        expected = {"mean": tokens.double().mean(0).to(dtype), "first": tokens[0], "max": tokens.max(0).values}
        for pooling, wanted in expected.items():
            assert_close(pool_document(hidden, mask, pooling)[row], wanted)
            assert_close(pool_document(tokens[None], None, pooling)[0], wanted)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_row_without_tokens_pools_to_zero_and_has_a_gradient(pooling):
    hidden = torch.randn(2, 3, 4, requires_grad=True)
    pooled = pool_document(hidden, torch.tensor([[1, 1, 0], [0, 0, 0]]), pooling)
    assert not pooled[1].any()
    pooled.sum().backward()
    assert hidden.grad.isfinite().all()


def test_the_classifier_reads_all_segments_unless_told_otherwise(tmp_path):
    model, x = build("classification"), document()
    assert model.config.document_pooling == "mean"
    hidden = read_document(model.model, x).last_hidden_state
    pooled = torch.tanh(model.dense(hidden.mean(1)))
    assert_close(model(x).logits, model.classifier(pooled))
    first = build("classification", document_pooling="first")
    assert_close(first(x).logits, first.classifier(torch.tanh(first.dense(hidden[:, 0]))))
    assert_close(first(x).logits, first(x[:, :N]).logits, rtol=0, atol=1e-12)  # knows nothing of what comes later
    first.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.float64)
    assert again.config.document_pooling == "first"
    assert_close(again(x).logits, first(x).logits)
    assert build("classification", "none").config.document_pooling is None


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("task", HEADS)
def test_hidden_states_are_joined_and_embeddings_may_be_given(task, memory):
    model, x = build(task, memory), document()
    output = model(x, output_hidden_states=True)
    assert [tuple(states.shape) for states in output.hidden_states] == [(2, T, 32)] * 4
    vectors = model.get_input_embeddings()(x)
    assert_close(scores(model(inputs_embeds=vectors)), scores(output))


def test_what_makes_no_sense_over_segments_is_refused():
    model, x = build(), document()
    with pytest.raises(ValueError, match=r"output_attentions: 23 tokens .* segment_length = 5"):
        model(x, output_attentions=True)
    assert model(x[:, :N], output_attentions=True).attentions[0].shape == (2, 4, N, N)
    with pytest.raises(ValueError, match="position_ids cannot be given"):
        model(x, position_ids=torch.arange(T)[None])
    with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
        model(x, inputs_embeds=torch.zeros(2, T, 32))
    with pytest.raises(ValueError, match=r"attention_mask must be \(batch, tokens\)"):
        model(x, torch.ones(2, N))
    with pytest.raises(ValueError, match="mems is called memory here"):
        model(x, mems=[])
    with pytest.raises(BadInput, match="document_pooling is for a memory; set memory"):
        build_config("encoder", vocab_size=9, document_pooling="max")


@pytest.mark.parametrize("memory", MEMORIES)
def test_gradient_checkpointing_changes_nothing(memory):
    x, gradients = document(), []
    for checkpointing in (False, True):
        model = build(memory=memory, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
        model.model.encoder.gradient_checkpointing = checkpointing
        model(x, labels=x).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert_close(gradients[1][name], gradient, rtol=0, atol=1e-6, msg=name)


def test_documents_have_no_longest_length_and_segments_of_decoders_have():
    encoder = build().config
    check_length(encoder, 10_000)
    fields = {"encoding": "learned", "vocab_size": 9, "max_position_embeddings": 16}
    with pytest.raises(BadInput, match=r"length 17 .* max_position_embeddings=16; raise"):
        check_length(build_config("encoder", **fields), 17)
    decoder = build_config("decoder", memory="look-ahead", memory_length=6, segment_length=10, **fields)
    check_length(decoder, 10)
    with pytest.raises(BadInput, match=r"length 11 .*=16, of which memory_length=6 are the memory's"):
        check_length(decoder, 11)
    check_length(decoder, 16, with_memory=False)
    with pytest.raises(BadInput, match=r"length 17 .*=16; raise"):
        check_length(decoder, 17, with_memory=False)
