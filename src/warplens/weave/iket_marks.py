"""Marks in the vocabulary of NVIDIA's IKET become marks of warplens.

The CuTe DSL, TileLang and TVM write a mark of IKET as inline asm that ends in `pmevent.mask N`; the module declares the
name and the kind of event N. `warplens.compat.iket` leaves comments instead. Two things are not in the code, and follow
from its paths:

- which range a pop ends: the one that was pushed last.
- whether a mark starts or ends a range: IKET has one event for both.

Where one of these depends on the path that leads to a mark, the kernel finds it out when it runs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar
from urllib.parse import unquote

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.edits import Edits
from warplens.ptx.tree import Comment, Function, Instruction, Label, Node, PtxModule, Raw, Scope, parse
from warplens.weave.mark_comments import mark_text

PUSH, POP = "@iket push", "@iket pop"
"""Comments of `warplens.compat.iket`, the first followed by an encoded name."""
_EVENT = "__iket_evt_decl_"
_POP_EVENT = 31
_PAYLOADS = {
    1: ("s32", 8), 2: ("u32", 8), 3: ("s32", 16), 4: ("u32", 16), 5: ("s32", 32), 6: ("u32", 32), 7: ("s64", 64),
    13: ("f32", 32), 14: ("f64", 64), 16: ("u64", 64),
}  # fmt: skip
"""How a payload reads by its number in IKET's table of events: the type of a value mark, and the bits that count."""
_MOVED = re.compile(r"mov\.[bu](?:32|64)\s+[%\w$]+,\s*(%[\w$]+);")
_TIMER, _SPECIAL = "%globaltimer_lo", ("%globaltimer_lo", "%cluster_ctarank")
_MOST_STATES = 64
"""How many different states of the pushed ranges are followed through the code."""
_STACK, _TOP, _IS_TOP = "%wl_iket_stack", "%wl_iket_top", "%wl_iket_is_top"
_State = TypeVar("_State")
_Stack = tuple[str, ...]
_NOTHING: _Stack = ()


class _TooManyPathsError(Exception):
    """The pushed ranges differ by too many paths to be followed."""


class _Usage(IntEnum):
    """What an event of IKET stands for; POP is not in its table."""

    MARK = 0
    PUSH = 1
    POP = 2
    RANGE = 4


@dataclass(frozen=True)
class _IketEvent:
    usage: _Usage
    name: str = ""
    payload: int = 0


@dataclass(frozen=True)
class _IketMark:
    """A mark of IKET: the node that it consists of, the register of its payload, and the read of the timer, where that
    is a node of its own in front of it."""

    event: _IketEvent
    holder: list[Node]
    node: Node
    register: str = ""
    timer: Node | None = None

    def mark(self, letter: str, *operands: str) -> str:
        return "\t// " + mark_text(letter, self.event.name, *operands)

    def payload(self, number: int) -> list[str]:
        """The lines that record the payload as a value; `number` tells the site's own names apart."""
        if not self.register or self.event.payload not in _PAYLOADS:
            return []
        kind, bits = _PAYLOADS[self.event.payload]
        if bits >= 32:
            return [self.mark("V", kind, self.register)]
        whole, shift = f"%wl_iket_payload_{number}", 32 - bits
        return [
            f"\t.reg .b32 {whole};",
            f"\tshl.b32 {whole}, {self.register}, {shift};",
            f"\tshr.{kind} {whole}, {whole}, {shift};",
            self.mark("V", kind, whole),
        ]


def with_iket_marks(text: str) -> str:
    """The same PTX with a mark of warplens in the place of each mark of IKET."""
    if not any(word in text for word in (PUSH, POP, _EVENT)):
        return text
    module = parse(text)
    events = {_POP_EVENT: _IketEvent(_Usage.POP), **_declared_events(module)}
    for function in module.functions:
        if sites := list(_sites(function.body or [], events)):
            _replace(function, sites)
    return module.text()


