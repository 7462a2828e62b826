"""Helion: its kernels are Triton kernels; its autotuner times plain ones."""

from __future__ import annotations

from collections.abc import Callable

from warplens.frontends.library_hooks import remover
from warplens.frontends.triton.tuning import leave_calls_alone
from warplens.frontends.wrap import wrap
from warplens.session import Session

LIBRARY = "helion"


def start(running: Session) -> Callable[[], None] | None:
    """Called when a profile starts; returns a function that removes the hooks."""
    try:
        from helion.runtime.kernel import BoundKernel, Kernel

        undo = [wrap(BoundKernel, "autotune", leave_calls_alone)]
        if hasattr(Kernel, "autotune_multi"):  # since Helion 1.5
            undo.append(wrap(Kernel, "autotune_multi", leave_calls_alone))
    except (ImportError, AttributeError) as error:
        running.note(LIBRARY, f"its autotuner may time marked kernels: warplens does not know this version ({error})")
        return None
    return remover(undo)
