"""Work of known length as PTX, the same for every front end: two clock reads with the work between them.

A snippet writes to `{out}` the cycles that its own clock reads say, and may read memory at `{at}`. With `outer`, two
more clock reads stand around it, and it writes what they say beyond the inner ones: what the reads take themselves.
"""

from __future__ import annotations

from collections.abc import Callable

BULK_BYTES = (4096, 16384)
_MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d0,d1,d2,d3}, {x0,x1,x2,x3}, {y0,y1}, {d0,d1,d2,d3};"
_RING = (".shared .align 4 .b32 cell;", ".reg .u32 p, q;", "mov.u32 p, cell;", "st.shared.u32 [p], p;",
         "bar.warp.sync 0xffffffff;", "mov.u32 q, 0;")  # fmt: skip
_MMA_INPUTS = (
    ".reg .b32 x0, x1, x2, x3, y0, y1;", ".reg .f32 d0, d1, d2, d3;",
    *(f"mov.b32 {name}, 0;" for name in ("x0", "x1", "x2", "x3", "y0", "y1")),
    *(f"mov.f32 d{i}, 0f00000000;" for i in range(4)),
)  # fmt: skip


def _fma(count: int) -> tuple[list[str], list[str]]:
    return [".reg .f32 v;", "mov.f32 v, 0f3F800000;"], ["fma.rn.f32 v, v, v, 0f3F000000;"] * count


def _shared(count: int) -> tuple[list[str], list[str]]:
    return [*_RING], ["ld.volatile.shared.u32 p, [p];"] * count + ["xor.b32 p, p, q;"]


def _l2(count: int) -> tuple[list[str], list[str]]:
    before = [".reg .u64 p, q;", "mov.u64 p, {at};", "mov.u64 q, 0;"]
    return before, ["ld.global.cg.u64 p, [p];"] * count + ["xor.b64 p, p, q;"]


def _sleep(nanoseconds: int) -> tuple[list[str], list[str]]:
    return [], [f"nanosleep.u32 {nanoseconds};"]


def _mma(count: int) -> tuple[list[str], list[str]]:
    # The sum of the results must be there before the second clock read.
    return [*_MMA_INPUTS], [_MMA] * count + ["add.f32 d0, d0, d1;"]


def _bulk(size: int) -> tuple[list[str], list[str]]:
    """One lane copies `size` bytes from global to shared memory; all wait until they are there."""
    before = [
        f".shared .align 128 .b8 tile[{size}];", ".shared .align 8 .b64 full;",
        ".reg .u32 to, bar, lane;", ".reg .pred first, done;", ".reg .b64 token;",
        "mov.u32 to, tile;", "mov.u32 bar, full;", "mov.u32 lane, %laneid;", "setp.eq.u32 first, lane, 0;",
        "@first mbarrier.init.shared::cta.b64 [bar], 1;", "fence.mbarrier_init.release.cluster;",
        "bar.warp.sync 0xffffffff;",
    ]  # fmt: skip
    work = [
        f"@first mbarrier.arrive.expect_tx.shared::cta.b64 token, [bar], {size};",
        "@first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to], [{at}], " + f"{size}, [bar];",
        "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [bar], 0;",
        "@!done bra AGAIN;",
    ]
    return before, work


_AFTER = {"bulk": ("bar.warp.sync 0xffffffff;", "@first mbarrier.inval.shared::cta.b64 [bar];")}
WORKS: dict[str, Callable[[int], tuple[list[str], list[str]]]] = {
    "fma": _fma, "shared": _shared, "l2": _l2, "sleep": _sleep, "mma": _mma, "bulk": _bulk,
}  # fmt: skip
AMOUNTS = {
    "fma": (64, 256, 1024), "shared": (16, 64, 256), "l2": (16, 64), "sleep": (1000, 10000), "mma": (16, 64, 256),
    "bulk": BULK_BYTES,
}  # fmt: skip
INTERPRETED = ("fma", "shared", "l2")
"""Works that the interpreter can run."""


def snippet(work: str, amount: int, *, outer: bool = False, out: str = "$0", at: str = "$1") -> str:
    """Return the PTX, in braces: its labels and registers are its own."""
    before, inside = WORKS[work](amount)
    around = ["mov.u64 a0, %clock64;"], ["mov.u64 b0, %clock64;", "sub.s64 a0, b0, a0;"]
    difference = ["sub.s64 a0, a0, a;", f"mov.u64 {out}, a0;"] if outer else [f"mov.u64 {out}, a;"]
    lines = [
        ".reg .u64 a, b, a0, b0;",
        *before,
        *(around[0] if outer else ()),
        "mov.u64 a, %clock64;",
        *inside,
        "mov.u64 b, %clock64;",
        "sub.s64 a, b, a;",
        *(around[1] if outer else ()),
        *_AFTER.get(work, ()),
        *difference,
    ]
    return "{\n" + "\n".join(line.replace("{at}", at) for line in lines) + "\n}"


def as_macro(name: str, text: str) -> str:
    """Return a line that defines PTX with `$0` and `$1` as a string for CUDA's inline assembly."""
    escaped = text.replace("%", "%%").replace("$", "%").replace("\n", "\\n")
    return f'#define {name} "{escaped}"\n'
