"""Put the marks of regions around the statements that TileLang made of them.

TileLang moves and repeats the statements of a region: pipelines begin loads early, and warp specialisation gives loads
and products to different warps. Each run of statements that are all of a region gets the region's begin and end.
"""

from __future__ import annotations

import itertools
from typing import Any

from tilelang.ir import get_stmt_span, make_span, set_stmt_span
from tvm import tirx
from tvm.tirx.stmt_functor import ir_transform, post_order_visit

from warplens.errors import WarplensError
from warplens.frontends.tilelang.statement_spans import MarkedRegion, bodies, regions_of

_KINDS = [
    f"tirx.{name}"
    for name in (
        "AllocBuffer", "AssertStmt", "AttrStmt", "Bind", "BufferStore", "DeclBuffer", "Evaluate", "For", "IfThenElse",
        "SBlock", "SBlockRealize", "SeqStmt", "While",
    )
]  # fmt: skip


def mark_call(text: str, *operands: tuple[str, Any]) -> Any:
    """A call that leaves a mark's comment in the PTX; `$0` in its text is the first operand, given with its constraint.

    The function is written where it is called, so the generated source needs no header."""
    if operands:  # only then `%` means something to nvcc
        text = text.replace("%", "%%").replace("$", "%")
    names = {"r": "int", "l": "long long", "f": "float", "d": "double"}
    parameters = ", ".join(f"{names[kind]} v{place}" for place, (kind, _) in enumerate(operands))
    inputs = ", ".join(f'"{kind}"(v{place})' for place, (kind, _) in enumerate(operands))
    function = f'[]({parameters}) {{ asm volatile("// {text}" :: {inputs} : "memory"); }}'
    return tirx.call_extern("handle", function, *(operand for _, operand in operands))


def with_marks(body: Any) -> Any:
    """The statements of a kernel with the marks of the regions in their spans."""
    before: dict[int, list[Any]] = {}
    after: dict[int, list[Any]] = {}
    numbers = itertools.count()

    def visit(sequence: list[Any], outer: tuple[MarkedRegion, ...]) -> None:
        around = _regions_of_each(sequence)
        for place, statement in enumerate(sequence):
            number, own = next(numbers), [region for region in around[place] if region not in outer]
            first = [region for region in own if place == 0 or region not in around[place - 1]]
            last = [region for region in own if place + 1 == len(sequence) or region not in around[place + 1]]
            if first:
                before[number] = [_placed(text, region) for region in first for text in region.begin]
            if last:
                after[number] = [_placed(region.end, region) for region in reversed(last)]
            for inner in bodies(statement):
                visit(inner, (*outer, *own))

    visit([body], ())
    return _inserted(body, before, after)


def has_regions(body: Any) -> bool:
    """Whether any statement is in a region."""
    found = []
    post_order_visit(body, lambda node: found.append(1) if isinstance(node, tirx.Stmt) and regions_of(node) else None)
    return bool(found)


def _regions_of_each(sequence: list[Any]) -> list[tuple[MarkedRegion, ...]]:
    """The regions of each statement in a sequence. One without a line, such as a wait that TileLang added, is in those
    of the statement that it precedes, or else follows."""
    own = [_common(statement) for statement in sequence]
    found = []
    for place, regions in enumerate(own):
        near = [regions, *own[place + 1 :], *reversed(own[:place])]
        found.append(next((one for one in near if one is not None), ()))
    return found


def _common(statement: Any) -> tuple[MarkedRegion, ...] | None:
    """The regions that a statement is in; None where neither it nor anything in it has a line. What TileLang put around
    other statements is in the regions that all of these are in."""
    if get_stmt_span(statement) is not None and not isinstance(statement, tirx.SeqStmt):
        return regions_of(statement)
    known = [regions for body in bodies(statement) for regions in map(_common, body) if regions is not None]
    return tuple(region for region in known[0] if all(region in other for other in known)) if known else None


def _placed(text: str, region: MarkedRegion) -> Any:
    made = tirx.Evaluate(mark_call(text))
    set_stmt_span(made, make_span(region.file, region.line))
    return made


def _inserted(body: Any, before: dict[int, list[Any]], after: dict[int, list[Any]]) -> Any:
    """The statements with others before and after them, by the order in which they are met."""
    numbers, met = itertools.count(), list[int]()

    def enter(_: Any) -> None:
        met.append(next(numbers))

    def leave(statement: Any) -> Any:
        number = met.pop()
        around = [*before.pop(number, ()), statement, *after.pop(number, ())]
        return tirx.SeqStmt(around) if len(around) > 1 else statement

    made = ir_transform(body, enter, leave, _KINDS)
    if before or after:
        raise WarplensError("its statements are not of the kinds that warplens knows")
    return made
