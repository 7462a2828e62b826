"""What the code of each region is made of, counted in the PTX before it is woven: recorded with every launch."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence

from warplens.ptx.lane_accesses import ACCESSES, LaneAccess, accessed_address, lane_access, largest_waste
from warplens.ptx.lane_values import LANES, LaneValues
from warplens.ptx.tree import Comment, Function, Instruction
from warplens.record.layout import Kind
from warplens.weave.code_between import CodeBetween
from warplens.weave.mark_comments import parse_mark
from warplens.weave.polling_loops import find_loops

OUTSIDE = ""
"""Stands for the code outside all regions."""
_MATRIX = frozenset({"mma", "wgmma", "wmma", "tcgen05"})
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_WARPS_OF_GROUP = 4
_SLOWER = {"tf32": 2.0, "f64": 15.0, "e4m3": 0.5, "e5m2": 0.5, "s8": 0.5, "u8": 0.5}
"""How long a product of operands of this type takes beside one of 16-bit operands."""
_ATOMIC = frozenset({"atom", "red"})
_COUNTED = frozenset({*ACCESSES, *_ATOMIC, *_MATRIX, "bar", "barrier", "cp", "mbarrier"})
_LARGEST = 200_000
"""Instructions of a function; larger ones are not looked at, as that would take longer than weaving them."""

Counts = dict[str, float]


_known: OrderedDict[tuple[str, tuple[tuple[str, int], ...]], dict[str, Counts]] = OrderedDict()
"""A search weaves the same function several times."""
_MOST_KNOWN = 32


def region_code(
    function: Function, numbers: Mapping[str, int], between: Sequence[CodeBetween] = ()
) -> dict[str, Counts]:
    """Counts for each region by its number, and for the code outside all regions (`""`).

    An instruction counts for the innermost region that is open where it stands in the text, and code in `between` for
    every region that it is part of.
    """
    key = function.text(), tuple(sorted(numbers.items()))
    if key not in _known:
        _known[key] = _of_function(function, numbers, between)
        if len(_known) > _MOST_KNOWN:
            _known.popitem(last=False)
    return _known[key]


def _of_function(function: Function, numbers: Mapping[str, int], between: Sequence[CodeBetween]) -> dict[str, Counts]:
    nodes = list(function.walk())
    if len(nodes) > _LARGEST:
        return {}
    # Most instructions are no access to memory and have nothing to do with an address.
    addresses = [accessed_address(node) for node in nodes if isinstance(node, Instruction) and node.opcode in ACCESSES]
    values = LaneValues(function, [address for address in addresses if address])
    found: dict[str, Counts] = {}
    accesses: dict[str, list[tuple[int, LaneAccess]]] = {}
    loops = find_loops(nodes)
    open_: list[str] = []
    depths = [0]
    begins: Counter[str] = Counter()
    name, unmarked = OUTSIDE, _unmarked(numbers, between)
    outermost = {str(numbers[one.name]): min((loops.depths[at] for at in one.nodes), default=0) for one in between}
    for at, node in enumerate(nodes):
        names = (unmarked.get(at) or (name,)) if unmarked else (name,)
        if at in loops.waits:
            for one in names:
                _add(found, one, loops.waits[at])
        if isinstance(node, Instruction):
            for one in names:
                _add(found, one, "instructions")
            if node.opcode not in _COUNTED:
                continue
            access = lane_access(node, values)
            moved = _moved_bytes(node, access)
            for one in names:
                _count(found[one], node, access)
                inside = loops.depths[at] > outermost.get(one, depths[-1])
                if inside:
                    found[one]["loops"] = 1
                if moved:
                    found[one]["moved_bytes"] = found[one].get("moved_bytes", 0) + moved
                    if inside:
                        found[one]["repeats"] = 1
                if access is not None:
                    accesses.setdefault(one, []).append((loops.depths[at], access))
        elif isinstance(node, Comment):
            mark = parse_mark(node.content, node.line)
            if mark is not None and mark.kind is Kind.BEGIN:
                begins[str(numbers.get(mark.name, OUTSIDE))] += 1
                open_.append(mark.name)
                depths.append(loops.depths[at])
            elif mark is not None and mark.kind is Kind.END and mark.name in open_:
                del open_[len(open_) - 1 - open_[::-1].index(mark.name) :]
                del depths[len(open_) + 1 :]
            if mark is not None:
                name = str(numbers[open_[-1]]) if open_ and open_[-1] in numbers else OUTSIDE
    for name, counts in found.items():
        if "moved_bytes" in counts:  # an instance of a region with several places runs one of them
            counts["moved_bytes"] /= max(begins[name], 1)
    for name, some in accesses.items():
        # Accesses before and after the loops of a region hardly count beside those inside them.
        deepest = max(depth for depth, _ in some)
        _describe(found[name], [one for depth, one in some if depth == deepest])
    return found


def _describe(counts: Counts, accesses: Sequence[LaneAccess]) -> None:
    """How the lanes of a region's accesses lie to one another."""
    for access in accesses:
        if access.space == "shared":
            counts["ways"] = max(counts.get("ways", 0), access.ways)
            counts["conflicts"] = counts.get("conflicts", 0) + max(access.ways - 1, 0)
        elif access.space == "global" and access.scattered:
            counts["scattered"] = counts.get("scattered", 0) + 1
    known = [one for one in accesses if one.space == "global" and not one.scattered]
    for key, is_load in (("load_waste", True), ("store_waste", False)):
        if wasted := largest_waste([one for one in known if one.is_load == is_load]):
            counts[key] = round(wasted, 2)


