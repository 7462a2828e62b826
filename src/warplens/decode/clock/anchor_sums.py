"""The passes over all anchors that fit one line per unit, in C or with numpy: both give the same bits."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from warplens.native import load, pointer

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]


class AnchorSums:
    """Anchors at `x` and `y`, each of one of `units` units, with a weight each, which is 1 at first."""

    def __init__(self, member: Int64, units: int, x: Float64, y: Float64) -> None:
        self.member, self.units, self.x, self.y = member, units, x, y
        self.weight, self.residual = np.ones(len(x)), np.zeros(len(x))

    @staticmethod
    def of(member: Int64, units: int, x: Float64, y: Float64) -> AnchorSums:
        """Those in C where there is a compiler."""
        library = load()
        return AnchorSums(member, units, x, y) if library is None else _AnchorSumsInC(library, member, units, x, y)

    def means(self) -> tuple[Float64, Float64]:
        """The weighted means of each unit."""
        total = np.bincount(self.member, self.weight, self.units)
        sum_x, sum_y = (np.bincount(self.member, self.weight * of, self.units) for of in (self.x, self.y))
        return sum_x / total, sum_y / total

    def moments(self, mean_x: Float64, mean_y: Float64) -> tuple[Float64, Float64, Bool]:
        """The weighted sums of dx * dx and of dx * dy of each unit, and whether its timer moved."""
        dx, dy = self.x - mean_x[self.member], self.y - mean_y[self.member]
        sxx, sxy = (
            np.asarray(np.bincount(self.member, self.weight * dx * of, self.units), np.float64) for of in (dx, dy)
        )
        return sxx, sxy, np.bincount(self.member, np.abs(dy) > 0.5, self.units) > 0

    def weigh(self, offset: Float64, slope: Float64, near: float) -> None:
        """Compute the residuals from these lines, and give weight to what lies nearer than `near`."""
        self.residual = self.y - (offset[self.member] + slope[self.member] * self.x)
        self.weight = np.minimum(1.0, near / np.maximum(np.abs(self.residual), 1e-9)) ** 2


class _AnchorArrays(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int64)] + [
        (name, ctypes.c_void_p) for name in ("member", "x", "y", "weight", "residual")
    ]


class _AnchorSumsInC(AnchorSums):
    def __init__(self, library: ctypes.CDLL, member: Int64, units: int, x: Float64, y: Float64) -> None:
        member = np.ascontiguousarray(member, np.int64)
        super().__init__(member, units, np.ascontiguousarray(x), np.ascontiguousarray(y))
        arrays = self.member, self.x, self.y, self.weight, self.residual
        self._library, self._all = library, _AnchorArrays(len(x), *map(pointer, arrays))

    def means(self) -> tuple[Float64, Float64]:
        total, sum_x, sum_y = np.zeros((3, self.units))
        self._library.wl_line_sums(ctypes.byref(self._all), *map(pointer, (total, sum_x, sum_y)))
        return sum_x / total, sum_y / total

    def moments(self, mean_x: Float64, mean_y: Float64) -> tuple[Float64, Float64, Bool]:
        sxx, sxy = np.zeros((2, self.units))
        moved = np.zeros(self.units, bool)
        self._library.wl_line_moments(ctypes.byref(self._all), *map(pointer, (mean_x, mean_y, sxx, sxy, moved)))
        return sxx, sxy, moved

    def weigh(self, offset: Float64, slope: Float64, near: float) -> None:
        lines = (pointer(np.ascontiguousarray(one)) for one in (offset, slope))
        self._library.wl_line_residuals(ctypes.byref(self._all), *lines, ctypes.c_double(near))
