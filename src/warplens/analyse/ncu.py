"""Read the CSV pages of Nsight Compute."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from warplens.errors import WarplensError
from warplens.ptx.symbols import base_name

_IDENTITY = ("ID", "Kernel Name")
_STALL = re.compile(r"(?:issue_stalled_|^stall )([a-z_ ]+?)(?:_per_issue_active.*|_not_issued.*|\..*)?$", re.IGNORECASE)
_GROUPS = {
    "memory dependency": ("long_scoreboard", "short_scoreboard", "imc_miss"),
    "memory throttle": ("lg_throttle", "mio_throttle", "tex_throttle", "drain"),
    "execution dependency": ("wait", "math_pipe_throttle", "gmma", "dispatch_stall"),
    "synchronization": ("barrier", "membar", "sleeping", "warpgroup_arrive"),
}
_METRICS = {
    "compute": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "Compute (SM) Throughput"),
    "memory": ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "Memory Throughput"),
    "dram": ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "DRAM Throughput"),
    "achieved": ("sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy"),
    "theoretical": ("sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy"),
}
_LIMITS = {
    "registers": ("launch__occupancy_limit_registers", "Block Limit Registers"),
    "shared memory": ("launch__occupancy_limit_shared_mem", "Block Limit Shared Mem"),
    "warps per block": ("launch__occupancy_limit_warps", "Block Limit Warps"),
    "blocks per SM": ("launch__occupancy_limit_blocks", "Block Limit SM"),
    "barriers": ("launch__occupancy_limit_barriers", "Block Limit Barriers"),
}
_SECTOR = 32
"""Bytes."""
_SCALE = {
    "byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12,
    "nsecond": 1.0, "ns": 1.0, "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6, "second": 1e9, "s": 1e9,
}  # fmt: skip


@dataclass(frozen=True)
class NcuKernel:
    """One kernel, averaged over its launches.

    Throughputs and occupancies are shares (0 to 1), or None where not collected. `stalls` are shares of all stall
    cycles per reason. `limiter` is what limits the theoretical occupancy. `sectors` is the number of 32-byte sectors
    per global load request, and `load_efficiency` the used share of their bytes. `shared_conflicts` is the share of
    shared memory's cycles that bank conflicts take.
    """

    kernel: str
    launches: int = 1
    compute: float | None = None
    memory: float | None = None
    dram: float | None = None
    achieved: float | None = None
    theoretical: float | None = None
    limiter: str = ""
    duration_ns: float | None = None
    dram_bytes: float | None = None
    stalls: Mapping[str, float] = field(default_factory=dict)
    sectors: float | None = None
    load_efficiency: float | None = None
    shared_conflicts: float | None = None

    @property
    def groups(self) -> dict[str, float]:
        """Stalls in five common groups, largest first."""
        out = dict.fromkeys((*_GROUPS, "other"), 0.0)
        for reason, share in self.stalls.items():
            group = next((name for name, reasons in _GROUPS.items() if reason in reasons), "other")
            out[group] += share
        return dict(sorted(out.items(), key=lambda item: -item[1]))

    @property
    def bound(self) -> str:
        """memory, compute, latency (neither above 60 %, ncu's own rule of thumb) or unknown."""
        if self.compute is None or self.memory is None:
            return "unknown"
        if max(self.compute, self.memory) < 0.6:
            return "latency"
        return "memory" if self.memory >= self.compute else "compute"


def parse_ncu(text: str, source: str = "ncu output") -> tuple[NcuKernel, ...]:
    """Parse the kernels of a `--csv` page, raw (one column per metric) or details (one row per metric)."""
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if all(f'"{name}"' in line for name in _IDENTITY)), None)
    if start is None:
        raise WarplensError(
            f"{source}: no CSV header with {' and '.join(_IDENTITY)}; make it with "
            f"`ncu --import R.ncu-rep --page raw --csv`"
        )
    rows = _table(lines[start:], source)
    wide = "Metric Name" not in (rows[0] if rows else {})
    launches = _wide(rows) if wide else _tall(rows)
    by_name: dict[str, list[dict[str, tuple[float, str]]]] = {}
    for name, metrics in launches:
        by_name.setdefault(name, []).append(metrics)
    if not by_name:
        raise WarplensError(f"{source}: no kernel in it; did ncu's filter exclude all of them?")
    return tuple(_kernel(name, metrics) for name, metrics in by_name.items())


Metrics = dict[str, tuple[float, str]]


def _table(lines: Sequence[str], source: str) -> list[dict[str, str]]:
    """The rows below a header, whose cells may be anything but must name the kernel."""
    try:
        reader = csv.DictReader(io.StringIO("\n".join(lines)))
        missing = [name for name in _IDENTITY if name not in (reader.fieldnames or ())]
        if missing:
            raise WarplensError(f"{source}: the CSV header has no column {' and no column '.join(missing)}")
        return list(reader)
    except csv.Error as error:
        raise WarplensError(f"{source}: not a CSV page of Nsight Compute: {error}") from None


