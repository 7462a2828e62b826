"""The garbage collector rests while trees are built, and works again afterwards."""

from __future__ import annotations

import gc
import threading

import pytest

from warplens.ptx import tree
from warplens.ptx.garbage_pause import garbage_pause
from warplens.weave.weaver import weave

PTX = (
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry k(.param .u64 p)\n{\n// @warplens B a\nst.global.u32 [0], 1;\n// @warplens E a\nret;\n}\n"
)


def test_pauses_nest_and_leave_the_collector_as_it_was() -> None:
    assert gc.isenabled()
    with garbage_pause():
        with pytest.raises(ZeroDivisionError), garbage_pause():
            _ = 1 // 0
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with garbage_pause():
            pass
        assert not gc.isenabled(), "a program that switched it off keeps it off"
    finally:
        gc.enable()


def test_the_last_of_several_threads_resumes() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with garbage_pause():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with garbage_pause():
        thread.start()
        assert entered.wait(10)
    assert not gc.isenabled(), "the other thread still builds its tree"
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_weaving_is_such_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collections made the time of weaving grow with an exponent of 1.2."""
    states: list[bool] = []
    original = tree._Parser.module
    monkeypatch.setattr(tree._Parser, "module", lambda parser: states.append(gc.isenabled()) or original(parser))
    assert weave(PTX).regions
    assert states == [False]
    assert gc.isenabled()
