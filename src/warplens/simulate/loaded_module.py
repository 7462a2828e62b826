"""A module loaded into simulated memory, and its launches: parameters, block scheduling, results."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from warplens.errors import UsageError, check_name, did_you_mean
from warplens.ptx import tree
from warplens.ptx.labels import end_with_return
from warplens.ptx.syntax import SCALAR_BYTES, PtxError, split_operands
from warplens.simulate.async_barriers import Completion
from warplens.simulate.batch_state import State
from warplens.simulate.cycle_clock import CycleClock
from warplens.simulate.decode_site import VariableLocation
from warplens.simulate.global_memory import GlobalMemory
from warplens.simulate.lane_scheduler import LaneScheduler
from warplens.simulate.numeric import FLOAT, TYPE_BYTES, UNSIGNED, Array
from warplens.simulate.special_registers import fill_registers
from warplens.simulate.step_blocks import DecodedEntry

Shape = int | Sequence[int]
MAX_STEPS = 50_000_000
_BATCH_LANES = 1 << 15


@dataclass
class VariableLayout:
    """The locations of variables. `shared` and `inner` are keyed by declaration, because scopes repeat names."""

    places: dict[str, VariableLocation] = field(default_factory=dict)
    shared: dict[tuple[int, str], VariableLocation] = field(default_factory=dict)
    inner: dict[tuple[int, str], VariableLocation] = field(default_factory=dict)
    static_shared: int = 0


@dataclass(frozen=True)
class Result:
    """The outcome of a launch. `blocks` has one row per block: its SM, and its first and last cycle in the launch.

    `completions` are the completed phases of mbarriers, with the number of each block.
    """

    instructions: int
    cycles: int
    start_ns: int
    end_ns: int
    blocks: Array
    seconds: float
    completions: tuple[Completion, ...] = ()


BLOCK_ROW = np.dtype([("sm", "<i4"), ("start", "<i8"), ("end", "<i8")])


class LoadedModule:
    """A module whose variables are allocated in `memory`; `symbols` are their addresses."""

    def __init__(self, module: tree.PtxModule | str, memory: GlobalMemory) -> None:
        self.module = tree.parse(module) if isinstance(module, str) else module
        for function in self.module.functions:
            end_with_return(function)
        self.memory = memory
        self.symbols: dict[str, int] = {}
        self._functions = {item.name: item for item in self.module.functions if item.body is not None}
        self._codes: dict[str, tuple[DecodedEntry, int]] = {}
        self._inner: dict[tuple[int, str], VariableLocation] = {}
        self._place_variables()

    def run(
        self,
        entry: str,
        grid: Shape,
        block: Shape,
        args: Sequence[object],
        *,
        shared: int = 0,
        clock: CycleClock | None = None,
        max_steps: int = MAX_STEPS,
    ) -> Result:
        """Launch `entry` and wait for it. `shared` is the dynamic shared memory per block in bytes."""
        began = time.perf_counter()
        clock = clock or CycleClock()
        function = self._entry(entry)
        grid3, block3 = _three("grid", grid), _three("block", block)
        code, params = self._code(function)
        self._pass(function, params, args)
        threads = int(np.prod(block3))
        if threads > 1024:
            raise UsageError(f"block={block3}: {threads} threads exceed the limit of 1024 per block")
        size = code.layout.static_shared + shared
        total = int(np.prod(grid3))
        slots = min(clock.sms * clock.blocks_per_sm, max(1, _BATCH_LANES // max(threads, 32)))
        free = np.zeros(clock.sms * clock.blocks_per_sm, np.int64)
        rows = np.zeros(total, BLOCK_ROW)
        steps = 0
        completions: list[Completion] = []
        for first in range(0, total, slots):
            blocks = np.arange(first, min(first + slots, total))
            # Slot s is on SM s % sms, so blocks are distributed over all SMs before they share one.
            chosen = np.argsort(free, kind="stable")[: len(blocks)]
            state = State(self.memory, clock, blocks, chosen % clock.sms, threads, size)
            state.cycles[:] = np.repeat(free[chosen], state.warps_per_block)
            fill_registers(state, code.registers, grid3, block3, shared, clock)
            scheduler = LaneScheduler(code, state, max_steps - steps)
            scheduler.run()
            steps += scheduler.instructions
            completions += [replace(one, block=int(blocks[one.block])) for one in state.completions]
            rows["sm"][blocks] = chosen % clock.sms
            rows["start"][blocks] = free[chosen]
            free[chosen] = state.finished.reshape(len(blocks), -1).max(axis=1)
            rows["end"][blocks] = free[chosen]
        last = int(free.max())
        ends = clock.nanoseconds(np.array([0, last]))
        return Result(steps, last, int(ends[0]), int(ends[1]), rows, time.perf_counter() - began, tuple(completions))

    def _entry(self, name: str) -> tree.Function:
        names = [function.name for function in self.module.entries]
        function = self._functions.get(name)
        if function is None or not function.is_entry:
            raise UsageError(f"the module has no entry {name!r}{did_you_mean(name, names)}")
        return function

    def _code(self, function: tree.Function) -> tuple[DecodedEntry, int]:
        """The decoded entry and the address of its parameters."""
        if function.name not in self._codes:
            layout = self._layout(function)
            offsets, size = _offsets(function)
            params = self.memory.alloc(max(size, 1))
            for param, offset in zip(function.params, offsets, strict=True):
                layout.places[param.name] = VariableLocation("param", params + offset)
            self._codes[function.name] = DecodedEntry(function, self._functions, layout), params
        return self._codes[function.name]

    def _pass(self, function: tree.Function, address: int, args: Sequence[object]) -> None:
        if len(args) != len(function.params):
            listed = ", ".join(f".{param.type} {param.name}" for param in function.params)
            raise UsageError(f"{function.name} takes {len(function.params)} arguments ({listed}), got {len(args)}")
        for param, offset, value in zip(function.params, _offsets(function)[0], args, strict=True):
            raw = _argument(param, value)
            if len(raw) != param.size:
                raise UsageError(f"{param.name} takes {param.size} bytes, got {len(raw)}")
            self.memory.write(address + offset, np.frombuffer(raw, np.uint8))

    # -- variables

    def _place_variables(self) -> None:
        waiting: list[tuple[tree.Declaration, tree.Variable, int]] = []
        bodies = [node for function in self._functions.values() for node in function.walk()]
        for node in [*self.module.declarations, *bodies]:
            if not isinstance(node, tree.Declaration) or node.space not in ("global", "const"):
                continue
            for variable in node.variables:
                if "extern" in node.linkage and variable.name in self.symbols:
                    continue
                size = node.size(variable) or len(_flat(variable.initialiser or "")) * node.element_bytes
                address = self.memory.alloc(size, max(node.align or 1, node.element_bytes, 16))
                self._inner[id(node), variable.name] = VariableLocation(node.space, address)
                self.symbols[variable.name] = address
                waiting.append((node, variable, address))
        for node, variable, address in waiting:
            if variable.initialiser is not None and (raw := self._initial(node, variable)):
                self.memory.write(address, np.frombuffer(raw, np.uint8))

    def _initial(self, node: tree.Declaration, variable: tree.Variable) -> bytes:
        width = SCALAR_BYTES[node.type]
        values = [self._number(node, text) for text in _flat(variable.initialiser or "")]
        if node.type in FLOAT:
            return b"".join(
                value if isinstance(value, bytes) else np.array(value, FLOAT[node.type]).tobytes() for value in values
            )
        return b"".join(
            value if isinstance(value, bytes) else (int(value) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
            for value in values
        )

    def _number(self, node: tree.Declaration, text: str) -> int | float | bytes:
        if match := re.match(r"0[fF]([0-9a-fA-F]{8})\Z|0[dD]([0-9a-fA-F]{16})\Z", text):
            return bytes.fromhex(match[1] or match[2])[::-1]
        inner = re.match(r"generic\s*\((.*)\)\Z", text)
        name, _, offset = (inner[1] if inner else text).partition("+")
        if name.strip() in self.symbols:
            return self.symbols[name.strip()] + int(offset.strip() or "0", 0)
        try:
            return int(text.rstrip("uU"), 0)
        except ValueError:
            pass
        try:
            return float(text)
        except ValueError:
            raise PtxError(node.line, node.raw, f"the initialiser {text} is not a number or a variable") from None

    def _layout(self, entry: tree.Function) -> VariableLayout:
        """Place the static shared memory of the entry and its callees, followed by the dynamic shared memory."""
        layout = VariableLayout(inner=self._inner)
        layout.places.update({name: VariableLocation("global", address) for name, address in self.symbols.items()})
        inlined = [function for function in self._functions.values() if not function.is_entry]
        text = "".join(function.text() for function in (entry, *inlined))
        end = 0
        dynamic: list[tuple[tuple[int, str], int, bool]] = []
        outer = {id(node) for node in self.module.declarations}
        nodes = [*self.module.declarations, *entry.walk(), *(n for f in inlined for n in f.walk())]
        for node in nodes:
            if not isinstance(node, tree.Declaration) or node.space != "shared":
                continue
            for variable in node.variables:
                if variable.name not in text:
                    continue
                size, align = node.size(variable), max(node.align or 1, node.element_bytes)
                if size == 0:
                    dynamic.append(((id(node), variable.name), max(align, 16), id(node) in outer))
                    continue
                start = -(-end // align) * align
                end = start + size
                self._put_shared(layout, (id(node), variable.name), start, id(node) in outer)
        if dynamic:
            align = max(item[1] for item in dynamic)
            end = -(-end // align) * align
        for key, _, is_outer in dynamic:
            self._put_shared(layout, key, end, is_outer)
        layout.static_shared = end
        return layout

    @staticmethod
    def _put_shared(layout: VariableLayout, key: tuple[int, str], at: int, outer: bool) -> None:
        layout.shared[key] = VariableLocation("shared", at)
        if outer:
            layout.places[key[1]] = VariableLocation("shared", at)


def _three(name: str, shape: Shape) -> tuple[int, int, int]:
    values = [int(shape)] if isinstance(shape, int | np.integer) else [int(value) for value in shape]
    values += [1] * (3 - len(values))
    if len(values) != 3 or min(values) < 1:
        raise UsageError(f"{name}={shape}: give one to three numbers of at least 1")
    return values[0], values[1], values[2]


def _offsets(function: tree.Function) -> tuple[list[int], int]:
    offsets, end = [], 0
    for param in function.params:
        start = -(-end // param.align) * param.align
        offsets.append(start)
        end = start + param.size
    return offsets, end


def _argument(param: tree.Param, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, np.ndarray | np.generic) and (value.ndim or param.is_array):
        return value.tobytes()
    if param.is_array and not (isinstance(value, int | np.integer) and param.size in UNSIGNED):
        raise UsageError(f"{param.name} is an array of {param.size} bytes: pass bytes, got {value!r}")
    if param.type in FLOAT or isinstance(value, float | np.floating):
        kind = FLOAT.get(param.type, FLOAT["f64" if param.size == 8 else "f16" if param.size == 2 else "f32"])
        return np.array(value, kind).tobytes()
    width = param.size if param.is_array else TYPE_BYTES.get(param.type, param.size)
    return np.array([int(value) & ((1 << 8 * width) - 1)], UNSIGNED[width]).tobytes()


def _flat(text: str) -> list[str]:
    text = text.strip()
    if text.startswith("{"):
        return [leaf for part in split_operands(text[1:-1]) for leaf in _flat(part)]
    return [text] if text else []


def symbol_values(program: LoadedModule, values: Mapping[str, object]) -> None:
    """Write `values` (numbers or arrays) to the module's variables of those names."""
    for name, value in values.items():
        check_name(f"the module has no variable {name!r}", name, program.symbols)
        data = value if isinstance(value, np.ndarray | np.generic) else np.array([value], np.uint64)
        program.memory.write(program.symbols[name], data)
