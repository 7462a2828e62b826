"""As much of torch as the recorder touches: a profiler whose export a test has written beforehand."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class AutogradProfile:
    """torch.autograd.profiler.profile: starting a second one ends the first without a word, as torch 2.13 does."""

    running: AutogradProfile | None = None

    def _prepare_trace(self) -> None:
        AutogradProfile.running = self


def install(monkeypatch: pytest.MonkeyPatch, export: Path) -> ModuleType:
    """`import torch` gives this for the rest of the test; its sessions export a copy of `export`."""

    class Profile:
        log: list[str] = []  # noqa: RUF012

        def __init__(self, *, activities: list[str], record_shapes: bool = False, profile_memory: bool = False) -> None:
            self.activities, self.profiler = activities, AutogradProfile()

        def start(self) -> None:
            Profile.log.append("start")
            self.profiler._prepare_trace()

        def stop(self) -> None:
            Profile.log.append("stop" if AutogradProfile.running is self.profiler else "stolen")
            AutogradProfile.running = None

        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_bytes(export.read_bytes())

    AutogradProfile.running = None
    torch = ModuleType("torch")
    torch.__spec__ = ModuleSpec("torch", None)
    synchronized: list[bool] = []
    cuda = SimpleNamespace(
        device_count=lambda: 1, is_initialized=lambda: True, synchronize=lambda: synchronized.append(True)
    )
    modules: dict[str, Any] = {
        "torch": torch,
        "torch.autograd": ModuleType("torch.autograd"),
        "torch.autograd.profiler": ModuleType("torch.autograd.profiler"),
        "torch.profiler": ModuleType("torch.profiler"),
    }
    torch.cuda, torch.autograd, torch.profiler = cuda, modules["torch.autograd"], modules["torch.profiler"]
    torch.autograd._profiler_enabled = lambda: AutogradProfile.running is not None
    modules["torch.autograd.profiler"].profile = AutogradProfile
    torch.profiler.profile = Profile
    torch.profiler.ProfilerActivity = SimpleNamespace(CPU="cpu", CUDA="cuda")
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return torch
