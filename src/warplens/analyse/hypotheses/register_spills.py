"""Do registers spill to local memory, or does it hold arrays that are indexed by variables?"""

from __future__ import annotations

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, LOW, MEDIUM, Finding, Gain
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.wording import plural

CAUSE = "register spills"
_LARGE = 64
_MANY = 128
_IN_L2, _IN_MEMORY = 8, 100
"""How many times as long as another instruction an access to local memory takes, by where most of it is."""
_OFTEN = 0.25
_BYTES_PER_REGISTER = 4


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
    """Without them, a region takes the time of its other instructions.

    While the schedulers of an SM issue four instructions in a cycle, its L1 cache serves one access, the L2 cache one
    in two cycles, and the memory one in seven or more.
    """

    def lost(slower: float) -> float:
        return sum(e.shares[name] * _lost(part, slower) for name, part in accesses.items())

    return e.gain(lost(_IN_L2), lost(_IN_MEMORY))


def _lost(part: float, slower: float) -> float:
    """The share of time due to a part of the instructions that take so many times as long as the others."""
    return slower * part / (1 - part + slower * part)


def _gain_by_size(spilled: int, registers: int) -> Gain:
    """Where the accesses are not known: threads with more in local memory than in registers access it often."""
    if spilled >= _BYTES_PER_REGISTER * registers:
        return Gain.around(_lost(_OFTEN, _IN_L2), _lost(_OFTEN, _IN_MEMORY))
    high = min(1 - 1 / (1 + 8 * (spilled / _BYTES_PER_REGISTER) / max(registers, 1)), 0.95)
    return Gain.between(0.1 * high, high) if spilled >= _LARGE else Gain.between(0.0, 0.2)


REGISTER_SPILLS = Hypothesis(
    CAUSE, _judge, explains=frozenset({"too little in flight", "cache misses"}), needs_timeline=False
)
