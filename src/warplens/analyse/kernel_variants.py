"""The variants of each kernel in a trace, with short labels made of what tells them apart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.record.capture import VARIANT, VARIANT_LAUNCHES, VARIANT_NUMBER
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo

_SHAPES = ("grid", "sizes", "block")
"""Values that are sizes: `grid 64×32`, not `grid=[64, 32, 1]`."""
_FOLLOWING = ("grid", "sizes")
"""Values that follow from others where a tile's size differs; a label leaves them out if it can."""
_MIXED = "mixed"
_PLAIN: Mapping[str, Any] = {}
"""What a launch without a description is taken to say."""


@dataclass(frozen=True)
class KernelVariant:
    """Launches of one kernel with the same code, launch options and grid.

    `label` is the kernel's name, followed by what tells it from other variants where the kernel has several. `ran` is
    the number of launches that the program made, recorded or not; 0 where it is not known.
    """

    kernel: str
    label: str
    values: Mapping[str, Any]
    launches: tuple[LaunchInfo, ...]
    ran: int = 0

    @property
    def is_only_one(self) -> bool:
        """Whether the kernel has no other variant in the trace."""
        return self.label == self.kernel

    def to_json(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "values": dict(self.values), "launches": len(self.launches), "ran": self.ran}


def kernel_variants(launches: Iterable[LaunchInfo], *, merge: bool = False) -> list[KernelVariant]:
    """The variants of every kernel, in the order of first launch. `merge` makes one of each kernel's variants."""
    groups: dict[str, dict[str, list[LaunchInfo]]] = {}
    identity = _Identities()
    for info in launches:
        groups.setdefault(info.kernel, {}).setdefault("" if merge else identity.of(info), []).append(info)
    found = []
    for kernel, variants in groups.items():
        infos = list(variants.values())
        values = [{} if merge else _values(some) for some in infos]
        for some, known, label in zip(infos, values, _labels(kernel, values), strict=True):
            found.append(KernelVariant(kernel, label, known, tuple(some), _ran(some, identity)))
    return found


def variant_labels(launches: Iterable[LaunchInfo]) -> list[str]:
    """The labels of the variants after an empty one, which stands alone where there is one variant."""
    found = kernel_variants(launches)
    return ["", *(one.label for one in found)] if len(found) > 1 else [""]


def variant_rows(trace: Trace) -> npt.NDArray[np.int64]:
    """For each row of the trace, the place of its variant's label among the `variant_labels`."""
    places: dict[tuple[int, int], int] = {}
    found = kernel_variants(trace.meta.launches)
    for at, variant in enumerate(found if len(found) > 1 else (), 1):
        places |= {(info.rank, info.launch): at for info in variant.launches}
    if not places:
        return np.zeros(len(trace), np.int64)
    width = 1 + max(info.launch for info in trace.meta.launches)
    code = np.zeros(width * (1 + max(info.rank for info in trace.meta.launches)), np.int64)
    for (rank, launch), place in places.items():
        code[rank * width + launch] = place
    return code[trace.numpy("rank").astype(np.int64) * width + trace.numpy("launch")]


class _Identities:
    """Tells variants apart. Launches of one variant mostly share its description, which is written once then."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, int], str] = {}

    def of(self, info: LaunchInfo) -> str:
        described, number = info.extra.get(VARIANT, _PLAIN), info.extra.get(VARIANT_NUMBER, 1)
        key = id(described), id(number)
        if key not in self._texts:
            self._texts[key] = json.dumps([described, number], sort_keys=True, default=str)
        return self._texts[key]


def _values(launches: Sequence[LaunchInfo]) -> dict[str, Any]:
    """What describes a variant. One that stands for several grids does not name the first of them as its own."""
    first = launches[0].extra
    values = dict(first.get(VARIANT, {}))
    if "grid" in values and len({info.grid for info in launches}) > 1:
        values["grid"] = _MIXED
    if first.get(VARIANT_NUMBER, 1) > 1:
        values["#"] = first[VARIANT_NUMBER]
    return values


def _ran(launches: Sequence[LaunchInfo], identity: _Identities) -> int:
    """Launches that the program made, over all ranks and variants among these."""
    counts = {(info.rank, identity.of(info)): int(info.extra.get(VARIANT_LAUNCHES, 0)) for info in launches}
    return sum(counts.values())


def _labels(kernel: str, variants: Sequence[Mapping[str, Any]]) -> list[str]:
    if len(variants) == 1:
        return [kernel]
    names = dict.fromkeys(name for values in variants for name in values)
    differ = [name for name in names if len({_text(name, values) for values in variants}) > 1]
    for name in _FOLLOWING:
        others = [other for other in differ if other != name]
        if name in differ and others and len({_joined(others, values) for values in variants}) == len(variants):
            differ = others
    return [f"{kernel}[{_joined(differ, values)}]" for values in variants]


def _joined(names: Sequence[str], values: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (_text(name, values) for name in names))) or "default"


def _text(name: str, values: Mapping[str, Any]) -> str:
    if name not in values:
        return ""
    value = values[name]
    if name == "#":
        return f"#{value}"
    if name not in _SHAPES:
        return f"{name}={value}"
    if not isinstance(value, Sequence) or isinstance(value, str):
        return f"{name} {value}"
    sizes = [str(size) for size in value]
    while len(sizes) > 1 and sizes[-1] == "1":
        sizes.pop()
    return f"{name} {'×'.join(sizes)}"
