"""The LLVM IR that finds a wave's track, writes its header, and stores records into it.

The layout is that of record/layout.py, and the pointer carries log2(stride) in its low six bits, as in PTX
(weave/track_ptx.py). The track is a raw buffer of its own, so the hardware drops a store beyond its end: a full track
needs no branch, and neither does a lane that does not record, whose offset lies beyond every track. Triton masks its
own stores the same way. All that lives between marks is uniform: a descriptor, an offset and a lane mask, in scalar
registers.

The offset of the next record is a value that each record replaces (weave/amd/offset_values.py). It stops just below the
offset of the lanes that do not record.
"""

from __future__ import annotations

from warplens.record.layout import HEADER_AT, HEADER_BYTES, SLOT_BYTES, TRACK_MAGIC, TrackState
from warplens.weave.amd.gpu_traits import TIMER_NS, GpuTraits
from warplens.weave.weaving import MAX_SHIFT, MIN_SHIFT, SHIFT_MASK

_BEYOND = -(1 << 31)
"""The offset, as a signed number, of a store that must not happen."""
_LAST_OFFSET = (1 << 31) - SLOT_BYTES
_STORE = "llvm.amdgcn.raw.ptr.buffer.store"

DECLARATIONS = {
    "llvm.amdgcn.sched.barrier": "declare void @llvm.amdgcn.sched.barrier(i32 immarg)",
    "llvm.readcyclecounter": "declare i64 @llvm.readcyclecounter()",
    "llvm.readsteadycounter": "declare i64 @llvm.readsteadycounter()",
    "llvm.amdgcn.s.getreg": "declare i32 @llvm.amdgcn.s.getreg(i32 immarg)",
    "llvm.amdgcn.readfirstlane.i32": "declare i32 @llvm.amdgcn.readfirstlane.i32(i32)",
    "llvm.amdgcn.workitem.id.x": "declare i32 @llvm.amdgcn.workitem.id.x()",
    **{f"llvm.amdgcn.workgroup.id.{axis}": f"declare i32 @llvm.amdgcn.workgroup.id.{axis}()" for axis in "xyz"},
    "llvm.amdgcn.implicitarg.ptr": "declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()",
    "llvm.umin.i32": "declare i32 @llvm.umin.i32(i32, i32)",
    "llvm.amdgcn.make.buffer.rsrc.p8.p1": (
        "declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, i64, i32)"
    ),
    **{
        f"{_STORE}.v{n}i32": f"declare void @{_STORE}.v{n}i32(<{n} x i32>, ptr addrspace(8), i32, i32, i32 immarg)"
        for n in (2, 4)
    },
}
"""The intrinsics that woven code calls."""
NEEDED = (
    "amdgpu-no-workitem-id-x", "amdgpu-no-workgroup-id-x", "amdgpu-no-workgroup-id-y", "amdgpu-no-workgroup-id-z",
    "amdgpu-no-implicitarg-ptr",
)  # fmt: skip
"""Attributes that promise that a kernel does not read what the prologue reads."""


