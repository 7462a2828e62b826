"""Methods of the DSL that warplens replaces come back, in whatever order it takes its own away."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from warplens.frontends.cute.ptx_keeper import wrap_method


class Compiler:
    def compile(self) -> str:
        return "plain"


def named(letter: str) -> Callable[[Any], Any]:
    return lambda original: lambda self: letter + original(self)


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_methods_are_taken_away_in_any_order(order: tuple[str, ...]) -> None:
    plain = Compiler.compile
    undo = {letter: wrap_method(Compiler, "compile", named(letter)) for letter in "abc"}
    left = ["c", "b", "a"]
    assert Compiler().compile() == "cbaplain"
    for letter in order:
        undo[letter]()
        left.remove(letter)
        assert Compiler().compile() == "".join([*left, "plain"])
    assert Compiler.compile is plain


def test_what_others_put_on_top_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Compiler.compile
    undo = wrap_method(Compiler, "compile", named("a"))
    monkeypatch.setattr(Compiler, "compile", named("z")(Compiler.compile))
    undo()
    assert Compiler().compile() == "zplain"
    monkeypatch.setattr(Compiler, "compile", plain)
