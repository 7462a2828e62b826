"""What the code of each region is made of, counted in the PTX before it is woven: recorded with every launch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from warplens.ptx.lane_accesses import LaneAccess, lane_access, largest_waste
from warplens.ptx.lane_values import LaneValues
from warplens.ptx.tree import Comment, Function, Instruction
from warplens.record.layout import Kind
from warplens.weave.mark_comments import parse_mark

OUTSIDE = ""
"""Stands for the code outside all regions."""
_MATRIX = frozenset({"mma", "wgmma", "wmma", "tcgen05"})
_ATOMIC = frozenset({"atom", "red"})
_LARGEST = 200_000
"""Instructions of a function; larger ones are not looked at, as that would take longer than weaving them."""

Counts = dict[str, float]


_known: OrderedDict[tuple[str, str], dict[str, Counts]] = OrderedDict()
"""A search weaves the same function several times."""
_MOST_KNOWN = 32


def region_code(function: Function, numbers: Mapping[str, int]) -> dict[str, Counts]:
    """Counts for each region by its number, and for the code outside all regions (`""`).

    An instruction counts for the innermost region that is open where it stands in the text.
    """
    key = function.text(), repr(sorted(numbers.items()))
    if key not in _known:
        _known[key] = _of_function(function, numbers)
        if len(_known) > _MOST_KNOWN:
            _known.popitem(last=False)
    return _known[key]


def _of_function(function: Function, numbers: Mapping[str, int]) -> dict[str, Counts]:
    nodes = list(function.walk())
    if len(nodes) > _LARGEST:
        return {}
    values = LaneValues(function)
    found: dict[str, Counts] = {}
    accesses: dict[str, list[LaneAccess]] = {}
    open_: list[str] = []
    for node in nodes:
        if isinstance(node, Comment):
            mark = parse_mark(node.content, node.line)
            if mark is not None and mark.kind is Kind.BEGIN:
                open_.append(mark.name)
            elif mark is not None and mark.kind is Kind.END and mark.name in open_:
                del open_[len(open_) - 1 - open_[::-1].index(mark.name) :]
        elif isinstance(node, Instruction):
            name = str(numbers[open_[-1]]) if open_ and open_[-1] in numbers else OUTSIDE
            access = lane_access(node, values)
            _count(found.setdefault(name, {}), node, access)
            if access is not None and access.space == "global" and not access.scattered:
                accesses.setdefault(name, []).append(access)
    for name, some in accesses.items():
        for key, is_load in (("load_waste", True), ("store_waste", False)):
            if wasted := largest_waste([one for one in some if one.is_load == is_load]):
                found[name][key] = round(wasted, 2)
    return found


def _count(counts: Counts, node: Instruction, access: LaneAccess | None) -> None:
    def add(name: str, amount: float = 1) -> None:
        counts[name] = counts.get(name, 0) + amount

    add("instructions")
    if access is not None:
        _count_access(counts, access)
        add({"global": "loads" if access.is_load else "stores"}.get(access.space, access.space))
        if access.space == "global" and access.is_load:
            add("load_bytes", access.width)
    elif node.opcode in _ATOMIC:
        add("shared_atomics" if any(name.startswith("shared") for name in node.modifiers) else "atomics")
    elif node.opcode in ("bar", "barrier") and "warp" not in node.modifiers and "arrive" not in node.modifiers:
        add("barriers")
    elif node.opcode in _MATRIX and {"sync", "mma_async", "mma"} & set(node.modifiers):
        add("matrix")
    elif node.opcode == "cp" and "async" in node.modifiers and "wait_group" not in node.modifiers:
        add("copies")


def _count_access(counts: Counts, access: LaneAccess) -> None:
    if access.space == "shared":
        counts["ways"] = max(counts.get("ways", 0), access.ways)
        counts["conflicts"] = counts.get("conflicts", 0) + max(access.ways - 1, 0)
    elif access.space == "global" and access.scattered:
        counts["scattered"] = counts.get("scattered", 0) + 1
