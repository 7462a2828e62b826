"""Which versions of packages are installed, and the oldest ones whose kernels can be recorded."""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec

from warplens.errors import WarplensError

OLDEST = {"triton": "3.6", "nvidia-cutlass-dsl": "4.5.3", "tilelang": "0.1.15", "cuda-tile": "1.7"}


def require(name: str, module: str, package: str) -> None:
    """Raise an error that names the remedy if a package is missing or too old."""
    oldest = OLDEST[package]
    remedy = f"pip install -U '{package}>={oldest}'"
    if find_spec(module) is None:
        raise WarplensError(f"{name} is not installed; install it with: {remedy}")
    if is_too_old(package, found := installed_version(package)):
        raise WarplensError(f"{package} {found} is too old: warplens needs {oldest} or newer; {remedy}")


def is_too_old(package: str, version: str) -> bool:
    """Whether a version is older than what warplens supports. One that is carried without its metadata is not."""
    return bool(version) and version_numbers(version) < version_numbers(OLDEST.get(package, ""))


def installed_version(package: str) -> str:
    """The version of a package; empty if it is not installed, or without its metadata."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def version_numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, without a local part such as `+cu130`."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0]))
