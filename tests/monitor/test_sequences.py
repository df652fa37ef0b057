"""What is seen of a batch of tokens on the probe set, against loops over every target."""

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from orchestrator import watch
from orchestrator.monitor.sequences import FACTS
from orchestrator.telemetry import read

IGNORED, PAD, SIZE = -100, 7, 8


class Model(nn.Module):
    """Tokens [n, T] to logits [n, T, 8]: each place sees the mean of what it may see."""

    def __init__(self, *, sees_ahead=False, padding=None, tied=True, classes_second=False):
        super().__init__()
        torch.manual_seed(3)
        self.sees_ahead, self.classes_second = sees_ahead, classes_second
        self.embed = nn.Embedding(SIZE, 6, padding_idx=padding)
        self.head = nn.Linear(6, SIZE, bias=False)
        self.head.weight = self.embed.weight if tied else nn.Parameter(self.embed.weight.clone())

    def forward(self, input_ids, labels=None):
        mask = torch.ones(input_ids.shape[1], input_ids.shape[1])
        mask = mask if self.sees_ahead else mask.tril()
        hidden = (mask / mask.sum(1, keepdim=True)) @ self.embed(input_ids)
        output = self.head(hidden)
        if labels is not None:
            loss = F.cross_entropy(output[:, :-1].reshape(-1, SIZE), labels[:, 1:].reshape(-1))
            return {"loss": loss, "logits": output}
        return output.mT if self.classes_second else output


def header(model, folder, *probe, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, folder=folder)
    monitor.probe(*probe, **options)
    monitor.close()
    return read(folder).header


def loss(output, targets):
    rows = output if output.shape[:2] == targets.shape else output.mT
    return F.cross_entropy(rows.reshape(-1, SIZE), targets.reshape(-1))


def drawn(*, padded=False):
    """Sequences [5, 10] of tokens below PAD, or that end with it."""
    tokens = torch.randint(0, PAD, (5, 10), generator=torch.Generator().manual_seed(1))
    return torch.where(torch.arange(10) < 5, tokens, PAD) if padded else tokens


def by_hand(model, inputs, targets, padding):
    """The facts from one target after another, and from one changed sequence after another."""
    n, places = inputs.shape
    counted = [(i, t) for i in range(n) for t in range(places) if targets[i, t] != IGNORED]
    early = [(i, t) for i, t in counted if t < places - 1]
    answers = model(inputs).detach()
    largest, change = answers.abs().max(), 0.0
    for i in range(n):
        other = inputs[i : i + 1].clone()
        lowest, highest = inputs.min(), inputs.max()
        other[0, -1] = highest if other[0, -1] == lowest else lowest
        moved = (model(other)[0] - answers[i]).detach()[:-1].abs().max()
        change = max(change, float(moved / largest))
    return {
        "targets_are_inputs": sum(bool(targets[k] == inputs[k]) for k in counted) / len(counted),
        "targets_are_next_inputs": sum(bool(targets[i, t] == inputs[i, t + 1]) for i, t in early)
        / len(early),
        "future_leak": change,
        "padding_counts": sum(bool(inputs[k] == padding) for k in counted) / len(counted),
        "padding_seen": float(unpadded(model, inputs, counted, padding) / largest),
    }


def unpadded(model, inputs, counted, padding):
    """Largest change of the logits at real places with the last quarter's padding cut off."""
    change, length = torch.zeros(()), inputs.shape[1] - inputs.shape[1] // 4
    for i in {i for i, _ in counted}:
        if padding is not None and all(token == padding for token in inputs[i, length:]):
            answer, shorter = model(inputs[i : i + 1])[0], model(inputs[i : i + 1, :length])[0]
            for t in range(length):
                if (i, t) in counted and inputs[i, t] != padding:
                    change = max(change, (answer[t] - shorter[t]).detach().abs().max())
    return change


@pytest.mark.parametrize("classes_second", [False, True])
@pytest.mark.parametrize("padding", [None, PAD, 0])
@pytest.mark.parametrize("sees_ahead", [False, True])
def test_facts_are_those_of_every_single_target(tmp_path, sees_ahead, padding, classes_second):
    tokens = drawn(padded=True)
    inputs, targets = tokens[:, :-1], tokens[:, 1:].clone()
    targets[0, 2] = IGNORED
    model = Model(sees_ahead=sees_ahead, padding=padding)
    expected = by_hand(model, inputs, targets, padding)
    model.classes_second = classes_second
    found = header(model, tmp_path, inputs, targets, loss=loss)
    assert {name: found[name] for name in FACTS} == pytest.approx(expected, abs=1e-6)
    assert (found["future_leak"] > 0.01) is sees_ahead
    assert found["targets_are_next_inputs"] == 1
    assert (found["padding_counts"] > 0) is (padding is not None)
    assert (found["padding_seen"] > 0.01) is (sees_ahead and padding == PAD)