def _declared_events(module: PtxModule) -> dict[int, _IketEvent]:
    """The events by number. A declaration has seven words (size, number, version, payload, usage, range, length of the
    name), then the name; zeros at its end are left out."""
    found = {}
    for variable in (one for declaration in module.declarations for one in declaration.variables):
        if not variable.name.startswith(_EVENT):
            continue
        data = bytes(int(number) & 255 for number in re.findall(r"\d+", variable.initialiser or ""))
        words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, 28, 4)]
        usage = _Usage(words[4]) if words[4] in (_Usage.PUSH, _Usage.RANGE) else _Usage.MARK
        name = data[28 : 28 + words[6]].decode(errors="replace") or f"event {words[1]}"
        found[words[1]] = _IketEvent(usage, name, words[3])
    return found


def _sites(body: list[Node], events: dict[int, _IketEvent]) -> Iterator[_IketMark]:
    timer: Scope | None = None
    for node in body:
        if isinstance(node, Comment) and node.content.startswith(PUSH):
            yield _IketMark(_IketEvent(_Usage.PUSH, unquote(node.content[len(PUSH) :].strip())), body, node)
        elif isinstance(node, Comment) and node.content == POP:
            yield _IketMark(_IketEvent(_Usage.POP), body, node)
        elif isinstance(node, Scope):
            number = next((_event_number(one) for one in node.body if _event_number(one)), 0)
            if number in events:
                moved = [register for register in _MOVED.findall(node.text()) if register not in _SPECIAL]
                without_timer = _TIMER not in node.text()
                yield _IketMark(events[number], body, node, moved[0] if moved else "", timer if without_timer else None)
            else:
                yield from _sites(node.body, events)
            timer = node if not number and _TIMER in node.text() else None
        elif isinstance(node, Label):
            timer = None


def _event_number(node: Node) -> int:
    if not isinstance(node, Instruction) or node.full_opcode != "pmevent.mask" or not node.arguments.strip().isdigit():
        return 0
    return int(node.arguments)


def _replace(function: Function, sites: Sequence[_IketMark]) -> None:
    """Put marks in the place of IKET's in one function."""
    flow, edits = ControlFlow(function), Edits()
    stack, toggles = _PushedRanges(flow, sites), _toggles(flow, sites)
    for number, site in enumerate(sites):
        event, payload = site.event, site.payload(number)
        if event.usage is _Usage.POP:
            lines = stack.pop(site, number)
        elif event.usage is _Usage.PUSH:
            lines = [*stack.push(site), site.mark("B"), *payload]
        elif event.usage is _Usage.RANGE:
            lines = toggles[event].lines(site, payload, number)
        else:
            lines = payload or [site.mark("I")]
        edits.before(site.holder, site.node, Raw.of("\n".join(lines) + "\n"))
        edits.remove(site.holder, site.node)
        if site.timer is not None:
            edits.remove(site.holder, site.timer)
    edits.apply()
    start = [*(stack.start if stack.by_path else ())]
    start += [line for toggle in toggles.values() if toggle.by_path for line in toggle.start]
    if start and function.body is not None:
        function.body.insert(0, Raw.of("\n".join(start)))


class _PushedRanges:
    """The ranges that were pushed and not popped. Where the last one depends on the path to a pop, a register has the
    numbers of the last eight."""

    start = (f"\t.reg .b64 {_STACK};", f"\t.reg .b32 {_TOP};", f"\t.reg .pred {_IS_TOP};", f"\tmov.b64 {_STACK}, 0;")

    def __init__(self, flow: ControlFlow, sites: Sequence[_IketMark]) -> None:
        pushed = dict.fromkeys(site.event.name for site in sites if site.event.usage is _Usage.PUSH)
        self.numbers = {name: number for number, name in enumerate(pushed, 1)}
        pops = [id(site) for site in sites if site.event.usage is _Usage.POP]
        # With more ranges inside each other than there are pushes, a loop pushes more than it pops.
        deepest = sum(site.event.usage is _Usage.PUSH for site in sites)
        try:
            stacks = _states(flow, sites, _NOTHING, functools.partial(_next_stack, deepest))
            self.last = {pop: {stack[-1] for stack in stacks.get(pop, ()) if stack} for pop in pops}
        except _TooManyPathsError:
            self.last = {pop: set(pushed) for pop in pops}
        self.by_path = any(len(names) > 1 for names in self.last.values())

    def push(self, site: _IketMark) -> list[str]:
        if not self.by_path:
            return []
        return [f"\tshl.b64 {_STACK}, {_STACK}, 8;", f"\tor.b64 {_STACK}, {_STACK}, {self.numbers[site.event.name]};"]

    def pop(self, site: _IketMark, number: int) -> list[str]:
        """The end of the range that was pushed last; nothing where none was."""
        names = sorted(self.last[id(site)])
        if not self.by_path:
            return ["\t// " + mark_text("E", name) for name in names]
        after = f"$wl_iket_popped_{number}"
        lines = [f"\tcvt.u32.u64 {_TOP}, {_STACK};", f"\tand.b32 {_TOP}, {_TOP}, 255;"]
        lines.append(f"\tshr.u64 {_STACK}, {_STACK}, 8;")
        for at, name in enumerate(names):
            other = f"$wl_iket_other_{number}_{at}"
            lines += [f"\tsetp.ne.b32 {_IS_TOP}, {_TOP}, {self.numbers[name]};", f"\t@{_IS_TOP} bra {other};"]
            lines += ["\t// " + mark_text("E", name), f"\tbra {after};", f"{other}:"]
        return [*lines, f"{after}:"]


