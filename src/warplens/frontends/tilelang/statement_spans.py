"""The Python lines of TileLang's statements, and the regions around them, kept through TileLang's lowering.

TileLang gives each statement a span with its file and line, and nearly all passes keep it. A region adds a number to
the span, so the program that TileLang compiles stays as it is without marks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

from tilelang.ir import get_stmt_span, set_stmt_span
from tilelang.tileop.gemm import Gemm
from tvm import tirx
from tvm.ir import SourceName, Span
from tvm.ir.instrument import pass_instrument
from tvm.tirx.stmt_functor import post_order_visit

from warplens.frontends.wrap import wrap

_END_COLUMN = 1 << 20
"""The last column of TileLang's spans; the number of the regions around a statement is added to it."""


class MarkedRegion(NamedTuple):
    """A region in the user's source: its marks at begin and end, and its line."""

    begin: tuple[str, ...]
    end: str
    file: str
    line: int


_around: list[tuple[MarkedRegion, ...]] = [()]
"""By number: the regions around a statement, the outermost first."""


def add_region(statement: Any, region: MarkedRegion) -> None:
    """Put a region around everything in a statement, outside the regions that are there."""

    def stamp(node: Any) -> None:
        if not isinstance(node, tirx.Stmt):
            return
        around = (region, *regions_of(node))
        if around not in _around:
            _around.append(around)
        file, line = location_of(node) or (region.file, region.line)
        set_stmt_span(node, Span(SourceName(file), line, line, 1, _END_COLUMN + _around.index(around)))

    post_order_visit(statement, stamp)


def regions_of(statement: Any) -> tuple[MarkedRegion, ...]:
    """The regions around a statement, the outermost first."""
    span = get_stmt_span(statement)
    number = 0 if span is None else int(span.end_column) - _END_COLUMN
    return _around[number] if 0 <= number < len(_around) else ()


def location_of(statement: Any) -> tuple[str, int] | None:
    """File and line of a statement."""
    span = get_stmt_span(statement)
    return None if span is None else (str(span.source_name.name), int(span.line))


def fill(statement: Any, outer: Any = None) -> None:
    """Give every statement without a span that of the next one beside it, or else of the one before, or around it."""
    own = get_stmt_span(statement) or outer
    if get_stmt_span(statement) is None and own is not None:
        set_stmt_span(statement, own)
    for body in bodies(statement):
        spans = [first_span(one) for one in body]
        for place, one in enumerate(body):
            near = [*spans[place:], *reversed(spans[:place])]
            fill(one, next((span for span in near if span is not None), own))


def first_span(statement: Any) -> Any:
    """The span of a statement, or the first in it."""
    span = get_stmt_span(statement)
    if span is not None:
        return span
    inner = (first_span(one) for body in bodies(statement) for one in body)
    return next((one for one in inner if one is not None), None)


def bodies(statement: Any) -> Iterator[list[Any]]:
    """The sequences of statements inside a statement."""
    if isinstance(statement, tirx.SeqStmt):
        yield list(statement.seq)
        return
    for name in ("body", "then_case", "else_case", "block", "init"):
        body = getattr(statement, name, None)
        if isinstance(body, tirx.Stmt):
            yield [body]


@pass_instrument
class SpanKeeper:
    """Give back the spans that TileLang's passes drop from tile operations and loops, such as copies that become TMA
    copies. An operation is known by the buffers that it works on, a loop by its variable."""

    def __init__(self) -> None:
        self._before: list[dict[Hashable, list[Any]]] = []
        self._lowered = False

    def run_before_pass(self, module: Any, info: Any) -> None:
        self._before.append(_known_statements(module))
        self._lowered |= info.name == "tl.LowerTileOp"

    def run_after_pass(self, module: Any, _: Any) -> None:
        before = self._before.pop() if self._before else {}
        for what, now in {} if self._lowered else _known_statements(module).items():
            spans = [span for span in map(get_stmt_span, before.get(what, ())) if span is not None]
            known, same = set(map(_key, spans)), len(spans) == len(now)
            for place, statement in enumerate(now):
                # A pass that rebuilds a loop gives its statements the line of the loop.
                if spans and _key(get_stmt_span(statement)) not in known:
                    set_stmt_span(statement, spans[place if same else 0])
        _fill_fused_loops(module)

    def lowering_gemms(self) -> Callable[[], None]:
        """Give the code of each T.gemm the span of its call, not of the library's code that makes it."""
        places: dict[Hashable, int] = {}

        def lower(original: Callable[..., Any], gemm: Any, *given: Any) -> Any:
            made = original(gemm, *given)
            buffers = (gemm.A.name, gemm.B.name, gemm.C.name)
            called = self._before[-1].get(buffers, ()) if self._before else ()
            place = places[buffers] = places.get(buffers, -1) + 1
            span = get_stmt_span(called[place % len(called)]) if called else None
            if span is not None:
                post_order_visit(
                    getattr(made, "body", made), lambda node: isinstance(node, tirx.Stmt) and set_stmt_span(node, span)
                )
            return made

        return wrap(Gemm, "lower", lower)


def _fill_fused_loops(module: Any) -> None:
    """Give a loop that a pass made of several the span of what is in it, if all of that is of the same regions: a later
    pass may give what it makes of the loop the span of the loop, or of what is around it."""

    def visit(node: Any) -> None:
        if not isinstance(node, tirx.For) or get_stmt_span(node) is not None:
            return
        spans: list[Any] = []
        post_order_visit(
            node.body, lambda one: spans.append(get_stmt_span(one)) if isinstance(one, tirx.Stmt) else None
        )
        known = [span for span in spans if span is not None]
        if len({int(span.end_column) for span in known}) == 1:
            set_stmt_span(node, known[0])

    for function in module.functions.values():
        if isinstance(function, tirx.PrimFunc):
            post_order_visit(function.body, visit)


def _key(span: Any) -> Hashable:
    return None if span is None else (str(span.source_name.name), int(span.line), int(span.end_column))


def _known_statements(module: Any) -> dict[Hashable, list[Any]]:
    """The tile operations of a module by the names of their buffers, and its loops by their variables, in order."""
    found: dict[Hashable, list[Any]] = {}

    def visit(node: Any) -> None:
        if isinstance(node, tirx.For):
            found.setdefault(str(node.loop_var.name), []).append(node)
        elif isinstance(node, tirx.Evaluate) and _operator(node.value).startswith("tl.tileop."):
            regions = [argument.args[0] for argument in node.value.args if _operator(argument) == "tl.region"]
            found.setdefault(tuple(str(one.buffer.name) for one in regions), []).append(node)

    for function in module.functions.values():
        if isinstance(function, tirx.PrimFunc):
            post_order_visit(function.body, visit)
    return found


def _operator(expression: Any) -> str:
    return str(getattr(getattr(expression, "op", None), "name", ""))
