"""What the lines of a marked PTX text are: code of a region, code of warplens, or the clock read of a mark.

Woven text still has its marks as comments, each before its clock read. Marks that record by themselves (the CUDA header
and the CuTe DSL) are found by their inline assembly: a scope that reads the clock and stores the record's first word,
or holds it until the next mark.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.tree import Comment, Declaration, Function, Instruction, Node, PtxModule, Scope, parse, walk
from warplens.record.layout import Kind, split_word0
from warplens.sass.between_regions import EXIT, START, Pairs
from warplens.sass.open_regions import CLOSE, OPEN, RegionEdge, State, cross, follow, join
from warplens.sass.source_regions import lines_of_regions, regions_by_source, source_places
from warplens.sass.unmarked_lines import lines_between, owned_lines, pairs_of
from warplens.weave.mark_comments import PREFIX, declared_mark, is_mark, parse_mark

_OPENS, _CLOSES = (Kind.BEGIN, Kind.ASYNC_BEGIN), (Kind.END, Kind.ASYNC_END)
_OWN = re.compile(r"(?<![\w$])(%?wl_|\$wl_|mark_outside_a_kernel_with_wl)")
_CLOCK = re.compile(r"%clock(64)?\b")
_EXIT_CLOCK, _START_CLOCK = "%wl_ec", "%wl_b"
_STORED_WORD = re.compile(r"\bst\.global\.[\w.]*v2\.[ub]32\s*\[[^\]]*\]\s*,\s*\{\s*([^,\s]+)\s*,")
_HELD_WORD = re.compile(r"^\s*mov\.[ub]32\s+wl_word\s*,\s*([^,\s;]+)\s*;")
_CHOSEN_WORD = re.compile(r"\bselp\.b32\s+w\d+\s*,\s*([^,\s]+)\s*,\s*0\s*,")
_SETTLE = re.compile(r"bar\.warp\.sync\s+(0xffffffff|-1|4294967295)\s*;")


@dataclass
class MarkedLines:
    """What is known of each line of a module's text. Only marks of regions are kept: instants and values are points."""

    regions: dict[int, State] = field(default_factory=dict)
    """By line with code of the kernel: the regions it is in, outermost first."""
    own: set[int] = field(default_factory=set)
    """Lines with code of warplens."""
    clocks: dict[int, list[RegionEdge]] = field(default_factory=dict)
    """By line with a clock read: the marks that use it, in order."""
    point_clocks: set[int] = field(default_factory=set)
    """Lines with the clock reads of marks that open or close nothing."""
    by_source: dict[int, set[str]] = field(default_factory=dict)
    """By line with code of the kernel: the regions that own its line in the source (see source_regions.py)."""
    owned: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    """By file and line of the source: the regions that own it."""
    pairs: Pairs = field(default_factory=dict)
    """The regions of the code between others."""
    between: dict[int, set[str]] = field(default_factory=dict)
    """By line with code of the kernel in no region: the regions between others that it is part of."""
    outer_clocks: dict[int, RegionEdge] = field(default_factory=dict)
    """By line with a clock read: whether it is that of the warp's start or that of its exit."""

    @property
    def names(self) -> list[str]:
        """The regions in the order of their marks."""
        return list(dict.fromkeys(edge.region for line in sorted(self.clocks) for edge in self.clocks[line]))

    def knows(self, line: int) -> bool:
        """Whether the text has code on this line; code of ptxas's own, such as divisions, has none of its lines."""
        return line in self.regions or line in self.own

    def owners(self, line: int) -> set[str]:
        """The regions that the code on a line belongs to.

        Its place in the source decides between regions that own lines there; its place in the text decides the rest.
        """
        here = {one.region for one in self.regions.get(line, ())} or self.between.get(line, set())
        by_source = self.by_source.get(line)
        return by_source | (here - self.with_lines) if by_source else here

    @functools.cached_property
    def with_lines(self) -> set[str]:
        """The regions that own lines of the source."""
        return set().union(*self.owned.values())

    def source_lines(self, region: str) -> tuple[tuple[str, int, int], ...]:
        """The lines that a region owns: a file, the first and the last line."""
        found: list[tuple[str, int, int]] = []
        for file, line in sorted(place for place, regions in self.owned.items() if region in regions):
            if found and found[-1][0] == file and found[-1][2] == line - 1:
                found[-1] = (file, found[-1][1], line)
            else:
                found.append((file, line, line))
        return tuple(found)


