"""Standing in for a method, and leaving no trace of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from warplens.frontends.wrap import wrap, wrap_all


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
    undo = wrap(timedelta, "total_seconds", lambda original, made: 2 * original(made))
    assert length.total_seconds() == 6
    undo()
    assert length.total_seconds() == 3
    assert timedelta.__dict__["total_seconds"] is before


def test_a_static_method_is_put_back_as_one() -> None:
    class Owner:
        @staticmethod
        def size() -> int:
            return 1

    before = dict(vars(Owner))
    undo = wrap(Owner, "size", lambda original, *given: original())
    undo()
    assert dict(vars(Owner)) == before


def test_nothing_stays_wrapped_where_one_name_is_missing() -> None:
    before = timedelta.__dict__["total_seconds"]
    with pytest.raises(AttributeError, match="no_such_name"):
        wrap_all((timedelta, "total_seconds", lambda original, made: 0.0), (timedelta, "no_such_name", print))
    assert timedelta.__dict__["total_seconds"] is before
