"""A drop-in for IKET, the marks of NVIDIA's CuTe DSL: ranges, marks and payloads with the same signatures.

    from warplens.compat import iket            # before: from cutlass.cute.experimental import iket

Each mark is a comment in the PTX. Kernels launched inside `wl.profile` or `warplens run` record them; elsewhere
a mark has no instruction. Names may have any length and payloads any type of number, and there is no limit on events.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from warplens.frontends.cute.requirement import require_cute

require_cute()

from cutlass.cutlass_dsl import Boolean, dsl_user_op, if_generate  # noqa: E402

from warplens.errors import UsageError  # noqa: E402
from warplens.frontends.cute.asm import enclosing  # noqa: E402
from warplens.frontends.cute.inert_marks import leave, value_mark  # noqa: E402
from warplens.frontends.cute.mark_arguments import mark_name  # noqa: E402
from warplens.frontends.cute.ptx_keeper import keep_marked_ptx  # noqa: E402
from warplens.frontends.registry import attach  # noqa: E402
from warplens.weave.iket_marks import POP, PUSH  # noqa: E402
from warplens.weave.mark_comments import encode_name, mark_text  # noqa: E402

__all__ = [
    "DAG", "Edge", "RangeToken", "dag", "mark", "range_end", "range_pop", "range_push", "range_start", "sentinel_token",
]  # fmt: skip

_F = TypeVar("_F", bound=Callable[..., Any])
_user_line: Callable[[_F], _F] = dsl_user_op
"""Gives a mark the source line of its caller."""


class RangeToken:
    """A range that was started, or a sentinel, which `range_end` ignores. Loops may carry it."""

    def __init__(self, name: str, is_none: Any) -> None:
        self.name, self.is_none = name, is_none

    def __extract_mlir_values__(self) -> list[Any]:
        return [Boolean(self.is_none).ir_value()]

    def __new_from_mlir_values__(self, values: list[Any]) -> RangeToken:
        return RangeToken(self.name, Boolean(values[0]))


@_user_line
def mark(event_name: str, payload: Any = None, *, loc: Any = None, ip: Any = None) -> None:
    """Something happened here; with a payload, a value."""
    name = mark_name(event_name, "iket.mark")
    if payload is None:
        _comment(mark_text("I", name), loc=loc, ip=ip)
    else:
        _payload(name, payload, loc, ip)


@_user_line
def range_start(event_name: str, payload: Any = None, *, loc: Any = None, ip: Any = None) -> RangeToken:
    """Begin of a range that `range_end` ends by the token; the payload becomes a value at its begin."""
    name = mark_name(event_name, "iket.range_start")
    _comment(mark_text("B", name), loc=loc, ip=ip)
    _payload(name, payload, loc, ip)
    return RangeToken(name, False)


@_user_line
def sentinel_token(event_name: str, *, loc: Any = None, ip: Any = None) -> RangeToken:
    """A token of no range, to initialise a variable that a loop carries."""
    return RangeToken(mark_name(event_name, "iket.sentinel_token"), True)


@_user_line
def range_end(token: RangeToken, payload: Any = None, *, loc: Any = None, ip: Any = None) -> None:
    """End of the range of a token, unless that is a sentinel; the payload becomes a value at its end."""
    if not isinstance(token, RangeToken):
        raise UsageError("iket.range_end takes what iket.range_start or iket.sentinel_token gave")

    def end() -> None:
        _payload(token.name, payload, loc, None)
        _comment(mark_text("E", token.name), loc=loc)

    if token.is_none is False:
        end()
    elif token.is_none is not True:
        if_generate(Boolean(token.is_none) == Boolean(False), end, loc=loc, ip=ip)


@_user_line
def range_push(event_name: str, payload: Any = None, *, loc: Any = None, ip: Any = None) -> None:
    """Begin of a range that the `range_pop` belonging to it ends."""
    name = mark_name(event_name, "iket.range_push")
    _comment(f"{PUSH} {encode_name(name)}", loc=loc, ip=ip)
    _payload(name, payload, loc, ip)


@_user_line
def range_pop(*, loc: Any = None, ip: Any = None) -> None:
    """End of the range that was pushed last."""
    _comment(POP, loc=loc, ip=ip)


def _payload(name: str, payload: Any, loc: Any, ip: Any) -> None:
    if payload is not None:
        _comment(*value_mark(name, payload), loc=loc, ip=ip)


def _comment(text: str, operands: Any = (), constraints: str = "", **where: Any) -> None:
    kernel, block = enclosing()
    if block is None:
        raise UsageError("marks of IKET belong inside a @cute.kernel function")
    if kernel is not None and os.environ.get("WARPLENS", "") != "0":  # as in IKET, marks in host code do nothing
        leave(text, operands, constraints, **where)


@dataclass
class Edge:
    """Data that flows from one range to another."""

    source: str
    target: str
    label: str | None = None
    via: str | None = None


class DAG:
    """Which ranges feed which, as a JSON file. It changes nothing in a kernel."""

    def __init__(self, name: str) -> None:
        self.name, self.edges = name, list[Edge]()

    def edge(self, source: str, target: str, *, label: str | None = None, via: str | None = None) -> DAG:
        """Add an edge; `label` says what flows, `via` how the two are synchronised."""
        self.edges.append(Edge(source, target, label, via))
        return self

    @property
    def regions(self) -> list[str]:
        return sorted({name for edge in self.edges for name in (edge.source, edge.target)})

    def to_dict(self) -> dict[str, Any]:
        edges = [{key: value for key, value in asdict(edge).items() if value is not None} for edge in self.edges]
        return {"name": self.name, "regions": self.regions, "edges": edges}

    def to_json(self, indent: int = 2) -> str:
        return json.dumps(self.to_dict(), indent=indent)

    def save(self, path: str | None = None) -> str:
        """Write the file, by default `<name>.iket_dag.json` in $CUTE_DSL_DUMP_DIR or here; return its path."""
        if path is None:
            folder = os.environ.get("CUTE_DSL_DUMP_DIR", "")
            if folder:
                os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, f"{self.name}.iket_dag.json")
        with open(path, "w") as file:
            file.write(self.to_json())
        return os.path.abspath(path)


def dag(name: str) -> DAG:
    """An empty graph of dependencies between ranges."""
    return DAG(name)


attach("cutlass.cutlass_dsl")
keep_marked_ptx()
