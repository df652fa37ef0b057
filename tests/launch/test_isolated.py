"""The launcher `isolated`: processes of their own, and none of them left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from orchestrator import launch
from orchestrator.launch import isolated
from orchestrator.launch.files import TrialFiles
from orchestrator.nouns import Status

ROOT = Path(__file__).parent.parent.parent

SLEEPER = """
    import os, subprocess, time
    from pathlib import Path

    def main(config):
        child = subprocess.Popen(["sleep", "300"])
        Path(__file__).with_name(f"pids{config.seed}").write_text(f"{os.getpid()} {child.pid}")
        print("sleeping")
        time.sleep(config.sleep)
        return 1.0
"""


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_until(true: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


def pids(path: Path) -> list[int]:
    return [int(pid) for pid in path.read_text().split()]


def test_a_trial_past_its_time_is_killed_with_all_it_started(bench):
    it = bench(SLEEPER, "sleep: 300", trial_minutes=0.5 / 60)
    [outcome] = it.run(it.trial())
    assert outcome.status is Status.TIMED_OUT
    assert 0.5 <= outcome.seconds < 20
    assert outcome.reason == f"stopped after {outcome.seconds:.0f} s"
    assert not any(is_alive(pid) for pid in pids(it.folder / "pids1"))


def test_what_a_finished_trial_leaves_running_is_killed_too(bench):
    it = bench(SLEEPER, "sleep: 0")
    [outcome] = it.run(it.trial())
    assert outcome.status is Status.DONE
    assert not any(is_alive(pid) for pid in pids(it.folder / "pids1"))


def test_output_is_kept_in_the_trials_folder(bench):
    it = bench(
        """
        import os, sys
        def main(config):
            print("grüße")
            print("to stderr", file=sys.stderr)
            os.system("echo from a subprocess")
            return 1.0
        """
    )
    trial = it.trial()
    it.run(trial)
    output = TrialFiles(trial.folder).output.read_text(encoding="utf-8").splitlines()
    assert set(output) == {"grüße", "to stderr", "from a subprocess"}


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("os._exit(5)", "exited with code 5 before its outcome was recorded"),
        ("os.kill(os.getpid(), 15)", "killed by SIGTERM"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL; out of memory?"),
    ],
)
def test_a_process_that_ends_without_a_word_is_lost_with_the_reason(bench, statement, reason):
    it = bench(f"import os\ndef main(config):\n    {statement}", attempts=1)
    [outcome] = it.run(it.trial())
    assert (outcome.status, outcome.reason, outcome.attempts) == (Status.LOST, reason, 1)


def test_no_more_trials_than_workers_run_at_once(bench):
    it = bench(
        """
        import os, time
        from pathlib import Path
        def main(config):
            here = Path(__file__).parent / "running"
            here.mkdir(exist_ok=True)
            me = here / str(os.getpid())
            me.touch()
            time.sleep(0.2)
            seen = len(list(here.iterdir()))
            me.unlink()
            return float(seen)
        """,
        workers=2,
    )
    seen = [o.metrics["val/loss"] for o in it.run(*(it.trial((), seed) for seed in range(6)))]
    assert max(seen) <= 2


def test_the_warm_server_serves_the_next_batch_too(bench):
    it = bench("import os\ndef main(config):\n    return float(os.getppid())")
    first, second = it.run(it.trial((), 1))[0], it.run(it.trial((), 2))[0]
    assert first.metrics == second.metrics
    server = int(first.metrics["val/loss"])
    launch.close()
    assert not is_alive(server)
    launch.close()


def test_trials_survive_the_death_of_their_server(bench):
    it = bench(
        """
        import os, time
        from pathlib import Path
        def main(config):
            marker = Path(__file__).with_name("killed")
            if not marker.exists():
                marker.touch()
                os.kill(os.getppid(), 9)
                time.sleep(60)
            return 1.0
        """
    )
    outcomes = it.run(*(it.trial((), seed) for seed in range(3)))
    assert all(outcome.status is Status.DONE for outcome in outcomes)


DRIVER = """
    import sys
    from dataclasses import replace
    from pathlib import Path
    from orchestrator import launch
    from orchestrator.nouns import *

    folder = sys.argv[1]
    training = Training("call", "program.main", "sleep: 300", "seed", folder, "code")
    campaign = Campaign(
        "it", folder + "/runs", training, (), Metric("val/loss", Direction.MIN),
        Budget(1, 10, 5, 2), Protocol(0.05, (3,), 3, 3, 10, 2), workers=2,
    )
    arm = Arm("arm", (), launch.resolve(training, [()])[0])
    trials = [launch.plan_trial(campaign, arm, seed) for seed in (1, 2)]
    launch.launch(campaign, trials, on_outcome=print)
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process with two trials under way."""
    (tmp_path / "program.py").write_text(dedent(SLEEPER))
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", dedent(DRIVER), str(tmp_path)], env=environ, stderr=subprocess.PIPE
    )
    both = [tmp_path / "pids1", tmp_path / "pids2"]
    assert wait_until(lambda: all(p.exists() and " " in p.read_text() for p in both), 120)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_trials_die_with_whoever_launched_them(driver, tmp_path, number):
    """So that a resumed campaign never runs a trial that still runs."""
    processes = pids(tmp_path / "pids1") + pids(tmp_path / "pids2")
    server = int(Path(f"/proc/{processes[0]}/stat").read_text().rpartition(")")[2].split()[1])
    driver.send_signal(number)
    assert wait_until(lambda: not any(is_alive(pid) for pid in (*processes, server)), 5)
    driver.wait(20)
    counts = [TrialFiles(f).count_attempts() for f in (tmp_path / "runs" / "trials").iterdir()]
    assert counts == ([0, 0] if number == signal.SIGINT else [1, 1])


def test_a_hydra_app_of_anybodys_can_be_swept_with_it(tmp_path):
    app = """
        import os
        import hydra
        from omegaconf import OmegaConf

        OmegaConf.register_new_resolver("twice", lambda x: 2 * x)

        @hydra.main(version_base=None, config_path=None)
        def main(config):
            with open("done.txt", "a") as file:
                file.write(f"{config.x} {config.y}\\n")

        main()
    """
    (tmp_path / "app.py").write_text(dedent(app))
    launcher = ["hydra/launcher=isolated", "hydra.launcher.workers=2"]
    overrides = ["+x=1,2,3", "+y='${twice:${x}}'", "hydra.sweep.dir=out"]
    subprocess.run(
        [sys.executable, "app.py", "-m", *launcher, *overrides],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )
    assert sorted((tmp_path / "done.txt").read_text().splitlines()) == ["1 2", "2 4", "3 6"]


def test_several_gpus_are_dealt_out_to_the_slots(bench, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    it = bench(
        """
        import os, time
        from pathlib import Path
        def main(config):
            here = Path(__file__).parent
            (here / f"begun{config.seed}").touch()
            while len(list(here.glob("begun*"))) < 2:  # so that both run at once
                time.sleep(0.02)
            return float(os.environ["CUDA_VISIBLE_DEVICES"])
        """,
        workers=2,
    )
    seen = [outcome.metrics["val/loss"] for outcome in it.run(it.trial((), 1), it.trial((), 2))]
    assert sorted(seen) == [4.0, 7.0]


def test_one_gpu_or_one_worker_is_left_alone(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert isolated.gpus(4) == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert isolated.gpus(1) == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert isolated.gpus(4) == ()
