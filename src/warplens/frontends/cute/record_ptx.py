"""The PTX a kernel of the CuTe DSL records with: text only, so that it can be read and tested without the DSL.

The write position lives in PTX registers that `DECLARE` puts into the kernel's entry block; inline asm of the same
function sees them by name, so that nothing is threaded through user code. What is live beside them at a mark is the
first words of its records: marks shall cost a kernel few registers, however many there are in a loop.

Unlike in `include/warplens_ptx.h`, the sizes of the buffer are kernel parameters, so that the prologue waits for no
load, and one number says both how much room is left and how much was lost: a full track stores nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warplens.errors import UsageError
from warplens.record.launch_buffer import BUFFER, BUFFER_BYTES, FULL_MODES
from warplens.record.layout import (
    HEADER_AT,
    HEADER_BYTES,
    SLOT_BYTES,
    TRACK_MAGIC,
    TrackState,
    ValueType,
)
from warplens.record.name_table import NAMES_BYTES

DECLARE = ".reg .b32 wl_at, wl_high, wl_left, wl_mask, wl_clock, wl_word; .reg .pred wl_lead, wl_held;"
"""wl_at, wl_high: the address of the next slot (no track crosses a 4 GiB boundary); wl_left: `_FULL` and the slots that
are left. In a ring wl_at stays at the first slot, wl_left counts bytes from 0, and wl_mask wraps them. wl_held: whether
the record of a begin is not stored yet; wl_word and wl_clock: that record."""

_FULL = 0x7DFFFFFF
"""Where wl_left stands in a full track. It goes on from there to 0 and stays: what is lost is counted up to 2^31, and
no count can wrap to room that is not there. Above it is place for the most slots of a track, 2^25."""

SETTLE = "bar.warp.sync 0xffffffff;"
"""Holds a warp at the block barrier before it, which the GPU would otherwise let a clock read overtake."""

_HEAD = {name: int(BUFFER.fields[name][1]) for name in BUFFER.names}  # type: ignore[index, union-attr]


@dataclass(frozen=True)
class Leader:
    """Who records: `lane0` of each warp, or with `chosen` the first lane of a warp for which operand $2 is not 0.

    `warps` are the warps that may (None: all of them).
    """

    chosen: bool = False
    warps: tuple[int, ...] | None = None


LANE0 = Leader()


def begin(word: int, full: str) -> str:
    """The begin of a region only reads the clock; the next mark stores its record, behind its own clock read.

    A store reads its registers late, and what writes to them waits for that: here, it would be the region itself.
    """
    return f"""{{
    {_flush(full)}
    mov.b32 wl_word, {word}; setp.eq.b32 wl_held, 0, 0;
    @wl_lead mov.u32 wl_clock, %clock;
}}"""


def records(words: Sequence[str | int], full: str) -> str:
    """Records that share one clock read; each word is a record's first, a number or an operand."""
    if len(words) == 1 and full != "ring":
        return _record(words[0])
    ready = " ".join(_word(at, word, full) for at, word in enumerate(words))
    early = " ".join(f"@f{at} st.global.cs.v2.b32 [b{at}], {{w{at}, c}};" for at in range(len(words) - 1))
    return _mark(ready, early, len(words), full)


def payload(word: str | int, value: str, full: str) -> str:
    """Payload, then record. Where only one slot is left it stays empty: a lone payload could be read as a record."""
    ready = f"{_room(0, full)} {_word(1, word, full)}"
    return _mark(ready, f"@f1 st.global.cs.b64 [b0], {value};", 2, full)


_CLOCK = """mov.u32 c, %clock;
    not.pred free, wl_held; and.pred free, free, wl_lead; @free prmt.b32 wl_clock, c, c, 0x7654;"""
"""The clock is read first, into a register that no earlier store makes it wait for.

The last store of a mark is always that of wl_clock: the record of a begin that is held, else the mark's own. A begin,
which reads its clock into the same register, waits there until all stores have read theirs. The predicate of that read,
which is false in threads that do not lead, keeps ptxas from taking another register, and so does the prmt, a copy.
"""


def _record(word: str | int) -> str:
    """One record, and that of a begin before it: next to each other, they share an address."""
    return f"""{{
    .reg .b32 c, w0, w1; .reg .b64 a; .reg .pred free, f0, f1;
    {_CLOCK}
    setp.gt.s32 f0, wl_left, {_FULL}; setp.gt.and.s32 f1, wl_left, {_FULL + 1}, wl_held;
    selp.b32 w1, {word}, 0, f1; @!wl_held mov.b32 wl_word, {word}; selp.b32 w0, wl_word, 0, f0;
    mov.b64 a, {{wl_at, wl_high}};
    @f1 st.global.cs.v2.b32 [a+{SLOT_BYTES}], {{w1, c}};
    @f0 st.global.cs.v2.b32 [a], {{w0, wl_clock}};
    @f0 add.u32 wl_at, wl_at, {SLOT_BYTES}; @f1 add.u32 wl_at, wl_at, {SLOT_BYTES};
    sub.s32 wl_left, wl_left, 1; @wl_held sub.s32 wl_left, wl_left, 1; {_CLAMP}
    setp.ne.b32 wl_held, 0, 0;
}}"""


