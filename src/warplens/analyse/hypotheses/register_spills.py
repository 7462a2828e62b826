"""Do registers spill to local memory, or does it hold arrays that are indexed by variables?"""

from __future__ import annotations

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, LOW, MEDIUM, Finding, Gain
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.wording import plural

CAUSE = "register spills"
_LARGE = 64
_MANY = 128
_CYCLES_PER_ACCESS = 100
"""What an access to local memory takes more than one to a register if the cache is full."""
_OTHERS = 0.5
_SCHEDULERS = 4


def _judge(e: Evidence) -> Finding:
    spilled = int(e.resources.get("local_bytes", 0) or e.resources.get("spills", 0) or 0)
    registers = e.resources.get("registers")
    if not spilled:
        known = {"local_bytes", "spills"} & set(e.resources)
        return e.refuted(CAUSE, "the kernel uses no local memory" if known else "nothing says that registers spill")
    accesses = local_accesses(e)
    region = max(accesses, key=lambda name: e.shares[name] * accesses[name], default=next(iter(e.warps.regions), ""))
    held = f" with {registers} registers" if registers else ""
    gain = _gain(e, accesses) if accesses else _gain_by_size(spilled, int(registers or _MANY))
    return e.supported(
        CAUSE,
        f"Each thread keeps {plural(spilled, 'byte')} in local memory{held}: registers spill, or an array is indexed "
        "by a variable. Each use goes through the L1 cache.",
        "Allow more registers (__launch_bounds__, maxnreg), keep fewer values live (smaller tiles, less unrolling), "
        "and index arrays with constants.",
        gain,
        HIGH if accesses and spilled >= _LARGE else MEDIUM if spilled >= _LARGE else LOW,
        region=region,
        evidence={
            "local_bytes": spilled,
            **({"registers": registers} if registers else {}),
            **({"local_share_of_instructions": accesses[region]} if region in accesses else {}),
        },
        refuted_by="The kernel with a higher register limit, without local memory, takes as long.",
    )


def local_accesses(e: Evidence) -> dict[str, float]:
    """For each region with accesses to local memory, their share of its instructions: in the machine code, which has
    the spills, else in the PTX."""
    found: dict[str, float] = {}
    local: float
    all_: float
    for name in e.shares:
        counts = e.machine_code.get(name)
        if counts is not None:
            local, all_ = counts.get("load.local", 0) + counts.get("store.local", 0), sum(counts.values())
        else:
            code = e.code.get(name)
            local, all_ = (code.local, code.instructions) if code else (0, 0)
        if local:
            found[name] = local / max(all_, local)
    return found


def _gain(e: Evidence, accesses: dict[str, float]) -> Gain:
    """Without them, a region takes at least the time of its other instructions.

    An access takes at least the four cycles in which the cache serves the four schedulers of an SM in turn; half of
    that may be hidden.
    """

    def lost(cycles: float) -> float:
        return sum(e.shares[name] * (1 - (1 - part) / (1 - part + cycles * part)) for name, part in accesses.items())

    high = lost(_CYCLES_PER_ACCESS)
    return Gain.between(0.5 * lost(_SCHEDULERS), high + _OTHERS * (1 - high))  # other regions share the cache


def _gain_by_size(spilled: int, registers: int) -> Gain:
    """Each value that spills is stored and loaded again, through a cache that serves a quarter of a warp at a time."""
    high = min(1 - 1 / (1 + 8 * (spilled / 4) / max(registers, 1)), 0.95)
    return Gain.between(0.1 * high, high) if spilled >= _LARGE else Gain.between(0.0, 0.2)


REGISTER_SPILLS = Hypothesis(
    CAUSE, _judge, explains=frozenset({"too little in flight", "cache misses"}), needs_timeline=False
)