def _wide(rows: Sequence[Mapping[str, str]]) -> list[tuple[str, Metrics]]:
    """Parse the raw page, whose first row holds the units."""
    units = rows[0] if rows and not (rows[0].get("ID") or "").strip() else {}
    out = []
    for row in rows[1:] if units else rows:
        # A row with more cells than the header has a list of the rest, under no name.
        numbers = {name: number_in(text) for name, text in row.items() if isinstance(text, str)}
        values = {name: (number, units.get(name) or "") for name, number in numbers.items() if number is not None}
        out.append((row["Kernel Name"] or "", values))
    return out


def _tall(rows: Sequence[Mapping[str, str]]) -> list[tuple[str, Metrics]]:
    """Parse the details page, with one row per metric. `Memory Throughput` occurs twice; the one in percent counts."""
    out: dict[tuple[str, str], Metrics] = {}
    for row in rows:
        name, unit = row.get("Metric Name") or "", row.get("Metric Unit") or ""
        number = number_in(row.get("Metric Value"))
        metrics = out.setdefault((row["ID"] or "", row["Kernel Name"] or ""), {})
        if name and number is not None and not (name in metrics and metrics[name][1] == "%"):
            metrics[name] = (number, unit)
    return [(key[1], metrics) for key, metrics in out.items()]


def number_in(text: str | None) -> float | None:
    """The finite number of a cell; None if it has none."""
    try:
        number = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _kernel(name: str, launches: Sequence[Metrics]) -> NcuKernel:
    def mean(names: Iterable[str]) -> float | None:
        found = [each[key][0] * _scale(each[key][1]) for each in launches for key in names if key in each]
        return sum(found) / len(found) if found else None

    shares = {key: mean(names) for key, names in _METRICS.items()}
    limits = {key: value for key, names in _LIMITS.items() if (value := mean(names)) is not None}
    read, written = mean(["dram__bytes_read.sum"]), mean(["dram__bytes_write.sum"])
    both = read + written if read is not None and written is not None else None
    total = mean(["dram__bytes.sum"])
    return NcuKernel(
        kernel=name,
        launches=len(launches),
        limiter=min(limits, key=lambda key: limits[key]) if limits else "",
        duration_ns=mean(["gpu__time_duration.sum", "Duration"]),
        dram_bytes=total if total is not None else both,
        stalls=_stalls(launches),
        sectors=_sectors(mean),
        load_efficiency=_load_efficiency(mean),
        shared_conflicts=_shared_conflicts(mean),
        **{key: None if value is None else value / 100 for key, value in shares.items()},
    )


def _sectors(mean: Callable[[Iterable[str]], float | None]) -> float | None:
    """Sectors per request: its own metric, or the quotient of the two metrics that `--set full` collects."""
    ratio = mean(["l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"])
    sectors = mean(["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"])
    requests = mean(["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"])
    return sectors / requests if ratio is None and sectors is not None and requests else ratio


def _load_efficiency(mean: Callable[[Iterable[str]], float | None]) -> float | None:
    name = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld"
    share, used = mean([f"{name}.pct"]), mean([f"{name}.ratio"])
    if share is None and used is not None:
        return used / _SECTOR
    return None if share is None else share / 100


def _shared_conflicts(mean: Callable[[Iterable[str]], float | None]) -> float | None:
    conflicts = mean(["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"])
    waves = mean(["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"])
    return min(conflicts / waves, 1.0) if conflicts is not None and waves else None


def _scale(unit: str) -> float:
    return _SCALE.get(unit.split("/")[0].lower(), 1.0)


def _stalls(launches: Sequence[Metrics]) -> dict[str, float]:
    """Shares of the stalled cycles per reason; `selected` means that the warp issued, so it is no stall."""
    per_issue: dict[str, float] = {}
    sampled: dict[str, float] = {}
    for metrics in launches:
        for name, (value, _) in metrics.items():
            found = _STALL.search(name)
            if not found or "not_issued" in name:
                continue
            reason = found.group(1).strip("_ ").lower().replace(" ", "_")
            chosen = sampled if "pcsamp" in name else per_issue
            if reason != "selected":
                chosen[reason] = chosen.get(reason, 0.0) + value
    chosen = per_issue or sampled
    total = sum(chosen.values())
    ordered = sorted(chosen.items(), key=lambda item: -item[1])
    return {reason: value / total for reason, value in ordered if value > 0} if total else {}


def match_kernel(kernel: str, known: Sequence[str]) -> str | None:
    """The name among `known` of a kernel that ncu lists with its arguments and template parameters."""
    bare = base_name(kernel)
    return next((name for name in known if name == kernel or bare == base_name(name)), None if known else kernel)
