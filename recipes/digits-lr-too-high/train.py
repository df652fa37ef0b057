"""A learning rate copied from an SGD recipe into AdamW: a hundred times too high."""

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
    shuffle = orchestrator.generator(cfg.seed, "data")  # an own stream: all arms see one data order
    train, validation, test = digits()
    images, labels = train
    model = network(cfg.model.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.optimizer.lr)
    steps = cfg.epochs * math.ceil(len(labels) / cfg.batch_size)
    warmup = max(1.0, cfg.schedule.warmup * steps)  # [steps]; given as a share of the training
    schedule = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))
    probe = images[:400], labels[:400]
    monitor = orchestrator.watch(model, optimizer)

    for _ in range(cfg.epochs):
        for batch in torch.randperm(len(labels), generator=shuffle).split(cfg.batch_size):
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            monitor.clip_grad_norm_(cfg.clip)  # null: records the norm, clips nothing
            optimizer.step()
            schedule.step()
            monitor.log(train_loss=loss)
        monitor.probe(*probe, loss=F.cross_entropy)
        monitor.log(**scores(model, "val", validation))
    monitor.log(**scores(model, "test", test))
