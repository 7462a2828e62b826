"""One kernel's way through Triton's compiler, with marks put into its TTGIR and woven into its PTX.

Automatic marks go in before the llir stage, after all of Triton's passes and overrides. All later stages are tried at
that point: a kernel that marks would harm is compiled with fewer (mark_ladder.py), with a note that says why.
"""

from __future__ import annotations

import functools
import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from warplens.auto.ptx import mark_barriers, mark_unmarked_code
from warplens.auto.ttgir.load_arrival import await_loads
from warplens.auto.ttgir.mark_emitter import begin_at_once, declare_counters
from warplens.errors import WarplensError
from warplens.frontends.triton import override, plain_cache
from warplens.frontends.triton.assemble import HandMarkedKernel, Stage, assemble
from warplens.frontends.triton.mark_ladder import KernelBuild, MarkLadder, Metadata
from warplens.frontends.triton.metadata_keys import METADATA, REMARKS
from warplens.frontends.triton.ptxas import ptxas_error
from warplens.frontends.triton.shared_memory import record_bytes, shared_buffer
from warplens.weave.fit.register_limit import limited
from warplens.weave.mark_comments import PREFIX, without_regions
from warplens.weave.weaver import weave
from warplens.weave.weaving import ParamBuffer, SharedBuffer, Weaving

if TYPE_CHECKING:
    from warplens.frontends.triton.weaving_compiler import Recipe

SCRATCH_BYTES = 128
"""What a woven kernel asks Triton for per block. It only must not be zero: the allocator sizes the buffer."""

_SPECIALISED, _LINE = re.compile(r"\b(?:branchtargets|setmaxnreg|barrier\.sync)\b"), "// " + PREFIX + "B line%20"
"""Instructions that distribute work among specialised warps, which belong to no operation of the TTGIR; and the mark
that begins the region of a source line."""
_WARP_SPECIALIZE, _REGION_NAME = "tt.warp_specialize", re.compile(PREFIX + r"[A-Z] ([^\s\"]+)")
"""The attribute of a loop that Triton splits among its warps, and how a mark names its region in TTIR."""