def _mark(ready: str, early: str, slots: int, full: str) -> str:
    """As many slots with one clock: the `early` stores, the last record, and the record of a begin that is held."""
    last = slots - 1
    places = " ".join(_place(f"b{at}", at, full) for at in range(slots))
    return f"""{{
    .reg .b32 c, o, {_each("w", slots)}; .reg .b64 a, {_each("b", slots)};
    .reg .pred free, held, then, {_each("f", slots)};
    {_CLOCK}
    {_room(0, full, "then")} and.pred held, then, wl_held; {_place("a", 0, full)} {_step("@wl_held", "@held", full)}
    {ready} {places}
    {early}
    and.pred then, wl_held, f{last}; @then st.global.cs.v2.b32 [b{last}], {{w{last}, c}};
    @!wl_held mov.b32 wl_word, w{last}; @!wl_held mov.b64 a, b{last}; @!wl_held mov.pred held, f{last};
    @held st.global.cs.v2.b32 [a], {{wl_word, wl_clock}};
    {" ".join(_step("", f"@f{at}", full) for at in range(slots))} {"" if full == "ring" else _CLAMP}
    setp.ne.b32 wl_held, 0, 0;
}}"""


def _each(letter: str, count: int) -> str:
    return ", ".join(f"{letter}{at}" for at in range(count))


def _flush(full: str) -> str:
    """Store the record of a begin that is still held."""
    return f"""{{
    .reg .b32 o; .reg .b64 a; .reg .pred held;
    {_room(0, full, "held")} and.pred held, held, wl_held; {_place("a", 0, full)}
    @held st.global.cs.v2.b32 [a], {{wl_word, wl_clock}};
    {_step("@wl_held", "@held", full)} {"" if full == "ring" else "@wl_held " + _CLAMP} setp.ne.b32 wl_held, 0, 0;
    }}"""


def value(word: int, kind: ValueType, full: str, *, narrow: bool) -> str:
    """Operand $0 as a payload. A `narrow` one is widened here: where the compiler saw it, it would keep both."""
    if not narrow:
        return payload(word, "$0", full)
    widen = "cvt.s64.s32" if kind is ValueType.I64 else "cvt.u64.u32"
    return f"{{\n.reg .b64 v;\n{widen} v, $0;\n{payload(word, 'v', full)}\n}}"


def anchor(word: int, full: str) -> str:
    """A record whose payload ties this warp's clock to the global timer."""
    return f"{{\n.reg .b64 ns;\nmov.u64 ns, %globaltimer;\n{payload(word, 'ns', full)}\n}}"


def _room(number: int, full: str, name: str = "") -> str:
    """f: whether this warp writes to the slot so many behind the next one."""
    name = name or f"f{number}"
    if full == "ring":
        # Never 1, but only we know: see `_word`.
        return f"setp.ne.and.b32 {name}, wl_left, 1, wl_lead;"
    return f"setp.gt.s32 {name}, wl_left, {_FULL + number};"


def _word(number: int, word: str | int, full: str) -> str:
    """w: the first word of a record, if there is room. Else ptxas would make the words of all the records in a loop
    ahead of it, and each of them would hold two registers."""
    return f"{_room(number, full)} selp.b32 w{number}, {word}, 0, f{number};"


def _place(name: str, number: int, full: str) -> str:
    """name: the address of the slot so many behind the next one."""
    step = number * SLOT_BYTES
    if full == "ring":
        low = f"add.u32 o, wl_left, {step}; and.b32 o, o, wl_mask; add.u32 o, o, wl_at;"
        return f"{low} mov.b64 {name}, {{o, wl_high}};"
    return f"mov.b64 {name}, {{wl_at, wl_high}};" + (f" add.s64 {name}, {name}, {step};" if step else "")


def _step(guard: str, written: str, full: str) -> str:
    """Go on by one slot, which is `written` or lost."""
    if full == "ring":
        return f"{guard} add.u32 wl_left, wl_left, {SLOT_BYTES};"
    return f"{written} add.u32 wl_at, wl_at, {SLOT_BYTES}; {guard} sub.s32 wl_left, wl_left, 1;"


_CLAMP = "max.s32 wl_left, wl_left, 0;"

