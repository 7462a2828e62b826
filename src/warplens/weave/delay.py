"""Weave a delay into one region of a kernel instead of records.

Each begin of the region gets a short probe: it reads a number of cycles from the kernel's parameter and spins on the
clock for that long. The number changes from launch to launch and the machine code does not, so that two launches
differ by the delay alone. A delay of 0 costs a comparison and a branch that is not taken.

All lanes that reach the begin spin together, because a warp issues one instruction for its lanes: a delay of lane 0
alone would take the warp just as long, and would be missed where lane 0 is absent. Lanes that leave the loop at
different times meet again before the region goes on.
"""

from __future__ import annotations

import json
import math

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.labels import end_with_return
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Function, PtxModule, Raw
from warplens.record.layout import Kind
from warplens.weave.delay_hazards import why_not
from warplens.weave.function_weaver import insert_opening
from warplens.weave.mark_comments import WOVEN
from warplens.weave.mark_sites import MarkSite, outline
from warplens.weave.track_ptx import AWAITED, DECLARATIONS, ZERO, text_of
from warplens.weave.weaving import AnyBuffer, ParamBuffer, Weaving
from warplens.weave.woven_ptx import Woven

STORE = "delay"
"""The name of this weaving in the place of a store policy."""
MAX_DELAY = (1 << 31) - 1
"""The most cycles of one delay: below the period of the 32-bit clock."""
REGISTERS = f"{DECLARATIONS}\n\t.reg .b32 %wl_n, %wl_f, %wl_m;"
"""What a function with a probe declares."""
_BEGINS = (Kind.BEGIN, Kind.ASYNC_BEGIN)


def weave_delay(module: PtxModule, buffer: AnyBuffer, how: Weaving) -> Woven:
    """Rewrite the kernels of `module` that have the region `how.delay`, in place. All other marks stay comments."""
    files, region = module.files, how.delay
    entries: dict[str, int] = {}
    threads: dict[str, int] = {}
    locations: dict[int, str] = {}
    for function in module.functions:
        if function.body is None:
            continue
        end_with_return(function)
        sketch = outline(function, files)
        sites = [site for site in sketch.sites if site.mark.kind in _BEGINS and site.mark.name == region]
        if not sites:
            _declare(function)
            continue
        _check(function, sites, buffer)
        entries[function.name] = len(sites)
        if "reqntid" in function.performance:
            threads[function.name] = math.prod(function.performance["reqntid"])
        for number, site in enumerate(sites):
            locations.setdefault(1, site.location)
            site.position.after(Raw.of(probe(_load(function, buffer), f"{function.name}_{number}")))
        sketch.edits.apply()
        _declare(function)
    stores = dict.fromkeys(entries, STORE)
    known = {number: place for number, place in locations.items() if place}
    woven = Woven("", {1: region or ""} if entries else {}, known, entries, threads, 0, "stop", stores)
    header = "// " + WOVEN + json.dumps(woven.describe(), separators=(",", ":")) + "\n"
    return Woven.restore(header + module.text(), woven.describe())


def probe(load: str, label: str) -> str:
    """PTX that spins for as many cycles as `load` puts into the low half of %wl_b; `label` makes its labels unique."""
    return text_of([
        load,
        "cvt.u32.u64 %wl_n, %wl_b; setp.eq.u32 %wl_p, %wl_n, 0;",
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


def _check(function: Function, sites: list[MarkSite], buffer: AnyBuffer) -> None:
    """Refuse a region that cannot be delayed, and say why."""
    line, name = sites[0].mark.line, sites[0].mark.name
    if not isinstance(buffer, ParamBuffer) or buffer.indirect:
        raise PtxError(line, name, "the delay must be a parameter of the kernel, which this launch cannot change")
    if not function.is_entry:
        problem = "the region is in a function that is not inlined, which does not see the kernel's parameters"
        raise PtxError(line, name, problem, "inline the function", function.name)
    if not function.params:
        raise PtxError(line, name, "the kernel has no parameter for the delay")
    problem = why_not(function, ControlFlow(function), [site.position.node for site in sites])
    if problem:
        raise PtxError(line, name, problem, "", function.name)


def _declare(function: Function) -> None:
    """Declare the registers of the probe. Automatic marks wait for values by adding them to a register that records
    depend on: without records the sum is dead, but needs its registers."""
    waits = any(AWAITED in instruction.raw for instruction in function.instructions())
    opening = [REGISTERS, *[f"\tmov.b32 {AWAITED}, 0; mov.b32 {ZERO}, 0;"] * waits]
    insert_opening(function, "\n".join(opening))
