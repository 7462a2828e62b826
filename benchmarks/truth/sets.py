"""All tables of pairs, in the order in which they were written."""

from __future__ import annotations

from benchmarks.truth.eighth_pairs import EIGHTH
from benchmarks.truth.fifth_pairs import FIFTH
from benchmarks.truth.fourth_pairs import FOURTH
from benchmarks.truth.ninth_pairs import NINTH
from benchmarks.truth.pairs import PAIRS
from benchmarks.truth.second_pairs import SECOND, THIRD
from benchmarks.truth.seventh_pairs import SEVENTH
from benchmarks.truth.sixth_pairs import SIXTH
from benchmarks.truth.tenth_pairs import TENTH

SETS = {
    "first": PAIRS,
    "second": SECOND,
    "third": THIRD,
    "fourth": FOURTH,
    "fifth": FIFTH,
    "sixth": SIXTH,
    "seventh": SEVENTH,
    "eighth": EIGHTH,
    "ninth": NINTH,
    "tenth": TENTH,
}
EVERY = tuple(pair for pairs in SETS.values() for pair in pairs)
