"""A CUDA device that is not there: CPU tensors call themselves `cuda`, and Triton compiles for sm_90 and runs nothing.

Libraries then choose the kernels, types and options that they would choose on a GPU. Call `install` before importing
them; what a kernel would have written stays as it was.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("cuda", 0)
STREAM = 7
PROPERTIES = SimpleNamespace(
    name="NVIDIA H200", major=9, minor=0, total_memory=150 << 30, multi_processor_count=132, warp_size=32,
    max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536, shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472, L2_cache_size=60 << 20, max_threads_per_block=1024,
)  # fmt: skip


class _OnDevice(TorchFunctionMode):
    """Answers `cuda` to whoever asks where a tensor is, and makes tensors for `cuda` on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name, owner = dict(kwargs or {}), getattr(func, "__name__", ""), getattr(func, "__self__", None)
        answers = {id(torch.Tensor.device): DEVICE, id(torch.Tensor.is_cuda): True, id(torch.Tensor.is_cpu): False}
        if name == "__get__" and id(owner) in answers:
            return answers[id(owner)]
        if name == "get_device":
            return 0
        if name in ("cuda", "pin_memory") and isinstance(args[0], torch.Tensor):
            return args[0]
        kwargs.pop("pin_memory", None)
        if "device" in kwargs:
            kwargs["device"] = _on_cpu(kwargs["device"])
        return func(*map(_on_cpu, args), **kwargs)


def _on_cpu(value: Any) -> Any:
    is_cuda = isinstance(value, torch.device | str) and str(value).startswith("cuda")
    return torch.device("cpu") if is_cuda else value


class _Nothing(contextlib.nullcontext[None]):
    """A device, stream or event: accepts everything and does nothing."""

    cuda_stream, device, idx = STREAM, DEVICE, 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **options: None


def install() -> None:
    """Pretend that there is a GPU, for the rest of the process."""
    torch.set_num_threads(1)
    constants = {
        "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0, "synchronize": None,
        "get_device_capability": (9, 0), "get_device_properties": PROPERTIES, "get_device_name": PROPERTIES.name,
        "is_current_stream_capturing": False, "is_bf16_supported": True, "memory_allocated": 0, "set_device": None,
        "_lazy_init": None, "current_stream": _Nothing(), "default_stream": _Nothing(), "empty_cache": None,
    }  # fmt: skip
    for name, value in constants.items():
        setattr(torch.cuda, name, lambda *arguments, value=value, **options: value)
    for name in ("device", "stream", "device_of", "Stream", "Event"):
        setattr(torch.cuda, name, _Nothing)
    torch._C._cuda_getCurrentRawStream = lambda device: STREAM  # type: ignore[attr-defined]
    torch.get_device_module = lambda *arguments: torch.cuda  # type: ignore[assignment]
    accelerator = torch.accelerator
    accelerator.is_available = lambda: True
    accelerator.current_accelerator = lambda *arguments, **options: torch.device("cuda")  # type: ignore[assignment]
    accelerator.device_index = _Nothing  # type: ignore[assignment, misc]
    _OnDevice().__enter__()
    _install_driver()


def _install_driver() -> None:
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    properties = {
        "max_shared_mem": 232448, "multiprocessor_count": 132, "max_num_regs": 65536, "warpSize": 32,
        "sm_clock_rate": 1980000, "mem_clock_rate": 3201000, "mem_bus_width": 6144,
    }  # fmt: skip
    answers = {
        "get_current_device": 0, "get_current_stream": STREAM, "get_current_target": GPUTarget("cuda", 90, 32),
        "get_active_torch_device": DEVICE, "get_device_interface": torch.cuda, "get_device_capability": (9, 0),
        "is_active": True, "get_device_properties": properties, "set_current_device": None,
    }  # fmt: skip
    calls = {name: (lambda *arguments, value=value: value) for name, value in answers.items()}
    utils = SimpleNamespace(get_device_properties=lambda device: properties)
    driver.set_active(SimpleNamespace(utils=utils, launcher_cls=_Nothing, **calls))
