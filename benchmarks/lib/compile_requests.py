"""What a library asks Triton to compile: kernel, signature, constants and options, without compiling or running it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Request:
    """One compilation that a library asked for."""

    key: str
    kernel: str
    source: Any
    target: Any
    options: dict[str, Any]


class _Postponed:
    """Stands for the compiled kernel: a launch of it does nothing."""

    metadata = type("Metadata", (), {"shared": 0, "num_warps": 4, "num_ctas": 1, "name": ""})()
    n_regs, n_spills, n_max_threads, function, packed_metadata = 32, 0, 1024, 0, ()

    def launch_metadata(self, *arguments: Any) -> None:
        pass

    def run(self, *arguments: Any) -> None:
        pass

    def _init_handles(self) -> None:
        pass

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self.run


class Requests:
    """Collects the requests made inside `collect`; each kernel at most `per_kernel` times."""

    def __init__(self, per_kernel: int = 2) -> None:
        self.found: dict[str, Request] = {}
        self.failed: dict[str, str] = {}
        self._per_kernel, self._counts = per_kernel, dict[str, int]()

    def install(self) -> None:
        """Postpone all compilations, and let autotuners take the middle one of their configurations."""
        from triton.runtime import jit
        from triton.runtime.autotuner import Autotuner

        create_binder = jit.JITFunction.create_binder

        def with_postponed(function: Any) -> Any:
            made = create_binder(function)
            function.compile = self._compile
            return made

        def run(tuner: Any, *arguments: Any, **options: Any) -> Any:
            tuner.nargs = dict(zip(tuner.arg_names, arguments, strict=False))
            configs = tuner.prune_configs(options) if len(tuner.configs) > 1 else tuner.configs
            config = tuner.best_config = configs[len(configs) // 2]
            return tuner.fn.run(*arguments, **options, **config.all_kwargs())

        jit.JITFunction.create_binder = with_postponed
        Autotuner.run = run

    def collect(self, name: str, call: Callable[[], Any]) -> None:
        """Call into the library; a case that fails is noted and its requests until then are kept."""
        try:
            call()
        except Exception as error:  # the library's own checks, or a kernel whose result it looks at
            self.failed[name] = f"{type(error).__name__}: {error}"[:200]

    def _compile(self, src: Any, target: Any = None, options: Any = None, _env_vars: Any = None) -> Any:
        from triton.runtime import driver

        options, name = dict(options or {}), f"{src.fn.__module__}.{src.fn.__qualname__}"
        parts = (name, src.signature, src.constants, src.attrs, options)
        key = hashlib.sha256(repr([str(part) for part in parts]).encode()).hexdigest()[:12]
        if key not in self.found and self._counts.get(name, 0) < self._per_kernel:
            self._counts[name] = self._counts.get(name, 0) + 1
            target = target or driver.active.get_current_target()
            self.found[key] = Request(key, src.fn.__qualname__, src, target, options)
        return _Postponed()
