"""The file by which `warplens view --live` finds a running program: next to its trace, readable by its owner only."""

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
from warplens.session.host_clock import host_key

SUFFIX = ".live"
_RANK = "rank="


@dataclass(frozen=True)
class LiveAddress:
    """Where a running program shows itself: on `host` (a key of it), as one of `ranks` processes of its job."""

    url: str
    pid: int
    program: str
    rank: int = 0
    ranks: int = 1
    host: str = ""
    host_name: str = ""

    @property
    def is_here(self) -> bool:
        """Whether it runs on this host, which files of older versions do not tell."""
        return self.host in ("", host_key())

    def is_alive(self) -> bool:
        """Whether it runs on this host, and its process is still there."""
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            pass
        return self.is_here


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
    """The running program of a trace, or the one that began last in a folder."""
    until = time.monotonic() + seconds
    while True:
        for _, address in _running(where):
            return address
        if time.monotonic() >= until:
            raise WarplensError(f"{where}: no program shows itself live there; {_remedy(where)}")
        time.sleep(0.1)


def find_job(where: Path) -> Path | None:
    """The folder of the job whose rank began last in a folder. None if a program that runs alone began last, or if one
    rank was named."""
    if where.name.startswith(_RANK) or not where.is_dir():
        return None
    newest = next((path.parent for path, _ in _running(where)), where)
    return newest.parent if newest.name.startswith(_RANK) else None


def rank_addresses(job: Path) -> list[tuple[LiveAddress, float]]:
    """What the ranks of a job have written, also those that are gone or on other hosts, and when; by rank."""
    paths = job.glob(f"{_RANK}*/*{SUFFIX}")
    found = [(address, _changed_at(path)) for path in paths if (address := _read(path))]
    return sorted(found, key=lambda one: one[0].rank)


def _running(where: Path) -> Iterator[tuple[Path, LiveAddress]]:
    """The files of programs that run on this host, the newest first."""
    return ((path, one) for path in _candidates(where) if (one := _read(path)) and one.is_alive())


def _remedy(where: Path) -> str:
    elsewhere = {one.host_name for path in _candidates(where) if (one := _read(path)) and not one.is_here}
    if elsewhere:
        return f"one does on {', '.join(sorted(elsewhere))}: run this command there"
    return "start one with `warplens run --live SCRIPT` or wl.profile(..., live=True)"


def _candidates(where: Path) -> list[Path]:
    if not where.is_dir():
        return [where if where.suffix == SUFFIX else address_file(where)]
    depths = ("", f"{_RANK}*/", f"*/{_RANK}*/")
    found = [path for depth in depths for path in where.glob(f"{depth}*{SUFFIX}")]
    return sorted(found, key=_changed_at, reverse=True)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # its program has just ended
        return 0.0


def _read(path: Path) -> LiveAddress | None:
    """What a file says; None where it is not there, or says something else."""
    try:
        known = json.loads(path.read_bytes())
        given = (str(known["url"]), int(known["pid"]), str(known["program"]), int(known["rank"]))
        # Files of older versions do not tell the rest.
        address = LiveAddress(
            *given, int(known.get("ranks", 1)), str(known.get("host", "")), str(known.get("host_name", ""))
        )
        url = urlsplit(address.url)
        is_local = (url.scheme, url.netloc) == ("http", f"127.0.0.1:{url.port}")
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    return address if is_local and address.pid > 0 else None
