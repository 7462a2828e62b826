"""The machine code of a compiled CuTe function, for the verification of the regions that are marked by hand."""

from __future__ import annotations

from typing import Any

from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import parse
from warplens.sass.machine_code import MachineCode

_KEEP = "compile it with the options --keep-ptx --keep-cubin --generate-line-info"
_FOUND = "_warplens_code"
"""The attribute of an executor that keeps its code: looking for the function takes long."""
_MARK = "wl_lead"
"""The register that every kernel with `wlc.kernel` declares."""


def code_of(executor: Any) -> MachineCode:
    """The code of the function that an executor runs; what the DSL did not keep is missing."""
    found: MachineCode | None = getattr(executor, _FOUND, None)
    if found is None:
        found = machine_code(_function_of(executor))
        setattr(executor, _FOUND, found)
    return found


def _function_of(executor: Any) -> Any:
    from cutlass.cutlass_dsl.cuda_jit_executor import CudaDialectJitCompiledFunction

    from warplens.frontends.intercept.name_swap import instances

    module = getattr(executor, "jit_module", None)
    for one in instances(CudaDialectJitCompiledFunction):
        loaded = module is not None and getattr(one, "jit_module", None) is module
        if loaded or getattr(one, "_default_executor", None) is executor:
            return one
    return None


def machine_code(function: Any) -> MachineCode:
    """What a compiled function kept of its PTX and cubin. The attributes hold a path where no file was kept."""
    text, cubin = getattr(function, "__ptx__", None), getattr(function, "__cubin__", None)
    ptx = text.partition("\0")[0] if isinstance(text, str) and ".version" in text else ""
    kept = bytes(cubin) if isinstance(cubin, bytes) and cubin[:4] == b"\x7fELF" else None
    symbols = list(getattr(function, "kernel_info", None) or ())
    symbol = next((one for one in symbols if one in _marked(ptx)), symbols[0] if symbols else "")
    return MachineCode(symbol, ptx, kept, missing=f"its PTX and cubin were not kept; {_KEEP}")


def _marked(ptx: str) -> set[str]:
    try:
        return {entry.name for entry in parse(ptx).entries if _MARK in entry.text()} if ptx else set()
    except PtxError:
        return set()
