"""Regular expressions and helpers for PTX syntax, and the error that names the offending line."""

from __future__ import annotations

import functools
import re

from warplens.errors import WarplensError


class PtxError(WarplensError):
    """PTX that cannot be parsed, rewritten or simulated, with the line (0: the whole text) and its source."""

    def __init__(self, line: int, text: str, problem: str, remedy: str = "", function: str = "") -> None:
        shown = " ".join(text.split())
        shown = shown if len(shown) <= 120 else shown[:117] + "..."
        where = (f"PTX line {line}" if line else "PTX") + (f" in {function}" if function else "")
        super().__init__(f"{where}: {problem}: {shown!r}" + (f"; {remedy}" if remedy else ""))
        self.line, self.source, self.problem, self.remedy, self.function = line, text, problem, remedy, function


SCALAR_BYTES = {
    "b8": 1, "u8": 1, "s8": 1, "e4m3": 1, "e5m2": 1,
    "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "e4m3x2": 2, "e5m2x2": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "f32x2": 8, "b128": 16,
}  # fmt: skip

_IDENTIFIER = r"[A-Za-z_$%][\w$]*"
# A comment can be matched in one way only: a pattern that repeats comments would otherwise try, when it fails, every
# way of ending each of them.
COMMENT = r"//[^\n]*(?=\n|\Z)|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/"
# The part of a statement between its first word and its semicolon. The loop is unrolled so that a missing semicolon
# fails in linear time: plain text, then (string | braces | comment | slash) and plain text again.
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_REST = rf'[^;{{}}"/]*(?:(?:"[^"\n]*"|{_BRACES}|{COMMENT}|/(?![/*]))[^;{{}}"/]*)*'
_LINE = r'(?:[^\n"/;]|"[^"\n]*"|/(?![/*]))*'
_SPACES = r"reg|sreg|shared|local|param|global|const|tex"
_LINKAGE = r"(?:\.(?:visible|extern|weak|common)\b\s*)*"

INTERMEDIATE_SOURCES = ".nv_intermediate_source_section"
"""cuTile puts its own representation of a kernel into the PTX, as text in which braces need not match."""
_SOURCES = rf"{re.escape(INTERMEDIATE_SOURCES)}" r"\s*\{(?:\s*\.code_block\s*\{.*?\.source_end\s*\})*\s*\}"

BODY = re.compile(
    rf"""(?P<lead>\s*)(?:
      (?P<comment>{COMMENT})
    | (?P<instruction>(?:@\s*(?P<negated>!?)\s*(?P<predicate>{_IDENTIFIER})\s*)?
          (?P<opcode>[a-z]\w*(?:\.[\w:]+)*)(?![\w$]|\s*:)(?P<operands>{_REST});)
    | (?P<label>(?P<label_name>{_IDENTIFIER})\s*:(?!:))
    | (?P<line_directive>\.(?P<line_name>loc|loc_intermediate|file)\b(?P<line_arguments>{_LINE}))
    | (?P<declaration>{_LINKAGE}\.(?:{_SPACES})\b{_REST};)
    | (?P<directive>\.(?P<name>\w+)(?P<arguments>{_REST});)
    | (?P<open>\{{)
    | (?P<close>\}})
    | (?P<empty>;)
    )""",
    re.VERBOSE | re.DOTALL,
)

MODULE = re.compile(
    rf"""(?P<lead>\s*)(?:
      (?P<comment>{COMMENT})
    | (?P<function>{_LINKAGE}\.(?:entry|func)\b[^{{;"/]*(?:(?:"[^"\n]*"|{COMMENT}|/(?![/*]))[^{{;"/]*)*[{{;])
    | (?P<section>\.section\b[^{{}}]*\{{[^{{}}]*\}}|{_SOURCES})
    | (?P<line_directive>\.(?P<line_name>version|target|address_size|loc|file)\b(?P<line_arguments>{_LINE}))
    | (?P<declaration>{_LINKAGE}\.(?:{_SPACES})\b{_REST};)
    | (?P<directive>\.(?P<name>alias|pragma)\b(?P<arguments>{_REST});)
    | (?P<empty>;)
    )""",
    re.VERBOSE | re.DOTALL,
)

DECLARATOR = re.compile(
    rf"\s*(?P<name>{_IDENTIFIER})\s*(?:<\s*(?P<count>\d+)\s*>\s*)?(?P<dims>(?:\[\s*(?:\w+\s*)?\]\s*)*)"
    rf"(?:=\s*(?P<initialiser>{_BRACES}|[^,;]+)\s*)?(?P<end>[,;])"
)
SIMPLE_DECLARATION = re.compile(
    rf"\.({_SPACES})\s+\.({'|'.join(SCALAR_BYTES)}|pred)\s+({_IDENTIFIER})\s*(?:<\s*(\d{{1,9}})\s*>\s*)?;"
)
"""One variable or register family without alignment, array or value, as almost all are declared."""
DECLARATION_WORD = re.compile(r"\s*\.(\w+)(?:\s*\((?:[^()]|\([^()]*\))*\))?(?:\s+(\d+)\b)?")

HEADER_NAME = re.compile(
    rf"\s*(?P<linkage>{_LINKAGE})\.(?P<kind>entry|func)\b\s*(?:\.attribute\s*\((?:[^()]|\([^()]*\))*\)\s*)?"
    rf"(?:\((?P<returns>[^()]*)\)\s*)?(?P<name>{_IDENTIFIER})\s*(?:\((?P<params>(?:[^()]|\([^()]*\))*)\))?"
)

DIMENSION = re.compile(r"\[\s*(\w*)\s*\]")
PARAMETER_NAME = re.compile(r"(?<![\w$%])([\w$%]+)\s*((?:\[\s*(?:\w+\s*)?\]\s*)*)$")

PERFORMANCE = re.compile(r"\.(\w+)\b([\s\d,]*)")

_COMMENTS = re.compile(COMMENT)
_OPENING, _CLOSING = frozenset("{[("), frozenset("}])")


def strip_comments(text: str) -> str:
    """Replace every comment in `text` by a blank."""
    return _COMMENTS.sub(" ", text) if "/" in text else text


@functools.lru_cache(maxsize=1024)  # an analysis asks several times about one instruction before the next
def split_operands(text: str) -> tuple[str, ...]:
    """Split `text` at the commas that are not inside braces, brackets or parentheses."""
    text = strip_comments(text).strip()
    if not text:
        return ()
    if "{" not in text and "[" not in text and "(" not in text:
        return tuple([part.strip() for part in text.split(",")])
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        if letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    parts.append(text[start:].strip())
    return tuple(parts)


_ESCAPES = {8: rb"\\([0-7]{3}|.)", 16: rb"\\([0-9A-Fa-f]{2}|.)"}


def unescape(text: str, base: int) -> str:
    """Decode a string in which bytes outside ASCII are escaped as `\\303` (PTX, base 8) or `\\C3` (MLIR, base 16)."""

    def letter(match: re.Match[bytes]) -> bytes:
        return bytes([int(match[1], base)]) if len(match[1]) > 1 else match[1]

    return re.sub(_ESCAPES[base], letter, text.encode()).decode(errors="replace")