def marked_lines(source: str | PtxModule, kernel: str, *, automatic: bool = False) -> MarkedLines:
    """Analyse `kernel` and the functions that it calls. Regions of `automatic` marks own no lines of the source: rules
    place marks next to the code of other lines."""
    module = parse(source.replace("\0", "")) if isinstance(source, str) else source
    functions = {one.name: one for one in module.functions if one.body is not None}
    result = MarkedLines(pairs=pairs_of(source if isinstance(source, str) else source.text(), kernel))
    start: dict[str, State] = {kernel: ()}
    called_between: dict[str, set[str]] = {}
    work = [kernel] if kernel in functions else []
    done: set[str] = set()
    while work:
        name = work.pop(0)
        if name in done:
            continue
        done.add(name)
        calls = _analyse(functions[name], start[name], result, {} if automatic else module.files)
        for node in functions[name].instructions() if name in called_between else ():
            result.between.setdefault(node.line, called_between[name])
        for callee, state, line in calls:
            if callee in functions and callee not in done:
                called_between.setdefault(callee, set()).update(result.between.get(line, ()))
                known = start.get(callee)
                start[callee] = state if known is None else join(known, state)
                work.append(callee)
    if result.pairs:
        nodes = [node for name in done for node in functions[name].walk()]
        result.owned.update(owned_lines(nodes, result.between, result.regions, module.files))
    return result


def _analyse(
    function: Function, start: State, result: MarkedLines, files: Mapping[str, str]
) -> list[tuple[str, State, int]]:
    """Add a function's lines; return the functions that it calls, with the regions open at the call, and its line."""
    points = _mark_points(function, result)
    _add_source_regions(function, points, result, files)
    flow = ControlFlow(function)
    edges = [[(node.line, points[id(node)]) for node in block.nodes if id(node) in points] for block in flow.blocks]
    entered = follow([block.successors for block in flow.blocks], edges, start)
    calls = []
    states: dict[int, State] = {}
    for block, entry in zip(flow.blocks, entered, strict=True):
        if entry is None:
            continue
        state = entry
        for node in block.nodes:
            states[id(node)] = state
            if id(node) in points:
                state = cross(state, points[id(node)], node.line)
            elif isinstance(node, Instruction) and node.line not in result.own:
                result.regions.setdefault(node.line, state)
                if node.opcode == "call":
                    calls += [(name, state, node.line) for name in re.findall(r"[A-Za-z_$][\w$]*", node.arguments)]
    if result.pairs:
        result.between.update(lines_between(flow, points, states, result.outer_clocks, result.pairs))
    return calls


def _add_source_regions(
    function: Function, points: Mapping[int, Sequence[RegionEdge]], result: MarkedLines, files: Mapping[str, str]
) -> None:
    places = source_places(function, files) if files else {}
    marks = [
        (node, edge.region, edge.kind == OPEN)
        for node in function.walk()
        if id(node) in points
        for edge in points[id(node)]
    ]
    owned = lines_of_regions(marks, places)
    for place, regions in owned.items():
        result.owned.setdefault(place, set()).update(regions)
    code = (node for node in function.instructions() if node.line not in result.own)
    for line, regions in regions_by_source(code, places, owned).items():
        result.by_source.setdefault(line, set()).update(regions)


def _mark_points(function: Function, result: MarkedLines) -> dict[int, list[RegionEdge]]:
    """Find marks, clock reads and warplens's own lines; return the edges by `id` of the node that they are at."""
    nodes = list(function.walk())
    if any(map(is_mark, nodes)):
        nodes = [node for node in nodes if not (isinstance(node, Declaration) and _mark_at(node))]
    points: dict[int, list[RegionEdge]] = {}
    constants = _constants(nodes)
    for node in nodes:
        if isinstance(node, Scope) and _records(node):
            points[id(node)] = _direct_mark(node, constants, result)
        elif isinstance(node, Scope) and _flushes(node):
            result.own.update(one.line for one in walk(node.body) if isinstance(one, Instruction))
    result.own.update(node.line for node in _own_instructions(nodes))
    start_clock, shared = 0, 0
    for at, node in enumerate(nodes):
        if isinstance(node, Instruction) and _START_CLOCK in node.raw and _CLOCK.search(node.raw):
            start_clock = node.line
            result.outer_clocks[start_clock] = START
        mark = _mark_at(node)
        line = _clock_after(nodes, at, start_clock, result.own) or shared if mark else 0
        if mark is None or not line:
            continue
        shared = line
        edge = _edge(*mark)
        if edge is not None:
            points[id(node)] = [edge]
            result.clocks.setdefault(line, []).append(edge)
        else:
            result.point_clocks.add(line)
    exits = {
        node.line
        for node in nodes
        if isinstance(node, Instruction) and _EXIT_CLOCK in node.raw and _CLOCK.search(node.raw)
    }
    result.outer_clocks.update(dict.fromkeys(exits - result.clocks.keys() - result.point_clocks, EXIT))
    return points


