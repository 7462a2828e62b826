"""A capture: the raw bytes of launches and everything needed to decode them later, on any machine.

File format: an 8-byte magic, four little-endian words (version, JSON length, CRC-32 of the JSON, zero), the JSON
document, zero padding to 64 bytes, then the buffer of each launch at the offset given in the JSON, which also holds
the CRC-32 of each buffer.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.errors import CaptureError
from warplens.files import atomic_write
from warplens.record.layout import (
    HEADER_BYTES,
    MAX_BLOCK,
    MAX_REGION,
    MAX_SLOTS,
    MAX_SM,
    MAX_WARPS,
    SLOT_BYTES,
    track_stride,
)
from warplens.text import encodable, one_line

MAGIC = b"WLCAP\x00\r\n"
VERSION = 1
SUFFIX = ".wlcap"
CLOCKS = ("gpu", "simulated", "cpu")
"""Whose cycles a launch was timed in."""
HOST_NS = "host_ns"
"""Key in a launch's `extra`: the host's Unix time in ns just before the front end launched the kernel."""
AUTOMATIC = "automatic_marks"
"""Key in a launch's `extra`: whether rules placed its marks."""
VARIANT, VARIANT_NUMBER, VARIANT_LAUNCHES = "variant", "variant_number", "variant_launches"
"""Keys in a launch's `extra`: what describes its variant, which one it is of several with the same description, and how
many launches of it the program made."""
FULL = "full"
"""Key in a launch's `extra`: what the device did with a full track, where that is not `stop`."""
CODE = "code"
"""Key in a launch's `extra`: what the code of each region is made of, by its name; `""` is the code outside regions."""
BETWEEN = "between"
"""Key in a launch's `extra`: the regions of the code between others, which have no records: lists of three region ids,
of the region before it (0 is the warp's start), of the one that follows (0 is its exit), and its own. A trace has the
names of these regions instead."""
SAMPLED, BLOCK_LIVES = "sampled", "block_lives"
"""Keys in the `extra` of a launch of which only some blocks were kept: how many, and the lifetimes of all blocks."""
HANG = "hang"
"""Key in the `extra` of a launch whose records were copied while its kernel still ran (record/running_tracks.py)."""
MACHINE_CODE = "machine_code"
"""Key in a launch's `extra`: the short name of its machine code, by which the trace's `verification` has it."""
OVERHEAD_BUDGET = "overhead_budget"
"""Key in a launch's `extra`: the slowdown that was allowed, what was left out for it, and what each weaving cost."""
COUNTER_BITS = "clock_bits"
"""Key in a launch's `extra`: the bits of the clock that the GPU counts cycles in, where those are fewer than 64."""
BY_RATE, RATE_ERROR = "stretches_by_rate", "clock_error_mhz"
"""Keys in the `extra` of a decoded launch with such a clock: how many stretches of its warps were only decided by the
rate of others, and the error of the rate."""
OWN_WORK = "[warplens]"
"""The name under which PyTorch's profiler shows the work of warplens itself."""
LARGEST_NUMBER = 1e100
"""No number of a capture's or a trace's document is larger, so that sums of them stay finite."""
MAX_RANK = (1 << 31) - 1
MAX_DEVICE = (1 << 15) - 1
_FASTEST_MHZ = 1e5
"""No clock is faster; a fit to one would overflow."""
_FIXED = struct.Struct("<8s4I")
_ALIGN = 64

Bytes = npt.NDArray[np.uint8]
Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Device:
    """The device that ran a kernel. `clock_mhz` is its maximum clock as the driver reports it; 0 means unknown."""

    name: str = "unknown"
    index: int = 0
    sm_count: int = 0
    capability: str = ""
    clock_mhz: float = 0.0
    driver: str = ""