class TrackIr:
    """Generates the LLVM IR of one kernel's tracks, `waves` of them per block.

    With `fenced`, no instruction is scheduled from one side of a clock read to the other.
    """

    def __init__(self, traits: GpuTraits, waves: int, pointer: str, *, fenced: bool = True) -> None:
        self.traits, self.waves, self.pointer, self.fenced = traits, waves, pointer, fenced
        self._names = 0

    def prologue(self) -> list[str]:
        """Find the track, write the header, and read the start clock last, so that the prologue is not measured."""
        return [
            *self._block(),
            *self._wave(),
            *self._buffer(),
            *self._place(),
            *self._vector("%wl.head", "i32", [str(TRACK_MAGIC), "%wl.block", "%wl.wave", "%wl.sm"]),
            self._store(4, "%wl.head", "%wl.lane0"),
            *self.read_clock("%wl.start.clock"),
            *self._read_timer("%wl.start.ns"),
            *self._store_pair("%wl.start", "start_clock"),
        ]

    def epilogue(self, offset: str) -> list[str]:
        """Read the exit clock first, then write the rest of the header. `offset` is that of the next record."""
        name = self._new()
        return [
            *self.read_clock(f"{name}.clock"),
            *self._read_timer(f"{name}.ns"),
            f"{name}.bytes = sub i32 {offset}, {HEADER_BYTES}",
            f"{name}.written = lshr i32 {name}.bytes, {SLOT_BYTES.bit_length() - 1}",
            *self._vector(f"{name}.state", "i32", [f"{name}.written", str(int(TrackState.EXITED))]),
            f"{name}.at = add i32 %wl.lane0, {HEADER_AT['written']}",
            self._store(2, f"{name}.state", f"{name}.at"),
            *self._store_pair(name, "exit_clock"),
        ]

    def read_clock(self, name: str) -> list[str]:
        """The clock, 64 bits wide."""
        fence = ["call void @llvm.amdgcn.sched.barrier(i32 0)"] if self.fenced else []
        return [*fence, f"{name} = call i64 @llvm.readcyclecounter()", *fence]

    def record(self, offset: str, word: str, clock: str, payload: str = "") -> tuple[str, list[str]]:
        """Store a record and, in the slot before it, its payload: both of them or none. Return the next offset too."""
        name = self._new()
        slots = 2 if payload else 1
        end = slots * SLOT_BYTES
        lines = [
            f"{name}.low = trunc i64 {clock} to i32",
            f"{name}.next = add i32 {offset}, {end}",
            f"{name}.offset = call i32 @llvm.umin.i32(i32 {name}.next, i32 {_LAST_OFFSET})",
        ]
        words = [word, f"{name}.low"]
        lead = "%wl.lead"
        if payload:
            words = [f"{name}.payload.low", f"{name}.payload.high", *words]
            lead = f"{name}.stores"
            lines += [
                f"{name}.payload.low = trunc i64 {payload} to i32",
                f"{name}.payload.upper = lshr i64 {payload}, 32",
                f"{name}.payload.high = trunc i64 {name}.payload.upper to i32",
                f"{name}.fits = icmp ule i32 {name}.next, %wl.size",
                f"{name}.stores = and i1 {name}.fits, %wl.lead",
            ]
        lines += [
            f"{name}.at = select i1 {lead}, i32 {offset}, i32 {_BEYOND}",
            *self._vector(f"{name}.words", "i32", words),
            self._store(2 * slots, f"{name}.words", f"{name}.at"),
        ]
        return f"{name}.offset", lines

    def timer(self) -> tuple[str, list[str]]:
        """The real time in ns, for an anchor."""
        name = self._new() + ".ns"
        return name, self._read_timer(name)

    def _new(self) -> str:
        self._names += 1
        return f"%wl.{self._names}"

    def _block(self) -> list[str]:
        """The linear block index. The grid is in the arguments that the runtime adds to those of the kernel."""
        lines = [f"%wl.block.{axis} = call i32 @llvm.amdgcn.workgroup.id.{axis}()" for axis in "xyz"]
        return [
            *lines,
            "%wl.implicit = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()",
            "%wl.implicit.y = getelementptr i8, ptr addrspace(4) %wl.implicit, i64 4",
            "%wl.grid.x = load i32, ptr addrspace(4) %wl.implicit, align 4",
            "%wl.grid.y = load i32, ptr addrspace(4) %wl.implicit.y, align 4",
            "%wl.block.zy = mul i32 %wl.block.z, %wl.grid.y",
            "%wl.block.row = add i32 %wl.block.zy, %wl.block.y",
            "%wl.block.rows = mul i32 %wl.block.row, %wl.grid.x",
            "%wl.block = add i32 %wl.block.rows, %wl.block.x",
        ]

    def _wave(self) -> list[str]:
        """The wave of the block, and whether this lane records."""
        shift = self.traits.lanes.bit_length() - 1
        return [
            "%wl.thread = call i32 @llvm.amdgcn.workitem.id.x()",
            "%wl.first = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %wl.thread)",
            f"%wl.wave = lshr i32 %wl.first, {shift}",
            f"%wl.lane = and i32 %wl.thread, {self.traits.lanes - 1}",
            "%wl.lead = icmp eq i32 %wl.lane, 0",
            f"%wl.lane0 = select i1 %wl.lead, i32 0, i32 {_BEYOND}",
        ]

    def _buffer(self) -> list[str]:
        """The descriptor of the track, of no bytes where nothing is recorded."""
        return [
            f"%wl.pointer = ptrtoint ptr addrspace(1) {self.pointer} to i64",
            f"%wl.base = and i64 %wl.pointer, {~SHIFT_MASK}",
            "%wl.pointer.low = trunc i64 %wl.pointer to i32",
            f"%wl.shift.given = and i32 %wl.pointer.low, {SHIFT_MASK}",
            f"%wl.shift.above = sub i32 %wl.shift.given, {MIN_SHIFT}",
            # A null pointer, or one from another allocator, carries no log2(stride).
            f"%wl.on = icmp ule i32 %wl.shift.above, {MAX_SHIFT - MIN_SHIFT}",
            f"%wl.shift = select i1 %wl.on, i32 %wl.shift.given, i32 {MIN_SHIFT}",
            "%wl.bytes = shl i32 1, %wl.shift",
            "%wl.size = select i1 %wl.on, i32 %wl.bytes, i32 0",
            f"%wl.tracks = mul i32 %wl.block, {self.waves}",
            "%wl.track = add i32 %wl.tracks, %wl.wave",
            "%wl.track.wide = zext i32 %wl.track to i64",
            "%wl.shift.wide = zext i32 %wl.shift to i64",
            "%wl.place = shl i64 %wl.track.wide, %wl.shift.wide",
            "%wl.address = add i64 %wl.base, %wl.place",
            "%wl.memory = inttoptr i64 %wl.address to ptr addrspace(1)",
            "%wl.size.wide = zext i32 %wl.size to i64",
            "%wl.buffer = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %wl.memory, "
            f"i16 0, i64 %wl.size.wide, i32 {self.traits.flags})",
        ]

    def _place(self) -> list[str]:
        """The number of the compute unit that the wave runs on, made of the fields of the hardware's registers."""
        lines, shift, whole = list[str](), 0, "0"
        for number, field in enumerate(self.traits.place):
            last = number == len(self.traits.place) - 1
            name = "%wl.sm" if last else f"%wl.sm.{number}"
            register = self.traits.hardware_register(field)
            lines += [
                f"%wl.id.{number} = call i32 @llvm.amdgcn.s.getreg(i32 {register})",
                f"%wl.id.{number}.high = shl i32 %wl.id.{number}, {shift}",
                f"{name} = or i32 {whole}, %wl.id.{number}.high",
            ]
            shift, whole = shift + field[2], name
        return lines

    def _read_timer(self, name: str) -> list[str]:
        return [f"{name}.ticks = call i64 @llvm.readsteadycounter()", f"{name} = mul i64 {name}.ticks, {TIMER_NS}"]

    def _store_pair(self, name: str, field: str) -> list[str]:
        """Store `name.clock` and `name.ns` side by side at a field of the header."""
        return [
            *self._vector(f"{name}.pair", "i64", [f"{name}.clock", f"{name}.ns"]),
            f"{name}.words = bitcast <2 x i64> {name}.pair to <4 x i32>",
            f"{name}.place = add i32 %wl.lane0, {HEADER_AT[field]}",
            self._store(4, f"{name}.words", f"{name}.place"),
        ]

    def _vector(self, name: str, kind: str, values: list[str]) -> list[str]:
        lines, before = [], "poison"
        for at, value in enumerate(values):
            made = name if at == len(values) - 1 else f"{name}.{at}"
            lines.append(f"{made} = insertelement <{len(values)} x {kind}> {before}, {kind} {value}, i64 {at}")
            before = made
        return lines

    def _store(self, words: int, value: str, offset: str) -> str:
        return (
            f"call void @{_STORE}.v{words}i32(<{words} x i32> {value}, ptr addrspace(8) %wl.buffer, i32 {offset}, "
            "i32 0, i32 0)"
        )