class Compilation:
    """Wraps the stages of one compilation."""

    def __init__(self, recipe: Recipe, stages: dict[str, Stage]) -> None:
        self.recipe = recipe
        self._llir, self._ptx, self._cubin = stages["llir"], stages["ptx"], stages["cubin"]
        self._built: KernelBuild | None = None
        self._known_module: Any = None
        """The plain kernel's TTGIR, if it was known."""
        # Taken here: candidates are woven in other threads too.
        self._plain_ptx = plain_cache.find_text("ptx")
        if plain_cache.find_text("ttgir"):
            stages["ttgir"] = self.known_ttgir
        elif "ttir" in stages:
            self._ttgir, stages["ttgir"] = stages["ttgir"], self.ttgir
        stages.update(llir=self.llir, ptx=self.ptx, cubin=self.cubin)

    def ttgir(self, module: Any, metadata: Metadata) -> Any:
        before = str(module)
        made = self._ttgir(module, metadata)
        self._note_dropped_marks(before, made, metadata)
        return made

    def known_ttgir(self, module: Any, metadata: Metadata) -> Any:
        """The module is the plain kernel's TTGIR: all passes of this stage have seen it."""
        metadata["tensordesc_meta"] = module.get_tensordesc_metadata()
        self._note_dropped_marks(plain_cache.find_text("ttir"), module, metadata)
        self._known_module = module
        return module

    def _note_dropped_marks(self, ttir: str, ttgir: Any, metadata: Metadata) -> None:
        """Note marks that Triton drops: 3.6 splits loops for Hopper without the marks inside them."""
        if _WARP_SPECIALIZE in ttir and PREFIX in ttir and self.recipe.wants(str(ttgir.get_entry_func_name())):
            left = set(_REGION_NAME.findall(str(ttgir)))
            lost = [unquote(region) for region in dict.fromkeys(_REGION_NAME.findall(ttir)) if region not in left]
            if lost:
                metadata[REMARKS] = {"notes": [_dropped_by_triton(lost)]}

    def llir(self, module: Any, metadata: Metadata) -> str:
        name, recipe = str(module.get_entry_func_name()), self.recipe
        if not recipe.wants(name) or not (recipe.auto or recipe.always):
            return str(self._llir(module, metadata))
        # Printed again, its locations would have other numbers.
        text = plain_cache.find_text("ttgir") if module is self._known_module else str(module)
        remarks = metadata.get(REMARKS, {"notes": list[str]()})
        if recipe.dump_ir is not None:
            override.dump(recipe.dump_ir, name, text)
        if recipe.override is not None:
            found = override.find(recipe.override, name, text)
            if found.refused:
                self._refuse(name, found.refused, remarks)
            elif found.path is not None:
                module = override.parse_module(found.text, module.context, str(found.path))
                text = found.text
        metadata[REMARKS] = remarks
        if recipe.auto and recipe.how.plain_copy and not self._plain_ptx:
            self._plain_ptx = self.lower(text, module.context, dict(metadata))[1]
        # A kernel without automatic marks but with its own goes the way of hand-marked ones.
        if recipe.auto and not (recipe.how.lives and PREFIX in text):
            ladder = MarkLadder(self, recipe, text, module.context, metadata, remarks)
            built = ladder.climb_down()
            if built is None and ladder.problem:
                self._refuse(name, f"runs unmarked: {ladder.problem}", remarks)
            if built is not None:
                self._built = built
                metadata.update(built.metadata)
                return built.llir
        return str(self._llir(module, metadata))

    def ptx(self, source: Any, metadata: Metadata) -> str:
        if self._built is not None and source is self._built.llir:
            return self._built.ptx
        text = self._ptx(source, metadata)
        if PREFIX not in text or not self.recipe.wants(str(metadata["name"])):
            return str(text)
        before = dict(metadata)
        try:
            return self._with_hand_marks(source, str(text), metadata)
        except (WarplensError, ptxas_error()):
            raise
        except Exception as error:  # whatever the weaver fails on, the kernel can run without it
            metadata.clear()
            metadata.update(before)
            remarks = metadata.setdefault(REMARKS, {"notes": []})
            self._refuse(str(metadata["name"]), f"runs unmarked: the weaver failed: {error!r}", remarks)
            return str(text)

    def _with_hand_marks(self, source: Any, text: str, metadata: Metadata) -> str:
        """Weave and assemble a kernel whose author marked it."""
        how, before = self.recipe.how, dict(metadata)
        kernel = HandMarkedKernel(self._cubin, text, before, how)
        woven = self._woven(text, metadata, how)
        if METADATA not in metadata:
            return woven

        @functools.cache
        def woven_as(asked: Weaving) -> str:
            return woven if asked == how else self._woven(text, dict(before), asked)

        made = kernel.finish(woven_as, metadata["shared"])
        if made.harm:
            metadata.setdefault(REMARKS, {"notes": []})["notes"].append(made.harm)
        metadata[METADATA]["resources"] = made.describe()
        self._built = KernelBuild(source, made.ptx, made.cubin, metadata, made.resources)
        return made.ptx

    def cubin(self, source: Any, metadata: Metadata) -> bytes:
        if self._built is not None and source is self._built.ptx:
            return self._built.cubin
        return bytes(self._cubin(source, metadata))

    def lower(self, text: str, context: Any, metadata: Metadata) -> tuple[str, str]:
        """Compile TTGIR to LLVM IR and PTX."""
        llir = str(self._llir(override.parse_module(text, context), metadata))
        return llir, str(self._ptx(llir, metadata))

    def shared_buffer(self, ptx: str, metadata: Metadata, how: Weaving) -> SharedBuffer | None:
        """Place the kernel's records in shared memory, if the profile asks for that and the kernel has marks."""
        if self.recipe.shared_bytes is None or PREFIX not in ptx or how.fixed:
            return how.shared
        return shared_buffer(ptx, metadata["shared"], how.select, self.recipe.shared_bytes)

    def _refuse(self, name: str, reason: str, remarks: Metadata) -> None:
        if self.recipe.strict:
            raise WarplensError(f"{name}: {reason}")
        remarks["notes"].append(reason)

    def finish(
        self, llir: str, ptx: str, metadata: Metadata, how: Weaving, registers: int = 0, *, lives: bool = False
    ) -> KernelBuild:
        """Weave PTX and assemble it without changing `metadata`. `lives` weaves a kernel that has no marks."""
        trial = dict(metadata)
        text = self._woven(ptx, trial, how, lives=lives)
        if registers:
            text = limited(text, {trial["name"]: registers})
        made = assemble(self._cubin, text, trial)
        if METADATA in trial:
            trial[METADATA]["resources"] = made.describe()
        return KernelBuild(llir, text, made.cubin, trial, made.resources)

    def _woven(self, text: str, metadata: Metadata, how: Weaving, *, lives: bool = False) -> str:
        name = str(metadata.get("name", ""))
        if not self.recipe.wants(name):
            return text
        how, plain = replace(how, shared=self.shared_buffer(text, metadata, how)), text
        text = without_regions(text, how.omit)
        if self.recipe.auto:
            text = await_loads(declare_counters(begin_at_once(text)))
            if self.recipe.auto.covers_all_code and _SPECIALISED.search(text) and _LINE in text:
                text = mark_unmarked_code(text)
        text = mark_barriers(text, automatic=False)
        buffer = ParamBuffer(-1, indirect=self.recipe.indirect)
        copied = (self._plain_ptx if self.recipe.auto else plain) if how.plain_copy else ""
        woven = weave(text, buffer=buffer, how=how, lives=[name] if lives else (), plain=copied)
        if not woven.entries:
            # What marks wait with needs registers that only weaving declares.
            return plain
        if metadata.get("profile_scratch_size"):
            raise WarplensError(
                f"kernel {name}: another tool already uses Triton's profile scratch; end it before wl.profile"
            )
        metadata["profile_scratch_size"] = SCRATCH_BYTES
        metadata["profile_scratch_align"] = SCRATCH_BYTES
        metadata[METADATA] = {**woven.describe(), "select": asdict(how.select)}
        if how.shared is not None:
            used = record_bytes(how.shared, how.select, woven.threads[name])
            metadata["shared"] = how.shared.offset + used
            metadata[METADATA] |= {"shared_slots": how.shared.slots, "shared_bytes": used}
        return woven.text


def _dropped_by_triton(lost: list[str]) -> str:
    return (
        f"{', '.join(map(repr, lost))} left no mark: this Triton drops marks from a loop with warp_specialize=True; "
        "use automatic marks (auto=, regions=), which are placed later, or a newer Triton"
    )
