"""Functions that are not inlined: a track's state travels through them as one more parameter and return value.

A function needs the state when it holds a mark, ends the thread with `exit`, or calls one that does. Its four words are the pointer's two, `lim` and the bounds
predicate; the callee hands back the low word and the predicate.
"""

from __future__ import annotations

import re

from warplens.weave.blocks import Outline, Place
from warplens.weave.ptx import Function, Instruction, Module, Raw
from warplens.weave.syntax import WeaveError

_STATE_IN = ".param .align 16 .b8 wl_state_in[16]"
_STATE_OUT = ".param .align 8 .b8 wl_state_out[8]"
_CALL = re.compile(
    r"\s*(?:\((?P<returns>[^()]*)\)\s*,\s*)?(?P<target>[\w$%]+)\s*(?:,\s*\((?P<params>[^()]*)\)\s*)?(?P<rest>.*)", re.S
)


class Calls:
    """Who calls whom in a module, and the text that carries the state across."""

    def __init__(self, module: Module, outlines: dict[str, Outline]) -> None:
        self.module, self.outlines = module, outlines
        self.graph = {name: [self._target(place) for place in sketch.calls] for name, sketch in outlines.items()}
        self.stateful = self._stateful()
        self._refuse_indirect()

    @property
    def has_stateful_functions(self) -> bool:
        return any(not f.is_entry and f.name in self.stateful for f in self.module.functions)

    def reachable_marks(self, name: str) -> int:
        """Marks of a kernel and of what it calls."""
        seen, todo, total = set(), [name], 0
        while todo:
            current = todo.pop()
            if current in seen or current not in self.outlines:
                continue
            seen.add(current)
            total += len(self.outlines[current].sites)
            todo += self.graph[current]
        return total

    def rewrite_call(self, place: Place) -> None:
        """Pass the state to a callee that needs it."""
        call = place.node
        assert isinstance(call, Instruction)
        if self._target(place) not in self.stateful:
            return
        match = _CALL.match(call.arguments)
        assert match is not None
        returns = [part for part in (match["returns"], "wl_state_out") if part]
        params = [part for part in (match["params"], "wl_state_in") if part and part.strip()]
        guard = f"@{'!' if call.negated else ''}{call.predicate} " if call.predicate else ""
        text = f"""\t{{
	{_STATE_IN};
	{_STATE_OUT};
	selp.u32 %wl_t, 1, 0, %wl_p;
	st.param.v4.b32 [wl_state_in], {{%wl_lo, %wl_hi, %wl_lim, %wl_t}};
	{guard}{call.full_opcode} ({", ".join(returns)}), {match["target"]}, ({", ".join(params)});
	{guard}ld.param.v2.b32 {{%wl_lo, %wl_t}}, [wl_state_out];
	{guard}setp.ne.u32 %wl_p, %wl_t, 0;
	}}"""
        place.before(Raw.of(text))
        place.remove()

    def receive(self, function: Function) -> str:
        """The opening of a function that gets the state."""
        return f"""\tld.param.v4.b32 {{%wl_lo, %wl_hi, %wl_lim, %wl_t}}, [{_parameter(function)}];
	setp.ne.u32 %wl_p, %wl_t, 0;"""

    def give_back(self, function: Function) -> str:
        """What stands before each `ret` of such a function."""
        return f"""\tselp.u32 %wl_t, 1, 0, %wl_p;
	st.param.v2.b32 [{_result(function)}], {{%wl_lo, %wl_t}};"""

    def rewrite_headers(self) -> None:
        for function in self.module.functions:
            if not function.is_entry and function.name in self.stateful:
                function.header = _with_state(function)

    def _target(self, place: Place) -> str:
        call = place.node
        assert isinstance(call, Instruction)
        match = _CALL.match(call.arguments)
        if match is None:
            raise WeaveError(call.line, call.raw, "this call has a form that warplens does not know")
        return match["target"]

    def _stateful(self) -> set[str]:
        found = {
            name for name, sketch in self.outlines.items()
            if sketch.sites or (not self._is_entry(name) and any(_is_exit(place) for place in sketch.exits))
        }  # fmt: skip
        marked = {name for name, sketch in self.outlines.items() if sketch.sites}
        if not marked:
            return set()
        while True:
            more = {name for name, targets in self.graph.items() if any(t in found for t in targets)} - found
            if not more:
                return found
            found |= more

    def _is_entry(self, name: str) -> bool:
        return any(function.is_entry for function in self.module.functions if function.name == name)

    def _refuse_indirect(self) -> None:
        """A marked function whose address is taken may be called from where the state is not known."""
        functions = {f.name for f in self.module.functions if not f.is_entry} & self.stateful
        if not functions:
            return
        for function in self.module.functions:
            for instruction in function.instructions():
                if instruction.opcode == "call":
                    continue
                named = functions.intersection(re.findall(r"[\w$]+", instruction.arguments))
                if named:
                    raise WeaveError(
                        instruction.line,
                        instruction.raw,
                        f"the address of {min(named)}, which holds marks, is taken",
                        "move the marks to the caller, or make the call direct",
                        function.name,
                    )


def _is_exit(place: Place) -> bool:
    return isinstance(place.node, Instruction) and place.node.opcode == "exit"


def _parameter(function: Function) -> str:
    return f"{function.name}_wl_state"


def _result(function: Function) -> str:
    return f"{function.name}_wl_result"


def _with_state(function: Function) -> str:
    """`.func (ret) name (params)` with one more of each."""
    header, name = function.header, function.name
    match = re.search(rf"(?P<returns>\((?P<inside>[^()]*)\)\s*)?(?<![\w$]){re.escape(name)}(?![\w$])\s*", header)
    assert match is not None
    result = f".param .align 8 .b8 {_result(function)}[8]"
    state = f".param .align 16 .b8 {_parameter(function)}[16]"
    returns = f"({match['inside']}, {result}) " if (match["inside"] or "").strip() else f"({result}) "
    rest = header[match.end() :]
    if rest.startswith("("):
        close = rest.index(")")
        inside = rest[1:close].strip()
        rest = f"({inside}, {state}" + rest[close:] if inside else f"({state}" + rest[close:]
    else:
        rest = f"({state})" + rest
    return header[: match.start()] + returns + name + rest
