"""Weave a delay into one region of a kernel instead of records.

Each begin of the region gets a short probe: it reads a number of cycles from the kernel's parameter and spins on the
clock for that long. The number changes from launch to launch and the machine code does not, so that two launches
differ by the delay alone. A delay of 0 costs a comparison and a branch that is not taken.

All lanes that reach the begin spin together, because a warp issues one instruction for its lanes: a delay of lane 0
alone would take the warp just as long, and would be missed where lane 0 is absent. Lanes that leave the loop at
different times meet again before the region continues.

Code between two regions (code_between.py) has no begin of its own, and several such regions may start at the same end.
So each end of an outermost region notes which one it was, and the probe before the next begin, or before the exit, only
spins where the warp came from a region that this code follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.edits import NodePosition
from warplens.ptx.labels import end_with_return
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Function, PtxModule, Raw
from warplens.record.layout import Kind
from warplens.weave.code_between import OUTSIDE, CodeBetween, code_between, outermost_sites
from warplens.weave.delay_hazards import why_not
from warplens.weave.function_weaver import insert_before_exit, insert_opening
from warplens.weave.mark_sites import Outline, outline
from warplens.weave.track_ptx import AWAITED, DECLARATIONS, ZERO, text_of
from warplens.weave.weaving import AnyBuffer, ParamBuffer, Weaving
from warplens.weave.woven_ptx import Woven

STORE = "delay"
"""The name of this weaving in the place of a store policy."""
MAX_DELAY = (1 << 31) - 1
"""The most cycles of one delay: below the period of the 32-bit clock."""
REGISTERS = f"{DECLARATIONS}\n\t.reg .b32 %wl_n, %wl_f, %wl_m;"
"""What a function with a probe declares."""
CAME = "%wl_r"
"""The number of the outermost region that ended last; 0 before the first."""
_BEGINS = (Kind.BEGIN, Kind.ASYNC_BEGIN)


def weave_delay(module: PtxModule, buffer: AnyBuffer, how: Weaving) -> Woven:
    """Rewrite the kernels of `module` that have the region `how.delay`, in place. All other marks stay comments."""
    files, region = module.files, how.delay
    entries: dict[str, int] = {}
    locations: dict[int, str] = {}
    for function in module.functions:
        if function.body is None:
            continue
        end_with_return(function)
        sketch = outline(function, files)
        sites = [site for site in sketch.sites if site.mark.kind in _BEGINS and site.mark.name == region]
        code = code_between(function, sketch.sites, files) if how.between and not sites else ()
        code = tuple(one for one in code if one.name == region and {one.after, one.before} != {OUTSIDE})
        if not sites and not code:
            _declare(function)
            continue
        places = [_Place(site.position) for site in sites] or _places_between(function, sketch, code)
        _check(function, region or "", places, buffer)
        entries[function.name] = len(places)
        locations.setdefault(1, sites[0].location if sites else code[0].location)
        for number, place in enumerate(places):
            label = f"{function.name}_{number}"
            place.insert(probe(_load(function, buffer), label, place.came), label)
        sketch.edits.apply()
        _declare(function, came=bool(code))
    stores, threads = dict.fromkeys(entries, STORE), module.fixed_threads(entries)
    known = {number: place for number, place in locations.items() if place}
    woven = Woven("", {1: region or ""} if entries else {}, known, entries, threads, 0, "stop", stores)
    return woven.with_text(module.text())


@dataclass(frozen=True)
class _Place:
    """Where a probe goes: behind the begin of the region; or, in code between regions, before the mark or the exit that
    ends it, where it only spins after the regions whose numbers `came` has."""

    position: NodePosition
    came: tuple[int, ...] = ()

    def insert(self, probe: str, label: str) -> None:
        if not self.came:
            self.position.after(Raw.of(probe))
        else:
            insert_before_exit(self.position, probe, label)


def _places_between(function: Function, sketch: Outline, code: Sequence[CodeBetween]) -> list[_Place]:
    """The places before each region that the code leads to. Lets each end note which region it was."""
    numbers = {name: at for at, name in enumerate(dict.fromkeys([OUTSIDE, *(one.after for one in code)]))}
    leads: dict[str, list[int]] = {}
    for one in code:
        leads.setdefault(one.before, []).append(numbers[one.after])
    places = []
    for site in outermost_sites(ControlFlow(function), sketch.sites):
        if site.mark.kind is Kind.END:
            site.position.after(Raw.of(f"\tmov.b32 {CAME}, {numbers.get(site.mark.name, len(numbers))};"))
        elif site.mark.kind is Kind.BEGIN and site.mark.name in leads:
            places.append(_Place(site.position, tuple(leads[site.mark.name])))
    return places + [_Place(position, tuple(leads[OUTSIDE])) for position in sketch.exits if OUTSIDE in leads]


def probe(load: str, label: str, came: Sequence[int] = ()) -> str:
    """PTX that spins for as many cycles as `load` puts into the low half of %wl_b; `label` makes its labels unique.
    With `came`, only after the regions with these numbers."""
    others = [
        f"setp.ne{'.and' if at else ''}.u32 %wl_q, {CAME}, {number}{', %wl_q' if at else ''};"
        for at, number in enumerate(came)
    ]
    return text_of([
        load,
        "cvt.u32.u64 %wl_n, %wl_b; setp.eq.u32 %wl_p, %wl_n, 0;",
        *[*others, "or.pred %wl_p, %wl_p, %wl_q;"] * bool(came),
        f"@%wl_p bra $wl_past_{label};",
        "activemask.b32 %wl_m;",
        "mov.u32 %wl_f, %clock;",
        f"$wl_spin_{label}:",
        "mov.u32 %wl_t, %clock;",
        "sub.u32 %wl_t, %wl_t, %wl_f; setp.lt.u32 %wl_p, %wl_t, %wl_n;",
        f"@%wl_p bra $wl_spin_{label};",
        "bar.warp.sync %wl_m;",
        f"$wl_past_{label}:",
    ])  # fmt: skip


def _load(function: Function, buffer: AnyBuffer) -> str:
    assert isinstance(buffer, ParamBuffer)
    return f"ld.param.b64 %wl_b, [{function.params[buffer.index].name}];"


def _check(function: Function, name: str, places: Sequence[_Place], buffer: AnyBuffer) -> None:
    """Refuse a region that cannot be delayed, and say why."""
    line = places[0].position.node.line
    if not isinstance(buffer, ParamBuffer) or buffer.indirect:
        raise PtxError(line, name, "the delay must be a parameter of the kernel, which this launch cannot change")
    if not function.is_entry:
        problem = "the region is in a function that is not inlined, which does not see the kernel's parameters"
        raise PtxError(line, name, problem, "inline the function", function.name)
    if not function.params:
        raise PtxError(line, name, "the kernel has no parameter for the delay")
    problem = why_not(function, ControlFlow(function), [place.position.node for place in places])
    if problem:
        raise PtxError(line, name, problem, "", function.name)


def _declare(function: Function, came: bool = False) -> None:
    """Declare the registers of the probe, and with `came` the one that says where a warp came from.

    Automatic marks wait for values by adding them to a register that records depend on: without records the sum is
    dead, but needs its registers.
    """
    waits = any(AWAITED in instruction.raw for instruction in function.instructions())
    opening = [REGISTERS, *[f"\tmov.b32 {AWAITED}, 0; mov.b32 {ZERO}, 0;"] * waits]
    opening += [f"\t.reg .b32 {CAME};\n\tmov.b32 {CAME}, 0;"] * came
    insert_opening(function, "\n".join(opening))
