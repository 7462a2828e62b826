"""The answer of an analysis for each kernel of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from warplens.errors import check_name

T = TypeVar("T")


@dataclass(frozen=True)
class PerKernel(Generic[T]):
    """Answers by kernel name, in the order of first launch."""

    kernels: Mapping[str, T]

    def __getitem__(self, kernel: str) -> T:
        check_name(f"no kernel named {kernel!r}", kernel, self.kernels)
        return self.kernels[kernel]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def to_json(self) -> dict[str, Any]:
        """The answers as JSON types."""
        return {name: plain(asdict(answer)) for name, answer in self.kernels.items()}  # type: ignore[call-overload]


def plain(value: Any) -> Any:
    """Convert numpy arrays and numbers to Python's own, at any depth."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value
