"""The woven twin of a kernel: its PTX with automatic marks, woven and loaded beside the plain kernel."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from warplens.auto.ptx import Marked, mark_ptx
from warplens.auto.rules import Auto
from warplens.driver.libcuda import driver
from warplens.errors import WarplensError
from warplens.launch.assembled_code import assembled
from warplens.ptx.isa_version import lowered_for
from warplens.ptx.kernel_alone import kernel_alone
from warplens.ptx.module_variables import kernel_variables
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import PtxModule, parse
from warplens.weave.calls import with_parameter
from warplens.weave.fit.register_limit import limit, limitable
from warplens.weave.mark_comments import PREFIX
from warplens.weave.weaver import Woven, weave
from warplens.weave.weaving import AnyBuffer, ParamBuffer, SymbolBuffer, Weaving


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
    shared: tuple[str, ...] = ()
    """The module variables whose contents it takes over at each launch."""
    note: str = ""
    """What is not marked in it, and why."""
    cell: int = 0
    """The address of the module's variable that holds its buffer pointer, where that is not a parameter."""


def source_name(text: str, name: str) -> str:
    """Name the PTX's own source file, for which a library made up a name or gave none."""
    return re.sub(r'(\.file\s+\d+\s+")[^"]*?(?:default_program|\.cubin\.cu|<unnamed>)(")', rf"\g<1>{name}\g<2>", text)


def variables_of(module: PtxModule, symbol: str) -> tuple[str, ...]:
    """Return the names of the variables whose contents the twin of a kernel takes over at each launch. A kernel that
    can reach a variable that changes in another way has no twin: one of the two would not see the change."""
    variables = kernel_variables(module, symbol)
    for name, reason in variables.refused.items():
        raise Unavailable(f"its module keeps the variable {name}, which a marked copy of it would not share ({reason})")
    return variables.shared


@functools.lru_cache(maxsize=256)
def has_marks(text: str, symbol: str) -> bool:
    """Whether a kernel, or a function that it may call, has marks of its own."""
    if PREFIX not in text:
        return False
    functions = parse(text.partition("\0")[0]).functions
    return any(PREFIX in one.text() for one in functions if one.name == symbol or not one.is_entry)


def cell_name(symbol: str) -> str:
    """The variable of a woven module that holds the buffer pointer of a kernel whose parameters stay as they are."""
    return f"{symbol}_wl_buffer"


def marked_text(
    text: str,
    symbol: str,
    auto: Auto,
    how: Weaving,
    registers: int = 0,
    *,
    indirect: bool = False,
    keeps_parameters: bool = False,
) -> tuple[Woven, Marked, tuple[str, ...]]:
    """Mark and weave one kernel, which takes its buffer as an additional parameter; also return the variables that it
    shares. An empty `auto` records the lives of its warps alone. `registers` is the most that a thread may take, 0 for
    no limit besides the kernel's own. `indirect` is for kernels in CUDA graphs, which find their buffer by a cell.
    With `keeps_parameters` the buffer pointer is in a variable of the module, in graphs as well."""
    marked, plain, shared, unmarked = _marked(text, symbol, auto, keeps_parameters)
    by_hand = has_marks(text, symbol)
    if auto and symbol not in marked.sites and not by_hand:
        raise Unmarkable("no rule finds anything to mark in it")
    module = plain.copy()
    function = next(entry for entry in module.entries if entry.name == symbol)
    if registers and limitable(text) and not {"minnctapersm", "maxnctapersm"}.intersection(function.performance):
        limit(function, registers)
    lives = () if auto or by_hand else (symbol,)
    buffer: AnyBuffer = SymbolBuffer(cell_name(symbol), "global") if keeps_parameters else ParamBuffer(-1, indirect)
    woven = weave(module, buffer=buffer, how=how, lives=lives, plain=unmarked if how.plain_copy else "")
    if how.delay is not None and symbol not in woven.entries:
        raise Unmarkable(f"it has no region {how.delay!r}")
    return woven, marked, shared


@functools.lru_cache(maxsize=16)
def _marked(
    text: str, symbol: str, auto: Auto, keeps_parameters: bool
) -> tuple[Marked, PtxModule, tuple[str, ...], str]:
    """A kernel with marks and its parsed module, which the candidates for its weaving share, its variables, and its
    text without marks."""
    text = text.partition("\0")[0]
    module = parse(text)
    function = next((entry for entry in module.entries if entry.name == symbol), None)
    if function is None:
        raise Unavailable(f"its PTX has no kernel {symbol}")
    shared = variables_of(module, symbol)
    module = kernel_alone(module, symbol)
    if not keeps_parameters:
        function.header = with_parameter(function, f".param .u64 {cell_name(symbol)}")
    marked = mark_ptx(module.text(), auto, lambda name: name == symbol)
    return marked, parse(marked.text), shared, module.text()


@functools.lru_cache(maxsize=256)
def twin_of(
    text: str,
    symbol: str,
    auto: Auto,
    how: Weaving,
    device: int,
    registers: int = 0,
    *,
    indirect: bool = False,
    keeps_parameters: bool = False,
    assemble: Callable[[str], bytes] | None = None,
) -> Twin:
    """Weave and load the twin of a kernel; each device has its own."""
    try:
        woven, marked, shared = marked_text(
            text, symbol, auto, how, registers, indirect=indirect, keeps_parameters=keeps_parameters
        )
    except PtxError as error:
        raise Unmarkable(str(error)) from None
    except Unavailable:
        raise
    except Exception as error:  # whatever the weaver fails on, the program can run without it
        raise Unmarkable(f"the weaver failed: {error!r}") from error
    lib = driver()
    try:
        if assemble is None:
            image = assembled(lib, lowered_for(woven.text, lib.device().driver), woven.text)
        else:
            image = assemble(woven.text)
        library = lib.load_library(image)
        kernel = lib.kernel(library, symbol)
        cell = lib.library_variable(library, cell_name(symbol)) if keeps_parameters else 0
        return Twin(symbol, woven, marked, library, kernel, lib.kernel_function(kernel), shared, cell=cell)
    except WarplensError as error:
        raise Unmarkable(f"with marks it does not assemble: {error}") from None
