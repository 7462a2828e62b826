"""The profile of a compiled program, inside that program: begun before its main, ended when it exits."""

from __future__ import annotations

import ctypes
import os
import sys

from warplens.commands.shared.console import print_json, stderr
from warplens.commands.shared.run_report import describe, document
from warplens.driver.call_hooks import call_hooks
from warplens.errors import WarplensError
from warplens.profiling.profile import Profile
from warplens.runner.compiled_program import received
from warplens.runner.profile_request import ProfileRequest
from warplens.runner.program import Outcome, TargetProgram

_running: list[tuple[ProfileRequest, Profile]] = []


def begin() -> None:
    """Start the profile that `warplens run` asked for."""
    sys.argv = ["warplens"]
    request = received()
    if request is None:
        return
    profile = Profile(request.path, whole_program=True, **request.options)
    profile.__enter__()
    _running.append((request, profile))
    hooks, _ = call_hooks()
    if hooks is not None:
        hooks.context_ends = finish


def finish() -> None:
    """End the profile, write the trace and report. Called when main returns, on exit() and on a reset of the device."""
    if not _running:
        return
    request, profile = _running.pop()
    problem: WarplensError | None = None
    try:
        profile.__exit__(None, None, None)
    except WarplensError as error:
        problem = error
    program = TargetProgram(request.program[0], request.program[1:])
    if request.json_output is not None:
        ctypes.CDLL(None).fflush(None)
        os.dup2(request.json_output, 1)
        print_json(document(program, profile, Outcome(), problem, merge_variants=request.merge_variants))
        sys.stdout.flush()
        os.dup2(2, 1)
    else:
        describe(profile, Outcome(), launches_given=request.launches_given, merge_variants=request.merge_variants)
    if problem is not None:
        stderr().print(f"warplens: {problem}", markup=False, soft_wrap=True)
    sys.stderr.flush()
