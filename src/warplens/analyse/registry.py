"""Every analysis, listed once: `warplens stats --show` reads this list.

`analysis_names` has their names alone, for the help of `stats`.
"""

from __future__ import annotations

from typing import Any

from warplens.analyse.analysis import Analysis
from warplens.analyse.critical_path import CRITICAL_PATH
from warplens.analyse.duration_shapes import MODES
from warplens.analyse.imbalance import IMBALANCE
from warplens.analyse.launch_skew import SKEW
from warplens.analyse.measured_slopes import SENSITIVITY
from warplens.analyse.occupancy import OCCUPANCY
from warplens.analyse.overlap import OVERLAP
from warplens.analyse.ramp import RAMP
from warplens.analyse.rank_lateness import LATENESS
from warplens.analyse.rank_path import RANK_PATH
from warplens.analyse.role_waits import ROLES
from warplens.analyse.sm_clock import SM_CLOCK
from warplens.analyse.waits import WAITS
from warplens.analyse.waves import WAVES

ANALYSES: dict[str, Analysis[Any]] = {
    one.name: one
    for one in (
        IMBALANCE,
        WAVES,
        OVERLAP,
        WAITS,
        ROLES,
        CRITICAL_PATH,
        SENSITIVITY,
        RAMP,
        MODES,
        SM_CLOCK,
        OCCUPANCY,
        LATENESS,
        SKEW,
        RANK_PATH,
    )
}
