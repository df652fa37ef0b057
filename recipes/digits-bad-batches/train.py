"""Plain SGD whose data loader hands out a batch of garbage now and then; does clipping help?"""

import math

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

import orchestrator

DATA_SEED = 2026  # one split for every arm and seed: what is inferred holds for this split
N_TRAIN, N_VALIDATION = 900, 400  # the other 497 digits are the test split

Split = tuple[Tensor, Tensor]  # images [n, 64] in [0, 1], labels [n]


def digits() -> tuple[Split, Split, Split]:
    """Train, validation and test split of the 1,797 8x8 digits that scikit-learn ships."""
    pixels, digit = load_digits(return_X_y=True)
    images, labels = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(digit)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(DATA_SEED))
    train, validation, test = order.tensor_split((N_TRAIN, N_TRAIN + N_VALIDATION))
    return (
        (images[train], labels[train]),
        (images[validation], labels[validation]),
        (images[test], labels[test]),
    )


def garbage(split: Split, stream: torch.Generator) -> Split:
    """What a reader returns that was handed the wrong bytes: unscaled noise, and any label."""
    images, labels = split
    noise = torch.randint(256, images.shape, generator=stream).float()
    return noise, torch.randint(10, labels.shape, generator=stream)


def network(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


@torch.no_grad()
def scores(model: nn.Module, name: str, split: Split) -> dict[str, float]:
    """Loss (nat) and accuracy on a split, under the split's name."""
    images, labels = split
    model.eval()
    logits = model(images)
    model.train()
    loss = F.cross_entropy(logits, labels)
    accuracy = (logits.argmax(1) == labels).float().mean()
    return {f"{name}/loss": loss.item(), f"{name}/accuracy": accuracy.item()}


def main(cfg: DictConfig) -> None:
    torch.manual_seed(cfg.seed)  # initialisation
    shuffle = orchestrator.generator(cfg.seed, "data")  # own streams: all arms see one data order,
    faults = orchestrator.generator(cfg.seed, "faults")  # and the same garbage in the same steps
    train, validation, test = digits()
    images, labels = train
    model = network(cfg.model.width)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=cfg.optimizer.lr, momentum=cfg.optimizer.momentum
    )
    steps = cfg.epochs * math.ceil(len(labels) / cfg.batch_size)
    warmup = max(1.0, cfg.schedule.warmup * steps)  # [steps]; given as a share of the training

    def factor(step: int) -> float:
        return min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * step / steps)))

    schedule = LambdaLR(optimizer, factor)
    probe = images[:400], labels[:400]
    monitor = orchestrator.watch(model, optimizer)

    for _ in range(cfg.epochs):
        for rows in torch.randperm(len(labels), generator=shuffle).split(cfg.batch_size):
            batch = images[rows], labels[rows]
            if torch.rand((), generator=faults) < cfg.bad_batches:
                batch = garbage(batch, faults)
            loss = F.cross_entropy(model(batch[0]), batch[1])
            optimizer.zero_grad()
            loss.backward()
            monitor.clip_grad_norm_(cfg.clip)
            optimizer.step()
            schedule.step()
            monitor.log(train_loss=loss)
        monitor.log(**scores(model, "probe", probe), **scores(model, "val", validation))
    monitor.log(**scores(model, "test", test))