@dataclass(frozen=True)
class Launch:
    """One execution of one kernel: its buffer and the names needed to decode it.

    `full` says what the device did with a full track: `stop` kept the first records, `ring` the latest.
    `clock` is the source of the cycles: `gpu`, `simulated` (the PTX interpreter) or `cpu` (host nanoseconds).
    `device` is the device it ran on, if that is not the capture's device.
    """

    kernel: str
    grid: Dim3
    block: Dim3
    regions: Mapping[int, str]
    capacity: int
    raw: Bytes
    full: str = "stop"
    clock: str = "gpu"
    stride: int = 0
    locations: Mapping[int, str] = field(default_factory=dict)
    cost: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    device: Device | None = None

    def __post_init__(self) -> None:
        if not self.stride:
            object.__setattr__(self, "stride", track_stride(self.capacity))
        problem = self._problem()
        if problem:
            raise CaptureError(f"kernel {self.kernel!r}", *problem)

    def _problem(self) -> tuple[str, str, str] | None:
        remedy = "capture again"
        if self.full not in ("stop", "ring"):
            return "full", f"{self.full!r} is not 'stop' or 'ring'", remedy
        if self.clock not in CLOCKS:
            return "clock", f"{self.clock!r} is not 'gpu', 'simulated' or 'cpu'", remedy
        if any(len(d) != 3 or min(d) < 1 for d in (self.grid, self.block)):
            return "grid", f"grid {self.grid} and block {self.block} must each be three sizes of at least 1", remedy
        if not 0 <= self.capacity <= MAX_SLOTS:
            return "capacity", f"{self.capacity} slots is outside 0..{MAX_SLOTS}", remedy
        if self.stride < HEADER_BYTES + self.capacity * SLOT_BYTES or self.stride % SLOT_BYTES:
            return "stride", f"{self.stride} bytes cannot hold {self.capacity} slots", remedy
        if len(self.raw) % self.stride:
            return "raw", f"{len(self.raw)} bytes is not a whole number of {self.stride}-byte tracks", remedy
        if self.blocks > MAX_BLOCK:
            return "grid", f"{self.blocks} blocks exceed the limit of {MAX_BLOCK}", remedy
        if self.warps > MAX_WARPS:
            return "block", f"{self.warps} warps per block exceed the limit of {MAX_WARPS}", remedy
        if self.regions and not 0 <= min(self.regions) <= max(self.regions) <= MAX_REGION:
            return "regions", f"ids must be within 0..{MAX_REGION}", remedy
        if not all(self._is_between(one) for one in self.extra.get(BETWEEN, ())):
            return BETWEEN, "must have three ids of regions each, of which the first two may be 0", remedy
        return None

    def _is_between(self, ids: Any) -> bool:
        """Whether `ids` names the code between two regions."""
        if not isinstance(ids, list | tuple) or len(ids) != 3 or not all(isinstance(one, int) for one in ids):
            return False
        return ids[2] in self.regions and all(one == 0 or one in self.regions for one in ids[:2])

    def noting(
        self,
        *,
        cost: Mapping[str, float] | None = None,
        extra: Mapping[str, Any] | None = None,
        raw: Bytes | None = None,
    ) -> Launch:
        """The same launch with more in its `cost` and `extra`, or with the tracks `raw` of the same size; what was
        checked once is not checked again."""
        noted = object.__new__(Launch)
        known = noted.__dict__
        known.update(self.__dict__)
        if raw is not None:
            known["raw"] = raw
        if cost:
            known["cost"] = {**self.cost, **cost}
        if extra:
            known["extra"] = {**self.extra, **extra}
        return noted

    @property
    def tracks(self) -> int:
        return len(self.raw) // self.stride

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def warps(self) -> int:
        return -(-(self.block[0] * self.block[1] * self.block[2]) // 32)


@dataclass(frozen=True)
class Capture:
    """All launches that one profile recorded. `cost` is the overhead that warplens measured for its own recording."""

    launches: Sequence[Launch]
    device: Device = Device()
    rank: int = 0
    cost: Mapping[str, float] = field(default_factory=dict)
    producer: str = "warplens"

    def __post_init__(self) -> None:
        if not 0 <= self.rank <= MAX_RANK:
            raise CaptureError("capture", "rank", f"{self.rank} is outside 0..{MAX_RANK}", "give another rank=")
        for device in {self.device, *(launch.device for launch in self.launches if launch.device)}:
            if not 0 <= device.index <= MAX_DEVICE:
                problem = f"{device.index} is outside 0..{MAX_DEVICE}"
                raise CaptureError(f"device {device.name!r}", "index", problem, "capture again")


def write_capture(capture: Capture, path: str | os.PathLike[str], *, force: bool = True) -> Path:
    """Write `capture` atomically: a crash leaves the old file or the new one, never a partial one."""
    launches = [_launch_json(launch) for launch in capture.launches]
    document = {
        "producer": capture.producer,
        "rank": capture.rank,
        "device": vars(capture.device),
        "cost": dict(capture.cost),
        "launches": launches,
    }
    offset = 0
    for entry in launches:
        entry["offset"] = offset
        offset = _aligned(offset + entry["size"])
    text = json.dumps(document, separators=(",", ":")).encode()
    with atomic_write(path, force=force) as out:
        out.write(_FIXED.pack(MAGIC, VERSION, len(text), zlib.crc32(text), 0))
        out.write(text)
        out.write(b"\0" * (_aligned(_FIXED.size + len(text)) - _FIXED.size - len(text)))
        for launch in capture.launches:
            out.write(launch.raw.data)
            out.write(b"\0" * (_aligned(len(launch.raw)) - len(launch.raw)))
    return Path(path)


def is_capture(path: str | os.PathLike[str]) -> bool:
    """Whether the file starts with the magic of a capture."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_capture(path: str | os.PathLike[str]) -> Capture:
    """Read and verify a capture. Any problem raises a CaptureError that names the file, the field and the remedy."""
    document, body = _read_document(path)
    try:
        return _parse(path, document, body)
    except CaptureError as error:
        raise CaptureError(path, error.field, error.problem, error.remedy) from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CaptureError(path, "document", f"malformed ({error!r})", "capture again") from None


def _read_document(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Bytes]:
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r") if os.path.getsize(path) else np.empty(0, np.uint8)
    except OSError as error:
        raise CaptureError(path, "file", error.strerror or "unreadable", "check the path and its permissions") from None
    damaged = "the file is truncated or corrupted; copy it or capture again"
    if bytes(data[: len(MAGIC)]) != MAGIC:
        raise CaptureError(path, "magic", "not a warplens capture", f"expected a {SUFFIX} file written by warplens")
    if len(data) < _FIXED.size:
        raise CaptureError(path, "header", f"{len(data)} bytes, needs {_FIXED.size}", damaged)
    _, version, length, crc, _ = _FIXED.unpack(data[: _FIXED.size].tobytes())
    if version > VERSION:
        problem = f"{version} is newer than {VERSION}, the latest supported"
        raise CaptureError(path, "version", problem, "upgrade warplens to read it")
    text = data[_FIXED.size : _FIXED.size + length].tobytes()
    if version < 1 or len(text) < length or zlib.crc32(text) != crc:
        raise CaptureError(path, "document", "its checksum or length does not match", damaged)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CaptureError(path, "document", f"is not JSON ({type(error).__name__})", damaged) from None
    if not isinstance(document, dict):
        raise CaptureError(path, "document", "not a JSON object", damaged)
    return document, data[_aligned(_FIXED.size + length) :]


def _parse(path: str | os.PathLike[str], document: dict[str, Any], body: Bytes) -> Capture:
    launches = []
    for number, entry in enumerate(document["launches"]):
        offset, size = int(entry["offset"]), int(entry["size"])
        raw = body[offset : offset + size]
        if offset < 0 or size < 0 or len(raw) < size:
            problem = f"only {len(raw)} of {size} bytes are present"
            raise CaptureError(
                path, f"launch {number}", problem, "the file is truncated; copy it again or capture again"
            )
        if zlib.crc32(raw.data) != entry["crc32"]:
            raise CaptureError(
                path, f"launch {number}", "its checksum does not match", "copy the file again or capture again"
            )
        launches.append(_launch(entry, raw))
    return Capture(
        launches=launches,
        device=_device(document["device"]),
        rank=int(document["rank"]),
        cost=_cost(document),
        producer=encodable(str(document.get("producer", ""))),
    )


def _launch(entry: dict[str, Any], raw: Bytes) -> Launch:
    return Launch(
        kernel=one_line(str(entry["kernel"])),
        grid=_dim3(entry["grid"]),
        block=_dim3(entry["block"]),
        regions={int(k): one_line(str(v)) for k, v in entry["regions"].items()},
        capacity=int(entry["capacity"]),
        raw=raw,
        full=entry["full"],
        clock=entry["clock"],
        stride=int(entry["stride"]),
        locations={int(k): encodable(str(v)) for k, v in entry.get("locations", {}).items()},
        cost=_cost(entry),
        extra=dict(entry.get("extra", {})),
        device=_device(entry["device"]) if "device" in entry else None,
    )


def _cost(document: Mapping[str, Any]) -> dict[str, float]:
    """What recording cost; a number that a trace file could not have is a malformed document."""
    made = {str(name): float(value) for name, value in document.get("cost", {}).items()}
    for name, value in made.items():
        if not abs(value) <= LARGEST_NUMBER:
            raise ValueError(f"cost {name!r:.40} of {value}")
    return made


def _launch_json(launch: Launch) -> dict[str, Any]:
    return {
        "kernel": launch.kernel,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "regions": {str(k): v for k, v in launch.regions.items()},
        "locations": {str(k): v for k, v in launch.locations.items()},
        "capacity": launch.capacity,
        "stride": launch.stride,
        "full": launch.full,
        "clock": launch.clock,
        "cost": dict(launch.cost),
        "extra": dict(launch.extra),
        **({"device": vars(launch.device)} if launch.device else {}),
        "size": len(launch.raw),
        "crc32": zlib.crc32(launch.raw.data),
    }


def _device(document: Mapping[str, Any]) -> Device:
    """The device with every field of its own type; anything else is a malformed document."""
    usual = vars(Device())
    given: dict[str, Any] = {name: type(usual[name])(document[name]) for name in usual if name in document}
    for name in ("name", "capability", "driver"):
        if name in given:
            given[name] = one_line(given[name])
    made = Device(**given)
    if not (0 <= made.index <= MAX_SM and 0 <= made.sm_count <= MAX_BLOCK and 0 <= made.clock_mhz <= _FASTEST_MHZ):
        raise ValueError(f"device {made.index} of {made.sm_count} SMs at {made.clock_mhz} MHz")
    return made


def _dim3(values: Sequence[int]) -> Dim3:
    x, y, z = (int(v) for v in values)
    return x, y, z


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
