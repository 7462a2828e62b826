"""The files of a session, in the shape that Proton gives them: a Chrome trace, or a tree for Hatchet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from warplens.compat.proton.launch_log import LaunchLog, LoggedLaunch
from warplens.compat.proton.sessions import InstrumentationSession
from warplens.export.hatchet import device_table, new_node, region_tree
from warplens.files import atomic_write
from warplens.record.capture import HOST_NS
from warplens.trace.model import Trace
from warplens.trace.schema import LIFE, LaunchInfo

Node = dict[str, Any]


def write(session: InstrumentationSession, log: LaunchLog, path: Path, form: str) -> None:
    """Write the file of a session that has ended."""
    document = _chrome(session, log) if form == "chrome_trace" else _hatchet(session, log)
    with atomic_write(path, force=True) as out:
        out.write(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())


def call_stack(session: InstrumentationSession, launch: LaunchInfo, logged: LoggedLaunch | None) -> list[str]:
    """The scopes of a launch, and the name it is shown under: the operation's with hook="triton", else the kernel's."""
    if logged is None:
        return [launch.kernel]
    return _stack(session, logged, launch.kernel)


def _stack(session: InstrumentationSession, logged: LoggedLaunch, kernel: str) -> list[str]:
    outer = logged.frames if session.context == "python" else ()
    return [*outer, *logged.scopes, logged.operation if session.hook else kernel]


def _chrome(session: InstrumentationSession, log: LaunchLog) -> dict[str, Any]:
    traces = [trace for trace in session.traces if len(trace)]
    origin = min((trace.meta.origin_ns for trace in traces), default=0)
    events = [event for trace in traces for event in _events(session, log, trace, origin)]
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _events(session: InstrumentationSession, log: LaunchLog, trace: Trace, origin: int) -> Iterator[dict[str, Any]]:
    regions, names = trace.codes("region")
    life = names.index(LIFE) if LIFE in names else -1
    shown = trace.of_kind("span") & ~trace.numpy("open") & (regions != life)
    rows = np.flatnonzero(shown)
    columns = {name: trace.numpy(name)[rows] for name in ("launch", "sm", "block", "warp", "lane", "start_ns")}
    order = np.lexsort((rows, columns["lane"], columns["warp"], columns["block"], columns["sm"], columns["launch"]))
    about = {info.launch: _about(session, log, trace, info) for info in trace.meta.launches}
    taken = {name: values[order].tolist() for name, values in columns.items()}
    length, cycles = (trace.numpy(name)[rows][order].tolist() for name in ("dur_ns", "dur_cycles"))
    region = regions[rows][order].tolist()
    depth = trace.numpy("depth")[rows][order].tolist()
    shift = trace.meta.origin_ns - origin
    other_warps = _other_warps(trace, rows[order])
    for at, launch in enumerate(taken["launch"]):
        kernel, arguments = about[launch]
        event = {
            "name": names[region[at]],
            "cat": kernel,
            "ph": "X",
            "pid": f"{kernel} Core{taken['sm'][at]} CTA{taken['block'][at]}",
            "tid": f"warp {taken['warp'][at]} (line {depth[at]})",
            "ts": (shift + taken["start_ns"][at]) / 1000,
            "dur": length[at] / 1000,
            "args": {**arguments, "cycles": cycles[at]},
        }
        if at in other_warps:
            yield from _endpoints(event, other_warps[at], (launch << 40) + at)
        else:
            yield event


def _other_warps(trace: Trace, rows: Any) -> dict[int, int]:
    """The warp that ended each event of `rows`, by its place there, where it is not the one that began it. An instant
    stands where an event ended."""
    ends: dict[tuple[int, ...], list[int]] = {}
    instants = np.flatnonzero(trace.of_kind("instant"))
    if not len(instants):
        return {}
    same = [trace.numpy("launch"), trace.numpy("block"), trace.codes("region")[0]]
    warps, cycles = trace.numpy("warp"), trace.numpy("start_cycle")
    for row in instants:
        ends.setdefault((*(int(one[row]) for one in same), int(cycles[row])), []).append(int(warps[row]))
    found = {}
    lengths = trace.numpy("dur_cycles")
    for at, row in enumerate(rows):
        warp = int(warps[row])
        waiting = ends.get((*(int(one[row]) for one in same), int(cycles[row] + lengths[row])), [])
        if waiting and warp not in waiting:
            found[at] = waiting.pop(0)
    return found


def _endpoints(event: dict[str, Any], warp: int, flow: int) -> Iterator[dict[str, Any]]:
    """An event that ended in another warp: a point in each, and an arrow between them."""
    both = {**event, "cat": "flow", "dur": 0, "bind_id": flow}
    yield {**both, "flow_out": True}
    yield {**both, "tid": f"warp {warp} (line 0)", "ts": event["ts"] + event["dur"], "flow_in": True}


def _about(
    session: InstrumentationSession, log: LaunchLog, trace: Trace, launch: LaunchInfo
) -> tuple[str, dict[str, Any]]:
    stack = call_stack(session, launch, log.find(launch.kernel, launch.extra.get(HOST_NS, 0)))
    return stack[-1], {
        "Init Time (ns)": trace.meta.origin_ns + launch.begin_ns,
        "Post Final Time (ns)": trace.meta.origin_ns + launch.end_ns,
        "Finalization Time (ns)": launch.cost.get("finalize_ns", 0.0),
        "Frequency (MHz)": trace.meta.clock.mhz_mean,
        "call_stack": ["ROOT", *stack],
    }


def _hatchet(session: InstrumentationSession, log: LaunchLog) -> list[Any]:
    root = new_node("ROOT")
    devices: dict[str, Any] = {}
    if session.hook:
        # A launch that is not recorded, such as a tuner's, is still an operation of the program.
        for logged in log.since(session.started_ns):
            _add_metrics(_place(root, _stack(session, logged, logged.kernel)), logged.metrics)
    for trace in session.traces:
        devices |= device_table(trace)
        groups: dict[tuple[str, ...], list[int]] = {}
        for launch in trace.meta.launches:
            stack = call_stack(session, launch, log.find(launch.kernel, launch.extra.get(HOST_NS, 0)))
            groups.setdefault(tuple(stack), []).append(launch.launch)
        for path, launches in groups.items():
            part = trace if len(groups) == 1 else trace.select(launch=launches)
            for kernel in region_tree(part)["children"]:
                _merge(_place(root, path), kernel["children"])
    return [root, {"CUDA": devices}]


def _place(root: Node, path: Sequence[str]) -> Node:
    node = root
    for name in path:
        found = next((child for child in node["children"] if child["frame"]["name"] == name), None)
        if found is None:
            found = new_node(name)
            node["children"].append(found)
        node = found
    return node


def _add_metrics(node: Node, metrics: Any) -> None:
    for name, value in metrics.items():
        node["metrics"][name] = node["metrics"].get(name, 0) + value


def _merge(into: Node, children: Sequence[Node]) -> None:
    """Add trees of regions to a node; regions of the same name become one."""
    for child in children:
        node = _place(into, [child["frame"]["name"]])
        _add_metrics(node, child["metrics"])
        _merge(node, child["children"])
