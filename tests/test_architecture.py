"""The walls: who may import whom, and what `--help` may cost."""

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "orchestrator"

FOUNDATION = {"nouns", "clip_nouns", "log_nouns", "score_nouns", "errors"}
SHARED = {"stats", "telemetry"}
STAGES = {"monitor", "diagnose", "plan", "launch", "comparison", "decide", "track", "report"}
HEAVY = {
    "torch": {"monitor", "launch"},  # launch: inside the trial's process only
    "lightning": {"monitor"},
    "transformers": {"monitor"},
    "hydra": {"config", "launch"},
    "omegaconf": {"config", "launch"},
    "mlflow": {"track"},
    "optuna": {"plan"},
    "scipy": {"stats"},
    "pyarrow": {"telemetry"},
    "matplotlib": {"report"},
    "rich": {"report"},
    "sklearn": set(),
    "mlxtend": set(),
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Dotted names imported anywhere in a file, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def rooms_imported(path: Path) -> set[str]:
    ours = {n.split(".")[1] for n in imports(path) if n.startswith("orchestrator.")}
    return ours - {room(path)}


def test_there_is_something_to_check():
    assert {room(path) for path in modules()} >= STAGES | SHARED


def test_stages_import_only_the_foundation_and_the_shared_rooms():
    for path in modules():
        if room(path) in STAGES:
            assert rooms_imported(path) <= FOUNDATION | SHARED, path


def test_shared_rooms_and_foundation_import_only_the_foundation():
    for path in modules():
        if room(path) in SHARED:
            assert rooms_imported(path) <= FOUNDATION | (SHARED - {room(path)}), path
        if room(path) in FOUNDATION:
            assert rooms_imported(path) <= FOUNDATION, path


def test_only_the_loop_and_the_command_line_know_the_stages():
    for path in modules():
        if rooms_imported(path) & STAGES:
            assert room(path) in {"campaign", "cli", "library", "__init__"}, path


def test_heavy_packages_stay_in_their_room():
    for path in modules():
        packages = {name.split(".")[0] for name in imports(path)}
        for package in packages & set(HEAVY):
            assert room(path) in HEAVY[package], f"{path} imports {package}"


def test_core_never_imports_a_recipe():
    for path in modules():
        assert not any(name.split(".")[0] == "recipes" for name in imports(path)), path


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from orchestrator.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        f"print([p for p in {sorted(HEAVY)!r} + ['numpy', 'pandas'] if p in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"
