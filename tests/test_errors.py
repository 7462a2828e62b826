"""Errors that are kept do not keep what they passed."""

from __future__ import annotations

import gc
import weakref

from warplens.errors import CaptureError, without_frames


class Tensor:
    """Something of the program's that must not outlive it."""


def raise_with(tensor: Tensor) -> None:
    raise CaptureError("a.warplens", "rows", "there are none", "record it again")


def test_an_error_that_is_kept_does_not_keep_the_variables_of_its_frames() -> None:
    tensor = Tensor()
    alive = weakref.ref(tensor)
    kept = []
    try:
        raise_with(tensor)
    except CaptureError as error:
        kept.append(without_frames(error))
    del tensor
    gc.collect()
    assert alive() is None
    (error,) = kept
    assert str(error) == "a.warplens: rows: there are none; record it again"
    assert (type(error), error.field, error.__traceback__) == (CaptureError, "rows", None)
