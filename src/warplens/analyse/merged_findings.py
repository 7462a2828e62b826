"""The findings of a dataset from those of its pieces, each of which holds whole launches of one rank.

What a kernel loses inside its launches is judged in each piece with its timeline. A cause that some pieces show and
others do not has its gain weighted by the kernel's time in all of them, and says in which ranks it was found. Late
ranks are judged over all pieces (`analyse/job_findings.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from warplens.analyse.analysis import Answers
from warplens.analyse.finding import MINOR, NOTHING_TO_FIX, REFUTED, SUPPORTED, UNDECIDED, Finding, Gain
from warplens.analyse.findings import Findings, findings_from
from warplens.analyse.kernel_variants import kernel_variants
from warplens.analyse.known_facts import KnownFacts
from warplens.trace.model import Trace
from warplens.wording import numbered, plural

_NO_ANSWER = (NOTHING_TO_FIX, UNDECIDED)
Launch = tuple[int, int]


@dataclass(frozen=True)
class JudgedPiece:
    """The findings about one kernel variant in one piece: its first launch there, and its time in ns."""

    launch: Launch
    rank: int
    ns: float
    findings: tuple[Finding, ...]


def judge_piece(trace: Trace, waits: str | None, given: KnownFacts) -> list[JudgedPiece]:
    """The findings about each kernel variant of a piece."""
    found = findings_from(Answers(trace, waits), given)
    pieces = []
    for one in kernel_variants(trace.meta.launches):
        mine, first = found.of(one.label), one.launches[0]
        judged = (*mine.supported, *mine.undecided, *mine.withheld, *mine.refuted)
        ns = float(sum(max(info.end_ns - info.begin_ns, 1) for info in one.launches))
        pieces.append(JudgedPiece((first.rank, first.launch), first.rank, ns, judged))
    return pieces


def merge_findings(
    pieces: Sequence[JudgedPiece], labels: Mapping[Launch, str], between_ranks: Mapping[str, Finding]
) -> Findings:
    """The findings of all pieces; `labels` are those of the variants in the whole dataset, and `between_ranks` has the
    verdict on late ranks for each of these."""
    variants: dict[str, list[JudgedPiece]] = {}
    for piece in pieces:
        variants.setdefault(labels[piece.launch], []).append(piece)
    total = sum(piece.ns for piece in pieces) or 1.0
    merged = [
        one for label, mine in variants.items() for one in _of_variant(label, mine, total, between_ranks.get(label))
    ]
    supported = [one for one in merged if one.verdict == SUPPORTED and not one.withheld]
    return Findings(
        tuple(sorted(supported, key=lambda one: (not one.urgent, -one.rank))),
        tuple(sorted((one for one in merged if one.verdict == UNDECIDED), key=lambda one: -one.rank)),
        tuple(one for one in merged if one.withheld),
        tuple(one for one in merged if one.verdict == REFUTED),
    )


def _of_variant(
    label: str, pieces: Sequence[JudgedPiece], total: float, between_ranks: Finding | None
) -> list[Finding]:
    """One finding for each kind, with the kind's most telling verdict: supported, undecided, withheld, refuted."""
    kinds: dict[str, list[tuple[JudgedPiece, Finding]]] = {}
    for piece in pieces:
        for one in piece.findings:
            if between_ranks is not None and one.kind == between_ranks.kind:
                continue  # a piece knows only its own rank
            kinds.setdefault(one.kind, []).append((piece, one))
    time = sum(piece.ns for piece in pieces)
    ranks = {piece.rank for piece in pieces}
    found = [] if between_ranks is None else [between_ranks]
    for judged in kinds.values():
        verdict = min((_standing(one) for _, one in judged))
        mine = [(piece, one) for piece, one in judged if _standing(one) == verdict]
        _, shown = max(mine, key=lambda pair: pair[1].expected * pair[0].ns)
        gain, gain_ns = (
            Gain(*(sum(piece.ns * getattr(one, name)[end] for piece, one in mine) / time for end in (0, 1)))
            for name in ("gain", "gain_ns")
        )
        there = {piece.rank for piece, _ in mine}
        made = replace(shown, kernel=label, gain=gain, gain_ns=gain_ns, kernel_share=time / total)
        found.append(_with_ranks(made, there, ranks) if len(ranks) > 1 and verdict == 0 else made)
    problems = [one for one in found if _standing(one) == 0 and one.kind not in _NO_ANSWER]
    if any(one.expected >= MINOR or one.urgent for one in problems):
        found = [one for one in found if one.kind not in _NO_ANSWER]
    return found


def _standing(one: Finding) -> int:
    if one.verdict == SUPPORTED:
        return 2 if one.withheld else 0
    return 1 if one.verdict == UNDECIDED else 3


def _with_ranks(one: Finding, there: set[int], ranks: set[int]) -> Finding:
    """The finding with the ranks that show it."""
    where = "every rank" if there == ranks else numbered("rank", there)
    what = f"{one.what} Seen in {len(there)} of {plural(len(ranks), 'rank')}: {where}."
    return replace(one, what=what, evidence={**one.evidence, "ranks": len(there), "of_ranks": len(ranks)})
