"""Which variables of a module its code may write.

A copy of a kernel has its own copy of the module's variables. That makes no difference for a variable that no
instruction of the module can write; what the host wrote into it can be copied at each launch. The analysis follows the
address of each variable through the registers of every function. It knows what a few instructions do with an address
(load from it, add to it, convert it, compare it). Every other use counts as a write: stores, atomics, calls, returns,
copies, and instructions that it does not know.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from warplens.ptx.divergence import observes_other_threads
from warplens.ptx.operands import names
from warplens.ptx.tree import Declaration, Function, Instruction, PtxModule, Variable

Declared = dict[str, tuple[Declaration, Variable]]

SPACES = frozenset({"global", "const", "tex"})
"""The spaces of variables that live as long as the module."""
_LOADS = frozenset({"ld", "ldu", "prefetch", "prefetchu", "isspacep", "setp", "set", "tex", "tld4", "txq"})
"""Instructions that read memory at an address, or the address itself, and whose result is not an address."""
_MOVES = frozenset(
    {"mov", "cvta", "cvt", "add", "sub", "mad", "mul", "shl", "shr", "and", "or", "xor", "not", "selp", "slct", "min",
     "max", "bfe", "bfi", "lop3", "shf", "prmt", "shfl"}
)  # fmt: skip
"""Instructions whose result may be an address inside the variable whose address is an operand."""
_WRITES = frozenset({"st", "atom", "red", "call"})
_REFERENCES = frozenset({"texref", "samplerref", "surfref"})
_HIDDEN = re.compile(r"^\$str|^__unnamed_|^__func__|NumbaEnv|^__const_|^wl_names_")
"""Variables of compilers, which neither the host nor a kernel writes: literals, names, and numba's environment."""


@dataclass(frozen=True)
class KernelVariables:
    """The module variables that a kernel can reach, divided by what a copy of the kernel must do about them."""

    shared: tuple[str, ...]
    """Code of the module only reads them, but the host may have set them: the copy takes over their contents."""
    refused: Mapping[str, str]
    """They may change in a way that a copy would not see, or the other way round, by name with the reason."""


def kernel_variables(module: PtxModule, kernel: str) -> KernelVariables:
    """Divide the module variables that `kernel`, or a function that it may call, mentions.

    Variables that compilers make for themselves are in neither part: a copy initialises its own.
    """
    declared = {
        variable.name: (item, variable)
        for item in module.declarations
        if item.space in SPACES
        for variable in item.variables
        if not (item.space == "global" and _HIDDEN.search(variable.name))
    }
    reached = _reached(module, kernel, declared)
    if not reached:
        return KernelVariables((), {})
    problems = _problems(module, declared)
    refused = {name: problems[name] for name in reached if name in problems}
    return KernelVariables(tuple(name for name in reached if name not in refused), refused)


def _reached(module: PtxModule, kernel: str, declared: Declared) -> list[str]:
    """The variables that the kernel, its callees, and the initialisers of such variables mention."""
    bodies = {function.name: function for function in module.functions if function.body is not None}
    known = {*bodies, *declared}
    seen, work = {kernel}, [kernel]
    while work:
        name = work.pop()
        texts = [i.arguments for i in bodies[name].instructions()] if name in bodies else []
        if name in declared:
            texts.append(declared[name][1].initialiser or "")
        for mentioned in set().union(*map(names, texts)).intersection(known) - seen:
            seen.add(mentioned)
            work.append(mentioned)
    return [name for name in declared if name in seen]


def _problems(module: PtxModule, declared: Declared) -> dict[str, str]:
    """Why a copy of the module cannot share a variable, for each that it cannot."""
    found: dict[str, str] = {}
    for name, (item, _) in declared.items():
        if "extern" in item.linkage:
            found[name] = "another module defines it"
        elif item.type in _REFERENCES or item.space == "tex":
            found[name] = "the host binds it to memory"
        elif ".managed" in item.raw:
            found[name] = "the host may write it at any time"
    for name, (_, variable) in declared.items():
        # A pointer in memory: who loads it may write what it points to.
        for other in names(variable.initialiser or "") & declared.keys():
            found.setdefault(other, f"the variable {name} holds its address")
    writable = {name for name, (item, _) in declared.items() if item.space != "const"}
    for function in module.functions:
        _Addresses(function, writable).collect(found)
    return found


class _Addresses:
    """Where the addresses of module variables may go in one function."""

    def __init__(self, function: Function, variables: set[str]) -> None:
        self._instructions = list(function.instructions())
        # A function's own declarations hide those of the module.
        local = {one.name for node in function.walk() if isinstance(node, Declaration) for one in node.variables}
        self._variables = variables - local - {param.name for param in (*function.params, *function.returns)}
        self._holds: defaultdict[str, set[str]] = defaultdict(set)
        """By register, the variables whose address it may hold."""

    def collect(self, written: dict[str, str]) -> None:
        """Add the variables that this function may write, and how."""
        readers: defaultdict[str, list[Instruction]] = defaultdict(list)
        work: list[Instruction] = []
        for instruction in self._instructions:
            mentioned = names(instruction.arguments)
            for name in mentioned:
                readers[name].append(instruction)
            if mentioned & self._variables:
                work.append(instruction)
        while work:
            instruction = work.pop()
            for register, new in self._follow(instruction, written):
                if new - self._holds[register]:
                    self._holds[register] |= new
                    work += readers[register]

    def _follow(self, instruction: Instruction, written: dict[str, str]) -> list[tuple[str, set[str]]]:
        """The registers that the instruction makes hold addresses, with the variables; notes what it may write."""
        operands = instruction.operands
        found = {variable for text in operands for variable in self._in(text)}
        sources = {variable for text in operands[1:] for variable in self._in(text)}
        if instruction.opcode in _LOADS:
            if observes_other_threads(instruction):
                self._note(instruction, found, "reads it while it may change", written)
            return []
        modifiers = instruction.modifiers
        if instruction.opcode == "cp" and modifiers[:1] == ("async",) and "bulk" not in modifiers:
            found = self._in(operands[0]) if operands else set()  # it reads from the second operand
        if instruction.opcode in _MOVES and operands and not operands[0].startswith("["):
            return [(register, sources) for register in names(operands[0])]
        if sources or instruction.opcode in _WRITES or not operands or operands[0].startswith("["):
            self._note(instruction, found, "may write it", written)
        return []  # else it overwrites a register that held an address

    @staticmethod
    def _note(instruction: Instruction, found: set[str], what: str, written: dict[str, str]) -> None:
        for variable in found:
            written.setdefault(variable, f"PTX line {instruction.line} {what}")

    def _in(self, text: str) -> set[str]:
        """The variables whose address an operand may hold."""
        found: set[str] = set()
        for name in names(text):
            if name in self._variables:
                found.add(name)
            found |= self._holds.get(name, set())
        return found
