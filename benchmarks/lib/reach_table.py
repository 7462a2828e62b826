"""docs/results/reach.md from what benchmarks/reach.py wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_HEAD = """# Reach: kernels of every front end

One row per front end and way to launch. `identical`: the program's results are bit-identical with and without marks.
`complete`: every warp of every recorded launch left its records and none was lost. The slowdown is the median time of
recorded launches divided by that of plain launches of the same run, per kernel.
"""


def write_table(folders: Sequence[Path]) -> str:
    """The page as Markdown, from every reach.json and compiled.json below the folders."""
    parts = [_HEAD]
    for folder in folders:
        for path in sorted(folder.rglob("reach.json")):
            parts.append(_ran(json.loads(path.read_text())))
        for path in sorted(folder.rglob("compiled.json")):
            parts.append(_compiled(json.loads(path.read_text())))
        for path in sorted(folder.rglob("hooks.json")):
            parts.append(_hooks(json.loads(path.read_text())))
    return "\n".join(parts)


def _ran(document: Row) -> str:
    gpus = ", ".join(document["gpus"][:1]) or "no GPU"
    lines = [
        f"## On a GPU\n\n{document['date']}, warplens {document['warplens']}, Python {document['python']}, {gpus}; "
        "`PYTHONPATH=src python -m benchmarks.reach run --out DIR`.\n",
        "| front end | ran | identical | complete | recorded | slowdown | remarks |", "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in document["rows"]:
        lines.append(" | ".join(["| " + row["what"], *_cells(row)]) + " |")
    ran = [row for row in document["rows"] if "kernels" in row]
    for word in ("identical", "complete"):
        lines.append(f"\n{word}: {sum(bool(row[word]) for row in ran)} of the {len(ran)} that ran.")
    return "\n".join(lines) + "\n"


def _hooks(document: Row) -> str:
    times = ", ".join(f"{name} {document[name]:g}" for name in ("without hooks", "no profile", "quota used up"))
    return (
        "## What the hooks in front of the driver add\n\n"
        f"{document['date']}, Python {document['python']}; "
        "`PYTHONPATH=src python -m benchmarks.reach hooks --out DIR`. Nanoseconds per launch of a kernel that is not "
        f"recorded, by a driver that does nothing, on two cores of a shared machine: {times}.\n"
    )


def _cells(row: Row) -> list[str]:
    if "not_here" in row or "problem" in row:
        return ["no", "", "", "", "", row.get("not_here") or row["problem"]]
    kernels = row["kernels"].items()
    recorded = ", ".join(f"{name} {one['recorded']} of {one['launches'] or '?'}" for name, one in kernels)
    slowdown = ", ".join(f"{one['slowdown']:.3f}" if one["slowdown"] else "-" for _, one in kernels)
    notes = "; ".join(f"{name}: {text}" for name, texts in row["notes"].items() for text in texts)
    return ["yes", _yes(row["identical"]), _yes(row["complete"]), recorded, slowdown, _short(notes, 160)]


def _yes(value: bool) -> str:
    return "yes" if value else "**no**"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _compiled(document: Row) -> str:
    lines = [
        "## Compiled, woven and assembled without a GPU\n",
        f"{document['date']}, warplens {document['warplens']}, Python {document['python']}, sm_90a; "
        "`PYTHONPATH=src python -m benchmarks.reach compile --out DIR`, with the libraries on PYTHONPATH. Pallas "
        "kernels are compiled by XLA for an H100 that is not there, Helion's examples by Triton, and kernels of "
        "DeepGEMM by `warplens nvcc` with DeepGEMM's options. Registers (bytes spilled): of the plain kernel, with "
        "marks and the buffer as a parameter, with marks and the buffer in a variable of the module.\n",
        "| front end | example | kernel | plain | parameter | variable | sites | remarks |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in document["rows"]:
        if "kernel" not in row:
            lines.append(f"| {row['case']} | | | | | | | {row.get('not_here') or row['problem']} |")
            continue
        numbers = [_number(row, suffix) for suffix in ("", "_parameter", "_cell")]
        remark = row.get("note") or (f"refused: {row['refused']}" if "refused" in row else "")
        cells = [
            f"{row['case']} ({row['version']})",
            row["example"],
            _short(row["kernel"], 40),
            *numbers,
            str(row.get("sites", "")),
        ]
        lines.append(f"| {' | '.join(cells)} | {remark} |")
    return "\n".join(lines) + "\n"


def _number(row: Row, suffix: str) -> str:
    return f"{row['registers' + suffix]} ({row['spills' + suffix]})" if f"registers{suffix}" in row else ""
