"""IKET's marks on a GPU that has no CuTe DSL: examples/cute/iket.py, compiled elsewhere, by cuda.bindings.

PYTHONPATH=src python -m benchmarks.iket_ptx compile --out FOLDER     # where the DSL is, in a version with IKET
PYTHONPATH=src python -m benchmarks.iket_ptx run FOLDER --out DIR     # where the GPU is

Compares the results with and without a profile bit for bit, and counts the records of every range and payload. Writes
DIR/iket_ptx.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.lib.carried_kernels import CarriedKernel, LoadedKernel

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "cute" / "iket.py"
IMPORTS = {"drop-in": "from warplens.compat import iket", "recognised": "from cutlass.cute.experimental import iket"}
N, THREADS, STEPS, LAUNCHES = 128, 64, 37, 3


def compile_kernels(out: Path) -> None:
    os.environ["CUTE_DSL_ARCH"] = "sm_90a"
    from cutlass import Float32, cute
    from cutlass.cute.runtime import make_ptr

    text = EXAMPLE.read_text()
    for way, line in IMPORTS.items():
        path = out / f"iket_{way.replace('-', '_')}.py"
        path.write_text(text.replace(IMPORTS["drop-in"], line))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        y = make_ptr(Float32, 256, cute.AddressSpace.gmem, assumed_align=16)
        with tempfile.TemporaryDirectory() as folder:
            options = f"--keep-ptx --dump-dir={folder}" + (" iket" if way == "recognised" else "")
            ptx = cute.compile(module.run, y, STEPS, options=options).__ptx__.partition("\0")[0]
        (out / f"{way}.ptx").write_text(ptx)
        print(f"{out / way}.ptx: {len(ptx):,} bytes", flush=True)


def expected() -> dict[tuple[str, str], int]:
    """How often each range, mark and payload occurs in one launch, by its kind and name."""
    warps, even = N // 32, -(-STEPS // 2)
    spans = {"K_Tile": STEPS, "step 100 %": STEPS, "even": even, "tail": 1}
    values = {"count": 1, "half": 1, "step 100 %": STEPS, "tail": 2}
    found = {("span", name): warps * count for name, count in spans.items()}
    found |= {("value", name): warps * count for name, count in values.items()}
    return found | {("instant", "start"): warps}


def iket_kernel(path: Path) -> CarriedKernel:
    """The kernel of a file that `compile_kernels` wrote, which takes an array and a number of steps."""
    text = path.read_text()
    symbol = text.partition(".visible .entry ")[2].partition("(")[0].strip()
    arguments = (bytes(8).hex(), STEPS.to_bytes(4, "little").hex())
    return CarriedKernel("iket", symbol, text, (N // THREADS, 1, 1), (THREADS, 1, 1), 0, arguments, ((0, 0, 0),), (N,))


def measure(path: Path) -> dict[str, Any]:
    import torch

    import warplens as wl

    torch.zeros(1, device="cuda")  # makes the context

    def launch(kernel: LoadedKernel) -> Any:
        y = torch.arange(N, device="cuda", dtype=torch.float32)
        torch.cuda.synchronize()
        kernel.launch([y.data_ptr()])
        torch.cuda.synchronize()
        return y

    carried = iket_kernel(path)
    plain = launch(LoadedKernel(carried))
    with wl.profile(auto="loads", records_per_warp=2048) as profile:
        kernel = LoadedKernel(carried)
        marked = [launch(kernel) for _ in range(LAUNCHES)]
    trace = profile.trace
    rows = trace.spans.to_pylist()
    found = Counter((row["kind"], row["region"]) for row in rows)
    steps = sorted(row["value"] for row in rows if (row["kind"], row["region"]) == ("value", "step 100 %"))
    losses = trace.meta.losses
    return {
        "identical": all(bool((one == plain).all()) for one in marked),
        "complete": all(found[key] == LAUNCHES * count for key, count in expected().items()),
        "payloads": steps == sorted([*range(STEPS)] * (LAUNCHES * N // 32)),
        "counts": {f"{kind} {name}": found[kind, name] for kind, name in expected()},
        "losses": {name: getattr(losses, name) for name in ("records_lost", "open_spans", "orphan_ends")},
        "step_cycles": sorted({row["dur_cycles"] for row in rows if row["region"] == "even" and row["dur_cycles"]})[:5],
        "notes": {name: list(said) for name, said in profile.notes.items()},
    }


def run(folder: Path, out: Path) -> None:
    document = {}
    for way in IMPORTS:
        try:
            document[way] = measure(folder / f"{way}.ptx")
        except Exception:  # the other way still has something to say
            traceback.print_exc()
            document[way] = {"failed": traceback.format_exc().splitlines()[-1]}
        print(json.dumps({way: document[way]}), flush=True)
        (out / "iket_ptx.json").write_text(json.dumps(document, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compile", "run"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.what == "compile":
        compile_kernels(arguments.out)
    else:
        run(arguments.folder or arguments.out, arguments.out)


if __name__ == "__main__":
    main()
