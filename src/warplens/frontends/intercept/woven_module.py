"""The woven twin of a kernel: its PTX with automatic marks, woven and loaded beside the plain kernel."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from warplens.auto.ptx import Marked, mark_ptx
from warplens.auto.rules import Auto
from warplens.driver.libcuda import driver
from warplens.errors import WarplensError
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Declaration, PtxModule, parse
from warplens.weave.calls import with_parameter
from warplens.weave.fit.register_limit import limit, limitable
from warplens.weave.weaver import Woven, weave
from warplens.weave.weaving import ParamBuffer, Weaving

_NEVER_WRITTEN = re.compile(r"^\$str|^__unnamed_|^__func__|NumbaEnv|^__const_|^wl_names_")
"""Module variables that no kernel writes: string literals, names of marks, and numba's environment, which device code
does not read."""


class Unavailable(WarplensError):
    """A kernel that runs unmarked; the text says why."""


class Unmarkable(Unavailable):
    """A kernel that cannot have these marks, but may have fewer."""


@dataclass(frozen=True)
class Twin:
    """A loaded woven kernel, with both handles that libraries launch by: `kernel` and `function`."""

    symbol: str
    woven: Woven
    marked: Marked
    library: int
    kernel: int
    function: int
    constants: tuple[str, ...] = ()
    note: str = ""
    """What is not marked in it, and why."""


def source_name(text: str, name: str) -> str:
    """Name the PTX's own source file, for which a library made up a name or gave none."""
    return re.sub(r'(\.file\s+\d+\s+")[^"]*?(?:default_program|\.cubin\.cu|<unnamed>)(")', rf"\g<1>{name}\g<2>", text)


def constants_of(module: PtxModule) -> tuple[str, ...]:
    """Return the names of a module's constants, which its twin gets copies of. Variables that a kernel may write cannot
    be copied: the program would not see what the twin writes."""
    found = []
    for item in module.items:
        if isinstance(item, Declaration) and item.space in ("global", "const", "tex"):
            for variable in item.variables:
                if item.space == "const":
                    found.append(variable.name)
                elif not _NEVER_WRITTEN.search(variable.name):
                    raise Unavailable(
                        f"its module keeps the variable {variable.name}, which a marked copy of it would not share"
                    )
    return tuple(found)


def marked_text(
    text: str, symbol: str, auto: Auto, how: Weaving, registers: int = 0
) -> tuple[Woven, Marked, tuple[str, ...]]:
    """Mark and weave one kernel, which takes its buffer as an additional parameter; also return its module's constants.
    An empty `auto` records the lives of its warps alone. `registers` is the most that a thread may take, 0 for no limit
    besides the kernel's own."""
    text = text.partition("\0")[0]
    module = parse(text)
    function = next((entry for entry in module.entries if entry.name == symbol), None)
    if function is None:
        raise Unavailable(f"its PTX has no kernel {symbol}")
    constants = constants_of(module)
    function.header = with_parameter(function, f".param .u64 {symbol}_wl_buffer")
    if registers and limitable(text) and not {"minnctapersm", "maxnctapersm"}.intersection(function.performance):
        limit(function, registers)
    marked = mark_ptx(module.text(), auto, lambda name: name == symbol)
    if auto and symbol not in marked.sites:
        raise Unmarkable("no rule finds anything to mark in it")
    lives = () if auto else (symbol,)
    return weave(marked.text, buffer=ParamBuffer(-1), how=how, lives=lives), marked, constants


@functools.lru_cache(maxsize=256)
def twin_of(text: str, symbol: str, auto: Auto, how: Weaving, device: int, registers: int = 0) -> Twin:
    """Weave and load the twin of a kernel; each device has its own."""
    try:
        woven, marked, constants = marked_text(text, symbol, auto, how, registers)
    except PtxError as error:
        raise Unmarkable(str(error)) from None
    lib = driver()
    try:
        library = lib.load_library(woven.text.encode() + b"\0")
        kernel = lib.kernel(library, symbol)
        return Twin(symbol, woven, marked, library, kernel, lib.kernel_function(kernel), constants)
    except WarplensError as error:
        raise Unmarkable(f"with marks it does not assemble: {error}") from None
