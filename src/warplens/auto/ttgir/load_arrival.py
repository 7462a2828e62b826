"""Wait for loads in PTX, because LLVM may move the first use of a value out of the load's region."""

from __future__ import annotations

import re
from urllib.parse import unquote

from warplens.auto.ptx.value_arrival import arrived

_LOAD = re.compile(r"\bld\.global[\w.:]*\s+\{?\s*%(rs|rd|r|fd|f)(\d+)")
_SIZES = {"rs": 2, "r": 4, "f": 4, "rd": 8, "fd": 8}
_MARK = re.compile(r"// @warplens ([BE]) (\S+)")
MAX_AWAITED_LOADS = 8
"""The maximum number of loads per region to wait for; if there are more, the last ones are used."""


def await_loads(ptx: str) -> str:
    """Make each `load` and `load wait` region end when the loaded values have arrived."""
    out: list[str] = []
    open_loads: dict[str, list[str]] = {}
    issued: dict[str, list[str]] = {}
    for line in ptx.split("\n"):
        mark = _MARK.search(line)
        if mark is not None:
            what, _, place = unquote(mark[2]).rpartition(" ")
            if mark[1] == "B" and what in ("load", "load issue"):
                open_loads[place] = []
            elif what == "load issue":
                issued[place] = open_loads.pop(place, [])
            elif mark[1] == "E" and what in ("load", "load wait"):
                out += (open_loads if what == "load" else issued).pop(place, [])[-MAX_AWAITED_LOADS:]
        elif open_loads:
            found = _LOAD.search(line)
            if found is not None:
                text = "\t" + arrived(f"%{found[1]}{found[2]}", _SIZES[found[1]])
                for waits in open_loads.values():
                    waits.append(text)
        out.append(line)
    return "\n".join(out)
