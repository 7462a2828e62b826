"""The findings of a report: their texts for the template, and where the timeline shows their evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from warplens.analyse.analysis import Answers
from warplens.analyse.finding import SUPPORTED, Finding
from warplens.analyse.finding_place import finding_place
from warplens.analyse.finding_text import evidence_text, place_text
from warplens.analyse.findings import findings_from
from warplens.trace.model import Trace
from warplens.wording import duration, percent

_FIRST_FINDINGS = 6


@dataclass
class FindingCards:
    """The findings of one trace. `shown` are the spans in the report's timeline, `regions` the places of their names.

    `places` collects the evidence by the key of each finding's link: `2`, or `B2` for the second of two traces.
    """

    letter: str
    answers: Answers
    shown: Trace
    regions: Mapping[str, int]
    places: dict[str, Any] = field(default_factory=dict)
    _number: int = 0

    def group(self) -> dict[str, Any]:
        """The most important findings, the others, the undecided and the withheld ones."""
        found = findings_from(self.answers)
        ranked = self._cards(list(found))
        return {
            "letter": self.letter,
            "shown": ranked[:_FIRST_FINDINGS],
            "rest": ranked[_FIRST_FINDINGS:],
            "undecided": self._cards(found.undecided),
            "withheld": self._cards(found.withheld),
        }

    def _cards(self, some: Sequence[Finding]) -> list[dict[str, Any]]:
        several = len(self.answers.lives.variants) > 1 if len(self.answers.trace) else False
        return [_card(one, several) | {"link": self._link(one)} for one in some]

    def _link(self, one: Finding) -> str:
        """The key of the finding's link; empty if no span of its kernel is shown."""
        self._number += 1
        key = f"{'' if self.letter == 'A' else self.letter}{self._number}"
        place = finding_place(one, self.shown) if len(self.shown) else None
        if place is None:
            return ""
        self.places[key] = place.to_json() | {"region": self.regions.get(place.region, -1)}
        return key


def _card(one: Finding, several: bool) -> dict[str, Any]:
    low, high = percent(one.gain.low, 0).removesuffix(" %"), percent(one.gain.high, 0)
    return {
        "kind": one.kind,
        "what": one.what,
        "advice": one.advice,
        "gain": f"{low}–{high}" if one.gain.high > 0 else "",
        "gain_ns": f"{duration(one.gain_ns.low)} to {duration(one.gain_ns.high)}",
        "confidence": one.confidence if one.verdict == SUPPORTED else "",
        "withheld": one.withheld,
        "refuted_by": one.refuted_by,
        "evidence": " · ".join(filter(None, [evidence_text(one), one.caution])),
        "below": [{"kind": each.kind, "what": each.what} for each in one.consequences],
        "where": " · ".join(
            filter(None, [one.kernel if several else "", place_text(replace(one, line=_short(one.line)))])
        ),
    }


def _short(line: str) -> str:
    """A source line without the folders of its file, which the report's source section shows."""
    return line.replace("\\", "/").rsplit("/", 1)[-1]
