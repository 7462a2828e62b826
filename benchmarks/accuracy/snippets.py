"""Work of known length as PTX, the same for every front end: two clock reads with the work between them.

`setup` stands once at the start of the kernel and declares registers and shared memory for the whole function, by names
that no compiler uses; it may read the address `$1`. `snippet` writes to `$0` the cycles that its own clock reads say.
With `outer`, two more clock reads stand around it, and it writes what they say beyond the inner ones: what the reads
take. `result` stands at the end and needs what the work computed, so that no compiler leaves the work out.
"""

from __future__ import annotations

from collections.abc import Callable

Code = tuple[list[str], list[str]]
"""What stands at the start of the kernel, and the work."""
_MMA = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {known_d0, known_d1, known_d2, known_d3}, "
    "{known_x, known_x, known_x, known_x}, {known_x, known_x}, {known_d0, known_d1, known_d2, known_d3};"
)


def _fma(count: int) -> Code:
    return [".reg .f32 known_v;", "mov.f32 known_v, 0f3F800000;"], [
        "fma.rn.f32 known_v, known_v, known_v, 0f3F000000;"
    ] * count


def _shared(count: int) -> Code:
    """A cell of shared memory that holds its own address."""
    before = [
        ".shared .align 4 .b32 known_cell;", ".reg .u32 known_p;", "mov.u32 known_p, known_cell;",
        "st.shared.u32 [known_p], known_p;", "bar.warp.sync 0xffffffff;",
    ]  # fmt: skip
    return before, ["ld.volatile.shared.u32 known_p, [known_p];"] * count


def _l2(count: int) -> Code:
    """A ring of pointers with as many slots as there are loads, so that each time begins where the last one did."""
    before = [".reg .u64 known_p;", "mov.u64 known_p, $1;"]
    return before, ["ld.global.cg.u64 known_p, [known_p];"] * count


def _sleep(nanoseconds: int) -> Code:
    return [], [f"nanosleep.u32 {nanoseconds};"]


def _mma(count: int) -> Code:
    before = [".reg .b32 known_x;", "mov.b32 known_x, 0;"]
    for number in range(4):
        before += [f".reg .f32 known_d{number};", f"mov.f32 known_d{number}, 0f00000000;"]
    return before, [_MMA] * count


def _bulk(size: int) -> Code:
    """One lane copies `size` bytes from global to shared memory; all wait until they are there."""
    before = [
        f".shared .align 128 .b8 known_tile[{size}];", ".shared .align 8 .b64 known_full;", ".reg .u64 known_from;",
        ".reg .u32 known_to, known_bar, known_lane, known_phase;", ".reg .pred known_first, known_done;",
        "mov.u64 known_from, $1;", "mov.u32 known_to, known_tile;", "mov.u32 known_bar, known_full;",
        "mov.u32 known_lane, %laneid;", "mov.u32 known_phase, 0;", "setp.eq.u32 known_first, known_lane, 0;",
        "@known_first mbarrier.init.shared::cta.b64 [known_bar], 1;", "fence.mbarrier_init.release.cluster;",
        "bar.warp.sync 0xffffffff;",
    ]  # fmt: skip
    work = [
        f"@known_first mbarrier.arrive.expect_tx.shared::cta.b64 _, [known_bar], {size};",
        "@known_first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[known_to], [known_from], {size}, [known_bar];",
        "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 known_done, [known_bar], known_phase;",
        "@!known_done bra AGAIN;",
        "xor.b32 known_phase, known_phase, 1;",
    ]
    return before, work


WORKS: dict[str, Callable[[int], Code]] = {
    "fma": _fma, "shared": _shared, "l2": _l2, "sleep": _sleep, "mma": _mma, "bulk": _bulk,
}  # fmt: skip
AMOUNTS = {
    "fma": (64, 256), "shared": (16, 64), "l2": (16, 64), "sleep": (1000, 10000), "mma": (16, 64),
    "bulk": (4096, 16384),
}  # fmt: skip
INTERPRETED = ("fma", "shared", "l2")
"""Works that the interpreter can run."""


_ARRIVED = {
    "fma": "setp.ne.f32 there, known_v, 0f40400000;", "mma": "setp.ne.f32 there, known_d0, 0f40400000;",
    "shared": "setp.ne.u32 there, known_p, 3;", "l2": "setp.ne.u64 there, known_p, 3;",
}  # fmt: skip
"""What the second clock read depends on: it waits until the work's last result is there, which is never 3."""


def setup(work: str, amount: int) -> str:
    """Return the PTX for the start of the kernel; it sets `$0` to zero."""
    before, _ = WORKS[work](amount)
    return "\n".join([*before, "mov.u64 $0, 0;"])


def snippet(work: str, amount: int, *, outer: bool = False) -> str:
    """Return the PTX of the work, in braces: its labels are its own."""
    _, work_lines = WORKS[work](amount)
    arrived = _ARRIVED.get(work, "setp.ne.u32 there, 1, 0;")
    inner = ["mov.u64 a, %clock64;", *work_lines, arrived, "@there mov.u64 b, %clock64;", "sub.s64 $0, b, a;"]
    if outer:
        # Unrolled, one copy's inner read would wait until the store behind the copy before it has read its registers.
        inner = [
            '.pragma "nounroll";',
            "mov.u64 c, %clock64;",
            *inner,
            "mov.u64 d, %clock64;",
            "sub.s64 d, d, c;",
            "sub.s64 $0, d, $0;",
        ]
    return "\n".join(["{", ".reg .u64 a, b, c, d;", ".reg .pred there;", "mov.u64 b, 0;", *inner, "}"])


_RESULTS = {"fma": "mov.b32 x, known_v;", "mma": "mov.b32 x, known_d0;", "shared": "mov.b32 x, known_p;",
            "l2": "cvt.u32.u64 x, known_p;"}  # fmt: skip


def result(work: str) -> str:
    """Return PTX that sets `$0` to something that the work computed."""
    return "\n".join(["{", ".reg .b32 x;", _RESULTS.get(work, "mov.b32 x, 0;"), "cvt.u64.u32 $0, x;", "}"])


def as_macro(name: str, text: str) -> str:
    """Return a line that defines PTX with `$0` and `$1` as a string for CUDA's inline assembly."""
    escaped = text.replace("%", "%%").replace("$", "%").replace('"', '\\"').replace("\n", "\\n")
    return f'#define {name} "{escaped}"\n'


def texts(work: str, amount: int) -> dict[str, str]:
    """Return all PTX of a kernel, by the names that the kernels give it."""
    return {
        "SETUP": setup(work, amount), "INSIDE": snippet(work, amount), "AROUND": snippet(work, amount, outer=True),
        "RESULT": result(work),
    }  # fmt: skip
