"""A small character transformer on Python's own help texts, its learning rate far too high."""

from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

import orchestrator

CONTEXT = 32  # characters a prediction may look back at

Windows = tuple[Tensor, Tensor]  # inputs and next characters, both [n, CONTEXT]


def text() -> tuple[Tensor, int]:
    """The help texts that ship with Python as one row of character numbers, and how many kinds."""
    characters = "".join(topics[name] for name in sorted(topics))
    alphabet = {c: i for i, c in enumerate(sorted(set(characters)))}
    return torch.tensor([alphabet[c] for c in characters]), len(alphabet)


def windows(characters: Tensor, starts: Tensor) -> Windows:
    block = characters[starts[:, None] + torch.arange(CONTEXT + 1)]  # [n, CONTEXT + 1]
    return block[:, :-1], block[:, 1:]


def evenly(characters: Tensor, count: int) -> Windows:
    """`count` windows spread over a split: the same ones for every arm and seed."""
    return windows(characters, torch.linspace(0, len(characters) - CONTEXT - 1, count).long())


class Transformer(nn.Module):
    """Post-norm encoder layers under a causal mask, as in Vaswani et al. 2017."""

    def __init__(self, kinds: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.character = nn.Embedding(kinds, width)
        self.position = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, kinds)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, characters: Tensor) -> Tensor:
        """Logits [n, CONTEXT, kinds] of the next character."""
        embedded = self.character(characters) + self.position.weight
        return self.head(self.body(embedded, mask=self.mask, is_causal=True))


def loss_of(model: nn.Module, batch: Windows) -> Tensor:
    inputs, following = batch
    return F.cross_entropy(model(inputs).flatten(0, 1), following.flatten())


@torch.no_grad()
def score(model: nn.Module, batch: Windows) -> float:
    """Nats per character, dropout off."""
    model.eval()
    loss = loss_of(model, batch)
    model.train()
    return loss.item()


def main(cfg: DictConfig) -> None:
    torch.manual_seed(cfg.seed)  # initialisation, then dropout
    draw = orchestrator.generator(cfg.seed, "data")  # an own stream: all arms see the same batches
    characters, kinds = text()
    train, validation, test = characters.tensor_split(
        [int(0.8 * len(characters)), int(0.9 * len(characters))]
    )
    model = Transformer(kinds, **cfg.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.optimizer.lr)
    warmup = max(1.0, cfg.schedule.warmup * cfg.steps)  # [steps]; given as a share of the training
    schedule = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))
    monitor = orchestrator.watch(model, optimizer)

    for step in range(1, cfg.steps + 1):
        starts = torch.randint(len(train) - CONTEXT, (cfg.batch_size,), generator=draw)
        loss = loss_of(model, windows(train, starts))
        optimizer.zero_grad()
        loss.backward()
        monitor.clip_grad_norm_(cfg.clip)  # null: records the norm, clips nothing
        optimizer.step()
        schedule.step()
        monitor.log(train_loss=loss)
        if step % cfg.evaluate_every == 0:
            probe, val = score(model, evenly(train, 100)), score(model, evenly(validation, 200))
            monitor.log(**{"probe/loss": probe, "val/loss": val})
    monitor.log(**{"test/loss": score(model, evenly(test, 200))})
