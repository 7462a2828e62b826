"""The page that shows a running program, and the documents that it fetches; look and timeline are those of a report."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np

from warplens.analyse.timeline import strips, thinned
from warplens.trace.model import Trace
from warplens.version import __version__
from warplens.view import bundle
from warplens.view.live_server import HTML, JSON, LONGEST_WAIT_S, Answer, asked_number
from warplens.view.live_state import LiveState, newest_ns
from warplens.view.payload import ColumnPacker, pack_spans, region_entry

MOST_SPANS = 1 << 16
"""Maximum number of spans in one document; each document has all of them."""
MOST_COLUMNS = 1000
MOST_ROWS = 48
"""Rows of the terminal's timeline."""


class StateSource(Protocol):
    """Where states come from. `wait` returns the first one after a number, or the latest after some seconds."""

    def wait(self, after: int, seconds: float) -> LiveState: ...


class ProgramSite:
    """What the server of one program shows. Pages that ask for the same state get the same bytes."""

    def __init__(self, source: StateSource, program: str) -> None:
        self._source, self._program = source, program
        self._documents = LiveDocuments()
        self._lock = threading.Lock()
        self._made: dict[int, tuple[LiveState, bytes]] = {}
        """By columns, the newest document."""

    def warm(self) -> None:
        """The first document needs modules that take a second to load."""
        LiveDocuments().of(LiveState())

    def answer(self, name: str, query: str) -> Answer | None:
        """The page, `state`, or `summary`, which is what the view of a job asks for, and does not wait."""
        if name == "":
            return Answer(page("live", self._program), HTML)
        if name == "state":
            columns = min(asked_number(query, "columns"), MOST_COLUMNS)
            return Answer(self._document(asked_number(query, "after"), columns), JSON)
        if name == "summary":
            return Answer(self._source.wait(-1, 0).summary().to_json(), JSON)
        return None

    def _document(self, after: int, columns: int) -> bytes:
        state = self._source.wait(after, LONGEST_WAIT_S)
        with self._lock:
            known = self._made.get(columns)
            if known is None or known[0] is not state:
                if len(self._made) > 4:
                    self._made.clear()
                known = self._made[columns] = state, self._documents.of(state, columns=columns)
        # The bytes are the same for all who ask, and their age is not.
        return b'{"age_s":%.3f,' % state.age_s + known[1][1:]


def page(name: str, program: str) -> bytes:
    """A live page, which fetches everything else from where it came from."""
    style = bundle.read("report.css") + bundle.read("live.css")
    script = bundle.script(f"{name}.js")
    policy = bundle.content_security_policy([script], [style], connect="'self'")
    template = bundle.templates().get_template(f"{name}.html.j2")
    return template.render(program=program, version=__version__, policy=policy, style=style, script=script).encode()


class LiveDocuments:
    """Makes the documents of one program. A region keeps its colour for as long as the program runs."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def of(self, state: LiveState, *, columns: int = 0) -> bytes:
        """The state as JSON: with packed spans for the page or, for a terminal, with strips of that many columns."""
        document = self._common(state)
        document |= self._strips(state.trace, columns) if columns else self._timeline(state)
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()

    def _common(self, state: LiveState) -> dict[str, Any]:
        for name in (*state.trace.regions, *state.overview):
            self._places.setdefault(name, len(self._places))
        locations = state.trace.meta.locations
        return {
            "number": state.number,
            "elapsed_s": state.elapsed_s,
            "ended": state.ended,
            "program": state.program,
            "records": state.records,
            "cost_s": state.cost_s,
            "newest_ns": newest_ns(state.trace),
            "warnings": state.warnings(),
            "kernels": [asdict(kernel) for kernel in state.kernels],
            "where": state.where(),
            "statistics": [row | {"code": self._places[row["name"]]} for row in state.regions()],
            "regions": [region_entry(at, name, locations) for name, at in self._places.items()],
        }

    def _timeline(self, state: LiveState) -> dict[str, Any]:
        shown = thinned(state.trace, MOST_SPANS)
        packer = ColumnPacker()
        places = np.array([self._places[name] for name in shown.trace.regions], np.int64)
        pack_spans(shown.trace, packer, places)
        bins = max((len(each) for each in state.overview.values()), default=1)
        warps = np.array(list(state.overview.values()) or [[0.0]])
        packer.octets("minimap", np.round(255 * warps / (warps.sum(axis=0).max(initial=0.0) or 1.0)))
        begin = state.overview_begin_ns - state.trace.meta.origin_ns if state.overview else 0
        left_out = [f"{shown.kept:,} of {shown.blocks:,} blocks drawn"] if shown.kept < shown.blocks else []
        info = {
            "shown": len(shown.trace),
            "spans": len(state.trace),
            "left_out": left_out,
            "kernels": shown.trace.kernels,
            "launches": [
                {name: getattr(one, name) for name in ("launch", "rank", "kernel", "grid", "begin_ns", "end_ns")}
                for one in shown.trace.meta.launches
            ],
            "roles": [],
            "clock": {"anchors": 0},
            "minimap": {"bins": bins, "regions": [self._places[name] for name in state.overview] or [-1]},
            "begin": begin,
            "end": begin + bins * state.bin_ns,
            "columns": packer.manifest,
        }
        return {"timeline": info, "payload": packer.text}

    def _strips(self, trace: Trace, columns: int) -> dict[str, Any]:
        if not len(trace):
            return {"strips": None}
        by = "warp" if len({*zip(trace.numpy("launch"), trace.numpy("block"), strict=True)}) <= 4 else "sm"
        found = strips(trace, by, columns)
        places = np.array([*(self._places[name] for name in found.regions), -1])
        return {
            "strips": {
                "labels": list(found.rows.labels[:MOST_ROWS]),
                "left_out": max(len(found.rows.labels) - MOST_ROWS, 0),
                "begin": found.begin,
                "end": found.end,
                "cells": places[found.dominant[:MOST_ROWS]].tolist(),
            }
        }
