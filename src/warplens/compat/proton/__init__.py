"""Proton's intra-kernel profiler on warplens: `import warplens.compat.proton as proton`.

    proton.start("vector-add", backend="instrumentation", data="trace", mode=proton.mode.Default(...))
    kernel[grid](...)
    proton.finalize()

`data="trace"` writes `<name>.chrome_trace`, `data="tree"` writes `<name>.hatchet` for proton-viewer. Times are real
nanoseconds, not cycles at an assumed 1 GHz.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import warplens.triton  # noqa: F401  attaches profiles to Triton kernels
from warplens.compat.proton import mode
from warplens.errors import UsageError
from warplens.export import chrome, hatchet
from warplens.files import check_writable
from warplens.profiling.profile import Profile
from warplens.trace.model import Trace

__all__ = ["DEFAULT_PROFILE_NAME", "activate", "deactivate", "finalize", "mode", "start"]

DEFAULT_PROFILE_NAME = "proton"
BACKENDS = ("instrumentation",)
FORMATS = {"trace": "chrome_trace", "tree": "hatchet"}
_WRITERS = {"chrome_trace": chrome.write, "hatchet": hatchet.write}


@dataclass
class _ProtonSession:
    profile: Profile
    name: str
    format: str
    running: bool = True


_sessions: dict[int, _ProtonSession] = {}
_numbers = iter(range(1 << 62))


def start(
    name: str | None = None,
    *,
    context: str | None = "shadow",
    data: str | None = "tree",
    backend: str | None = None,
    mode: str | mode.BaseMode | None = None,
    hook: str | None = None,
) -> int:
    """Profile marked kernels launched from now until `finalize`; return the session's id."""
    from warplens.compat.proton.mode import parse

    if backend not in BACKENDS:
        shown = "proton's default (CUPTI)" if backend is None else repr(backend)
        raise UsageError(
            f"proton.start: backend {shown} times whole kernels, which warplens does not do; "
            "use backend='instrumentation'"
        )
    for what, value, allowed in (
        ("data", data, (*FORMATS,)),
        ("context", context, ("shadow", None)),
        ("hook", hook, (None,)),
    ):
        if value not in allowed:
            raise UsageError(
                f"proton.start: {what}={value!r} is not supported (allowed: {', '.join(map(repr, allowed))})"
            )
    chosen = name or DEFAULT_PROFILE_NAME
    form = FORMATS[str(data)]
    check_writable(_path(chosen, form), force=True)
    profile = Profile(**parse(mode).options())
    profile.__enter__()
    number = next(_numbers)
    _sessions[number] = _ProtonSession(profile, chosen, form)
    return number


def deactivate(session: int | None = None) -> None:
    """Stop recording until `activate`."""
    for entry in _chosen(session).values():
        if entry.running:
            entry.profile.pause()
            entry.running = False


def activate(session: int | None = None) -> None:
    """Resume recording after `deactivate`."""
    for entry in _chosen(session).values():
        if not entry.running:
            entry.profile.resume()
            entry.running = True


def finalize(session: int | None = None, output_format: str | None = "") -> Trace | None:
    """Write the file of one session, or of all, and return the last trace (Proton's finalize returns nothing)."""
    if output_format and output_format not in _WRITERS:
        raise UsageError(
            f"proton.finalize: output_format={output_format!r} is not supported (allowed: {', '.join(_WRITERS)})"
        )
    trace: Trace | None = None
    for number, entry in _chosen(session).items():
        del _sessions[number]
        entry.profile.__exit__(None, None, None)
        trace = entry.profile.trace
        form = output_format or entry.format
        _WRITERS[form](trace, _path(entry.name, form))
    return trace


def __getattr__(name: str) -> object:
    if name in (
        "scope",
        "cpu_timed_scope",
        "enter_scope",
        "exit_scope",
        "state",
        "profile",
        "context",
        "specs",
        "hooks",
    ):
        raise AttributeError(
            f"warplens.compat.proton does not support {name!r}, only start, activate, deactivate, finalize, mode "
            "and the marks of proton.language; use triton.profiler for host scopes"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _path(name: str, form: str) -> Path:
    return Path(f"{name}.{form}").expanduser()


def _chosen(session: int | None) -> dict[int, _ProtonSession]:
    if session is None:
        return dict(_sessions)
    if session not in _sessions:
        raise UsageError(f"proton: no session {session!r} (running sessions: {sorted(_sessions) or 'none'})")
    return {session: _sessions[session]}
