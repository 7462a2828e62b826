"""Run the work of a dataset's parts on Apache Spark: the same functions in the Python workers of a cluster."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from warplens.engines.part_work import PartTask, PartWork
from warplens.errors import WarplensError

_AT_ONCE = 256
"""Parts whose results are on the driver at once."""
_SCHEMA = "part long, result binary, error string"
_NO_PYSPARK = "--engine spark: pyspark is not installed; pip install 'warplens[spark]'"
_NO_JAVA = (
    "--engine spark: Spark needs Java 17 or newer, and there is no `java`; "
    "apt-get install default-jre-headless, or set JAVA_HOME"
)


class SparkEngine:
    """A Spark session: the running one, that of `master`, or what Spark's own configuration says.

    The workers read the parts themselves, so they need warplens and a path to the dataset that is the same everywhere.
    """

    def __init__(self, master: str = "") -> None:
        self._master = master

    def tables(self, work: PartWork, tasks: Sequence[PartTask]) -> Iterator[pa.Table]:
        session, is_ours = spark_session(self._master)
        try:
            for first in range(0, len(tasks), _AT_ONCE):
                wave = [replace(task, path=task.path.absolute()) for task in tasks[first : first + _AT_ONCE]]
                numbers = session.range(0, len(wave), 1, len(wave))
                try:
                    answers = numbers.mapInArrow(_mapped(work, wave), _SCHEMA).collect()
                except Exception as error:  # a worker that lacks a package, or that the cluster ended
                    raise WarplensError(f"--engine spark: a worker failed ({_cause(error)})") from error
                for answer in sorted(answers, key=lambda row: int(row.part)):
                    if answer.error:
                        raise WarplensError(answer.error)
                    yield pa.ipc.open_stream(answer.result).read_all()
        finally:
            if is_ours:
                session.stop()


def _mapped(work: PartWork, tasks: Sequence[PartTask]) -> Any:
    """The function that each worker maps over numbers of tasks."""

    def answers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result, error = b"", None
                try:
                    result = _stream(work(tasks[number]))
                except WarplensError as problem:  # one clear line for the user, not a worker's traceback
                    error = str(problem)
                columns = [
                    pa.array([number], pa.int64()),
                    pa.array([result], pa.binary()),
                    pa.array([error], pa.string()),
                ]
                yield pa.record_batch(columns, ["part", "result", "error"])

    return answers


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _cause(error: Exception) -> str:
    """The line of Spark's message that names the error in the worker."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return next((line for line in reversed(lines) if "Error: " in line), lines[0])[:200]


def spark_session(master: str = "") -> tuple[Any, bool]:
    """The session that runs, or a new one; and whether it was started here."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise WarplensError(_NO_PYSPARK) from None
    if (running := SparkSession.getActiveSession()) is not None:
        return running, False
    home = os.environ.get("JAVA_HOME", "")
    if not (shutil.which("java") or (home and os.access(os.path.join(home, "bin", "java"), os.X_OK))):
        raise WarplensError(_NO_JAVA)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("warplens").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    try:
        return (builder.master(master) if master else builder).getOrCreate(), True
    except Exception as error:  # Spark reports a wrong master and a wrong Java by many kinds of errors
        raise WarplensError(f"--engine spark: Spark did not start ({_cause(error)})") from None
