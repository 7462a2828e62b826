"""Standing in for a method, and leaving no trace of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from warplens.frontends.wrap import wrap, wrap_compiled


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


def test_a_method_of_a_compiled_class_is_replaced_and_put_back() -> None:
    with pytest.raises(TypeError):
        timedelta.total_seconds = None  # type: ignore[method-assign, assignment]
    before, length = timedelta.__dict__["total_seconds"], timedelta(seconds=3)
    assert length.total_seconds() == 3
    undo = wrap_compiled(timedelta, "total_seconds", lambda original, made: 2 * original(made))
    assert length.total_seconds() == 6
    undo()
    assert length.total_seconds() == 3
    assert timedelta.__dict__["total_seconds"] is before
