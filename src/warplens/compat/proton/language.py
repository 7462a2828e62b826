"""Proton's marks (`import warplens.compat.proton.language as pl`): warplens marks under Proton's names."""

from __future__ import annotations

from warplens.errors import UsageError
from warplens.triton import begin as enter_scope
from warplens.triton import end as exit_scope
from warplens.triton import region as scope

__all__ = ["disable_semantic", "enable_semantic", "enter_scope", "exit_scope", "scope"]

SEMANTICS = ("triton", "gluon")


def enable_semantic(semantic_name: str) -> None:
    """Do nothing: warplens marks always work in both languages."""
    _check(semantic_name)


def disable_semantic(semantic_name: str) -> None:
    """Raise an error: marks cannot be disabled for one language only."""
    _check(semantic_name)
    raise UsageError(
        f"disable_semantic({semantic_name!r}) is not supported: marks cannot be disabled per language; "
        "outside proton.start() and finalize() they cost nothing"
    )


def _check(semantic_name: str) -> None:
    if semantic_name not in SEMANTICS:
        raise UsageError(f"unknown semantic {semantic_name!r} (allowed: {', '.join(map(repr, SEMANTICS))})")
