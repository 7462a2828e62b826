"""PTX text as a tree that prints back byte for byte.

Every node keeps `lead` (the white space before it) and `raw` (its own text). Nothing between two nodes is dropped, so
`parse(text).text() == text`, and a rewrite changes only the nodes it touches. Comments are nodes too. To rewrite,
insert, replace or remove nodes in `Function.body` (`Raw` holds new text) or change `Function.header`, then call
`PtxModule.text()`. To keep a module as it was parsed, rewrite its `copy()`.

Operands stay strings (`%r1`, `[%rd1+16]`, `{%r1, %r2}`, `0f3F800000`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from warplens.ptx.syntax import (
    BODY,
    DECLARATION_WORD,
    DECLARATOR,
    DIMENSION,
    HEADER_NAME,
    MODULE,
    PARAMETER_NAME,
    PERFORMANCE,
    SCALAR_BYTES,
    SIMPLE_DECLARATION,
    PtxError,
    split_operands,
    strip_comments,
    unescape,
)

__all__ = [
    "Comment", "Declaration", "Directive", "Function", "Instruction", "Label", "PtxModule", "Node", "Param", "Raw",
    "Scope", "Variable", "PtxError", "parse",
]  # fmt: skip


_PARTS = tuple(BODY.groupindex[name] for name in ("lead", "negated", "predicate", "opcode", "operands"))
MAX_NESTING = 64
"""The maximum number of scopes inside each other; compilers make two or three."""


@dataclass(slots=True)
class Node:
    """A piece of PTX: `lead` is the white space before it, `raw` its text, `line` where `raw` starts (from 1)."""

    lead: str
    raw: str
    line: int

    def text(self) -> str:
        return self.lead + self.raw


@dataclass(slots=True)
class Raw(Node):
    """Text inserted by a rewrite; `Raw.of("...")` starts it on a new line."""

    @staticmethod
    def of(text: str) -> Raw:
        return Raw("\n", text, 0)


@dataclass(slots=True)
class Comment(Node):
    """`// ...` or `/* ... */`; `trailing` if it follows a statement on the same line."""

    trailing: bool = False

    @property
    def content(self) -> str:
        """The comment without its delimiters and surrounding white space."""
        return (self.raw[2:-2] if self.raw.startswith("/*") else self.raw[2:]).strip()


@dataclass(slots=True)
class Label(Node):
    name: str = ""


@dataclass(slots=True)
class Directive(Node):
    """`.loc`, `.file`, `.pragma`, `.branchtargets`, `.section`, `.version`...: `name` without its dot."""

    name: str = ""
    arguments: str = ""


@dataclass(slots=True)
class Instruction(Node):
    """`@!p opcode.modifiers operands;` with the predicate's register name, or None."""

    predicate: str | None = None
    negated: bool = False
    opcode: str = ""
    modifiers: tuple[str, ...] = ()
    arguments: str = ""

    @property
    def full_opcode(self) -> str:
        return ".".join((self.opcode, *self.modifiers))

    @property
    def operands(self) -> tuple[str, ...]:
        return split_operands(self.arguments)


@dataclass(slots=True, frozen=True)
class Variable:
    """One declared name. `count` is the N of a register family `%r<N>`; `dims` are array sizes, 0 if unspecified."""

    name: str
    count: int | None = None
    dims: tuple[int, ...] = ()
    initialiser: str | None = None


@dataclass(slots=True)
class Declaration(Node):
    """`.reg`, `.shared`, `.local`, `.param`, `.global` or `.const` variables, in a function or in the module."""

    space: str = ""
    linkage: tuple[str, ...] = ()
    type: str = ""
    vector: int = 1
    align: int | None = None
    variables: tuple[Variable, ...] = ()

    @property
    def element_bytes(self) -> int:
        """Bytes of one element; 0 for predicates."""
        return SCALAR_BYTES.get(self.type, 0) * self.vector

    def size(self, variable: Variable) -> int:
        """Bytes of `variable`; 0 for an array without a size."""
        total = self.element_bytes
        for dim in variable.dims:
            total *= dim
        return total


@dataclass(slots=True)
class Scope(Node):
    """`{ ... }` inside a function; `close` is the text after its last node, up to and including the brace."""

    body: list[Node] = field(default_factory=list)
    close: str = "}"

    def text(self) -> str:
        return self.lead + self.raw + "".join([node.text() for node in self.body]) + self.close


