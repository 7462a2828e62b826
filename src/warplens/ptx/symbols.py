"""Kernel symbols translated back to the names that their authors gave them."""

from __future__ import annotations

import re

_CUTE = re.compile(r"kernel_(cutlass_.+)_\d+$")
_WARP = re.compile(r"(.+?)(?:_[0-9a-f]{8,})?_cuda_kernel_(forward|backward)$")
_CUTILE = re.compile(r"(.+?)_Kt\d+(?:_.*)?$")
_authors: dict[str, str] = {}


def remember(symbol: str, name: str) -> None:
    """Remember the author's name of a kernel, because the CuTe DSL's symbol cannot be split into name and arguments."""
    _authors[symbol] = name


def plain_name(symbol: str) -> str:
    """The unqualified name in a mangled one, or the symbol itself."""
    if cute := _CUTE.search(symbol):
        return _authors.get(cute[1]) or cute[1].removeprefix("cutlass_")
    if warp := _WARP.match(symbol):
        return warp[1] if warp[2] == "forward" else f"{warp[1]} (backward)"
    if cutile := _CUTILE.match(symbol):
        return cutile[1]
    match = re.match(r"_ZN?", symbol)
    if match is None:
        return symbol
    name, rest = symbol, symbol[match.end() :]
    while length := re.match(r"\d+", rest):
        start = length.end()
        name, rest = rest[start : start + int(length[0])], rest[start + int(length[0]) :]
    return name


def base_name(name: str) -> str:
    """A kernel's bare name, mangled or not: without return type, namespaces, template and call arguments."""
    if name.startswith("_Z") or _CUTE.search(name):
        return plain_name(name)
    text = name.replace("(anonymous namespace)::", "")
    text = _without_brackets(_without_brackets(text, "(", ")"), "<", ">")
    return re.split(r"::|\s|\*|&", text.strip())[-1] or name


def _without_brackets(text: str, opening: str, closing: str) -> str:
    """Remove everything inside these brackets, at any depth."""
    depth, kept = 0, []
    for letter in text:
        depth += letter == opening
        if not depth:
            kept.append(letter)
        depth -= letter == closing and depth > 0
    return "".join(kept)
