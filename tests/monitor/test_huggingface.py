"""Hugging Face's callback against a plain loop on the same model, data and optimizer."""

import copy

import pytest
import torch
from plain_record import PROGRAMS, batches, mlp, same_telemetry
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

import orchestrator
from orchestrator.errors import OrchestratorError
from orchestrator.telemetry import read

ROWS = [(x, y) for ((xs, ys),) in batches(8) for x, y in zip(xs, ys, strict=True)]  # 48
BATCH = 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp()

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def trainer(model, folder, *, kind=Trainer, monitor=True, **options):
    """A trainer of `model` on ROWS in their order, evaluated after each epoch."""
    settings = {
        "output_dir": str(folder / "checkpoints"),
        "per_device_train_batch_size": BATCH,
        "per_device_eval_batch_size": len(ROWS),
        "num_train_epochs": 2,
        "train_sampling_strategy": "sequential",
        "optim": "sgd",
        "learning_rate": 0.05,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "use_cpu": True,
    }
    data = [{"x": x, "labels": y} for x, y in ROWS]
    arguments = TrainingArguments(**settings | options)
    made = kind(model=model, args=arguments, train_dataset=data, eval_dataset=data)
    if monitor:
        made.add_callback(orchestrator.HuggingFaceMonitor(made, folder=folder))
    return made


def plain(model, optimizer, folder, *, accumulate=1, max_norm=None):
    """The same training, by hand."""
    monitor = orchestrator.watch(model, optimizer, folder=folder)
    inputs, labels = (torch.stack(column) for column in zip(*ROWS, strict=True))
    for _ in range(2):
        for i, (x, y) in enumerate(zip(inputs.split(BATCH), labels.split(BATCH), strict=True)):
            loss = model(x, y)["loss"]
            monitor.batch(samples=len(x))
            (loss / accumulate).backward()
            monitor.log(train_loss=loss)
            if (i + 1) % accumulate == 0:
                monitor.clip_grad_norm_(max_norm)
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            monitor.log(val_loss=model(inputs, labels)["loss"])
    monitor.close()


def groups(model, **options):
    """What the Trainer makes of a model: weights with decay, biases without."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    return [
        {"params": params, "lr": 0.05, "weight_decay": 0.0, **options}
        for params in (matrices, others)
    ]


@pytest.mark.parametrize(
    ("optim", "max_norm", "accumulate"),
    [("sgd", None, 1), ("sgd", 0.3, 3), ("adamw_torch", 0.3, 1)],
)
def test_a_training_is_recorded_as_in_a_plain_loop(tmp_path, optim, max_norm, accumulate):
    ours = Net()
    twin = copy.deepcopy(ours)
    trainer(
        ours,
        tmp_path / "trainer",
        optim=optim,
        max_grad_norm=max_norm or 0.0,
        gradient_accumulation_steps=accumulate,
    ).train()
    kind = torch.optim.SGD if optim == "sgd" else torch.optim.AdamW
    plain(twin, kind(groups(twin)), tmp_path / "plain", accumulate=accumulate, max_norm=max_norm)
    telemetry = same_telemetry(tmp_path / "trainer", tmp_path / "plain")
    assert telemetry.header["grad_norm_seen"] == "unclipped"
    assert telemetry["val/loss"].steps.tolist() == [12 // accumulate, 24 // accumulate]
    for a, b in zip(ours.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_loss_is_what_a_subclass_computes_and_of_fewer_batches_at_the_end(tmp_path):
    class Twice(Trainer):
        def compute_loss(self, model, inputs, **_):
            return 2 * model(**inputs)["loss"]

    model = Net()
    options = {"gradient_accumulation_steps": 5, "learning_rate": 0.0, "eval_strategy": "no"}
    trainer(model, tmp_path, kind=Twice, **options).train()  # 12 batches an epoch: 5, 5, 2
    with torch.no_grad():
        losses = [
            2 * model(*map(torch.stack, zip(*ROWS[i : i + BATCH], strict=True)))["loss"]
            for i in range(0, len(ROWS), BATCH)
        ]
    means = [float(sum(part) / len(part)) for part in (losses[:5], losses[5:10], losses[10:])]
    assert read(tmp_path)["train/loss"].values == pytest.approx(means * 2)


def test_tokens_are_those_whose_label_counts(tmp_path):
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(9, 3)

        def forward(self, input_ids, labels):
            logits = self.table(input_ids)
            return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())}

    made = trainer(Tagger(), tmp_path, eval_strategy="no", num_train_epochs=1)
    ids, labels = torch.arange(6), torch.tensor([0, 1, 2, -100, -100, -100])
    made.train_dataset = [{"input_ids": ids, "labels": labels} for _ in range(8)]
    made.train()
    telemetry = read(tmp_path)
    assert telemetry["samples"].values.tolist() == [4, 4]
    assert telemetry["tokens"].values.tolist() == [12, 12]


def test_a_loss_that_is_not_finite_is_recorded_though_the_trainer_hides_it(tmp_path):
    class Overflow(Trainer):
        def compute_loss(self, model, inputs, **_):
            return model(**inputs)["loss"] * float("inf")

    trainer(Net(), tmp_path, kind=Overflow, num_train_epochs=1, eval_strategy="no").train()
    assert not torch.isfinite(torch.tensor(read(tmp_path)["train/loss"].values)).any()


@pytest.mark.parametrize("optim", ["sgd", "adamw_torch"])
def test_a_resumed_training_goes_on_where_it_was(tmp_path, optim):
    class Break(TrainerCallback):
        def on_epoch_end(self, args, state, control, **_):
            control.should_training_stop = True

    model = Net()
    twin, whole = copy.deepcopy(model), copy.deepcopy(model)
    options = {"optim": optim, "max_grad_norm": 0.3}
    first = trainer(model, tmp_path / "halves", **options, save_strategy="epoch")
    first.add_callback(Break())
    first.train()
    second = trainer(twin, tmp_path / "halves", **options, save_strategy="epoch")
    second.train(resume_from_checkpoint=True)
    trainer(whole, tmp_path / "whole", **options).train()
    same_telemetry(tmp_path / "halves", tmp_path / "whole")


def test_it_listens_only_while_it_trains(tmp_path, monkeypatch):
    made = trainer(Net(), tmp_path)
    for _ in range(2):
        made.train()
        assert "training_step" not in vars(made)
        assert not {"clip_grad_norm_", "unscale_gradients"} & vars(made.accelerator).keys()
    made.predict(made.eval_dataset)
    assert read(tmp_path)["test/loss"].steps.tolist() == [24]


def test_outside_a_campaign_it_records_nothing(tmp_path):
    made = trainer(Net(), tmp_path, monitor=False)
    callback = orchestrator.HuggingFaceMonitor(made)
    made.add_callback(callback)
    made.train()
    assert callback.monitor.recorder is None
    assert not (tmp_path / "telemetry").exists()


def test_it_cannot_do_without_the_trainer():
    with pytest.raises(OrchestratorError, match="no trainer was given"):
        Trainer(model=Net(), callbacks=[orchestrator.HuggingFaceMonitor])


def test_the_program_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("ORCHESTRATOR_TRIAL_FOLDER", str(tmp_path))
    made = trainer(Net(), tmp_path, monitor=False)
    (program,) = (p for p in PROGRAMS if "HuggingFaceMonitor" in p)
    data = {"train_data": made.train_dataset, "val_data": made.eval_dataset}
    exec(program, {"model": made.model, "arguments": made.args, **data})
    assert len(read(tmp_path)["train/loss"]) == 24
