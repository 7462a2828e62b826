"""The folder that an agent may read traces and sources from, and the one that it may run programs in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from warplens.decode.trace_loader import load
from warplens.errors import UsageError, WarplensError
from warplens.trace.model import Trace

SUFFIXES = (".warplens", ".wlcap")
_KEPT = 4


@dataclass
class Workspace:
    """`root` is read; programs run in `run_in` only, and not at all without it."""

    root: Path
    run_in: Path | None = None
    _loaded: dict[tuple[Path, int, int], Trace] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in filter(None, (self.root, self.run_in)):
            if not folder.is_dir():
                raise UsageError(f"{folder}: there is no such folder")
        self.root = self.root.resolve()
        self.run_in = None if self.run_in is None else self.run_in.resolve()

    def traces(self) -> Iterator[Path]:
        """Every trace below the root, the newest first."""
        found = [path for path in self.root.rglob("*") if path.suffix in SUFFIXES and self._inside(path, self.root)]
        changed = {path: when for path in found if (when := _changed_at(path)) is not None}
        return iter(sorted(changed, key=lambda path: -changed[path]))

    def name(self, path: Path) -> str:
        """How an agent calls a file: relative to the root."""
        return path.resolve().relative_to(self.root).as_posix()

    def path(self, name: str) -> Path:
        """The file of a name, which must be inside the root."""
        path = self.root / name
        if not self._inside(path, self.root):
            raise WarplensError(f"{name}: is outside the folder that was opened; list_traces names what is there")
        if _changed_at(path) is None:
            raise WarplensError(f"{name}: there is no such trace; list_traces names what is there")
        return path.resolve()

    def trace(self, name: str) -> Trace:
        """A trace, read once as long as its file stays as it is."""
        path = self.path(name)
        known = path.stat()
        key = path, known.st_mtime_ns, known.st_size
        if key not in self._loaded:
            while len(self._loaded) >= _KEPT:
                self._loaded.pop(next(iter(self._loaded)))
            self._loaded[key] = load(path)
        return self._loaded[key]

    def program(self, script: str) -> Path:
        """A program that may be run: a file inside the folder that was given for this."""
        if self.run_in is None:
            raise WarplensError(
                "programs are not run here: start the server with `warplens mcp --run-in FOLDER` to allow those of a "
                "folder, or run `warplens run` yourself"
            )
        path = self.run_in / script
        if not self._inside(path, self.run_in) or _changed_at(path) is None or not path.is_file():
            raise WarplensError(f"{script}: is not a file in the folder that programs may run in")
        return path.resolve()

    @staticmethod
    def _inside(path: Path, folder: Path) -> bool:
        try:
            return path.resolve().is_relative_to(folder)
        except (OSError, ValueError, RuntimeError):
            return False


def _changed_at(path: Path) -> float | None:
    """When a file was changed; None where it is not there, as at the end of a link, or cannot be."""
    try:
        return path.stat().st_mtime
    except (OSError, ValueError):
        return None
