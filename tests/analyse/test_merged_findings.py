"""Findings of pieces become those of the dataset: what all ranks show, and what only some do."""

from __future__ import annotations

from tests.support.builders import Span, make_trace
from warplens.analyse.finding import MEDIUM, NOTHING_TO_FIX, REFUTED, UNDECIDED, Finding, Gain
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.merged_findings import JudgedPiece, judge_piece, merge_findings

LABELS = {(rank, 0): "gemm" for rank in range(4)} | {(rank, 1): "attention" for rank in range(4)}


def finding(kind: str, low: float, high: float, **more: object) -> Finding:
    gain = Gain(low, high)
    return Finding(kind, f"{kind} here.", "fix it", "local name", gain=gain, gain_ns=gain, confidence=MEDIUM, **more)  # type: ignore[arg-type]


def piece(rank: int, *findings: Finding, ns: float = 100.0, launch: int = 0) -> JudgedPiece:
    return JudgedPiece((rank, launch), rank, ns, findings)


def test_what_every_rank_shows_keeps_its_gain_and_the_name_of_the_dataset() -> None:
    (one,) = merge_findings([piece(rank, finding("spills", 0.2, 0.4)) for rank in range(4)], LABELS, {})
    assert (one.kernel, one.kernel_share) == ("gemm", 1.0)
    assert (round(one.gain.low, 9), round(one.gain.high, 9)) == (0.2, 0.4)
    assert one.what == "spills here. Seen in 4 of 4 ranks: every rank."


def test_what_one_rank_shows_counts_by_its_share_of_the_time() -> None:
    refuted = finding("spills", 0.0, 0.0, verdict=REFUTED)
    pieces = [piece(0, refuted), piece(1, refuted), piece(3, finding("spills", 0.4, 0.8), ns=200.0)]
    (one,) = merge_findings(pieces, LABELS, {})
    assert (round(one.gain.low, 9), round(one.gain.high, 9)) == (0.2, 0.4)
    assert one.what.endswith("Seen in 1 of 3 ranks: rank 3.")
    assert (one.evidence["ranks"], one.evidence["of_ranks"]) == (1, 3)


def test_nothing_to_fix_in_most_ranks_gives_way_to_a_problem_of_the_others() -> None:
    fine = finding(NOTHING_TO_FIX, 0.0, 0.05)
    problem = finding("spills", 0.5, 0.9)
    found = merge_findings([piece(0, fine), piece(1, problem)], LABELS, {})
    assert [one.kind for one in found] == ["spills"]
    small = finding("spills", 0.02, 0.03)
    found = merge_findings([piece(0, fine), piece(1, small)], LABELS, {})
    assert [one.kind for one in found] == [NOTHING_TO_FIX, "spills"]


def test_undecided_withheld_and_refuted_are_kept_apart_and_kernels_are_ranked_by_time() -> None:
    pieces = [
        piece(0, finding("a", 0.0, 0.3, verdict=UNDECIDED), finding("b", 0.1, 0.2, withheld="clock"), ns=10.0),
        piece(1, finding("a", 0.0, 0.0, verdict=REFUTED), finding("b", 0.1, 0.1, verdict=REFUTED), ns=10.0),
        piece(0, finding("c", 0.2, 0.2), ns=180.0, launch=1),
        piece(0, finding("c", 0.3, 0.3), ns=10.0),
    ]
    found = merge_findings(pieces, LABELS, {})
    assert [(one.kernel, one.kind) for one in found] == [("attention", "c"), ("gemm", "c")]
    assert [one.kind for one in found.undecided] == ["a"]
    assert [one.kind for one in found.withheld] == ["b"]
    assert found.refuted == ()


def test_a_piece_is_judged_for_each_of_its_variants() -> None:
    trace = make_trace(
        [Span("load", 0, 90, kernel="gemm"), Span("load", 200, 90, kernel="attention", launch=1, rank=2)]
    )
    judged = judge_piece(trace, None, KnownFacts())
    assert [(one.launch, one.rank) for one in judged] == [((0, 0), 0), ((2, 1), 2)]
    assert all(one.findings and one.ns > 0 for one in judged)
