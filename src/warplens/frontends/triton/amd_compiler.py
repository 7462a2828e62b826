"""Compile a Triton kernel for one of AMD's GPUs with its marks woven, on any machine.

The marks are woven into LLVM IR, the last stage before machine code. This has been compiled and assembled, never run:
launches are not recorded, so `wl.profile` lets such kernels run plain and says so.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from warplens.errors import UsageError, WarplensError
from warplens.frontends.triton.amd_marks import amd_marks, amd_marks_wanted
from warplens.frontends.triton.metadata_keys import METADATA, RECIPE, REMARKS
from warplens.frontends.triton.weaving_compiler import weaver_digest
from warplens.frontends.wrap import wrap
from warplens.record.capture import COUNTER_BITS
from warplens.record.layout import LAYOUT_VERSION
from warplens.weave.amd.gpu_traits import GpuTraits, gpu_traits
from warplens.weave.amd.ir_weaver import check_weaving, weave_ir
from warplens.weave.weaving import Weaving
from warplens.weave.woven_ptx import Woven
from warplens.wording import plural

SCRATCH_BYTES = 128
"""What a woven kernel asks Triton for per block. It only must not be zero: the allocator sizes the buffer."""
_RESOURCES = {
    "registers": "vgpr_count",
    "scalar_registers": "sgpr_count",
    "spills": "vgpr_spill_count",
    "scalar_spills": "sgpr_spill_count",
    "private_bytes": "private_segment_fixed_size",
}
_compiling = threading.Lock()


def compile_for_amd(
    source: Any, target: Any, *, how: Weaving | None = None, options: Mapping[str, Any] | None = None
) -> Any:
    """Compile a kernel, an `ASTSource`, for one of AMD's GPUs, a `GPUTarget("hip", arch, lanes)`, with its marks woven.

    Return Triton's `CompiledKernel`: `asm` has the code of each stage, `metadata.warplens` the regions and what the
    kernel takes. A kernel without marks records the life of each wave.
    """
    from triton.backends.amd.compiler import HIPBackend
    from triton.compiler import compiler

    if target.backend != "hip":
        raise UsageError(f"{target} is not one of AMD's GPUs; kernels for NVIDIA's are woven by wl.profile")
    how = how or Weaving()
    check_weaving(how)
    traits = gpu_traits(target.arch, target.warp_size)
    environment = {**compiler.get_cache_invalidating_env_vars(), RECIPE: _key(how)}

    def add_stages(original: Any, backend: Any, stages: dict[str, Any], compiled: Any, *rest: Any) -> None:
        original(backend, stages, compiled, *rest)
        if amd_marks_wanted():
            AmdCompilation(stages, traits, how, compiled)

    with _compiling:
        undo = wrap(HIPBackend, "add_stages", add_stages)
        try:
            with amd_marks():
                return compiler.compile(source, target=target, options=dict(options or {}), _env_vars=environment)
        finally:
            undo()


class AmdCompilation:
    """Stands between the stages of one compilation."""

    def __init__(self, stages: dict[str, Any], traits: GpuTraits, how: Weaving, options: Any) -> None:
        if options.num_ctas != 1:
            raise WarplensError(f"marks cannot be woven with num_ctas={options.num_ctas} for AMD's GPUs")
        self._llir, self._amdgcn = stages["llir"], stages["amdgcn"]
        self._traits, self._how, self._waves = traits, how, options.num_warps
        self._built: Woven | None = None
        self._code = ""
        stages.update(llir=self.llir, amdgcn=self.amdgcn)

    def llir(self, module: Any, metadata: dict[str, Any]) -> str:
        text = str(self._llir(module, metadata))
        if metadata.get("profile_scratch_size"):
            raise WarplensError("another tool already uses Triton's profile scratch; end it before compiling")
        metadata["profile_scratch_size"] = metadata["profile_scratch_align"] = SCRATCH_BYTES
        woven, code, notes = self._without_spills(text, metadata)
        self._built, self._code = woven, code
        bits = {COUNTER_BITS: self._traits.clock_bits} if self._traits.clock_bits < 64 else {}
        document = {**woven.describe(), "select": asdict(self._how.select), "resources": code_resources(code), **bits}
        metadata.update({METADATA: document, REMARKS: {"notes": notes}})
        return woven.text

    def amdgcn(self, source: str, metadata: dict[str, Any]) -> str:
        if self._built is None or source != self._built.text:  # an override has replaced it
            return self._assemble(source, metadata)
        (metadata["name"],) = self._built.entries
        return self._code

    def _without_spills(self, text: str, metadata: dict[str, Any]) -> tuple[Woven, str, list[str]]:
        """The woven kernel, its machine code and what to say of it: without fences if they make it spill."""
        fenced = weave_ir(text, self._traits, self._waves, self._how)
        code = self._assemble(fenced.text, dict(metadata))
        spilled = code_resources(code)["spills"]
        # The comments of the marks, which the plain kernel still has here, cost nothing.
        if not spilled or spilled <= (least := code_resources(self._assemble(text, dict(metadata)))["spills"]):
            return fenced, code, []
        more = plural(spilled - least, "more register")
        loose = weave_ir(text, self._traits, self._waves, self._how, fenced=False)
        other = self._assemble(loose.text, dict(metadata))
        if (left := code_resources(other)["spills"]) >= spilled:
            return fenced, code, [f"with marks it spills {more}"]
        note = f"arithmetic may be moved across its marks: otherwise it spills {more}"
        return loose, other, [note + (f", and it still spills {left - least} more" if left > least else "")]

    def _assemble(self, source: str, metadata: dict[str, Any]) -> str:
        return str(self._amdgcn(source, metadata))


def code_resources(text: str) -> dict[str, int]:
    """What a kernel takes, as the metadata in its machine code says: registers, spills, and bytes of private memory."""
    return {name: int(re.findall(rf"^ +\.{key}: +(\d+)$", text, re.MULTILINE)[0]) for name, key in _RESOURCES.items()}


def _key(how: Weaving) -> str:
    """What distinguishes the woven kernel from the plain one in Triton's cache."""
    digest = hashlib.sha256(repr((LAYOUT_VERSION, weaver_digest(), how)).encode()).hexdigest()
    return f"warplens-amd-{digest[:24]}"
