"""Source pages as `ncu --page source --csv` prints them, made from a disassembly and chosen numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from warplens.sass.disassembly import SassFunction, SassInstruction

STALLS = ("long_sb", "wait", "math", "selected")
HEADER = [
    "Address", "Source", "Warp Stall Sampling (All Samples)", "Warp Stall Sampling (Not-issued Samples)", "# Samples",
    "Instructions Executed", "Thread Instructions Executed", "Predicated-On Thread Instructions Executed",
    "Address Space", "Access Operation", "Access Size", "L1 Conflicts Shared N-Way", "L1 Wavefronts Shared Excessive",
    "L1 Wavefronts Shared", "L1 Wavefronts Shared Ideal", "L2 Theoretical Sectors Global",
    "L2 Theoretical Sectors Global Ideal", *(f"stall_{name}" for name in STALLS),
    *(f"stall_{name} (Not Issued)" for name in STALLS),
]  # fmt: skip
BASE = 0x7FC48541D900

Numbers = dict[str, float]


def sass_page(function: SassFunction, numbers: Callable[[SassInstruction], Numbers], name: str = "") -> str:
    """The page of one kernel; `numbers` gives an instruction's executions, samples by reason, sectors and so on."""
    out = io.StringIO()
    write = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow
    write(["Kernel Name", name or f"{function.name}(const float *, float *, unsigned int)", ""])
    write(HEADER)
    for one in function.instructions:
        given = numbers(one)
        stalls = [given.get(reason, 0) for reason in STALLS]
        executed = given.get("executed", 0)
        cells = {
            "Address": f"0x{BASE + one.address:x}", "Source": f"      {one.text} ",
            "Warp Stall Sampling (All Samples)": sum(stalls), "# Samples": sum(stalls),
            "Instructions Executed": executed, "Thread Instructions Executed": 32 * executed,
            "Predicated-On Thread Instructions Executed": 32 * executed,
            "Access Size": given.get("bits", "-"), "L1 Wavefronts Shared": given.get("wavefronts", 0),
            "L1 Wavefronts Shared Excessive": given.get("conflicts", 0),
            "L2 Theoretical Sectors Global": given.get("sectors", 0),
            "L2 Theoretical Sectors Global Ideal": given.get("ideal", 0),
            **{f"stall_{reason}": value for reason, value in zip(STALLS, stalls, strict=True)},
        }  # fmt: skip
        write([_text(cells.get(column, 0)) for column in HEADER])
    return out.getvalue()


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def line_page(file: str, samples: dict[int, Numbers], name: str) -> str:
    """The page of one kernel by source line."""
    columns = ["#", "Source", "Warp Stall Sampling (All Samples)", "Instructions Executed"]
    columns += [f"stall_{reason}" for reason in STALLS]
    out = io.StringIO()
    write = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow
    write(["Kernel Name", name])
    write(["File Path", file])
    write(columns)
    for line, given in samples.items():
        stalls = [given.get(reason, 0) for reason in STALLS]
        write([line, f"line {line}", sum(stalls), given.get("executed", 0), *stalls])
    return out.getvalue()


def correlated_page(file: str, lines: dict[int, list[Numbers]], name: str) -> str:
    """The page of lines with their instructions (`--print-source cuda,sass`), whose rows have the counters."""
    columns = ["Line No", "Source", "Address", "Source", "Warp Stall Sampling (All Samples)", "Instructions Executed"]
    columns += [f"stall_{reason}" for reason in STALLS]
    out = io.StringIO()
    write = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow
    write(["File Path", file])
    write(["Function Name", name])
    write(columns)
    address = BASE
    for line, instructions in lines.items():
        write([line, f"line {line}", *[""] * (len(columns) - 2)])
        for given in instructions:
            stalls = [given.get(reason, 0) for reason in STALLS]
            write(["", "", f"0x{address:x}", "FFMA R1, R2, R3, R4", sum(stalls), given.get("executed", 0), *stalls])
            address += 16
    return out.getvalue()
