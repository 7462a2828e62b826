"""Calls of functions that are not inlined: the track's state is passed through local memory.

A function needs the state if it contains a mark, ends the thread with `exit`, or calls a function that does. The kernel
keeps a frame in local memory (the pointer's two words, `lim`, the bounds predicate, log2(stride), a ring's mask) and
passes its address as an additional parameter. ptxas allows only one return parameter, so the callee also returns the
state through the frame.
"""

from __future__ import annotations

import re

from warplens.ptx.edits import NodePosition
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Declaration, Directive, Function, Instruction, Node, PtxModule, Raw
from warplens.weave.mark_sites import Outline

_SAVE = """\tselp.u32 %wl_t, 1, 0, %wl_p;
	st.local.v4.b32 [%wl_f], {%wl_lo, %wl_hi, %wl_lim, %wl_t};"""
_RESTORE = """\tld.local.v4.b32 {%wl_lo, %wl_hi, %wl_lim, %wl_t}, [%wl_f];
	setp.ne.u32 %wl_p, %wl_t, 0;"""
_CALL = re.compile(
    r"\s*(?:\((?P<returns>[^()]*)\)\s*,\s*)?(?P<target>[\w$%]+)\s*(?:,\s*\((?P<params>[^()]*)\)\s*)?(?P<rest>.*)", re.S
)

_SYMBOL = re.compile(r"(?<![\w$%.])[A-Za-z_$][\w$]*")
"""A name that is no register."""


class Calls:
    """The call graph of a module, and the PTX that passes the track's state along its edges."""

    def __init__(self, module: PtxModule, outlines: dict[str, Outline]) -> None:
        self.module, self.outlines = module, outlines
        self.graph = {name: [self._target(position) for position in sketch.calls] for name, sketch in outlines.items()}
        self.stateful = self._stateful()
        self._refuse_indirect()

    def shares_state(self, function: Function) -> bool:
        """Whether a function receives the state from a caller or passes it to a callee."""
        return not function.is_entry or bool(self.reached(function.name) & self.stateful)

    def reachable_marks(self, name: str) -> int:
        """The number of marks in a kernel and in everything it calls."""
        return sum(len(self.outlines[one].sites) for one in {name, *self.reached(name)} if one in self.outlines)

    def reached(self, name: str) -> set[str]:
        """All direct and indirect callees; a call through a register is listed as that register."""
        seen: set[str] = set()
        todo = list(self.graph[name])
        while todo:
            current = todo.pop()
            if current not in seen:
                seen.add(current)
                todo += self.graph.get(current, [])
        return seen

    def rewrite_call(self, position: NodePosition) -> None:
        """Pass the state to the callee if it needs it."""
        call = position.node
        assert isinstance(call, Instruction)
        if self._target(position) not in self.stateful:
            return
        match = _CALL.match(call.arguments)
        assert match is not None
        returns = f"({match['returns']}), " if match["returns"] else ""
        params = ", ".join(part for part in (match["params"], "wl_state") if part and part.strip())
        guard = f"@{'!' if call.negated else ''}{call.predicate} " if call.predicate else ""
        text = f"""\t{{
	.param .b64 wl_state;
{_SAVE}
	st.param.b64 [wl_state], %wl_f;
	{guard}{call.full_opcode} {returns}{match["target"]}, ({params});
{_RESTORE}
	}}"""
        position.before(Raw.of(text))
        position.remove()

    def open(self, function: Function, ring: bool) -> str:
        """The code at a function's start: create the frame in a kernel, or load the state from the caller's frame."""
        if not function.is_entry:
            text = f"\t.reg .b64 %wl_f;\n\tld.param.b64 %wl_f, [{_parameter(function)}];\n{_RESTORE}"
            return text + ("\n\tld.local.b32 %wl_mask, [%wl_f+20];" if ring else "")
        if not any(target in self.stateful for target in self.graph[function.name]):
            return ""
        frame = "\t.local .align 16 .b8 wl_frame[32];\n\t.reg .b64 %wl_f;\n\tmov.u64 %wl_f, wl_frame;"
        return (
            frame + "\n\tst.local.b32 [%wl_f+16], %wl_s;" + ("\n\tst.local.b32 [%wl_f+20], %wl_mask;" if ring else "")
        )

    def save_state(self) -> str:
        """The code before each `ret` of a function that received the state."""
        return _SAVE

    def rewrite_headers(self) -> None:
        for function in self.module.functions:
            if not function.is_entry and function.name in self.stateful:
                function.header = _with_state(function)

    def _target(self, position: NodePosition) -> str:
        call = position.node
        assert isinstance(call, Instruction)
        match = _CALL.match(call.arguments)
        if match is None:
            raise PtxError(call.line, call.raw, "warplens cannot parse this call")
        return match["target"]

    def _stateful(self) -> set[str]:
        if not any(sketch.sites for sketch in self.outlines.values()):
            return set()
        entries = {function.name for function in self.module.functions if function.is_entry}
        callers: dict[str, list[str]] = {}
        for name, targets in self.graph.items():
            for target in targets:
                callers.setdefault(target, []).append(name)
        work = [
            name for name, sketch in self.outlines.items()
            if sketch.sites or (name not in entries and any(_is_exit(position) for position in sketch.exits))
        ]  # fmt: skip
        found: set[str] = set()
        while work:
            name = work.pop()
            if name not in found:
                found.add(name)
                work += callers.get(name, ())
        return found

    def _refuse_indirect(self) -> None:
        """Refuse marked functions whose address is taken: an indirect caller would not pass the state."""
        functions = {f.name for f in self.module.functions if not f.is_entry} & self.stateful
        if not functions:
            return
        for item in self.module.items:
            named = functions.intersection(_SYMBOL.findall(item.arguments)) if isinstance(item, Directive) else None
            if named and isinstance(item, Directive) and item.name == "alias":
                problem = f"{min(named)}, which contains marks, has an alias"
                raise PtxError(item.line, item.raw, problem, "call it by its own name", min(named))
            if isinstance(item, Declaration):
                _refuse_address(functions, item, " ".join(one.initialiser or "" for one in item.variables))
        for function in self.module.functions:
            for instruction in function.instructions():
                if instruction.opcode != "call":
                    _refuse_address(functions, instruction, instruction.arguments, function.name)


