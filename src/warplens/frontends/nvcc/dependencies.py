"""Rules for make that nvcc writes while it compiles (-MD).

nvcc filters them in a step of its own that is no command, so `warplens nvcc` asks nvcc for them in a separate call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from warplens.frontends.nvcc.dryrun import FILTER, Step

_WITH_COMPILE = {
    "-MD": "-M",
    "--generate-dependencies-with-compile": "-M",
    "-MMD": "-MM",
    "--generate-nonsystem-dependencies-with-compile": "-MM",
}
_PHASES = {
    "-c", "--compile", "-dc", "--device-c", "-dw", "--device-w", "-ptx", "--ptx", "-cubin", "--cubin",
    "-fatbin", "--fatbin", "-lib", "--lib", "-shared", "--shared",
}  # fmt: skip
_OUTPUT = ("-o", "--output-file")
_RULE = ("-MF", "--dependency-output")
_TARGET = ("-MT", "--dependency-target-name")


def rule_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with which nvcc prints only the rules; empty if `arguments` do not ask for any."""
    kept: list[str] = []
    output = ""
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name in _OUTPUT + _RULE:
            value = value if equals else next(words, "")
            output = value if name in _OUTPUT else output
        elif word not in _PHASES:
            kept.append(_WITH_COMPILE.get(word, word))
    if not set(_WITH_COMPILE) & set(arguments):
        return []
    named = any(word.partition("=")[0] in _TARGET for word in arguments)
    return kept if named or not output else [*kept, "-MT", output]


def split_rules(printed: str) -> list[str]:
    """Return the rule of each source, with the empty rules of its headers (-MP)."""
    return [rule for rule in re.split(r"^(?=\S.* : )", printed, flags=re.M) if rule]


def rule_file(step: Step) -> str:
    """Return the file that nvcc's filter writes to."""
    return step.line.removeprefix(FILTER).strip().removeprefix(">").strip()
