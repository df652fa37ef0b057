"""What a trial could be repeated from: code, seeds, libraries and the machine's kind."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import platform
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from orchestrator.nouns import Scalar
from orchestrator.telemetry.layout import FACTS_VARIABLE

_GIT_SECONDS = 5.0
"""A repository on a slow disk may take long to say whether it is dirty; the training waits."""


def provenance(
    devices: Iterable[torch.device], environment: Mapping[str, str]
) -> dict[str, Scalar]:
    """Facts for the header; what the campaign knows of the trial stands before what is found.

    Seeds are as they are now. Neither NumPy nor Python tells its seed, so theirs are digests of the
    streams' states: equal ones mean that the same numbers come next. None of this draws a number.
    """
    used = sorted({device.type for device in devices})
    facts: dict[str, Scalar] = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "orchestrator": _version(),
        "device_name": ", ".join(dict.fromkeys(_device_name(device) for device in devices)),
        "cpu_threads": torch.get_num_threads(),
        "torch_seed": torch.initial_seed(),
        "numpy_stream": _digest(_numpy_state()),
        "python_stream": _digest(repr(random.getstate()).encode()),
    }
    if "cuda" in used and torch.version.cuda:
        facts["cuda"] = torch.version.cuda
    told: dict[str, Scalar] = json.loads(environment.get(FACTS_VARIABLE, "{}"))
    if "code" not in told:
        facts["code"] = code_version(getattr(sys.modules["__main__"], "__file__", None))
    return facts | told


@functools.cache  # as it was when the process first watched; asking git takes 10 ms
def code_version(script: str | None) -> str:
    """Commit of the script's repository, `-dirty` if files differ; else a hash of the script.

    "" for code that lies in no file.
    """
    path = Path(script).absolute() if script else None
    if path is None or not path.is_file():
        return ""
    if _git(path.parent, "ls-files", "--error-unmatch", path.name) is not None:
        commit = _git(path.parent, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
        if commit:
            return commit
    return f"sha256:{_digest(path.read_bytes())}"


def data_digest(batch: object) -> str:
    """Of all dense tensors in a batch, through tuples, lists and mappings: kind, shape, numbers.

    Equal digests are equal data, prepared alike. From an accelerator the numbers are waited for.
    """
    digest = hashlib.sha256()
    for tensor in _tensors(batch):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        numbers = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(numbers.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _tensors(part: object) -> Iterator[torch.Tensor]:
    if isinstance(part, torch.Tensor) and part.layout is torch.strided:
        yield part
    elif isinstance(part, Mapping):
        yield from (tensor for each in part.values() for tensor in _tensors(each))
    elif isinstance(part, tuple | list):
        yield from (tensor for each in part for tensor in _tensors(each))


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):  # no git, no repository, too slow
        return None
    return done.stdout.decode(errors="replace").strip()


def _device_name(device: torch.device) -> str:
    if device.type == "cpu":
        return platform.processor() or platform.machine()
    module = getattr(torch, device.type, None)  # torch.cuda, torch.xpu
    name = getattr(module, "get_device_name", None)
    return str(name(device)) if name is not None else device.type


def _version() -> str:
    try:
        return importlib.metadata.version("orchestrator")
    except importlib.metadata.PackageNotFoundError:  # a checkout on the search path
        return ""


def _numpy_state() -> bytes:
    name, key, position, *_ = np.random.get_state()
    return f"{name} {position} ".encode() + np.asarray(key).tobytes()


def _digest(state: bytes) -> str:
    return hashlib.sha256(state).hexdigest()[:16]