def _refuse_address(functions: set[str], node: Node, text: str, where: str = "") -> None:
    """Raise an error if `text` of a node names one of `functions`."""
    named = functions.intersection(_SYMBOL.findall(text))
    if named:
        problem = f"the address of {min(named)}, which contains marks, is taken"
        raise PtxError(node.line, node.raw, problem, "move the marks to the caller, or make the call direct", where)


def _is_exit(position: NodePosition) -> bool:
    return isinstance(position.node, Instruction) and position.node.opcode == "exit"


def _parameter(function: Function) -> str:
    return f"{function.name}_wl_state"


def _with_state(function: Function) -> str:
    return with_parameter(function, f".param .b64 {_parameter(function)}")


_WORD = re.compile(r"(?<![\w$.%])([\w$%]+)\s*")
"""A name in a header. A pattern of each function's own name would take longer to compile than the function to weave."""


def with_parameter(function: Function, declaration: str) -> str:
    """The header `.func (ret) name (params)` or `.entry name (params)` with one more parameter."""
    header, name = function.header, function.name
    match = next(found for found in _WORD.finditer(header) if found[1] == name)
    rest = header[match.end() :]
    if rest.startswith("("):
        close = rest.index(")")
        inside = rest[1:close].strip()
        rest = f"({inside}, {declaration}" + rest[close:] if inside else f"({declaration}" + rest[close:]
    else:
        rest = f"({declaration})" + rest
    return header[: match.start()] + name + rest
