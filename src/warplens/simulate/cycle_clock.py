"""The deterministic clock: the cost of each instruction, the latency of loads, and the value of `%globaltimer`.

Warps do not compete for issue slots or bandwidth, so the numbers are plausible, repeatable and monotonic, but not a
prediction. A load costs its issue, and the warp stalls where the value is first used (or at the end of the basic
block). As on the GPU, a mark right after a load therefore does not include its latency.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.errors import UsageError
from warplens.simulate.numeric import Array

TIMER_STEP_NS = 32
_BOOT_NS = 10**14


@dataclass(frozen=True)
class CycleClock:
    """A simulated device: its SMs, the blocks per SM, and its clocks.

    `changes` are ascending (cycle, MHz) pairs: from that cycle of the launch on, the SM clock runs at that speed, as a
    GPU's does when it heats up. For a second launch, pass a `start_ns` after the first one's `end_ns`.
    """

    sms: int = 8
    blocks_per_sm: int = 2
    mhz: float = 1755.0
    start_ns: int = 1_763_164_801_000_000_000
    seed: int = 0
    changes: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        for name in ("sms", "blocks_per_sm"):
            if getattr(self, name) < 1:
                raise UsageError(f"CycleClock({name}={getattr(self, name)}): must be at least 1")
        speeds = (self.mhz, *(mhz for _, mhz in self.changes))
        if not min(speeds) > 0:
            raise UsageError(f"CycleClock(mhz={min(speeds)}): must be above 0")
        if sorted(self.changes) != list(self.changes):
            raise UsageError(f"CycleClock(changes={self.changes}): cycles must ascend")

    def offset(self, sm: Array) -> Array:
        """`%clock64` of each SM at cycle 0 of the launch: millions of cycles apart, as on a real GPU.

        It increases with `start_ns`, so that an SM's clock continues from launch to launch.
        """
        since_boot = self.start_ns % _BOOT_NS * round(self.mhz * 1000) // 1_000_000
        apart = mix(sm.astype(np.uint64) + np.uint64(self.seed * 7919)) % np.uint64(3_400_000)
        return since_boot + apart.astype(np.int64)

    def nanoseconds(self, cycles: Array) -> Array:
        """`%globaltimer` at `cycles` after the launch, in steps of 32 ns."""
        passed = cycles * (1000.0 / self.mhz)
        before = self.mhz
        for cycle, mhz in self.changes:
            passed = passed + np.maximum(cycles - cycle, 0) * (1000.0 / mhz - 1000.0 / before)
            before = mhz
        return (passed.astype(np.int64) + self.start_ns) // TIMER_STEP_NS * TIMER_STEP_NS

    def global_latency(self, warp: Array, load: Array) -> Array:
        """Cycles until a global load returns: three in four hit L2 (220 to 283), the rest go to DRAM (400 to 655)."""
        draw = mix(warp * np.uint64(0x9E3779B97F4A7C15) + load + np.uint64(self.seed))
        near = 220 + (draw >> np.uint64(8) & np.uint64(63))
        far = 400 + (draw >> np.uint64(8) & np.uint64(255))
        return np.where(draw & np.uint64(3), near, far).astype(np.int64)


SHARED_LATENCY = 23
ATOMIC_SHARED_LATENCY = 60
CONSTANT_LATENCY = 8
BARRIER_CYCLES = 20

_COST = {
    "mov": 2, "add": 4, "sub": 4, "mul": 4, "mad": 4, "fma": 4, "and": 2, "or": 2, "xor": 2, "not": 2, "shl": 2,
    "shr": 2, "shf": 2, "lop3": 2, "setp": 4, "selp": 2, "min": 4, "max": 4, "abs": 2, "neg": 2, "cvt": 4, "prmt": 4,
    "div": 40, "rem": 40, "sqrt": 16, "rsqrt": 16, "rcp": 16, "ex2": 16, "lg2": 16, "sin": 16, "cos": 16, "tanh": 16,
    "popc": 8, "clz": 8, "brev": 8, "bfind": 8, "bra": 6, "brx": 12, "ret": 4, "exit": 4, "call": 8, "ld": 4, "ldu": 4,
    "st": 4, "atom": 8, "red": 4, "shfl": 24, "vote": 12, "match": 24, "redux": 24, "elect": 8, "activemask": 8,
    "mma": 32, "ldmatrix": 8, "stmatrix": 8, "cp": 8, "membar": 30, "fence": 30, "bar": BARRIER_CYCLES,
    "barrier": BARRIER_CYCLES,
}  # fmt: skip


def issue_cycles(opcode: str, modifiers: tuple[str, ...]) -> int:
    """The cycles that a warp takes to issue one instruction."""
    if opcode == "bar" and "warp" in modifiers:
        return 2
    cost = _COST.get(opcode, 4)
    if "f64" in modifiers and cost == 4 and opcode not in ("ld", "st"):
        return 16
    return cost


def mix(value: Array) -> Array:
    """A 64-bit hash of each element (splitmix64's finaliser)."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: Array = value ^ (value >> np.uint64(31))
    return result
