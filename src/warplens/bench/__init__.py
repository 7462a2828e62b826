"""Benchmarks: sweeps of cases that are timed until they are known well enough, and checked in the same run."""

from warplens.bench.case import Case as Case
from warplens.bench.compare import compare as compare
from warplens.bench.declare import Benchmark as Benchmark
from warplens.bench.declare import benchmark as benchmark
from warplens.bench.method import Method as Method
from warplens.bench.results import Results as Results
from warplens.bench.results import Row as Row
from warplens.bench.store import load_results as load_results
