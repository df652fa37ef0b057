"""Reads a program's sources without running them: its own files, and what else they import."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import OrchestratorError, nearest
from orchestrator.nouns import Training


@dataclass(frozen=True, slots=True)
class Sources:
    """A program's own files by module name, and what they import from elsewhere.

    `outside` holds dotted names as they stand at the top level of a file: `numpy`,
    `sklearn.datasets.load_digits`.
    """

    files: dict[str, Path]
    outside: tuple[str, ...]


def fingerprint(training: Training) -> str:
    """Hash of the target's name and the text of all the program's own files, in stable order."""
    target = Path(training.target).name if training.kind == "script" else training.target
    digest = hashlib.sha256(target.encode())
    for name, path in sorted(read(training).files.items()):
        digest.update(f"\0{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def installed(training: Training) -> tuple[str, ...]:
    """What importing the program imports from installed packages, the standard library aside."""
    outside = read(training).outside
    packages = {name.split(".")[0] for name in outside} - sys.stdlib_module_names
    found = {package for package in packages if _location(package) is not None}
    return tuple(name for name in outside if name.split(".")[0] in found)


def read(training: Training) -> Sources:
    """Follow the imports from the target through every file that is the program's own.

    Own is what lies in the campaign's folder, beside the script, or in the target's package where
    that is installed or beside where the user stands.
    """
    search = _Search(training)
    entry, path = search.entry()
    files, outside, waiting = {entry: path}, dict[str, None](), [entry]
    while waiting:
        module = waiting.pop()
        for name, when_imported in _imports(module, files[module]):
            own = list(search.own(name))
            if not own and when_imported:
                outside[name] = None
            waiting += [inner for inner, _ in own if inner not in files]
            files |= dict(own)
    return Sources(files, tuple(sorted(outside)))


class _Search:
    """Where the program's own modules are looked for."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.roots = [Path(training.folder)]
        self.package = ""
        self.package_roots: list[Path] = []
        if training.kind == "script":
            self.roots.insert(0, (self.roots[0] / training.target).parent)
        else:
            self.package = training.target.split(".")[0]
            location = _location(self.package)
            self.package_roots = [location] if location else []

    def entry(self) -> tuple[str, Path]:
        """The module that the target is in, and its file."""
        training = self.training
        if training.kind == "script":
            return "__main__", Path(training.folder) / training.target
        module = training.target.rpartition(".")[0]
        path = self._find(module)
        if path is None:
            raise OrchestratorError(
                f"train.call={training.target}: {training.folder} has no module {module}.",
                nearest(module, [p.stem for p in self.roots[0].glob("*.py")]),
            )
        return module, path

    def own(self, name: str) -> Iterator[tuple[str, Path]]:
        """The own files that importing `name` runs, packages before what is inside them.

        The last part may be a module or an attribute, so that it has no file is no mistake.
        """
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            module = ".".join(parts[:depth])
            path = self._find(module)
            if path is not None:
                yield module, path

    def _find(self, module: str) -> Path | None:
        parts = module.split(".")
        roots = self.roots + (self.package_roots if parts[0] == self.package else [])
        for root in roots:
            folder = root.joinpath(*parts)
            for path in (folder / "__init__.py", folder.with_name(f"{folder.name}.py")):
                if path.is_file():
                    return path
        return None


def _location(package: str) -> Path | None:
    """The folder on the module search path that holds `package`; None if there is none."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # ValueError: a module that hides its own spec
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).parent
    return Path(spec.origin).parent if spec.origin else None


def _imports(module: str, path: Path) -> Iterator[tuple[str, bool]]:
    """Absolute dotted names that a file imports, and whether importing the file imports them."""
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        raise OrchestratorError(
            f"{path}, line {error.lineno}: {error.msg}", "mend the program"
        ) from None
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    first = set(_run_at_import(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in first) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) + 1 - node.level] if node.level else []
            parts += node.module.split(".") if node.module else []
            for alias in node.names:
                name = ".".join(parts if alias.name == "*" else [*parts, alias.name])
                yield name, node in first


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _run_at_import(child)
