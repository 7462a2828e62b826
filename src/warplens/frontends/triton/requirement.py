"""Check that Triton, an optional dependency, is installed and new enough; and set its knobs."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from warplens.errors import WarplensError

OLDEST = (3, 6)


def require_triton() -> None:
    """Raise an error that names the remedy if Triton is missing or too old."""
    if find_spec("triton") is None:
        raise WarplensError("triton is not installed; install it with: pip install 'triton>=3.6'")
    version = triton_version()
    if version < OLDEST:
        shown = ".".join(map(str, version))
        raise WarplensError(f"triton {shown} is too old: warplens needs 3.6 or newer; pip install -U 'triton>=3.6'")


def triton_version() -> tuple[int, int]:
    import triton

    major, minor = triton.__version__.split(".")[:2]
    return int(major), int(minor)


def set_knob(group: Any, name: str, value: Any) -> Callable[[], None]:
    """Set one of Triton's knobs. Return a function that restores it, so that the environment decides again if it did
    before."""
    # Some knobs are read from the environment once, when Triton is imported, and are plain attributes then.
    key = getattr(group.knob_descriptors.get(name), "key", None)
    own, environment = group.__dict__.get(name, _UNSET), os.environ.get(key or "")
    setattr(group, name, value)

    def restore() -> None:
        if own is _UNSET:
            group.__dict__.pop(name, None)
        else:
            group.__dict__[name] = own
        if key is not None and environment is None:
            os.environ.pop(key, None)
        elif key is not None and environment is not None:
            os.environ[key] = environment

    return restore


_UNSET = object()
