"""Lightning's callback against a plain loop on the same model, data and optimizer."""

import copy

import lightning.pytorch as pl
import pytest
import torch
from plain_record import PROGRAMS, batches, mlp, same_telemetry
from torch import nn
from torch.utils.data import DataLoader

import orchestrator
from orchestrator.telemetry import read

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*The number of training batches.*",
    "ignore:.*LeafSpec.*:FutureWarning",  # Lightning 2.6 with torch 2.13
)
TRAIN = [micro[0] for micro in batches(12)]
VAL = [micro[0] for micro in batches(3, seed=2)]


class Net(pl.LightningModule):
    def __init__(self, kind="SGD"):
        super().__init__()
        self.net = mlp()
        self.kind = kind

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_loss", self.training_step(batch, _))
        self.log("accuracy", (self.net(batch[0]).argmax(-1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return getattr(torch.optim, self.kind)(self.parameters(), lr=0.05)


def fit(module, folder=None, *, checkpoint=None, epochs=2, **options):
    callback = orchestrator.LightningMonitor(**({"folder": folder} if folder else {}))
    quiet = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[callback],
        **dict.fromkeys(quiet, False) | options,
    )
    loaders = [DataLoader(data, batch_size=None) for data in (TRAIN, VAL)]
    trainer.fit(module, *loaders, ckpt_path=checkpoint, weights_only=False)
    return trainer, callback


def plain(module, folder, *, accumulate=1, max_norm=None, epochs=2, precision=None):
    """The same training, by hand."""
    optimizer = module.configure_optimizers()
    monitor = orchestrator.watch(module, optimizer, folder=folder)
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision is not None)

    for _ in range(epochs):
        for i, batch in enumerate(TRAIN):
            with autocast:
                loss = module.training_step(batch, i)
            monitor.batch(i, samples=len(batch[1]))
            (loss / accumulate).backward()
            monitor.log(train_loss=loss)
            if (i + 1) % accumulate == 0:
                monitor.clip_grad_norm_(max_norm)
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad(), autocast:
            losses = [module.training_step(batch, 0) for batch in VAL]
            hits = [(module.net(x).argmax(-1) == y).float().mean() for x, y in VAL]
        sizes = torch.tensor([float(len(y)) for _, y in VAL])
        monitor.log(val_loss=(torch.stack(losses) * sizes).sum() / sizes.sum())
        monitor.log(**{"val/accuracy": (torch.stack(hits) * sizes).sum() / sizes.sum()})
    monitor.close()


@pytest.mark.parametrize(
    ("kind", "max_norm", "accumulate"),
    [("SGD", None, 1), ("SGD", 0.3, 3), ("AdamW", 0.3, 1)],
)
def test_a_training_is_recorded_as_in_a_plain_loop(tmp_path, kind, max_norm, accumulate):
    ours = Net(kind)
    twin = copy.deepcopy(ours)
    fit(
        ours,
        tmp_path / "lightning",
        gradient_clip_val=max_norm,
        accumulate_grad_batches=accumulate,
    )
    plain(twin, tmp_path / "plain", accumulate=accumulate, max_norm=max_norm)
    telemetry = same_telemetry(tmp_path / "lightning", tmp_path / "plain")
    assert telemetry.header["grad_norm_seen"] == "unclipped"
    assert telemetry["val/loss"].steps.tolist() == [12 // accumulate, 24 // accumulate]
    for a, b in zip(ours.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


def test_autocast_is_recorded_as_in_a_plain_loop(tmp_path):
    ours = Net()
    twin = copy.deepcopy(ours)
    fit(ours, tmp_path / "lightning", precision="bf16-mixed", gradient_clip_val=0.3)
    plain(twin, tmp_path / "plain", max_norm=0.3, precision="bfloat16")
    same_telemetry(tmp_path / "lightning", tmp_path / "plain", rel=1e-3)


def test_scaled_gradients_are_seen_unscaled(tmp_path):
    """Steps that the scaler skips are no steps, and leave no norm behind."""

    class Overflow(Net):
        def training_step(self, batch, i):
            return super().training_step(batch, i) * (float("inf") if i in (0, 5) else 1)

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    plugin = pl.plugins.MixedPrecision("16-mixed", "cpu", scaler)
    fit(Overflow(), tmp_path, plugins=[plugin], gradient_clip_val=0.3, epochs=1)
    telemetry = read(tmp_path)
    assert telemetry.header["steps"] == 10
    assert 0.1 < telemetry["grad_norm"].values.max() < 5


def test_a_last_step_of_fewer_batches_has_the_loss_of_its_batches(tmp_path):
    fit(Net(), tmp_path, accumulate_grad_batches=5, epochs=1)
    telemetry = read(tmp_path)
    assert len(telemetry["grad_norm"]) == len(telemetry["train/loss"]) == 3
    assert 0.8 < telemetry["train/loss"].values[-1] / telemetry["train/loss"].values[0] < 1.25


def test_other_ways_of_clipping_leave_the_threshold_open(tmp_path):
    class Own(Net):
        def configure_gradient_clipping(self, optimizer, **_):
            self.clip_gradients(optimizer, gradient_clip_val=0.01)

    fit(Own(), tmp_path / "own")
    by_value = {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}
    fit(Net(), tmp_path / "value", **by_value)
    for folder in (tmp_path / "own", tmp_path / "value"):
        telemetry = read(folder)
        assert telemetry.header["grad_norm_seen"] == "unclipped"
        assert telemetry["grad_norm"].values.min() > 0.1
        assert "clip_coefficient" not in telemetry


def test_manual_optimization_says_what_it_saw(tmp_path):
    class Manual(Net):
        automatic_optimization = False

        def training_step(self, batch, i):
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                loss = super().training_step(batch, i)
                self.manual_backward(loss)
                self.clip_gradients(optimizer, gradient_clip_val=0.01)
                optimizer.step()
            return {"loss": loss.detach()}

        def validation_step(self, *_):
            pass

        def configure_optimizers(self):
            return [torch.optim.SGD(self.net[i].parameters(), lr=0.1) for i in (0, 2)]

    fit(Manual(), tmp_path)
    telemetry = read(tmp_path)
    assert telemetry.header["grad_norm_seen"] == "optimizer"
    assert telemetry.header["steps"] == len(telemetry["train/loss"]) == 24
    assert telemetry["grad_norm"].values.max() < 0.02


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_a_resumed_training_goes_on_where_it_was(tmp_path, kind):
    torch.manual_seed(0)
    trainer, _ = fit(Net(kind), tmp_path / "halves", epochs=1)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    fit(Net(kind), tmp_path / "halves", checkpoint=tmp_path / "half.ckpt")
    torch.manual_seed(0)
    fit(Net(kind), tmp_path / "whole")
    same_telemetry(tmp_path / "halves", tmp_path / "whole")


def test_a_test_is_logged_as_such(tmp_path):
    class Tested(Net):
        def test_step(self, batch, i):
            self.log("loss", self.training_step(batch, i))

    model = Tested()
    trainer, _ = fit(model, tmp_path)
    trainer.test(model, dataloaders=DataLoader(VAL, batch_size=None), verbose=False)
    assert read(tmp_path)["test/loss"].steps.tolist() == [24]


def test_outside_a_campaign_it_records_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer, callback = fit(Net())
    assert callback.monitor.recorder is None
    assert not trainer.optimizers[0]._optimizer_step_pre_hooks
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:.*TensorBoardLogger.*", "ignore:.*log_every_n_steps.*")
def test_the_program_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("ORCHESTRATOR_TRIAL_FOLDER", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (program,) = (p for p in PROGRAMS if "LightningMonitor" in p)
    loaders = [DataLoader(data, batch_size=None) for data in (TRAIN, VAL)]
    exec(program, {"module": Net(), "train_loader": loaders[0], "val_loader": loaders[1]})
    assert len(read(tmp_path)["train/loss"]) == 24