@dataclass(slots=True, frozen=True)
class Param:
    """A parameter of a function: `size` in bytes, `is_array` for `.b8 name[size]`."""

    name: str
    type: str
    size: int
    align: int
    is_array: bool = False
    space: str = "param"


@dataclass(slots=True)
class Function(Node):
    """An `.entry` or `.func`; `header` is everything before `{`, `body` is None for a declaration that ends in `;`."""

    name: str = ""
    is_entry: bool = False
    header: str = ""
    linkage: tuple[str, ...] = ()
    params: tuple[Param, ...] = ()
    returns: tuple[Param, ...] = ()
    performance: dict[str, tuple[int, ...]] = field(default_factory=dict)
    body: list[Node] | None = None
    close: str = ""

    def text(self) -> str:
        if self.body is None:
            return self.lead + self.header + self.raw
        return self.lead + self.header + "{" + "".join([node.text() for node in self.body]) + self.close

    def walk(self) -> Iterator[Node]:
        """Every node of the body in text order, a scope before its contents."""
        return walk(self.body or [])

    def instructions(self) -> Iterator[Instruction]:
        return instructions_of(self.body or [])


@dataclass(slots=True)
class PtxModule:
    """A PTX file."""

    version: str
    target: str
    address_size: int
    items: list[Node]
    tail: str = ""

    def text(self) -> str:
        return "".join([item.text() for item in self.items]) + self.tail

    def copy(self) -> PtxModule:
        """Return a module to rewrite while this one stays as it is. Nodes that a rewrite never changes are shared."""
        return PtxModule(self.version, self.target, self.address_size, _copied(self.items), self.tail)

    @property
    def functions(self) -> list[Function]:
        return [item for item in self.items if isinstance(item, Function)]

    @property
    def entries(self) -> list[Function]:
        return [item for item in self.functions if item.is_entry and item.body is not None]

    @property
    def files(self) -> dict[str, str]:
        """The paths of the `.file` directives by number."""
        found = {}
        for item in self.items:
            if isinstance(item, Directive) and item.name == "file":
                number, _, rest = item.arguments.partition(" ")
                found[number.strip()] = unescape(rest.split('"')[1] if '"' in rest else rest.strip(), 8)
        return found

    @property
    def declarations(self) -> list[Declaration]:
        return [item for item in self.items if isinstance(item, Declaration)]

    def declare(self, text: str) -> None:
        """Insert a declaration before the first function."""
        first = next(i for i, item in enumerate(self.items) if isinstance(item, Function))
        self.items.insert(first, Raw.of(text))

    def fixed_threads(self, names: Collection[str]) -> dict[str, int]:
        """Threads per block of the named kernels that fix it (`.reqntid`)."""
        fixed = {one.name: one.performance.get("reqntid") for one in self.functions if one.name in names}
        return {name: math.prod(sizes) for name, sizes in fixed.items() if sizes is not None}


def walk(body: list[Node]) -> Iterator[Node]:
    """Every node in text order, a scope before its contents."""
    for node in body:
        yield node
        if isinstance(node, Scope):
            yield from walk(node.body)


def instructions_of(body: list[Node]) -> Iterator[Instruction]:
    """Every instruction in text order."""
    for node in body:
        if isinstance(node, Instruction):
            yield node
        elif isinstance(node, Scope):
            yield from instructions_of(node.body)


def _copied(nodes: list[Node]) -> list[Node]:
    """Copy the nodes that rewrites change in place: functions, scopes and instructions."""
    found: list[Node] = []
    for node in nodes:
        if isinstance(node, Instruction):
            node = Instruction(
                node.lead, node.raw, node.line, node.predicate, node.negated, node.opcode, node.modifiers,
                node.arguments,
            )  # fmt: skip
        elif isinstance(node, Scope):
            node = replace(node, body=_copied(node.body))
        elif isinstance(node, Function):
            node = replace(node, body=None if node.body is None else _copied(node.body))
        found.append(node)
    return found


