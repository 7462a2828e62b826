"""Benchmarks: sweeps over cases that are timed until the median is precise enough, and checked in the same run."""

from warplens.bench.benchmark_case import Case as Case
from warplens.bench.benchmark_decorator import Benchmark as Benchmark
from warplens.bench.benchmark_decorator import benchmark as benchmark
from warplens.bench.compare import compare as compare
from warplens.bench.measurement_method import Method as Method
from warplens.bench.result_files import load_results as load_results
from warplens.bench.results import ResultRow as ResultRow
from warplens.bench.results import Results as Results
