"""Standing in for a method, and leaving no trace of it."""

from __future__ import annotations

from typing import Any

from warplens.frontends.wrap import wrap


def test_what_was_inherited_is_inherited_again_and_what_was_own_is_own() -> None:
    class Base:
        def name(self) -> str:
            return "base"

    class Derived(Base):
        def size(self) -> int:
            return 1

    def twice(original: Any, made: Any) -> Any:
        return 2 * original(made)

    before = dict(vars(Derived))
    undo = [wrap(Derived, "name", twice), wrap(Derived, "size", twice)]
    assert (Derived().name(), Derived().size(), Base().name()) == ("basebase", 2, "base")
    for one in undo:
        one()
    assert dict(vars(Derived)) == before
