from pathlib import Path

import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.launch import fingerprint
from orchestrator.launch.sources import installed, read
from orchestrator.nouns import Training


def program(folder: Path, files: dict[str, str], target: str = "train.main") -> Training:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    kind = "script" if target.endswith(".py") else "call"
    return Training(kind, target, "{}", "seed", str(folder), "")


PROJECT = {
    "train.py": "import os, numpy as np\nfrom model.net import Net\ndef f():\n    import data",
    "model/__init__.py": "from . import layers",
    "model/net.py": "from .layers import Linear\nfrom torch.nn import Module",
    "model/layers.py": "import nowhere_to_be_found",
    "data.py": "from sklearn.datasets import load_digits",
    "unused.py": "import numpy.linalg",
}


def test_the_programs_own_files_are_followed_from_the_target(tmp_path):
    found = read(program(tmp_path, PROJECT)).files
    assert set(found) == {"train", "model", "model.net", "model.layers", "data"}


def test_a_script_is_followed_as_well(tmp_path):
    found = read(program(tmp_path, PROJECT, "train.py")).files
    assert set(found) == {"__main__", "model", "model.net", "model.layers", "data"}


def test_installed_packages_are_named_as_they_are_imported(tmp_path):
    assert installed(program(tmp_path, PROJECT)) == (
        "numpy",
        "sklearn.datasets.load_digits",
        "torch.nn.Module",
    )


def test_imports_inside_functions_are_left_to_the_function(tmp_path):
    files = {"train.py": "def main(config):\n    import numpy\nif True:\n    import torch"}
    assert installed(program(tmp_path, files)) == ("torch",)


@pytest.mark.parametrize("name", sorted(set(PROJECT) - {"unused.py"}))
def test_the_fingerprint_sees_a_change_in_each_own_file(tmp_path, name):
    before = fingerprint(program(tmp_path, PROJECT))
    assert fingerprint(program(tmp_path, PROJECT)) == before
    assert fingerprint(program(tmp_path, PROJECT | {name: PROJECT[name] + "\nx = 1"})) != before


def test_the_fingerprint_does_not_see_what_is_not_imported(tmp_path):
    before = fingerprint(program(tmp_path, PROJECT))
    assert fingerprint(program(tmp_path, PROJECT | {"unused.py": ""})) == before


def test_the_fingerprint_is_the_same_in_another_folder(tmp_path):
    one = fingerprint(program(tmp_path / "a", PROJECT))
    assert fingerprint(program(tmp_path / "b", PROJECT)) == one


def test_two_functions_of_a_module_are_two_programs(tmp_path):
    one = fingerprint(program(tmp_path, PROJECT))
    assert fingerprint(program(tmp_path, PROJECT, "train.other")) != one


def test_a_package_that_lies_elsewhere_on_the_path_is_the_programs_own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    lib = {"src/lib/__init__.py": "", "src/lib/train.py": "import lib.net", "src/lib/net.py": ""}
    program(tmp_path, lib | {"src/beside.py": ""})
    there = Training("call", "lib.train.main", "{}", "seed", str(tmp_path / "conf"), "")
    assert set(read(there).files) == {"lib", "lib.train", "lib.net"}


def test_a_missing_module_names_the_nearest(tmp_path):
    with pytest.raises(OrchestratorError, match="did you mean 'train'"):
        fingerprint(program(tmp_path, PROJECT, "trian.main"))


def test_a_syntax_error_is_told_with_its_line(tmp_path):
    with pytest.raises(OrchestratorError, match=r"train.py, line 2"):
        fingerprint(program(tmp_path, {"train.py": "x = 1\nx = = 2"}))