def _unmarked(numbers: Mapping[str, int], between: Sequence[CodeBetween]) -> dict[int, tuple[str, ...]]:
    """By place among the nodes, the numbers of the regions between others that an instruction is part of."""
    found: dict[int, dict[str, None]] = {}
    for one in between:
        for at in one.nodes:
            found.setdefault(at, {})[str(numbers[one.name])] = None
    return {at: tuple(names) for at, names in found.items()}


def _add(found: dict[str, Counts], name: str, what: str) -> None:
    if name not in found:
        found[name] = {}
    counts = found[name]
    counts[what] = counts.get(what, 0) + 1


def _count(counts: Counts, node: Instruction, access: LaneAccess | None) -> None:
    def add(name: str, amount: float = 1) -> None:
        counts[name] = counts.get(name, 0) + amount

    if access is not None:
        add({"global": "loads" if access.is_load else "stores"}.get(access.space, access.space))
        if access.space == "global" and access.is_load:
            add("load_bytes", access.width)
    elif node.opcode in _ATOMIC:
        add("shared_atomics" if any(name.startswith("shared") for name in node.modifiers) else "atomics")
    elif node.opcode in ("bar", "barrier") and "warp" not in node.modifiers and "arrive" not in node.modifiers:
        add("barriers")
    elif node.opcode in _MATRIX and {"sync", "mma_async", "mma"} & set(node.modifiers):
        add("matrix")
        if flops := _matrix_flops(node):
            add("matrix_flops", flops)
    elif node.opcode == "cp" and "async" in node.modifiers:
        add("waits" if {"wait_group", "wait_all"} & set(node.modifiers) else "copies")


def _moved_bytes(node: Instruction, access: LaneAccess | None) -> int:
    """The bytes that a warp moves to or from global memory by one instruction; 0 if there are none or it is not known.

    Bulk copies are counted by the bytes that their mbarrier expects.
    """
    if access is not None:
        lanes = len(set(access.lanes)) or LANES
        return lanes * access.width if access.space == "global" else 0
    operands = node.operands
    if node.opcode == "mbarrier" and "expect_tx" in node.modifiers:
        return int(operands[-1]) if operands[-1].isdecimal() else 0
    if node.opcode == "cp" and {"ca", "cg"} & set(node.modifiers):
        return LANES * int(operands[2]) if operands[2].isdecimal() else 0
    return 0


def _matrix_flops(node: Instruction) -> float:
    """The operations of a matrix product per warp that takes part, as if its operands had 16 bits; 0 if not known."""
    shape = next((found for name in node.modifiers if (found := _SHAPE.fullmatch(name))), None)
    if shape is None:
        return 0.0
    m, n, k = map(int, shape.groups())
    slower = next((_SLOWER[name] for name in node.modifiers if name in _SLOWER), 1.0)
    return 2 * m * n * k * slower / (_WARPS_OF_GROUP if node.opcode == "wgmma" else 1)
