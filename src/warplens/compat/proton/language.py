"""Proton's marks: `import warplens.compat.proton.language as pl`. They are warplens marks under Proton's names."""

from __future__ import annotations

from warplens.errors import UsageError
from warplens.triton import begin as enter_scope
from warplens.triton import end as exit_scope
from warplens.triton import region as scope

__all__ = ["disable_semantic", "enable_semantic", "enter_scope", "exit_scope", "scope"]

SEMANTICS = ("triton", "gluon")


def enable_semantic(semantic_name: str) -> None:
    """Accepted: warplens marks work in both languages without being enabled."""
    _check(semantic_name)


def disable_semantic(semantic_name: str) -> None:
    """Refused: marks cannot be switched off for one language only."""
    _check(semantic_name)
    raise UsageError(
        f"disable_semantic({semantic_name!r}): warplens marks have no switch per language; "
        "outside proton.start() and finalize() they cost nothing"
    )


def _check(semantic_name: str) -> None:
    if semantic_name not in SEMANTICS:
        raise UsageError(f"semantic {semantic_name!r}: allowed are {' and '.join(map(repr, SEMANTICS))}")
