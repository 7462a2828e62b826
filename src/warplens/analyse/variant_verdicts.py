"""How the verdict on a hypothesis about one variant of a kernel is stated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from warplens.analyse.analysis import Answers
from warplens.analyse.finding import MEDIUM, NO_GAIN, REFUTED, SUPPORTED, UNDECIDED, Finding, Gain, Number
from warplens.analyse.line_times import parse
from warplens.trace.schema import LIFE


class VariantVerdicts(ABC):
    """Makes the findings about the variant `label` of `kernel`, in what `answers` are about."""

    answers: Answers
    label: str
    kernel: str

    @property
    @abstractmethod
    def common(self) -> Mapping[str, Number]:
        """Evidence that goes with every finding."""

    def line(self, region: str) -> str:
        """The source location of a region, with a remark if the file has changed since."""
        where = self.answers.trace.meta.locations_of(self.kernel).get(region, "")
        place = parse(where)
        text = self.answers.source(place[0]) if place else None
        return f"{where} (the file has changed since)" if text and text.changed else where

    def supported(
        self, kind: str, what: str, advice: str, gain: Gain, confidence: str = MEDIUM, **more: Any
    ) -> Finding:
        """A finding that the evidence supports."""
        return self._finding(SUPPORTED, kind, what, advice, gain, confidence, **more)

    def undecided(self, kind: str, what: str, record: str, gain: Gain = NO_GAIN, **more: Any) -> Finding:
        """A hypothesis that the trace cannot decide; `record` says what would."""
        return self._finding(UNDECIDED, kind, what, record, gain, MEDIUM, **more)

    def refuted(self, kind: str, why: str) -> Finding:
        """A hypothesis that the evidence speaks against."""
        return self._finding(REFUTED, kind, why, "", NO_GAIN, MEDIUM)

    def _finding(
        self,
        verdict: str,
        kind: str,
        what: str,
        advice: str,
        gain: Gain,
        confidence: str,
        evidence: Mapping[str, Number] | None = None,
        region: str = "",
        **more: Any,
    ) -> Finding:
        shown = "" if region == LIFE else region
        return Finding(
            kind=kind,
            what=what,
            advice=advice,
            kernel=self.label,
            gain=gain,
            verdict=verdict,
            confidence=confidence,
            region=shown,
            line=self.line(shown) if shown else "",
            evidence={**(evidence or {}), **self.common},
            **more,
        )