@dataclass(frozen=True)
class _Toggle:
    """A range whose marks alternate between start and end: whether it may be open before each, by `id` of the site."""

    register: str
    is_open: Mapping[int, frozenset[bool]]

    @property
    def by_path(self) -> bool:
        return any(len(states) > 1 for states in self.is_open.values())

    @property
    def start(self) -> tuple[str, ...]:
        return f"\t.reg .pred {self.register};", f"\tmov.pred {self.register}, 0;"

    def lines(self, site: _IketMark, payload: list[str], number: int) -> list[str]:
        start, end = [site.mark("B"), *payload], [*payload, site.mark("E")]
        if not self.by_path:
            return end if True in self.is_open.get(id(site), ()) else start
        ends, after = f"$wl_iket_end_{number}", f"$wl_iket_after_{number}"
        return [
            *(f"\t@{self.register} bra {ends};", *start, f"\tbra {after};", f"{ends}:", *end, f"{after}:"),
            f"\tnot.pred {self.register}, {self.register};",
        ]


def _toggles(flow: ControlFlow, sites: Sequence[_IketMark]) -> dict[_IketEvent, _Toggle]:
    ranges = dict.fromkeys(site.event for site in sites if site.event.usage is _Usage.RANGE)
    return {
        event: _Toggle(
            f"%wl_iket_open_{number}",
            _states(flow, [site for site in sites if site.event == event], False, lambda is_open, _: not is_open),
        )
        for number, event in enumerate(ranges)
    }


def _next_stack(deepest: int, stack: _Stack, site: _IketMark) -> _Stack | None:
    """The pushed ranges after a mark. No path reaches a pop with none: the condition of its push holds there too."""
    if site.event.usage is _Usage.PUSH:
        if len(stack) == deepest:
            raise _TooManyPathsError
        return (*stack, site.event.name)
    if site.event.usage is _Usage.POP:
        return stack[:-1] if stack else None
    return stack


def _states(
    flow: ControlFlow, sites: Sequence[_IketMark], start: _State, step: Callable[[_State, _IketMark], _State | None]
) -> dict[int, frozenset[_State]]:
    """Every state that a path from the function's start can have before each site, by `id` of the site."""
    in_block: dict[int, list[_IketMark]] = {}
    for site in sites:
        in_block.setdefault(flow.block_of(site.node) or 0, []).append(site)
    before: dict[int, frozenset[_State]] = {0: frozenset({start})}
    found: dict[int, frozenset[_State]] = {}
    work = [0]
    while work:
        number = work.pop()
        states = before[number]
        for site in in_block.get(number, ()):
            found[id(site)] = states
            following = (step(state, site) for state in states)
            states = frozenset(state for state in following if state is not None)
        if len(states) > _MOST_STATES:
            raise _TooManyPathsError
        for successor in flow.blocks[number].successors:
            known = before.get(successor, frozenset())
            if successor not in before or not states <= known:
                before[successor] = known | states
                work.append(successor)
    return found
