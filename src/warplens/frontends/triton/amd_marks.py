"""Marks in kernels for AMD's GPUs: whether this thread wants them, and how they get through Triton's pipeliner."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from warplens.threads import assigned


class _Compiling(threading.local):
    marked = False


_compiling = _Compiling()


@contextmanager
def amd_marks() -> Iterator[None]:
    """Let marks in kernels for AMD's GPUs leave a comment inside the block. Outside it they leave nothing."""
    with assigned(_compiling, marked=True):
        yield


def amd_marks_wanted() -> bool:
    """Whether this thread is inside `amd_marks`."""
    return _compiling.marked


@contextmanager
def always_taken(semantic: Any) -> Iterator[None]:
    """Put what is emitted inside the block into a branch that is always taken.

    Triton's pipeliner for AMD's GPUs does not know how to make an inline assembly conditional, which it does with the
    operations of a loop that it peels, but it knows branches. The condition (the block's index is not negative) is only
    found to be true in a pass that runs after the pipeliner, which then removes the branch. Gluon has neither pass.
    """
    from triton.language import semantic as triton_semantic

    if type(semantic) is not triton_semantic.TritonSemantic:
        yield
        return
    builder = semantic.builder
    taken = semantic.greater_equal(semantic.program_id(0), semantic.to_tensor(0))
    place, location = builder.get_insertion_point(), builder.get_loc()
    branch = builder.create_if_op([], taken.handle, False)
    builder.set_insertion_point_to_start(branch.get_then_block())
    yield
    builder.restore_insertion_point(place)
    builder.set_loc(location)
