"""The file by which `warplens view --live` finds a running program: beside its trace, readable by its owner only."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from warplens.errors import WarplensError

SUFFIX = ".live"


@dataclass(frozen=True)
class LiveAddress:
    """Where a running program shows itself."""

    url: str
    pid: int
    program: str
    rank: int = 0

    def is_alive(self) -> bool:
        """Whether its process is still there."""
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            return True
        return True


def address_file(trace: Path) -> Path:
    """The file of a program that writes this trace."""
    return trace.with_name(trace.name + SUFFIX)


@contextmanager
def announced(trace: Path, address: LiveAddress) -> Iterator[None]:
    """Keep the file while the block runs."""
    path = address_file(trace)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # of a program that was killed
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump(asdict(address), out)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


def find_address(where: Path, seconds: float = 0.0) -> LiveAddress:
    """The running program of a trace, of a job's folder or, for any other folder, the one that began last in it."""
    until = time.monotonic() + seconds
    while True:
        found = [address for path in _candidates(where) if (address := _read(path)) and address.is_alive()]
        if found:
            return min(found, key=lambda address: address.rank)
        if time.monotonic() >= until:
            raise WarplensError(
                f"{where}: no program shows itself live there; start one with `warplens run --live SCRIPT` or "
                "wl.profile(..., live=True)"
            )
        time.sleep(0.1)


def _candidates(where: Path) -> list[Path]:
    if not where.is_dir():
        return [where if where.suffix == SUFFIX else address_file(where)]
    own = [*where.glob(f"*{SUFFIX}"), *where.glob(f"rank=*/*{SUFFIX}")]
    return sorted(own, key=_changed_at, reverse=True)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # its program has just ended
        return 0.0


def _read(path: Path) -> LiveAddress | None:
    """What a file says; None where it is not there, or says something else."""
    try:
        known = json.loads(path.read_bytes())
        address = LiveAddress(str(known["url"]), int(known["pid"]), str(known["program"]), int(known["rank"]))
        url = urlsplit(address.url)
        is_local = (url.scheme, url.netloc) == ("http", f"127.0.0.1:{url.port}")
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return address if is_local and address.pid > 0 else None
