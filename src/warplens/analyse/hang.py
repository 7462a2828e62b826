"""Kernels that did not end: which warps of which blocks are where, what they wait for, and who has not arrived."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from warplens.analyse.finding import HIGH, Finding
from warplens.analyse.missing_arrivals import BarrierHistory, UnfinishedWait
from warplens.analyse.running_warps import LaunchRows, RunningWarp, running_warps
from warplens.record.running_tracks import HangRecord, pack_tracks
from warplens.trace.barrier_rows import NO_RECORD
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo
from warplens.wording import duration, integer, number_ranges, plural

KIND = "hang"
_MOST_GROUPS = 12
_OVERDUE, _OVERDUE_NS = 10, 100_000_000
"""Warps that have been in a place for so many times as long as half of the others there, and for at least so long, are
a group of their own."""
_ADVICE = "Look at the first group: the others wait, or do the same."


@dataclass(frozen=True)
class WarpGroup:
    """Warps that are in the same place. `warps` is as in `HangRecord.running`; times are how long ago in ns.

    `wanted` says that other warps wait for the arrival of some of these, and `overdue` that they have been there for
    much longer than other warps that are in the same place.
    """

    warps: Mapping[str, str]
    count: int
    regions: tuple[str, ...] = ()
    after: str = ""
    location: str = ""
    since_ns: tuple[int, int] | None = None
    wait: UnfinishedWait | None = None
    ended_missing: tuple[int, ...] = ()
    """Of the warps that have not arrived at the barrier, those that have ended in every block of the group."""
    value_of: str = ""
    values: tuple[float, float] = (0.0, 0.0)
    wanted: bool = False
    overdue: bool = False


@dataclass(frozen=True)
class Hang:
    """One launch that did not end, and its warps in groups: those that others wait for first, then those that have been
    in their place for much longer than others, then the largest."""

    kernel: str
    launch: int
    rank: int
    record: HangRecord
    groups: tuple[WarpGroup, ...] = field(default=())

    @property
    def running(self) -> int:
        """Warps that had begun and not ended."""
        return sum(group.count for group in self.groups)

    def to_json(self) -> dict[str, Any]:
        groups = [asdict(group) | {"text": group_line(group)} for group in self.groups]
        own = {"kernel": self.kernel, "launch": self.launch, "rank": self.rank, "running_warps": self.running}
        return {**own, "summary": summary_line(self), **self.record.to_json(), "groups": groups}


def hangs(trace: Trace) -> tuple[Hang, ...]:
    """Every launch of a trace whose records were copied while its kernel still ran."""
    return tuple(_hang(trace, info, record) for info in trace.meta.launches if (record := HangRecord.of(info.extra)))


def has_hangs(launches: Iterable[LaunchInfo]) -> bool:
    return any(HangRecord.of(info.extra) for info in launches)


def _hang(trace: Trace, info: LaunchInfo, record: HangRecord) -> Hang:
    rows = LaunchRows(trace, info)
    states = running_warps(rows, record)
    x, y, z = info.block
    history = BarrierHistory(rows, -(-x * y * z // 32), _barrier_rows_of_kernel(trace, info.kernel))
    waits = [history.wait(one.wait_row) if one.wait_row >= 0 else None for one in states]
    now = record.now_ns - trace.meta.origin_ns
    running = {(one.block, one.warp) for one in states}
    wanted = {
        (one.block, warp) for one, wait in zip(states, waits, strict=True) if wait is not None for warp in wait.missing
    }
    groups: dict[tuple[Any, ...], list[RunningWarp]] = {}
    for one, wait in zip(states, waits, strict=True):
        # Groups that wait for no particular warp are told apart by whether others wait for them.
        sought = (one.block, one.warp) in wanted
        ended = tuple(warp for warp in wait.missing if (one.block, warp) not in running) if wait else ()
        groups.setdefault((one.regions, one.after, one.value_of, wait, ended, sought), []).append(one)
    locations = trace.meta.locations_of(info.kernel)
    made = [
        _group(key, part, locations, now, overdue)
        for key, some in groups.items()
        for overdue, part in enumerate(_by_age(some, now))
        if part
    ]
    made.sort(key=lambda group: (not group.wanted, not group.overdue, -group.count))
    return Hang(info.kernel, info.launch, info.rank, record, tuple(made))


def _barrier_rows_of_kernel(trace: Trace, kernel: str) -> Any:
    codes, names = trace.codes("kernel")
    if kernel not in names:
        return np.empty(0, np.int64)
    mine = (codes == names.index(kernel)) & (trace.numpy("released_by") != NO_RECORD)
    return np.flatnonzero(mine & trace.of_kind("value"))


def _by_age(some: Sequence[RunningWarp], now: int) -> tuple[list[RunningWarp], list[RunningWarp]]:
    """Warps in the same place, and those of them that have been there for much longer."""
    ages = np.array([0 if one.since_ns is None else now - one.since_ns for one in some])
    old = (ages > _OVERDUE * np.median(ages)) & (ages > _OVERDUE_NS)
    young, overdue = ([some[at] for at in np.flatnonzero(old == wanted).tolist()] for wanted in (False, True))
    return young, overdue


def _group(
    key: tuple[Any, ...], some: Sequence[RunningWarp], locations: Mapping[str, str], now: int, overdue: int
) -> WarpGroup:
    regions, after, value_of, wait, ended, sought = key
    since = [max(now - one.since_ns, 0) for one in some if one.since_ns is not None]
    values = [one.value for one in some]
    return WarpGroup(
        warps=pack_tracks((one.block, one.warp) for one in some),
        count=len(some),
        regions=regions,
        after=after,
        location=locations.get(regions[-1] if regions else after, ""),
        since_ns=(min(since), max(since)) if since else None,
        wait=wait,
        ended_missing=ended,
        value_of=value_of,
        values=(min(values), max(values)),
        wanted=sought,
        overdue=bool(overdue),
    )


def summary_line(hang: Hang) -> str:
    """One sentence: which kernel, and how much of it still ran."""
    record = hang.record
    waited = f" after {record.waited_s:.1f} s" if record.cause == "watch" else f" before {record.cause or 'the copy'}"
    begun = hang.running + record.ended
    if not begun:
        rest = "none of its recorded warps has started: something before it on its stream did not end"
    else:
        parts = [f"{plural(hang.running, 'warp')} of {begun + record.unstarted:,} still running"]
        parts += [f"{record.ended:,} ended"] if record.ended else []
        parts += [f"{record.unstarted:,} not started"] if record.unstarted else []
        rest = ", ".join(parts)
    return f"{hang.kernel} (launch {hang.launch}) did not end{waited}: {rest}"


def group_line(group: WarpGroup) -> str:
    """Which warps, where, since when, and what they wait for."""
    parts = [f"{where_text(group)}{_since(group)}"]
    if group.wait is not None:
        parts.append(_barrier(group.wait, group.ended_missing))
    if group.value_of:
        low, high = (integer(v) if v == int(v) else f"{v:.6g}" for v in _finite(group.values))
        parts.append(f"last value `{group.value_of}` = {low if low == high else f'{low} to {high}'}")
    if group.wanted:
        parts.append("others wait for it")
    return f"{_warps(group.warps)}: {'; '.join(parts)}"


def hang_lines(hang: Hang) -> list[str]:
    """The summary, and a line for each group of warps."""
    rest = len(hang.groups) - _MOST_GROUPS
    return [
        summary_line(hang),
        *(f"  {group_line(group)}" for group in hang.groups[:_MOST_GROUPS]),
        *([f"  and {plural(rest, 'more group')} of warps"] if rest > 0 else []),
    ]


def hang_findings(found: Sequence[Hang], job: str = "") -> list[Finding]:
    """One finding for each launch that did not end; `job` says what the other ranks do."""
    out = []
    for hang in found:
        first = hang.groups[0] if hang.groups else None
        out.append(
            Finding(
                KIND,
                f"This kernel did not end. {summary_line(hang)}."
                + (f" {group_line(first)}." if first is not None else "")
                + job,
                _ADVICE if len(hang.groups) > 1 else "Find out why the condition that ends this region never holds.",
                hang.kernel,
                confidence=HIGH,
                refuted_by="A longer --watch in which the kernel ends.",
                evidence={"running_warps": hang.running, "ended": hang.record.ended, "groups": len(hang.groups)},
                region=first.regions[-1] if first is not None and first.regions else "",
                line=first.location if first is not None else "",
                urgent=True,
            )
        )
    return out


def _finite(values: tuple[float, float]) -> tuple[float, ...]:
    return tuple(value if np.isfinite(value) and abs(value) < 1 << 53 else 0.0 for value in values)


def _warps(warps: Mapping[str, str]) -> str:
    texts = []
    for numbers, blocks in warps.items():
        several = "," in blocks or "-" in blocks
        warp = "warps" if "," in numbers or "-" in numbers else "warp"
        texts.append(f"{warp} {numbers} of {'blocks' if several else 'block'} {_shortened(blocks)}")
    more = len(texts) - 4
    return ", ".join(texts[:4]) + (f" and {plural(more, 'more set')} of blocks" if more > 0 else "")


def _shortened(ranges: str, most: int = 8) -> str:
    parts = ranges.split(", ")
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more ranges" if len(parts) > most else "")


def where_text(group: WarpGroup) -> str:
    """The innermost region with its line and those around it, or what came last."""
    place = f" ({group.location})" if group.location else ""
    if group.regions:
        around = f" inside `{'` > `'.join(group.regions[:-1])}`" if len(group.regions) > 1 else ""
        return f"in `{group.regions[-1]}`{place}{around}"
    if group.after:
        return f"outside all regions, after `{group.after}`{place}"
    return "no record since their start" if group.count > 1 else "no record since its start"


def _since(group: WarpGroup) -> str:
    if group.since_ns is None:
        return ""
    low, high = map(duration, group.since_ns)
    return f" for {low}" if low == high else f" for {low} to {high}"


def _barrier(wait: UnfinishedWait, ended: Sequence[int]) -> str:
    name = {
        "mbarrier": f"barrier {wait.barrier:#x}" + (f" phase {wait.phase}" if wait.phase >= 0 else ""),
        "named": f"named barrier {wait.barrier}",
        "cluster": "cluster barrier",
    }[wait.kind]
    waiting = [warp for warp in wait.missing if warp not in ended]
    texts = []
    if waiting:
        texts.append(f"{_named(waiting)} not arrived")
    if ended:
        texts.append(f"{_named(ended)} ended without arriving")
    if not texts and wait.remote:
        texts.append("an arrival from another block of the cluster is missing")
    elif not texts and not wait.arrivers:
        texts.append("no arrival at it was recorded")
    elif not texts:
        texts.append(
            "all warps that arrive there have arrived; a copy has not completed"
            if wait.copies
            else "all warps that are known to arrive there have arrived"
        )
    return f"{name}: {', '.join(texts)}"


def _named(warps: Sequence[int]) -> str:
    return f"warp {warps[0]} has" if len(warps) == 1 else f"warps {number_ranges(warps)} have"