def parse(text: str) -> PtxModule:
    """Parse a module; raises a `PtxError` that names the first line it cannot parse."""
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self.source, self.at, self.line = text, 0, 1
        self.opcodes: dict[str, tuple[str, tuple[str, ...]]] = {}
        """Opcode and modifiers by their text, which most instructions share with others."""

    def module(self) -> PtxModule:
        result = PtxModule("", "", 64, [])
        while True:
            found = self._next(MODULE)
            if found is None:
                break
            lead, line, match = found
            kind, raw = match.lastgroup, match[0][len(lead) :]
            node: Node
            if kind == "comment":
                node = self._comment(lead, raw, line, result.items)
            elif kind == "function":
                node = self._function(lead, raw, line)
            elif kind == "declaration":
                node = declaration(lead, raw, line)
            elif kind == "section":
                node = Directive(lead, raw, line, "section", raw[8 : raw.index("{")].strip())
            else:
                node = self._directive(lead, raw, line, match)
                if node.name == "version":
                    result.version = node.arguments
                elif node.name == "target":
                    result.target = node.arguments.partition(",")[0].strip()
                elif node.name == "address_size":
                    result.address_size = _number(node.arguments, line, raw)
            result.items.append(node)
        result.tail = self.source[self.at :]
        return result

    def _next(self, pattern: re.Pattern[str]) -> tuple[str, int, re.Match[str]] | None:
        """Consume the next node and return its lead, line and match; None at the end of the text."""
        match = pattern.match(self.source, self.at)
        if match is None:
            rest = self.source[self.at :]
            if not rest.strip().strip("\0"):  # the CuTe DSL ends its text with a NUL
                return None
            line = self.line + rest[: len(rest) - len(rest.lstrip())].count("\n")
            raise PtxError(line, rest.lstrip().partition("\n")[0], "warplens cannot parse this PTX")
        lead: str = match["lead"]
        line = self.line + lead.count("\n")
        self.line = line + match[0].count("\n", len(lead))
        self.at = match.end()
        return lead, line, match

    @staticmethod
    def _comment(lead: str, raw: str, line: int, before: list[Node]) -> Comment:
        trailing = "\n" not in lead and bool(before) and not isinstance(before[-1], Comment | Scope)
        return Comment(lead, raw, line, trailing)

    @staticmethod
    def _directive(lead: str, raw: str, line: int, match: re.Match[str]) -> Directive:
        """A directive that ends at its line or at a semicolon; a lone semicolon is a directive without a name."""
        name = match["line_name"] or match["name"] or ""
        return Directive(lead, raw, line, name, (match["line_arguments"] or match["arguments"] or "").strip())

    def _function(self, lead: str, raw: str, line: int) -> Function:
        opens = raw.endswith("{")
        header = raw[:-1]
        function = _header(lead, ";", line, header)
        if opens:
            function.raw = ""
            function.body, function.close = self._body(line, header)
        return function

    def _body(self, start: int, header: str) -> tuple[list[Node], str]:
        """Parse up to the brace that closes a function. The loop handles most of a module, so it calls little."""
        body: list[Node] = []
        stack: list[Scope] = []
        append = body.append
        source, at, line, opcodes = self.source, self.at, self.line, self.opcodes
        while True:
            match = BODY.match(source, at)
            if match is None:
                self.at, self.line = at, line
                self._next(BODY)  # raises where there is text left
                raise PtxError(start, header.strip().partition("\n")[0], "the function's closing brace is missing")
            at, kind = match.end(), match.lastgroup
            lead, negated, predicate, name, operands = match.group(*_PARTS)
            raw = source[match.start() + len(lead) : at]
            first = line + lead.count("\n")
            line = first + raw.count("\n")
            if kind == "instruction":
                known = opcodes.get(name)
                if known is None:
                    opcode, *modifiers = name.split(".")
                    known = opcodes[name] = opcode, tuple(modifiers)
                append(Instruction(lead, raw, first, predicate, negated == "!", *known, operands))
            elif kind == "comment":
                append(self._comment(lead, raw, first, stack[-1].body if stack else body))
            elif kind == "label":
                append(Label(lead, raw, first, match["label_name"]))
            elif kind == "declaration":
                append(declaration(lead, raw, first))
            elif kind == "open":
                if len(stack) == MAX_NESTING:
                    raise PtxError(first, raw, f"more than {MAX_NESTING} braces are open")
                scope = Scope(lead, raw, first)
                append(scope)
                stack.append(scope)
                append = scope.body.append
            elif kind != "close":
                append(self._directive(lead, raw, first, match))
            elif not stack:
                self.at, self.line = at, line
                return body, lead + raw
            else:
                stack.pop().close = lead + raw
                append = stack[-1].body.append if stack else body.append


