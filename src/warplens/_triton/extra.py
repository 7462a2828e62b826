"""Triton is an extra: say so when it is missing or too old."""

from __future__ import annotations

from importlib.util import find_spec

from warplens.errors import WarplensError

OLDEST = (3, 6)


def require_triton() -> None:
    """Refuse clearly when triton cannot be imported or is older than what warplens knows."""
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
