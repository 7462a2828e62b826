"""The rule for make that nvcc writes while it compiles (-MD). Its own filter is no command, so nvcc is asked apart."""

from __future__ import annotations

from collections.abc import Sequence

_WITH_COMPILE = {
    "-MD": "-M",
    "--generate-dependencies-with-compile": "-M",
    "-MMD": "-MM",
    "--generate-nonsystem-dependencies-with-compile": "-MM",
}
_PHASES = {
    "-c", "--compile", "-dc", "--device-c", "-dw", "--device-w", "-ptx", "--ptx", "-cubin", "--cubin",
    "-fatbin", "--fatbin",
}  # fmt: skip
_OUTPUT = ("-o", "--output-file")
_TARGET = ("-MT", "--dependency-target-name")


def asked_apart(arguments: Sequence[str]) -> list[str]:
    """Arguments with which nvcc writes the rule alone; empty where `arguments` do not ask for one."""
    kept: list[str] = []
    output = ""
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name in _OUTPUT:
            output = value if equals else next(words, "")
        elif word not in _PHASES:
            kept.append(_WITH_COMPILE.get(word, word))
    if not set(_WITH_COMPILE) & set(arguments):
        return []
    named = any(word.partition("=")[0] in _TARGET for word in arguments)
    return kept if named or not output else [*kept, "-MT", output]