class Masked(Model):
    """Padding is told by a mask of its own, or by the tokens, and left out of the mean."""

    def forward(self, input_ids, attention_mask=None, labels=None):
        keys = (input_ids != PAD if attention_mask is None else attention_mask).float()
        hidden = self.embed(input_ids)
        pooled = (keys[..., None] * hidden).sum(1, keepdim=True) / keys.sum(1)[:, None, None]
        output = self.head(hidden + pooled)
        loss = F.cross_entropy(output.reshape(-1, SIZE), input_ids.reshape(-1))
        return output if labels is None else {"loss": loss, "logits": output}


@pytest.mark.parametrize("given", ["tokens", "a mask", "a wrong mask"])
def test_padding_that_is_masked_is_not_seen(tmp_path, given):
    tokens = drawn(padded=True)
    labels = torch.where(tokens == PAD, IGNORED, tokens)
    batch = {"input_ids": tokens, "labels": labels}
    if given != "tokens":
        batch["attention_mask"] = tokens != (PAD if given == "a mask" else PAD + 1)
    found = header(Masked(padding=PAD), tmp_path, batch)
    assert (found["padding_seen"] > 0.01) is (given == "a wrong mask")


class OneLength(Model):
    """For ten places only."""

    def forward(self, tokens):
        return super().forward(tokens.reshape(-1, 10))


class Reader(Model):
    """Reads backwards, and so begins with the padding."""

    def __init__(self):
        super().__init__(padding=PAD)
        self.read = nn.GRU(6, 6, batch_first=True, bidirectional=True)
        self.out = nn.Linear(12, SIZE)

    def forward(self, tokens):
        return self.out(self.read(self.embed(tokens))[0])


@pytest.mark.parametrize("make", [lambda: OneLength(sees_ahead=True, padding=PAD), Reader])
def test_where_it_cannot_be_told_padding_counts_as_unseen(tmp_path, make):
    found = header(make(), tmp_path, drawn(padded=True), drawn(padded=True), loss=loss)
    assert found["padding_seen"] == 0
    assert "probe_stopped" not in found


def test_a_model_that_shifts_its_labels_predicts_the_next_token(tmp_path):
    tokens = drawn()
    found = header(Model(), tmp_path, {"input_ids": tokens, "labels": tokens})
    assert found["targets_are_next_inputs"] == 1
    assert found["targets_are_inputs"] == 0
    assert found["future_leak"] == 0


def test_targets_that_are_not_shifted_are_the_inputs(tmp_path):
    found = header(Model(), tmp_path, drawn(), drawn(), loss=loss)
    assert found["targets_are_inputs"] == 1
    assert found["targets_are_next_inputs"] < 0.5


class Bag(nn.Module):
    """One answer for a sequence."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(SIZE, 3)

    def forward(self, tokens):
        return self.embed(tokens).mean(1)


def squared(output, targets):
    return (output - targets.float().mean(1, keepdim=True)).square().mean()


@pytest.mark.parametrize(
    ("model", "inputs", "targets", "loss"),
    [
        (nn.Linear(4, 3), torch.zeros(6, 4), torch.zeros(6, dtype=torch.long), F.cross_entropy),
        (Bag(), drawn(), drawn()[:, 0] % 3, F.cross_entropy),
        (Bag(), drawn(), drawn(), squared),
    ],
    ids=["no tokens", "one target each", "no logits of tokens"],
)
def test_other_trainings_have_no_such_facts(tmp_path, model, inputs, targets, loss):
    found = header(copy.deepcopy(model), tmp_path, inputs, targets, loss=loss)
    assert "probe_stopped" not in found
    assert not set(FACTS) & set(found)


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_that_only_starts_as_the_embedding_is_untied(tmp_path, tied):
    found = header(Model(tied=tied), tmp_path, drawn(), drawn(), loss=loss)
    assert found["untied"] == ("" if tied else "head.weight")


def test_matrices_of_zeros_are_no_copies(tmp_path):
    model = Model(tied=False)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    assert header(model, tmp_path, drawn(), drawn(), loss=loss)["untied"] == ""
