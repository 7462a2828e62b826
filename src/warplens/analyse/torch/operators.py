"""Summarise PyTorch's operators, runtime calls and kernels: CPU time, GPU time and memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from warplens.analyse.torch.kineto import RUNTIME_CATEGORIES, MemoryEvent, Slice, Thread, TorchTrace
from warplens.record.capture import OWN_WORK

_KINDS = {"cpu_op": "operator", "user_annotation": "annotation"} | dict.fromkeys(RUNTIME_CATEGORIES, "runtime")


@dataclass
class Operator:
    """All calls of one operator (or annotation, or call of the CUDA runtime).

    `self_` excludes operators called inside it. `cuda_ns` is the time of the kernels and copies that it launched. Bytes
    are those allocated less those released.
    """

    name: str
    kind: str
    calls: int = 0
    cpu_ns: int = 0
    self_cpu_ns: int = 0
    cuda_ns: int = 0
    self_cuda_ns: int = 0
    cpu_bytes: int = 0
    self_cpu_bytes: int = 0
    cuda_bytes: int = 0
    self_cuda_bytes: int = 0


@dataclass(frozen=True)
class TorchKernel:
    """All launches of one kernel, copy or fill; warplens recorded `recorded` of them."""

    name: str
    calls: int
    cuda_ns: int
    mean_ns: float
    recorded: int


@dataclass(frozen=True)
class TorchSummary:
    """The operators, the kernels, and the peak memory by device (-1 is the CPU).

    Work of warplens itself is one row, and its buffers do not count as memory.
    """

    operators: Sequence[Operator]
    kernels: Sequence[TorchKernel]
    peak_bytes: Mapping[int, int]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class _Call:
    """One slice in the call tree of its thread, and what happened directly in it."""

    def __init__(self, slice_: Slice, parent: _Call | None) -> None:
        self.slice, self.parent = slice_, parent
        self.own: _Call | None = self if slice_.name == OWN_WORK else parent.own if parent is not None else None
        self.children = self.inner_ns = self.cuda_ns = self.cpu_bytes = self.cuda_bytes = 0

    @property
    def ns(self) -> int:
        return self.slice.end - self.slice.start


def summarise(torch: TorchTrace, recorded: Sequence[Slice] = ()) -> TorchSummary:
    """Summarise a torch trace, most expensive first; `recorded` are the kernels that warplens recorded."""
    own_memory: set[int] = set()
    calls = list(_calls(torch, own_memory))
    by_slice = {id(call.slice): call for call in calls}
    own_kernels: set[int] = set()
    for one in torch.slices:
        launcher = by_slice.get(id(torch.calls.get(one.correlation))) if one.on_gpu and one.correlation else None
        if launcher is not None:
            _owner(launcher).cuda_ns += one.end - one.start
            if launcher.own is not None:
                own_kernels.add(id(one))
    return TorchSummary(_operators(calls), _kernels(torch, recorded, own_kernels), _peaks(torch.memory, own_memory))


def _calls(torch: TorchTrace, own: set[int]) -> Iterator[_Call]:
    """Every CPU slice in the call tree of its thread, with the memory allocated directly in it.

    The identities of the allocations that warplens made are added to `own`.
    """
    on_cpu = sorted((one for one in torch.slices if one.category in _KINDS), key=lambda one: one.place)
    memory: dict[Thread, list[MemoryEvent]] = {}
    for change in torch.memory:
        memory.setdefault(change.place, []).append(change)
    for place, slices in groupby(on_cpu, key=lambda one: one.place):
        waiting = deque(memory.get(place, ()))
        stack: list[_Call] = []
        for one in slices:
            while waiting and waiting[0].time < one.start:
                _attribute(stack, waiting.popleft(), own)
            while stack and stack[-1].slice.end < one.end:
                stack.pop()
            call = _Call(one, stack[-1] if stack else None)
            if stack:
                stack[-1].inner_ns += call.ns
                stack[-1].children += 1
            stack.append(call)
            yield call
        for event in waiting:
            _attribute(stack, event, own)


def _attribute(stack: Sequence[_Call], event: MemoryEvent, own: set[int]) -> None:
    """Attribute an allocation to the innermost open slice."""
    for call in reversed(stack):
        if call.slice.start <= event.time <= call.slice.end:
            if event.device < 0:
                call.cpu_bytes += event.size
            else:
                call.cuda_bytes += event.size
            if call.own is not None:
                own.add(id(event))
            return


def _owner(call: _Call) -> _Call:
    """The operator or annotation that made a runtime call; the call itself where there is none."""
    owner: _Call | None = call
    while owner is not None and owner.slice.category in RUNTIME_CATEGORIES:
        owner = owner.parent
    return owner or call


def _operators(calls: Sequence[_Call]) -> list[Operator]:
    sums: dict[tuple[str, str], Operator] = {}
    for call in calls:
        mine = sums.setdefault(_key(call), Operator(*_key(call)))
        if call.own in (None, call) and not _is_same(call):
            mine.calls += 1
            mine.cpu_ns += call.ns
        mine.self_cpu_ns += call.ns - call.inner_ns
        mine.self_cuda_ns += call.cuda_ns
        mine.self_cpu_bytes += call.cpu_bytes
        mine.self_cuda_bytes += call.cuda_bytes
        outer = (call.own or call) if call.cuda_ns or call.cpu_bytes or call.cuda_bytes else None
        while outer is not None:
            if not _is_same(outer):
                around = sums[_key(outer)]
                around.cuda_ns += call.cuda_ns
                around.cpu_bytes += call.cpu_bytes
                around.cuda_bytes += call.cuda_bytes
            outer = outer.parent
    return sorted(sums.values(), key=lambda row: (-row.self_cuda_ns, -row.self_cpu_ns, row.name))


def _is_same(call: _Call) -> bool:
    """Whether an operator only calls itself for another type: PyTorch counts that as one call."""
    parent = call.parent
    return parent is not None and parent.children == 1 and parent.slice.name == call.slice.name


def _key(call: _Call) -> tuple[str, str]:
    """The name and kind that a call counts as; everything inside warplens' own work counts as that."""
    counted = (call.own or call).slice
    return counted.name, _KINDS[counted.category]


def _kernels(torch: TorchTrace, recorded: Sequence[Slice], own: set[int]) -> list[TorchKernel]:
    inside: dict[str, int] = {}
    for one in recorded:
        inside[one.name] = inside.get(one.name, 0) + 1
    times: dict[str, list[int]] = {}
    for one in torch.slices:
        if one.on_gpu and one.category != "gpu_user_annotation":
            times.setdefault(OWN_WORK if id(one) in own else one.name, []).append(one.end - one.start)
    rows = [TorchKernel(name, len(ns), sum(ns), sum(ns) / len(ns), inside.get(name, 0)) for name, ns in times.items()]
    return sorted(rows, key=lambda row: (-row.cuda_ns, row.name))


def _peaks(memory: Sequence[MemoryEvent], own: set[int]) -> dict[int, int]:
    """Peak memory without warplens' own buffers, which end where their addresses are freed."""
    peaks: dict[int, int] = {}
    own_bytes: dict[tuple[int, int], int] = {}
    for event in memory:
        place = event.device, event.address
        if id(event) in own:
            own_bytes[place] = own_bytes.get(place, 0) + event.size
        elif event.size < 0:
            own_bytes.pop(place, None)
        ours = sum(size for (device, _), size in own_bytes.items() if device == event.device)
        peaks[event.device] = max(peaks.get(event.device, 0), event.allocated - ours)
    return peaks