def declaration(lead: str, raw: str, line: int) -> Declaration:
    """Parse a declaration such as `.reg .b32 %r<4>;`."""
    result = Declaration(lead, raw, line)
    if simple := SIMPLE_DECLARATION.fullmatch(raw):
        result.space, result.type, name, count = simple.groups()
        result.variables = (Variable(name, None if count is None else int(count)),)
        return result
    text = strip_comments(raw)
    linkage: list[str] = []
    position = 0
    while word := DECLARATION_WORD.match(text, position):
        position = word.end()
        name = word[1]
        if name in ("visible", "extern", "weak", "common"):
            linkage.append(name)
        elif name == "align":
            result.align = _number(word[2] or "", line, raw)
        elif name in ("v2", "v4", "v8"):
            result.vector = int(name[1:])
        elif name in SCALAR_BYTES or name in ("pred", "texref", "samplerref", "surfref"):
            result.type = name
        elif not result.space:
            result.space = name
    result.linkage = tuple(linkage)
    variables = []
    while match := DECLARATOR.match(text, position):
        position = match.end()
        dims = tuple(_number(size or "0", line, raw) for size in DIMENSION.findall(match["dims"]))
        count = _number(match["count"], line, raw) if match["count"] else None
        initialiser = match["initialiser"].strip() if match["initialiser"] else None
        variables.append(Variable(match["name"], count, dims, initialiser))
        if match["end"] == ";":
            break
    else:
        raise PtxError(line, raw, "warplens cannot parse this declaration")
    if not result.type:
        raise PtxError(line, raw, "this declaration has no known type")
    result.variables = tuple(variables)
    return result


def _number(text: str, line: int, source: str) -> int:
    try:
        return int(text.strip(), 0 if text.strip()[:2].lower() in ("0x", "0b") else 10)
    except ValueError:
        raise PtxError(line, source, f"{text.strip()!r} is not a number") from None


def _header(lead: str, raw: str, line: int, header: str) -> Function:
    text = strip_comments(header)
    match = HEADER_NAME.match(text)
    if match is None or text.count("(") != text.count(")"):
        raise PtxError(line, header.strip().partition("\n")[0], "warplens cannot parse this function header")
    performance = {
        name: tuple(_number(number, line, header) for number in re.findall(r"\d+", numbers))
        for name, numbers in PERFORMANCE.findall(text[match.end() :])
    }
    if () in (performance.get("reqntid"), performance.get("maxntid")):
        raise PtxError(line, header.strip().partition("\n")[0], "the size of the kernel's blocks has no number")
    return Function(
        lead,
        raw,
        line,
        name=match["name"],
        is_entry=match["kind"] == "entry",
        header=header,
        linkage=tuple(match["linkage"].replace(".", " ").split()),
        params=_params(match["params"] or "", line),
        returns=_params(match["returns"] or "", line),
        performance=performance,
    )


def _params(text: str, line: int) -> tuple[Param, ...]:
    result = []
    for part in split_operands(text):
        words = re.findall(r"\.(\w+)", part)
        kind = next((word for word in words if word in SCALAR_BYTES or word == "pred"), None)
        name = PARAMETER_NAME.search(part)
        if kind is None or name is None:
            raise PtxError(line, part, "warplens cannot parse this parameter")
        size = SCALAR_BYTES.get(kind, 1)
        dims = [_number(dim or "0", line, part) for dim in DIMENSION.findall(name[2])]
        for dim in dims:
            size *= dim
        # `.ptr .align N` describes the pointee; only an `.align` outside `.ptr` places the parameter itself.
        own = re.search(r"\.align\s+(\d+)", part[: part.index(".ptr")] if ".ptr" in part else part)
        align = _number(own[1], line, part) if own else SCALAR_BYTES.get(kind, 1)
        result.append(Param(name[1], kind, size, align, bool(dims), words[0]))
    return tuple(result)