_LOCAL = """.reg .pred p, q, s; .reg .b32 b, c, k, l, m, n, t, u, w, x, y, z; .reg .b64 a, d, e;"""

_PLACE = """
    mov.u32 t, %tid.z; mov.u32 x, %ntid.y; mov.u32 y, %tid.y; mad.lo.u32 t, t, x, y;
    mov.u32 u, %ntid.x; mov.u32 y, %tid.x; mad.lo.u32 t, t, u, y;
    mul.lo.u32 m, x, u; mov.u32 z, %ntid.z; mul.lo.u32 m, m, z; add.u32 m, m, 31; shr.u32 m, m, 5;
    shr.u32 w, t, 5; and.b32 l, t, 31;
    mov.u32 b, %ctaid.z; mov.u32 x, %nctaid.y; mov.u32 y, %ctaid.y; mad.lo.u32 b, b, x, y;
    mov.u32 x, %nctaid.x; mov.u32 y, %ctaid.x; mad.lo.u32 b, b, x, y;"""
"""b: the linear block; w: the warp; l: its lane; m: warps per block."""


def prologue(leader: Leader, full: str, *, sized: bool) -> str:
    """Find the warp's track, write its header, start its registers. Operands: address, sizes (if `sized`), leader."""
    return f"""{{
    {_LOCAL}{_PLACE}
    {_leads(leader)}
    setp.ne.and.b64 p, $0, 0, p;
    {_sizes(sized)}
    mad.lo.u32 x, b, m, w;
    setp.lt.and.u32 q, x, n, p;
    not.pred s, q; and.pred s, s, p; mov.b32 u, 1;
    @s st.global.b32 [$0+{_HEAD["refused"]}], u;
    mul.wide.u32 a, x, k; add.s64 a, a, $0; add.s64 a, a, {BUFFER_BYTES};
    mov.u32 z, %smid; {_warp_and_lane(leader)} mov.b32 t, {TRACK_MAGIC};
    @q st.global.v4.b32 [a], {{t, b, y, z}};
    {_launch_header(leader, full)}
    mov.u64 e, %globaltimer; mov.u64 d, %clock64;
    @q st.global.v2.b64 [a+{HEADER_AT["start_clock"]}], {{d, e}};
    add.s64 a, a, {HEADER_BYTES}; mov.b64 {{wl_at, wl_high}}, a;
    shl.b32 t, c, 3; add.u32 t, t, wl_at; setp.ge.and.u32 wl_lead, t, wl_at, q;
    mov.b32 wl_clock, 0; mov.b32 wl_word, 0; setp.ne.b32 wl_held, 0, 0;
    {_ring_start() if full == "ring" else f"add.u32 wl_left, c, {_FULL}; selp.b32 wl_left, wl_left, 0, wl_lead;"}
}}"""


def _sizes(sized: bool) -> str:
    """c: capacity; n: tracks; k: stride, which is a header, the slots and a spare one, in whole cache lines."""
    if not sized:
        nothing = "mov.b32 c, 0; mov.b32 n, 0; mov.b32 k, 0;"
        return f"{nothing} @p ld.global.nc.v4.b32 {{c, k, n, u}}, [$0+{_HEAD['capacity']}];"
    line = HEADER_BYTES - 1
    round_up = f"add.u32 k, k, {HEADER_BYTES + SLOT_BYTES + line}; and.b32 k, k, {~line};"
    return f"mov.b64 {{c, n}}, $1; shl.b32 k, c, 3; {round_up}"


def _leads(leader: Leader) -> str:
    """p: whether this thread records."""
    if leader.chosen:
        text = (
            "setp.ne.b32 q, $2, 0; activemask.b32 y; vote.sync.ballot.b32 z, q, y; neg.s32 y, z; and.b32 z, z, y; "
            "mov.b32 y, 1; shl.b32 y, y, l; setp.eq.b32 p, y, z;"
        )
    else:
        text = "setp.eq.b32 p, l, 0;"
    if leader.warps is not None:
        mask = sum(1 << warp for warp in leader.warps)
        text += f" mov.b64 a, {mask}; shr.b64 a, a, w; and.b64 a, a, 1; setp.ne.and.b64 p, a, 0, p;"
    return text


def _launch_header(leader: Leader, full: str) -> str:
    """The launch's shape, from the leaders of its first block; from all where that block may have none."""
    mode = FULL_MODES.index(full)
    return f"""setp.eq.and.b32 s, b, 0, q;
    @s red.global.add.u32 [$0+{_HEAD["starts"]}], 1;
    {"mov.pred s, q;" if leader.chosen else ""}
    @!s bra WL_KNOWN;
    mov.b32 u, {mode}; st.global.b32 [$0+{_HEAD["mode"]}], u;
    mov.u32 x, %nctaid.x; mov.u32 y, %nctaid.y; mov.u32 z, %nctaid.z;
    st.global.v2.b32 [$0+{_HEAD["grid"]}], {{x, y}}; st.global.b32 [$0+{_HEAD["grid"] + 8}], z;
    mov.u32 x, %ntid.x; mov.u32 y, %ntid.y; mov.u32 z, %ntid.z;
    st.global.b32 [$0+{_HEAD["block"]}], x; st.global.v2.b32 [$0+{_HEAD["block"] + 4}], {{y, z}};
WL_KNOWN:"""


