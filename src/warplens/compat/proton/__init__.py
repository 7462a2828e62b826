"""Proton's profiler on warplens: `import warplens.compat.proton as proton`.

    proton.start("vector-add", backend="instrumentation", data="trace", mode=proton.mode.Default(...))
    kernel[grid](...)
    proton.finalize()

`data="trace"` writes `<name>.chrome_trace`, `data="tree"` writes `<name>.hatchet` for proton-viewer. Times are real
nanoseconds, not cycles at an assumed 1 GHz. Sessions of other backends, which time whole kernels, are Proton's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import warplens.triton  # noqa: F401  attaches profiles to Triton kernels
from warplens.compat.proton import hooks, mode, sessions
from warplens.compat.proton.outputs import write
from warplens.compat.proton.scopes import cpu_timed_scope, enter_scope, exit_scope, scope, state
from warplens.errors import UsageError
from warplens.files import check_writable
from warplens.trace.model import Trace

__all__ = [
    "DEFAULT_PROFILE_NAME", "activate", "cpu_timed_scope", "deactivate", "enter_scope", "exit_scope", "finalize",
    "hooks", "mode", "profile", "scope", "start", "state",
]  # fmt: skip

DEFAULT_PROFILE_NAME = "proton"
FORMATS = {"trace": "chrome_trace", "tree": "hatchet"}
CONTEXTS = ("shadow", "python", None)
HOOKS = (None, "triton", "launch")
_OTHER_BACKENDS = (None, "cupti", "rocprofiler", "roctracer")


def start(
    name: str | None = None,
    *,
    context: str | None = "shadow",
    data: str | None = "tree",
    backend: str | None = None,
    mode: str | mode.BaseMode | None = None,
    hook: str | None = None,
) -> int:
    """Profile what is launched from now until `finalize`; return the session's number."""
    from warplens.compat.proton.mode import parse

    chosen = name or DEFAULT_PROFILE_NAME
    if backend in _OTHER_BACKENDS:
        import triton.profiler as proton

        given = {"context": context, "data": data, "backend": backend, "mode": mode, "hook": hook}
        return sessions.add(sessions.ForeignSession(proton, proton.start(chosen, **given)))
    for what, value, allowed in (
        ("backend", backend, ("instrumentation", *_OTHER_BACKENDS)),
        ("data", data, (*FORMATS,)),
        ("context", context, CONTEXTS),
        ("hook", hook, HOOKS),
    ):
        if value not in allowed:
            raise UsageError(
                f"proton.start: {what}={value!r} is not supported (allowed: {', '.join(map(repr, allowed))})"
            )
    check_writable(_path(chosen, FORMATS[str(data)]), force=True)
    return sessions.add(sessions.InstrumentationSession(chosen, str(data), parse(mode), hook, context))


def deactivate(session: int | None = None) -> None:
    """Stop recording until `activate`."""
    _switch(session, False)


def activate(session: int | None = None) -> None:
    """Resume recording after `deactivate`."""
    _switch(session, True)


def finalize(session: int | None = None, output_format: str | None = "") -> Trace | None:
    """Write the file of one session, or of all, and return the last trace (Proton's finalize returns nothing)."""
    if output_format and output_format not in FORMATS.values():
        raise UsageError(
            f"proton.finalize: output_format={output_format!r} is not supported "
            f"(allowed: {', '.join(FORMATS.values())})"
        )
    trace: Trace | None = None
    for number in _chosen(session):
        ended = sessions.remove(number)
        if isinstance(ended, sessions.ForeignSession):
            ended.proton.finalize(ended.number, output_format)
            continue
        form = output_format or FORMATS[ended.data]
        write(ended, sessions.log, _path(ended.name, form), form)
        trace = ended.traces[-1] if ended.traces else trace
    return trace


def profile(func: Callable[..., Any] | None = None, *, name: str | None = None, **options: Any) -> Callable[..., Any]:
    """Decorate a function: each call starts a session, and deactivates it when it returns."""
    if func is None:
        return functools.partial(profile, name=name, **options)

    @functools.wraps(func)
    def call(*arguments: Any, **named: Any) -> Any:
        session = start(name, **options)
        result = func(*arguments, **named)
        deactivate(session)
        return result

    return call


def _switch(session: int | None, active: bool) -> None:
    for number in _chosen(session):
        one = sessions.sessions[number]
        if isinstance(one, sessions.ForeignSession):
            (one.proton.activate if active else one.proton.deactivate)(one.number)
        else:
            one.active = active
    sessions.follow()


def _path(name: str, form: str) -> Path:
    return Path(f"{name}.{form}").expanduser()


def _chosen(session: int | None) -> list[int]:
    known = sessions.sessions
    if session is None:
        return list(known)
    if session not in known:
        raise UsageError(f"proton: no session {session!r} (running sessions: {sorted(known) or 'none'})")
    return [session]
