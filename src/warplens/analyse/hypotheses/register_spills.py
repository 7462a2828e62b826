"""Do registers spill to local memory?"""

from __future__ import annotations

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import LOW, MEDIUM, Finding, Gain
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.wording import plural

CAUSE = "register spills"
_LARGE = 64
_MANY = 128


def _judge(e: Evidence) -> Finding:
    spilled = int(e.resources.get("local_bytes", 0) or e.resources.get("spills", 0) or 0)
    registers = e.resources.get("registers")
    if not spilled:
        known = {"local_bytes", "spills"} & set(e.resources)
        return e.refuted(CAUSE, "the kernel uses no local memory" if known else "nothing says that registers spill")
    region = next(iter(e.warps.regions), "")
    held = f" with {registers} registers" if registers else ""
    high = min(1 - 1 / (1 + 8 * (spilled / 4) / max(int(registers or _MANY), 1)), 0.95)
    return e.supported(
        CAUSE,
        f"Each thread keeps {plural(spilled, 'byte')} in local memory{held}: registers spill, or an array is indexed "
        "by a variable. Each use goes through the L1 cache.",
        "Allow more registers (__launch_bounds__, maxnreg), keep fewer values live (smaller tiles, less unrolling), "
        "and index arrays with constants.",
        # Each value that spills is stored and loaded again, through a cache that serves a quarter of a warp at a time.
        Gain.between(0.1 * high, high) if spilled >= _LARGE else Gain.between(0.0, 0.2),
        MEDIUM if spilled >= _LARGE else LOW,
        region=region,
        evidence={"local_bytes": spilled, **({"registers": registers} if registers else {})},
        refuted_by="The kernel with a higher register limit, without local memory, takes as long.",
    )


REGISTER_SPILLS = Hypothesis(
    CAUSE, _judge, explains=frozenset({"too little in flight", "cache misses"}), needs_timeline=False
)
