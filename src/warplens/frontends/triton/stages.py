"""One kernel's way through Triton's compiler, with marks put into its TTGIR and woven into its PTX.

Automatic marks go in after every pass and every override of Triton's own, in front of the llir stage. The whole of what
follows is tried there first: a kernel that marks would harm is compiled as it is, and says why.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from warplens.auto.ptx import mark_unmarked_code
from warplens.auto.rules import Auto
from warplens.auto.ttgir import MarkedIR, mark_ttgir
from warplens.auto.ttgir.load_arrival import await_loads
from warplens.auto.ttgir.mark_emitter import begin_at_once, declare_counters
from warplens.errors import WarplensError
from warplens.frontends.triton import override
from warplens.frontends.triton.assemble import Fitting, assemble
from warplens.frontends.triton.ptxas import Resources, ptxas_error
from warplens.frontends.triton.safety import Guard, threads_of
from warplens.frontends.triton.shared_memory import shared_buffer
from warplens.record.layout import SLOT_BYTES
from warplens.weave.fit.registers import limited
from warplens.weave.mark_comments import PREFIX
from warplens.weave.weaver import weave
from warplens.weave.weaving import ParamBuffer, Weaving

if TYPE_CHECKING:
    from warplens.frontends.triton.compile_hook import Recipe

SCRATCH_BYTES = 128
"""What a woven kernel asks Triton for per block. Only that it is not zero matters: the allocator sizes the buffer."""
METADATA, REMARKS = "warplens", "warplens_remarks"
"""Keys of a compiled kernel's metadata: how it is woven, and what is to be said of it."""

_SPECIALISED, _LINE = re.compile(r"\b(?:branchtargets|setmaxnreg|barrier\.sync)\b"), "// " + PREFIX + "B line%20"
"""What hands the warps of a specialised kernel their parts comes from no operation of its TTGIR."""
_SPLIT, _NAMED = "tt.warp_specialize", re.compile(PREFIX + r"[A-Z] ([^\s\"]+)")
"""What a loop that Triton is to split among its warps carries in TTIR, and how a mark names its region there."""

Metadata = dict[str, Any]
Stage = Callable[[Any, Metadata], Any]


@dataclass(frozen=True)
class Built:
    """A kernel compiled to the end, and what that added to its metadata."""

    llir: str
    ptx: str
    cubin: bytes
    metadata: Metadata
    resources: Resources


