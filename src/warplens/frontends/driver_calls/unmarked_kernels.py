"""Kernels that C++ code launches and whose PTX cannot be had: some launches of each are timed, the others counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from warplens.driver import libcuda
from warplens.driver.call_hooks import CallHooks, DriverCall
from warplens.frontends.driver_calls.loaded_code import is_known_without_ptx
from warplens.launch.collected_run import UnmarkedKernel
from warplens.session import Session
from warplens.session.session import is_capturing
from warplens.wording import plural

SUBJECT = "C++ launches"
"""The subject of notes about all of them."""


@dataclass
class _Counted:
    shown: int = 0
    """Launches that Python saw."""
    numbers: set[int] = field(default_factory=set)
    """The hooks' counters of the others: one for each handle of the kernel."""


class UnmarkedKernels:
    """Those of one session."""

    def __init__(self, session: Session, hooks: CallHooks) -> None:
        self.session, self.hooks = session, hooks
        self._kernels: dict[tuple[str, str], dict[str, _Counted]] = {}
        """By library and reason."""

    def launch(self, call: DriverCall, name: str, library: str, reason: str) -> None:
        """Make a launch and time it; or let it pass, and all that follow, if it need not be timed."""
        known = self._kernels.setdefault((library, reason), {}).setdefault(name, _Counted())
        known.shown += 1
        if self.session.counts_all and known.shown == 1:
            self.session.run.notes.setdefault(name, []).append(f"runs unmarked: {reason}")
        timed = None
        if self._is_listed(name, library) and not is_capturing(call.stream):
            with libcuda.driver().relaxed():
                timed = self.session.timings.begin_unmarked(name, call.stream)
        if timed is None:
            known.numbers.add(self.hooks.close(call.function, None))
            return
        self.hooks.make(call)
        timed.launched()

    def settle(self) -> None:
        """Add up the launches, and say once for each library why its kernels are not marked."""
        run = self.session.run
        for (library, reason), kernels in self._kernels.items():
            counts = {name: one.shown + sum(map(self.hooks.count, one.numbers)) for name, one in kernels.items()}
            if self.session.counts_all:
                for name, count in counts.items():
                    run.seen[name] = run.seen.get(name, 0) + count
            listed = [name for name in counts if self._is_listed(name, library)]
            run.unmarked += [UnmarkedKernel(name, counts[name], reason, library) for name in listed]
            if listed:
                names = ", ".join(name[:60] for name in listed[:3]) + (", ..." if len(listed) > 3 else "")
                launches = plural(sum(counts[name] for name in listed), "launch")
                self.session.note(
                    library or SUBJECT, f"{plural(len(listed), 'kernel')} ({names}; {launches}) unmarked: {reason}"
                )

    def _is_listed(self, name: str, library: str) -> bool:
        return not is_known_without_ptx(library) and self.session.options.wants_kernel(name)
