"""Calls into Liger-Kernel and flash-linear-attention, forward and backward, in the sizes of language models of seven to
eight billion parameters: 8,192 tokens, 4,096 features, 32 heads of 128, 14,336 hidden features, 128,256 words.

A case makes its tensors and returns what runs it once. Nothing is imported from a library before its case is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

BATCH, TIME, FEATURES, HIDDEN, HEADS, WIDTH, WORDS = 4, 2048, 4096, 14336, 32, 128, 128256
FEW = 2048
"""Tokens of a case whose tensors have a value for each word of a vocabulary."""
Run = Callable[[], Any]
Case = Callable[[], Run]


class Shapes:
    """Makes tensors on a device; `part` divides the number of tokens, for a run without a GPU."""

    def __init__(self, device: str = "cuda", part: int = 1) -> None:
        self.device, self.batch, self.time, self.few = device, max(1, BATCH // part), TIME // part, FEW // part
        self.rows, self.words = self.batch * self.time, max(512, WORDS // part)

    def tensor(self, *shape: int, dtype: str = "bfloat16") -> Any:
        import torch

        made = torch.randn(shape, device=self.device).to(getattr(torch, dtype))
        return made.requires_grad_()

    def decay(self, *shape: int) -> Any:
        import torch

        return torch.nn.functional.logsigmoid(torch.randn(*shape, device=self.device)).requires_grad_()

    def logarithms(self, *shape: int) -> Any:
        import torch

        return torch.log_softmax(torch.randn(*shape, device=self.device), -1).detach().requires_grad_()

    def numbers(self, most: int, *shape: int) -> Any:
        import torch

        return torch.randint(0, most, shape, device=self.device)


def _both_ways(call: Callable[..., Any], arguments: tuple[Any, ...], backward: bool) -> Run:
    """Forward, and backward to all arguments; gradients are not added up."""
    import torch

    leaves = [one for one in arguments if isinstance(one, torch.Tensor) and one.requires_grad]
    given: list[Any] = []

    def run() -> None:
        with torch.set_grad_enabled(backward):
            made = call(*arguments)
        if not backward:
            return
        outputs = [one for one in (made if isinstance(made, tuple) else (made,)) if isinstance(one, torch.Tensor)]
        outputs = [one for one in outputs if one.requires_grad]
        if not given:
            given.extend(torch.ones_like(one) for one in outputs)
        torch.autograd.grad(outputs, leaves, given, allow_unused=True)

    return run


def _made(path: str, arguments: Callable[[], tuple[Any, ...]], backward: bool = True) -> Run:
    module, _, name = path.rpartition(".")
    found = importlib.import_module(module)
    call = getattr(found, name)
    return _both_ways(getattr(call, "apply", call), arguments(), backward)


def liger_cases(s: Shapes) -> dict[str, Case]:
    """Functions of Liger-Kernel 0.8.5."""

    def tokens() -> Any:
        return s.tensor(s.batch, s.time, FEATURES)

    def wide() -> tuple[Any, Any]:
        return s.tensor(s.batch, s.time, HIDDEN), s.tensor(s.batch, s.time, HIDDEN)

    def angles() -> Any:
        return s.tensor(1, s.time, WIDTH).detach()

    def targets() -> Any:
        return s.logarithms(s.few, s.words).detach().exp()

    arguments: dict[str, Callable[[], tuple[Any, ...]]] = {
        "RMSNorm": lambda: (tokens(), s.tensor(FEATURES), 1e-6, 0.0, "llama", True),
        "CrossEntropy": lambda: (
            s.tensor(s.few, s.words), s.numbers(s.words, s.few), None, -100, 0.0, 0.0, "mean", None, False,
        ),
        "SiLUMul": wide,
        "Rope": lambda: (
            s.tensor(s.batch, HEADS, s.time, WIDTH), s.tensor(s.batch, HEADS // 4, s.time, WIDTH), angles(), angles(),
        ),
        "LayerNorm": lambda: (tokens(), s.tensor(FEATURES), s.tensor(FEATURES), 1e-6),
        "GELUMul": wide,
        "FusedLinearCrossEntropy": lambda: (
            s.tensor(s.few, FEATURES), s.tensor(s.words, FEATURES), s.numbers(s.words, s.few),
        ),
        "KLDivLoss": lambda: (s.logarithms(s.few, s.words), targets(), "batchmean", False, 1e-10),
        "Softmax": lambda: (s.tensor(s.rows, FEATURES),),
        "JSD": lambda: (
            s.logarithms(s.few, s.words), s.logarithms(s.few, s.words).detach(), None, 0.5, -100, "triton",
        ),
        "FusedAddRMSNorm": lambda: (tokens(), tokens(), s.tensor(FEATURES), 1e-6, 0.0, "llama", True),
        "GroupNorm": lambda: (s.tensor(s.batch * 2, 512, 4096), s.tensor(512), s.tensor(512), 512, 32, 1e-5),
        "TVDLoss": lambda: (targets().requires_grad_(), targets(), None, "batchmean", -100),
        "DyT": lambda: (tokens(), s.tensor(1), s.tensor(FEATURES), s.tensor(FEATURES)),
        "ReLUSquared": lambda: (s.tensor(s.batch, s.time, HIDDEN),),
        "PolyNorm": lambda: (tokens(), s.tensor(3), s.tensor(), 1e-6, True),
        "Sparsemax": lambda: (s.tensor(s.rows, FEATURES), -1),
    }  # fmt: skip
    return {
        f"liger {name}": partial(_made, f"liger_kernel.ops.Liger{name}Function", made)
        for name, made in arguments.items()
    }


def fla_cases(s: Shapes) -> dict[str, Case]:
    """Operations of flash-linear-attention 0.6.0, with 16 heads of 128. Those whose backward it refuses with Triton 3.6
    on Hopper run forward."""
    heads = 16

    def three(time: int = s.time) -> tuple[Any, ...]:
        return tuple(s.tensor(s.batch, time, heads, WIDTH) for _ in range(3))

    def gate(time: int = s.time) -> Any:
        return s.decay(s.batch, time, heads)

    def flat() -> Any:
        return s.tensor(s.rows, heads * WIDTH)

    short = s.time // 4
    cases: dict[str, tuple[Callable[[], tuple[Any, ...]], bool]] = {
        "ops.gla.chunk_gla": (lambda: (*three(), s.decay(s.batch, s.time, heads, WIDTH)), True),
        "modules.fused_norm_gate.rms_norm_gated": (
            lambda: (flat(), flat(), s.tensor(heads * WIDTH), None), True,
        ),
        "ops.delta_rule.chunk_delta_rule": (lambda: (*three(), gate().detach().exp().bfloat16().requires_grad_()), True,
        ),
        "ops.retention.chunk_retention": (three, True),
        "ops.gla.fused_recurrent_gla": (
            lambda: (*three(short), s.decay(s.batch, short, heads, WIDTH)), True,
        ),
        "ops.simple_gla.chunk_simple_gla": (lambda: (*three(), gate()), False),
        "ops.simple_gla.parallel_simple_gla": (lambda: (*three(), gate()), True),
        "modules.layernorm.layer_norm": (
            lambda: (flat(), s.tensor(heads * WIDTH), s.tensor(heads * WIDTH)), True,
        ),
        "modules.l2norm.l2_norm": (lambda: (three()[0],), True),
        "ops.hgrn.chunk_hgrn": (
            lambda: (s.tensor(s.batch, s.time, heads * WIDTH), s.decay(s.batch, s.time, heads * WIDTH)), True,
        ),
        "modules.activations.swiglu": (lambda: (flat(), flat()), True),
        "modules.token_shift.token_shift": (lambda: (s.tensor(s.batch, s.time, heads * WIDTH),), True),
    }  # fmt: skip
    return {f"fla {path.rpartition('.')[2]}": partial(_made, f"fla.{path}", *case) for path, case in cases.items()}


LIBRARIES = {"liger": liger_cases, "fla": fla_cases}


def take_middle_configurations() -> None:
    """Let Triton's autotuners take the middle one of their configurations that can run, instead of compiling and timing
    all of them: some operations have dozens, for each of ten kernels."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.errors import OutOfResources

    def run(tuner: Any, *arguments: Any, **options: Any) -> Any:
        tuner.nargs = dict(zip(tuner.arg_names, arguments, strict=False))
        configs = tuner.prune_configs(options) if len(tuner.configs) > 1 else list(tuner.configs)
        refused = vars(tuner).setdefault("warplens_refused", set())
        for config in sorted(configs, key=lambda one: abs(configs.index(one) - len(configs) // 2)):
            if str(config) in refused:
                continue
            tuner.best_config = config
            try:
                return tuner.fn.run(*arguments, **{**options, **config.all_kwargs()})
            except OutOfResources:
                refused.add(str(config))
        raise RuntimeError(f"no configuration of {len(configs)} can run")

    Autotuner.run = run
