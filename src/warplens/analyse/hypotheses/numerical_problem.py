"""Are the results wrong? NaN or Inf in recorded values, or a result too far from its reference."""

from __future__ import annotations

import numpy as np

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, NO_GAIN, Finding
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.value_statistics import recorded_values
from warplens.wording import plural

CAUSE = "numerical problem"


def _judge(e: Evidence) -> Finding:
    checked = e.given.checked
    rows = recorded_values(e.trace, e.own_rows)
    values = e.trace.numpy("value")[rows] if len(rows) else np.empty(0)
    bad = ~np.isfinite(values)
    parts, region = [], ""
    evidence: dict[str, float | int | str] = {"values": len(values), "not_finite": int(bad.sum())}
    if checked is not None and checked.problem:
        parts.append(checked.problem)
    if bad.any():
        at = rows[bad][0]
        region = e.lives.regions[int(e.lives.region[at])]
        block, warp = (int(e.trace.numpy(column)[at]) for column in ("block", "warp"))
        count = f"{int(bad.sum()):,} of {plural(len(values), 'recorded value')} are NaN or Inf"
        parts.append(f"{count}, first `{region}` in block {block}, warp {warp}")
        evidence |= {"block": block, "warp": warp}
    if checked is not None and checked.error is not None:
        evidence["error"] = checked.error
    if parts:
        return e.supported(
            CAUSE,
            f"{'; '.join(parts)}.",
            "Subtract the row's maximum before exp, guard divisions by sums that can be 0, and sum in fp32.",
            NO_GAIN,
            HIGH,
            region=region,
            urgent=True,
            evidence=evidence,
            refuted_by="The same values are finite in a run whose result was checked against a reference.",
        )
    if checked is not None:
        far = "" if checked.error is None else f", relative error {checked.error:.1g}"
        allowed = "" if checked.tolerance is None else f" (allowed {checked.tolerance:.1g})"
        return e.refuted(CAUSE, f"the result is finite and correct{far}{allowed}")
    if len(values):
        return e.refuted(CAUSE, f"all {plural(len(values), 'recorded value')} are finite")
    return e.undecided(
        CAUSE,
        "A trace has no results, so it cannot show whether they are right.",
        'Diagnose the benchmark, whose case has a reference, or record values with WL_VALUE("sum", x) or '
        'wlt.value("sum", x).',
    )


NUMERICAL_PROBLEM = Hypothesis(CAUSE, _judge, needs_headroom=False)