class Compilation:
    """Stands between the stages of one compilation."""

    def __init__(self, recipe: Recipe, stages: dict[str, Stage]) -> None:
        self.recipe = recipe
        self._llir, self._ptx, self._cubin = stages["llir"], stages["ptx"], stages["cubin"]
        self._built: Built | None = None
        if "ttir" in stages:
            self._ttgir, stages["ttgir"] = stages["ttgir"], self.ttgir
        stages.update(llir=self.llir, ptx=self.ptx, cubin=self.cubin)

    def ttgir(self, module: Any, metadata: Metadata) -> Any:
        """Triton 3.6 splits loops for Hopper without the marks in them, which belong to no partition it knows."""
        name, text = str(module.get_entry_func_name()), str(module)
        made = self._ttgir(module, metadata)
        if _SPLIT in text and PREFIX in text and self.recipe.wants(name):
            left = set(_NAMED.findall(str(made)))
            lost = [unquote(region) for region in dict.fromkeys(_NAMED.findall(text)) if region not in left]
            if lost:
                metadata[REMARKS] = {"notes": [_unsplit(lost)]}
        return made

    def llir(self, module: Any, metadata: Metadata) -> str:
        name, recipe = str(module.get_entry_func_name()), self.recipe
        if not recipe.wants(name) or not (recipe.auto or recipe.always):
            return str(self._llir(module, metadata))
        text, remarks = str(module), metadata.get(REMARKS, {"notes": list[str]()})
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
        if recipe.auto:
            built = self._marked(name, text, module.context, metadata, remarks)
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
        how, before = self.recipe.how, dict(metadata)
        fitting = Fitting(self._cubin, text, before, limit=how.limit)
        woven = self._woven(text, metadata, how)
        if METADATA not in metadata:
            return woven
        lean = functools.cache(lambda: self._woven(text, before, replace(how, lean=True)))
        made = fitting.finish(woven, lean, metadata["shared"])
        if made.harm:
            metadata.setdefault(REMARKS, {"notes": []})["notes"].append(made.harm)
        metadata[METADATA]["resources"] = made.describe()
        self._built = Built(source, made.ptx, made.cubin, metadata, made.resources)
        return made.ptx

    def cubin(self, source: Any, metadata: Metadata) -> bytes:
        if self._built is not None and source is self._built.ptx:
            return self._built.cubin
        return bytes(self._cubin(source, metadata))

    def _marked(self, name: str, text: str, context: Any, metadata: Metadata, remarks: Metadata) -> Built | None:
        """The kernel with automatic marks, None where it has none or must not have them."""
        plain = functools.cache(lambda: self._build(text, context, metadata).resources)
        problem = ""
        for auto, left in _asks(self.recipe.auto):
            marked = mark_ttgir(text, auto)
            remarks |= {"matched": sorted(marked.matched), "lines": marked.lines}
            if not marked.sites and not problem:
                return None
            if not marked.sites:
                break
            try:
                built, harm = self._tried(marked.text, context, metadata, plain)
            except (WarplensError, RuntimeError, ptxas_error()) as error:
                built, harm = None, f"with marks it does not compile ({_first_line(error)})"
            if built is not None:
                if marked.dropped:
                    remarks["notes"].append(_dropped(marked, auto.most))
                if problem:
                    remarks["notes"].append(f"its {' and '.join(left)} are not marked: {problem}")
                document, places = built.metadata[METADATA], marked.locations
                named = {k: places[region] for k, region in document["regions"].items() if region in places}
                document |= {"auto": len(marked.sites), "locations": document["locations"] | named}
                return built
            problem = problem or harm
        self._refuse(name, f"runs unmarked: {problem}", remarks)
        return None

    def _tried(
        self, text: str, context: Any, metadata: Metadata, plain: Callable[[], Resources]
    ) -> tuple[Built | None, str]:
        """The first way to weave it that does no harm, else what the least of them would do."""
        trial = dict(metadata)
        llir = str(self._llir(override.parse_module(text, context), trial))
        ptx = self._ptx(llir, trial)
        built = self._finish(llir, ptx, trial, self.recipe.how)
        least, shared = self.recipe.least_occupancy, built.metadata["shared"]
        guard = Guard(plain, threads_of(ptx, trial), shared, metadata["target"].arch, least)
        problem = guard.problem(built.resources)
        if not problem:
            return built, ""
        light, limit = _light(self.recipe.how), 0 if ".maxnreg" in ptx else guard.limit
        tries = [(built.resources, problem)]
        ways = dict.fromkeys([(light, 0), (self.recipe.how, limit), (light, limit), (replace(light, lean=True), limit)])
        ways.pop((self.recipe.how, 0), None)
        for how, most in ways:
            other = self._finish(llir, ptx, trial, how, most)
            problem = guard.problem(other.resources)
            if not problem:
                return other, ""
            tries.append((other.resources, problem))
        return None, min(tries, key=lambda one: (one[0].spills, one[0].registers))[1]

    def _refuse(self, name: str, reason: str, remarks: Metadata) -> None:
        if self.recipe.strict:
            raise WarplensError(f"{name}: {reason}")
        remarks["notes"].append(reason)

    def _build(self, text: str, context: Any, metadata: Metadata) -> Built:
        """Compile TTGIR to the end, leaving `metadata` alone."""
        trial = dict(metadata)
        llir = str(self._llir(override.parse_module(text, context), trial))
        return self._finish(llir, self._ptx(llir, trial), trial, self.recipe.how)

    def _finish(self, llir: str, ptx: str, metadata: Metadata, how: Weaving, registers: int = 0) -> Built:
        trial = dict(metadata)
        text = self._woven(ptx, trial, how)
        if registers:
            text = limited(text, {trial["name"]: registers})
        made = assemble(self._cubin, text, trial)
        if METADATA in trial:
            trial[METADATA]["resources"] = made.describe()
        return Built(llir, text, made.cubin, trial, made.resources)

    def _woven(self, text: str, metadata: Metadata, how: Weaving) -> str:
        name = str(metadata.get("name", ""))
        if not self.recipe.wants(name):
            return text
        if self.recipe.shared_bytes is not None and PREFIX in text:
            how = replace(how, shared=shared_buffer(text, metadata["shared"], how.select, self.recipe.shared_bytes))
        if self.recipe.auto:
            text = await_loads(declare_counters(begin_at_once(text)))
            if self.recipe.auto.covers_all_code and _SPECIALISED.search(text) and _LINE in text:
                text = mark_unmarked_code(text)
        woven = weave(text, buffer=ParamBuffer(-1), how=how)
        if not woven.entries:
            return text
        if metadata.get("profile_scratch_size"):
            raise WarplensError(
                f"kernel {name}: another tool already uses Triton's profile scratch; end it before wl.profile"
            )
        metadata["profile_scratch_size"] = SCRATCH_BYTES
        metadata["profile_scratch_align"] = SCRATCH_BYTES
        metadata[METADATA] = {**woven.describe(), "select": asdict(how.select)}
        if how.shared is not None:
            warps = -(-woven.threads[name] // 32)
            used = how.shared.slots * SLOT_BYTES * how.select.tracks_per_block(warps)
            metadata["shared"] = how.shared.offset + used
            metadata[METADATA] |= {"shared_slots": how.shared.slots, "shared_bytes": used}
        return woven.text


def _asks(auto: Auto) -> Iterator[tuple[Auto, list[str]]]:
    """What to try, and which classes it leaves out: what was asked for, then the same without its densest class, then
    without loads, whose regions hold all of a load's values at once, then without the counters of loops."""
    left: list[str] = []
    yield auto, left
    for kind in ("lines", "loads", "loops"):
        if auto.wants(kind) and (len(auto.classes) > 1 or auto.ranges):
            auto, left = replace(auto, classes=tuple(one for one in auto.classes if one != kind)), [*left, kind]
            yield auto, left


def _light(how: Weaving) -> Weaving:
    """The weaving that takes the fewest registers."""
    return replace(how, keep=0, constants=False, store="late" if how.store == "auto" else how.store)


def _dropped(marked: MarkedIR, most: int) -> str:
    left = ", ".join(f"{count} of {kind}" for kind, count in marked.dropped.items())
    total = len(marked.sites) + sum(marked.dropped.values())
    return (
        f"{total} places could be marked, {most} may be: left out {left}; "
        f"most_marks={total} (--most-marks {total}) marks all, fewer classes mark less"
    )


def _unsplit(lost: list[str]) -> str:
    return (
        f"{', '.join(map(repr, lost))} left no mark: this Triton drops marks from a loop with warp_specialize=True; "
        "automatic marks (auto=, regions=) go in behind that, or use a newer Triton"
    )


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip() and "stderr" not in line]
    said = next((line for line in lines if "error" in line.lower()), lines[0] if lines else type(error).__name__)
    return said.strip()[:300]
