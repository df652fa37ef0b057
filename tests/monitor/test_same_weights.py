"""Each kind of training ends with the same weights and random numbers, watched or not."""

import functools

import pytest
import torch
from plain_record import batches, mlp
from torch import nn
from torch.nn.functional import cross_entropy

from orchestrator import watch
from orchestrator.telemetry import read

STEPS = 64  # sampled more often for the first 60
DATA = [micro[0] for micro in batches(STEPS)]
WATCHED = [("off", 10), ("norms", 10), ("default", 1), ("default", 7), ("full", 1), ("full", 7)]


class Bare:
    """What a program does that has no monitor."""

    def __init__(self, model, optimizers):
        self.model = model

    def log(self, **_):
        pass

    def clip_grad_norm_(self, limit):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)

    def close(self):
        pass


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


def adamw(module):
    return torch.optim.AdamW(module.parameters(), lr=0.01)


def fit(start, model, optimizers, loss_of=lambda m, x, y: cross_entropy(m(x), y), limit=0.3):
    """All optimizers step on one loss; an evaluation without gradients comes now and then."""
    monitor = start(model, optimizers)
    for i, (x, y) in enumerate(DATA):
        model.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        if limit is not None:
            monitor.clip_grad_norm_(limit)
        for optimizer in optimizers:
            optimizer.step()
        monitor.log(train_loss=loss)
        if i % 9 == 0:
            model.eval()
            with torch.no_grad():
                monitor.log(val_loss=loss_of(model, x, y))
            model.train()
    monitor.close()
    return model


def noisy(start):
    """Dropout and running statistics, which an extra forward pass would move."""
    layers = [nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3)]
    model = nn.Sequential(*layers)
    return fit(start, model, [adamw(model)])


def several_optimizers(start):
    model = mlp()
    return fit(start, model, [sgd(model[0]), adamw(model[2])])


def adversaries(start):
    """Two models that step in turn, the second twice; each backward leaves gradients in both."""
    both = nn.ModuleDict({"maker": nn.Linear(5, 5), "judge": nn.Linear(5, 1)})
    maker, judge = adamw(both["maker"]), adamw(both["judge"])
    monitor = start(both, [maker, judge])
    for x, _ in DATA:
        for _ in range(2):
            judge.zero_grad()
            made = both["maker"](torch.randn(6, 5))
            loss = both["judge"](made).mean() - both["judge"](x).mean()
            loss.backward()
            judge.step()
        maker.zero_grad()
        (-both["judge"](both["maker"](torch.randn(6, 5))).mean()).backward()
        maker.step()
        monitor.log(train_loss=loss)
    monitor.close()
    return both


def module_used_twice(start):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(5, 5), nn.Linear(5, 3)

        def forward(self, x):
            return self.head(torch.relu(self.body(torch.tanh(self.body(x)))))

    model = Twice()
    return fit(start, model, [sgd(model)])


def tokens(x):
    return (x.abs() * 7).long() % 11


def tied_weights(start):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(11, 4), nn.Linear(4, 11, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x):
            return self.head(torch.tanh(self.table(tokens(x)).mean(1)))

    model = Tied()
    return fit(start, model, [adamw(model)])


def sparse_embedding(start):
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(11, 4, sparse=True), nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.table(tokens(x)).mean(1))

    model = Bag()
    optimizers = [torch.optim.SparseAdam([model.table.weight]), adamw(model.head)]
    return fit(start, model, optimizers, limit=None)


def closure(start):
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    monitor = start(model, [optimizer])
    for x, y in DATA:

        def loss_of(x=x, y=y):
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            return loss

        monitor.log(train_loss=optimizer.step(loss_of))
    monitor.close()
    return model


def accumulated(start):
    model = mlp()
    optimizer = adamw(model)
    monitor = start(model, [optimizer])
    for i, (x, y) in enumerate(DATA + DATA):
        loss = cross_entropy(model(x), y)
        (loss / 2).backward()
        monitor.log(train_loss=loss)
        if i % 2:
            monitor.clip_grad_norm_(0.3)
            optimizer.step()
            optimizer.zero_grad()
    monitor.close()
    return model


def half_precision(start):
    def loss_of(model, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return cross_entropy(model(x), y)

    model = mlp()
    return fit(start, model, [adamw(model)], loss_of)


def checkpointed(start):
    """Each forward pass is done again in the backward pass."""
    again = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)
    model = nn.Sequential(mlp(), nn.Dropout(0.2))
    return fit(start, model, [sgd(model)], lambda m, x, y: cross_entropy(again(m, x), y))


TRAININGS = [
    noisy,
    several_optimizers,
    adversaries,
    module_used_twice,
    tied_weights,
    sparse_embedding,
    closure,
    accumulated,
    half_precision,
    checkpointed,
]


def end(training, start):
    """Weights and buffers, and the state of the random numbers, when a training is through."""
    torch.manual_seed(0)
    return [*training(start).state_dict().values(), torch.get_rng_state()]


@functools.cache
def bare_end(training):
    return end(training, Bare)


@pytest.mark.filterwarnings("ignore:.*[Ss]parse.*")
@pytest.mark.parametrize(("level", "every"), WATCHED)
@pytest.mark.parametrize("training", TRAININGS)
def test_a_training_ends_the_same_bit_for_bit(tmp_path, caplog, training, level, every):
    def start(model, optimizers):
        return watch(model, optimizers, level=level, every=every, folder=tmp_path)

    watched = end(training, start)
    for ours, theirs in zip(watched, bare_end(training), strict=True):
        assert torch.equal(ours, theirs)
    assert not caplog.records  # a recording that had ended would change nothing either
    assert read(tmp_path).header["steps"] >= STEPS
