"""Which share of the blocks a trace has the records of, for launches of which only some were kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from warplens.record.aggregate_rows import AGGREGATE
from warplens.record.capture import AUTOMATIC, SAMPLED
from warplens.text import printable
from warplens.trace.schema import LaunchInfo
from warplens.wording import percent

AGGREGATED = (
    "mode='aggregate': statistics that each warp kept; counts, sums and extremes are exact, percentiles and deviations "
    "are interpolated in buckets of at most a quarter of their value, and begins are no times but a layout"
)
DERIVED = (
    "work: derived, one duration per warp: its lifetime less its outermost regions; how often the code between regions "
    "ran, and for how long each time, is not kept"
)
NOT_DERIVED = "no time of the code between regions, because regions overlap or may be open where the kernel exits"
WITHHELD = "only some blocks were recorded, and this needs all blocks of an SM; record them with --blocks all"
"""Why a finding that looks at all blocks of an SM at once is not reliable in a sample."""


def sample_share(launches: Iterable[LaunchInfo]) -> dict[str, Any] | None:
    """Recorded blocks of all launches, and the records of all their blocks that did not fit; None for a whole trace."""
    infos = list(launches)
    if not any(SAMPLED in info.extra for info in infos):
        return None
    kept = [info.extra.get(SAMPLED, {"blocks": _blocks(info), "of": _blocks(info)}) for info in infos]
    blocks, of = (sum(int(one[name]) for one in kept) for name in ("blocks", "of"))
    return {
        "blocks": blocks,
        "of": of,
        "share": blocks / of,
        "launches": sum(SAMPLED in info.extra for info in infos),
        "lost": sum(int(one.get("lost", 0)) for one in kept),
    }


def sample_line(launches: Iterable[LaunchInfo]) -> str:
    """`44 of 528 blocks recorded (8 %)`, and that the numbers are those of a sample; empty for a whole trace of
    records."""
    infos = list(launches)
    kept = _aggregated(infos)
    share = sample_share(infos)
    if share is None:
        return "\n".join(kept)
    lost = f"; {share['lost']:,} records of all blocks did not fit" if share["lost"] else ""
    sample = (
        f"sample: {blocks_text(share)}; counts, totals and durations of regions, overlap, ramp and critical path are "
        f"those of the recorded blocks{lost}"
    )
    return "\n".join([*kept, sample])


def _aggregated(infos: Iterable[LaunchInfo]) -> list[str]:
    """What mode="aggregate" means, and what it derives of the code between the regions of automatic marks."""
    known = {info.kernel: info.extra for info in infos if AGGREGATE in info.extra}
    automatic = {name: extra[AGGREGATE].get("work") for name, extra in known.items() if extra.get(AUTOMATIC)}
    unknown = [name for name, work in automatic.items() if not work]
    return [
        *[AGGREGATED] * bool(known),
        *[DERIVED] * any(automatic.values()),
        *[f"{NOT_DERIVED}: {printable(', '.join(unknown))}"] * bool(unknown),
    ]


def blocks_text(share: dict[str, Any]) -> str:
    """`44 of 528 blocks recorded (8 %)`."""
    part = percent(share["share"], 0 if share["share"] >= 0.01 else 2)
    return f"{share['blocks']:,} of {share['of']:,} blocks recorded ({part})"


def _blocks(info: LaunchInfo) -> int:
    return info.grid[0] * info.grid[1] * info.grid[2]