def _mark_at(node: Node) -> tuple[Kind, str] | None:
    """The kind and region of a woven mark: a comment, or in text without comments a declaration."""
    if isinstance(node, Comment):
        mark = parse_mark(node.content, node.line) if node.content.startswith(PREFIX) else None
        return (mark.kind, mark.name) if mark else None
    if isinstance(node, Declaration) and node.space == "reg" and len(node.variables) == 1:
        return declared_mark(node.variables[0].name)
    return None


def _own_instructions(nodes: Sequence[Node]) -> Iterator[Instruction]:
    """What warplens added. A warp barrier of its own follows a block barrier, or stands between a mark and its clock
    read where the warp may have diverged."""
    previous: Instruction | None = None
    after_mark = False
    for at, node in enumerate(nodes):
        if not isinstance(node, Instruction):
            after_mark = after_mark or _mark_at(node) is not None
            continue
        settles = False
        if _SETTLE.search(node.raw):
            following = next((one for one in nodes[at + 1 :] if isinstance(one, Instruction)), None)
            joins = after_mark and following is not None and _is_own(following)
            settles = joins or (previous is not None and previous.opcode in ("bar", "barrier"))
        if settles or _is_own(node):
            yield node
        previous, after_mark = node, False


def _clock_after(nodes: Sequence[Node], at: int, start_clock: int, own: Set[int]) -> int:
    """The line of the clock read that belongs to the mark `nodes[at]`; 0 if it shares that of the mark before it."""
    following: list[Instruction] = []
    for node in nodes[at + 1 :]:
        if _mark_at(node):
            break
        if isinstance(node, Instruction):
            if node.line not in own:
                break
            following.append(node)
    for number, node in enumerate(following):
        if "cvt.u32.u64" in node.raw and node.raw.rstrip(" ;").endswith(_START_CLOCK):
            return start_clock
        if not _CLOCK.search(node.arguments):
            continue
        # The exit's own clock read follows the last mark too; it is the mark's if the mark takes its low half.
        halves = (later for later in following[number + 1 : number + 4] if "cvt.u32.u64" in later.raw)
        if _EXIT_CLOCK in node.arguments and not any(_EXIT_CLOCK in later.arguments for later in halves):
            continue
        return node.line
    return 0


def _is_own(node: Instruction) -> bool:
    """Whether warplens added an instruction: its predicate, or what it writes, stores to or jumps to, is warplens's."""
    first = node.operands[0] if node.operands else ""
    return bool(_OWN.match(node.predicate or "") or _OWN.search(first))


def _records(scope: Scope) -> bool:
    text = scope.text()
    return bool(_CLOCK.search(text) and "wl_lead" in text) and not any(
        isinstance(node, Scope) and _records(node) for node in scope.body
    )


def _flushes(scope: Scope) -> bool:
    """Whether a scope stores the record that a begin left, as at the end of a kernel."""
    return "wl_held" in scope.text() and not any(isinstance(node, Scope) for node in scope.body)


def _direct_mark(scope: Scope, constants: dict[str, int], result: MarkedLines) -> list[RegionEdge]:
    """The marks of a scope that records by itself, which share one clock read."""
    edges: list[RegionEdge] = []
    inner = [node for node in walk(scope.body) if isinstance(node, Instruction)]
    result.own.update(node.line for node in inner)
    for word in _words(inner):
        number = constants.get(word, int(word) if re.fullmatch(r"\d+", word) else None)
        if number is not None:
            kind, region = split_word0(number)[:2]
            edge = _edge(kind, f"#{region}") if region else None
            edges += [edge] if edge else []
    line = next(node.line for node in inner if _CLOCK.search(node.arguments))
    if edges:
        result.clocks.setdefault(line, []).extend(edges)
    else:
        result.point_clocks.add(line)
    return edges


def _words(inner: Sequence[Instruction]) -> Iterator[str]:
    """The first words of a scope's records: of a begin the one that it holds. The CuTe DSL chooses between the word and
    zero before it stores it. The end of a region also stores the word that its begin held."""
    for node in inner:
        found = _CHOSEN_WORD.search(node.raw) or _STORED_WORD.search(node.raw) or _HELD_WORD.search(node.raw)
        if found and not re.fullmatch(r"w\d+|wl_word", found[1]):
            yield found[1]


def _constants(nodes: Sequence[Node]) -> dict[str, int]:
    """Registers that hold one constant: nvcc passes the words of some records in them."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, Instruction) and node.opcode == "mov" and len(node.operands) == 2:
            found.setdefault(node.operands[0], set()).add(node.operands[1])
    single = {register: next(iter(values)) for register, values in found.items() if len(values) == 1}
    return {register: int(value) for register, value in single.items() if value.isdecimal()}


def _edge(kind: Kind, region: str) -> RegionEdge | None:
    if kind in _OPENS:
        return RegionEdge(OPEN, region)
    return RegionEdge(CLOSE, region) if kind in _CLOSES else None
