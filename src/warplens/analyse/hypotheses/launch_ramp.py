"""Is the kernel so short that launching it takes as long as its work?"""

from __future__ import annotations

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, MEDIUM, Finding, Gain
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.ramp import RAMP
from warplens.record.capture import VARIANT_LAUNCHES
from warplens.wording import duration, percent

CAUSE = "launch ramp"
_LAUNCH_NS = 2_500
"""What a launch takes whose warps do nothing: 2 to 3 µs."""
_FOLLOWING_NS = 2_000
"""What a launch adds that follows another."""
_FULL_WARPS = 16
_SHORT_NS = 10_000
_MANY_LAUNCHES = 3
_MOST = 0.98


def _judge(e: Evidence) -> Finding:
    plain = e.kernel_ns * (1 - (e.cost or 0.0))
    if plain > _SHORT_NS:
        return e.refuted(CAUSE, f"the kernel takes {duration(plain)}, far longer than a launch")
    ramp = e.of(RAMP)
    launch = _LAUNCH_NS / (_LAUNCH_NS + plain)
    starting = min(ramp.to_first, 1.0)
    return e.supported(
        CAUSE,
        f"The kernel takes {duration(plain)}, {_compared(plain)} a launch itself (2 to 3 µs); {percent(starting)} of "
        "it passes before an SM is in its first useful region.",
        "Launch fewer, larger kernels: fuse this one with its neighbours, give one launch the work of many, or replay "
        "the launches from a CUDA graph.",
        _of_fusing(e, plain)
        if _is_one_of_many(e)
        else Gain.between(0.0, min(launch + (1 - launch) * (starting + 0.5), _MOST)),
        HIGH if plain < _SHORT_NS / 2 else MEDIUM,
        evidence={
            "launch_to_first_useful_ns": ramp.to_first_ns,
            "launch_share": launch,
            "prologue_share": ramp.prologue,
        },
        refuted_by="One launch with ten times the work that takes ten times as long.",
    )


def _compared(plain: float) -> str:
    if plain < 0.8 * _LAUNCH_NS:
        return "less than"
    return "about as long as" if plain < 1.2 * _LAUNCH_NS else "not much more than"


def _fused(e: Evidence, plain: float) -> float:
    """What one launch with the work of many saves: their launches, and time in which few warps of an SM work."""
    return 1 - plain * min(e.warps.per_sm / _FULL_WARPS, 1.0) / (plain + _FOLLOWING_NS)


def _of_fusing(e: Evidence, plain: float) -> Gain:
    around = Gain.around(_fused(e, plain), roof=_MOST)
    return Gain.between(around.low, max(around.high, min(_at_full_speed(e, plain), _MOST)))


def _at_full_speed(e: Evidence, plain: float) -> float:
    """The same if the one launch keeps the schedulers or the memory busy, as many blocks do."""
    return 1 - plain * (1 - e.room) / (plain + _FOLLOWING_NS)


def _is_one_of_many(e: Evidence) -> bool:
    """Whether the kernel was launched often, so that there is something to fuse."""
    ran = sum(int(info.extra.get(VARIANT_LAUNCHES, 0)) for info in e.infos[:1])
    return max(ran, len(e.launches)) >= _MANY_LAUNCHES


LAUNCH_RAMP = Hypothesis(
    CAUSE,
    _judge,
    explains=frozenset(
        {
            "too few blocks",
            "last wave",
            "block turnover",
            "too little in flight",
            "low occupancy",
            "warp imbalance",
            "block imbalance",
            "cache misses",
            "unneeded barrier",
            "clock drop",
            "slow producer",
            "slow consumer",
        }
    ),
    needs_headroom=False,
)