def _warp_and_lane(leader: Leader) -> str:
    """y: the warp and, where it need not be 0, the lane that records."""
    return "shl.b32 y, l, 16; or.b32 y, y, w;" if leader.chosen else "mov.b32 y, w;"


def _ring_start() -> str:
    """wl_mask: the bytes of a ring, the largest power of two of slots that fits, less one slot."""
    return (
        "max.u32 c, c, 1; clz.b32 c, c; sub.u32 c, 31, c; mov.b32 wl_left, 0; "
        f"mov.b32 wl_mask, {SLOT_BYTES}; shl.b32 wl_mask, wl_mask, c; sub.u32 wl_mask, wl_mask, {SLOT_BYTES};"
    )


def epilogue(leader: Leader, full: str, names: bytes, symbol: str, *, sized: bool) -> str:
    """Write the track's exit, and the names where the host asked for them. Operands: address and sizes."""
    load = f"mov.b32 c, 0; @wl_lead ld.global.nc.b32 c, [$0+{_HEAD['capacity']}];"
    capacity = "mov.b64 {c, n}, $1;" if sized else load
    if full == "ring":
        start, written = "mov.b32 t, wl_at;", f"shr.u32 u, wl_left, {SLOT_BYTES.bit_length() - 1};"
    else:
        written = f"{capacity} add.s32 u, c, {_FULL}; sub.s32 u, u, wl_left;"
        start = "min.u32 t, u, c; shl.b32 t, t, 3; sub.u32 t, wl_at, t;"
    back = HEADER_BYTES
    return f"""{{
    {_LOCAL}
    {_flush(full)}
    {written} {start}
    mov.b64 a, {{t, wl_high}}; mov.b32 t, {int(TrackState.EXITED)};
    mov.u64 e, %globaltimer; mov.u64 d, %clock64;
    @wl_lead st.global.v2.b32 [a+{HEADER_AT["written"] - back}], {{u, t}};
    @wl_lead st.global.v2.b64 [a+{HEADER_AT["exit_clock"] - back}], {{d, e}};
    {_send_names(leader, names, symbol)}
}}"""


def _send_names(leader: Leader, names: bytes, symbol: str) -> str:
    """The kernel brings its own names, so that they are there when it comes from a cache or another process."""
    table = names + bytes(-len(names) % SLOT_BYTES)
    if len(table) > NAMES_BYTES:
        raise UsageError(f"region names and paths take {len(table)} bytes, {NAMES_BYTES} fit; use fewer names")
    words = ", ".join(str(int.from_bytes(table[at : at + 8], "little")) for at in range(0, len(table), 8))
    # The first track; asking for the block would keep its number in registers from the prologue on.
    first = f"mov.b64 {{x, y}}, $0; mov.b64 {{y, z}}, a; add.u32 x, x, {BUFFER_BYTES + HEADER_BYTES}; sub.u32 x, y, x;"
    if leader.warps is not None and 0 not in leader.warps:
        first = "mov.u32 x, %ctaid.x; mov.u32 y, %ctaid.y; mov.u32 z, %ctaid.z; or.b32 x, x, y; or.b32 x, x, z;"
    if leader.chosen:
        # Any block may be the first that has a leader; once one has sent the names, the others do not.
        first = f"mov.b32 x, 1; @wl_lead ld.volatile.global.b32 x, [$0+{_HEAD['names_size']}];"
    return f"""{first} setp.eq.and.b32 s, x, 0, wl_lead;
    mov.b64 d, 0; @s ld.global.b64 d, [$0+{_HEAD["names"]}]; setp.ne.and.b64 s, d, 0, s;
    @!s bra WL_DONE;
    .global .align 8 .b64 {symbol}[{len(table) // 8}] = {{{words}}};
    mov.b32 t, {len(table)}; st.global.b32 [$0+{_HEAD["names_size"]}], t;
    mov.u64 a, {symbol};
WL_NEXT:
    .pragma "nounroll";
    ld.global.b64 e, [a]; st.global.b64 [d], e;
    add.s64 a, a, 8; add.s64 d, d, 8; sub.u32 t, t, 8; setp.ne.b32 s, t, 0; @s bra WL_NEXT;
WL_DONE:"""
