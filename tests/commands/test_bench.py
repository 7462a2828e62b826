"""`warplens bench` in-process: parameters as options, outputs, exit codes, and one clear line for each mistake."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from warplens.bench import load_results
from warplens.commands import main

FILE = """
import numpy as np
import warplens as wl

OUT = {"bad": 1.5, "nan": float("nan")}

@wl.benchmark(
    x="seq_len", values=[16, 32], lines={"impl": ["naive", "flash", "bad", "nan", "huge", "breaks"]},
    fixed={"heads": 2, "causal": False, "dtype": "float32"}, choices={"dtype": ["float32", "float64"]},
    baseline="naive", device="cpu", rel_dev=0.5, min_samples=6, min_time=0.0, warmup=0.0, timeout=0.5,
)
def attention(seq_len, impl, heads, causal, dtype):
    if impl == "huge" and seq_len > 20:
        raise MemoryError
    if impl == "breaks":
        raise ValueError("no kernel image")
    x = np.ones((heads, seq_len), dtype)
    return wl.Case(lambda x: x * OUT.get(impl, 1.0), (x,), flops=x.size, bytes=2 * x.nbytes, reference=np.ones(x.shape))
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bench") / "attention.py"
    path.write_text(FILE)
    return str(path)


@pytest.fixture(scope="module")
def saved(file: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("results") / "results.json"
    assert main(["bench", file, "--impl", "naive,flash,huge", "-o", str(path)]) == 0
    return str(path)


def test_parameters_are_options_in_any_spelling(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--seq-lengths", "8,64", "--impl=flash,naive", "--heads", "1", "--causal", "--dtype", "float64"]
    assert main(["bench", *options, file, "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert captured.err == ""
    rows = [{**row["params"]} for row in document["rows"]]
    assert rows == [
        {"seq_len": x, "impl": impl, "heads": 1, "causal": True, "dtype": "float64"}
        for x in (8, 64)
        for impl in ("flash", "naive")
    ]
    assert document["machine"]["backend"] == "cpu"
    assert {"versions", "date", "command", "commit", "device"} <= set(document["machine"])
    assert document["sweeps"][0]["method"]["rel_dev"] == 0.5


def test_several_values_of_a_fixed_parameter_make_several_tables(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", file, "--seq-len", "8", "--impl", "naive", "--causal", "no,yes", "--quick"]) == 0
    out = capsys.readouterr().out
    assert "causal False" in out
    assert "causal True" in out
    assert out.count("vs naive") == 2


def test_a_table_says_what_became_of_each_row(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Out of memory at one size is no failure by itself; wrong results and errors are, after every row was measured."""
    outputs = [str(tmp_path / f"r{suffix}") for suffix in (".json", ".csv", ".md")]
    assert main(["bench", file, *(word for output in outputs for word in ("-o", output))]) == 1
    captured = capsys.readouterr()
    for word in ("median µs", "vs naive", "1.00×", "GB/s", "out of memory", "wrong: 64 of 64 values are NaN",
                 "wrong: relative error 0.25, allowed 0.0001", "failed: ValueError: no kernel image"):  # fmt: skip
        assert word in " ".join(captured.out.split())
    assert "6 of 12 cases are wrong or failed; attention bad at seq_len 16: wrong: relative error" in captured.err
    found = load_results(outputs[0])
    assert [row.status for row in found if row.line == "huge"] == ["ok", "oom"]
    assert len(list(csv.DictReader(io.StringIO(Path(outputs[1]).read_text())))) == 12
    assert Path(outputs[2]).read_text().startswith("### attention (heads 2, causal False, dtype float32)")


def test_written_results_are_shown_again(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = load_results(saved)
    assert main(["bench", saved, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found.to_json()
    assert main(["bench", saved, "--csv"]) == 0
    assert capsys.readouterr().out == found.to_csv()
    assert main(["bench", saved, "--markdown"]) == 0
    assert capsys.readouterr().out == found.to_markdown()


def test_list_names_the_options(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", file, "--list"]) == 0
    out = capsys.readouterr().out
    for word in ("--seq-len", "16,32", "x axis", "--impl", "lines", "--dtype", "one of float32, float64"):
        assert word in out


def test_plots_are_written_once(saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "deep" / "plots"
    assert main(["bench", "--plot", saved, "-o", str(folder)]) == 0
    names = ["attention-latency.svg", "attention-throughput.svg", "attention-speedup.svg"]
    assert capsys.readouterr().out.split() == [str(folder / name) for name in names]
    for name in names:
        assert "<svg" in (folder / name).read_text()
    assert "huge (out of memory at 32)" in (folder / names[0]).read_text()
    assert main(["bench", "--plot", saved, "-o", str(folder)]) == 1
    assert "already exists; pass --force" in capsys.readouterr().err
    assert main(["bench", "--plot", saved, "-o", str(folder), "--force", "--format", "png", "--json"]) == 0
    assert all(Path(path).read_bytes().startswith(b"\x89PNG") for path in json.loads(capsys.readouterr().out)["files"])


def slower(saved: str, path: Path, factor: float) -> str:
    """The same results with one case slower by a known factor."""
    document: dict[str, Any] = json.loads(Path(saved).read_text())
    row = next(row for row in document["rows"] if row["line"] == "flash")
    for name in row:
        if name.endswith("_ns") and row[name] is not None:
            row[name] = [factor * value for value in row[name]] if name == "series_ns" else factor * row[name]
    path.write_text(json.dumps(document))
    return str(path)


def test_a_regression_exits_with_3(saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--compare", saved, saved]) == 0
    assert "6 same" in capsys.readouterr().out
    # Without noise, so that the verdict is certain whatever this machine does meanwhile.
    document = json.loads(Path(saved).read_text())
    for row in document["rows"]:
        if row["median_ns"]:
            row["series_ns"] = [row["median_ns"] * (1 + 0.001 * (n % 3)) for n in range(60)]
    steady = tmp_path / "steady.json"
    steady.write_text(json.dumps(document))
    worse = slower(str(steady), tmp_path / "worse.json", 1.2)
    assert main(["bench", "--compare", str(steady), worse]) == 3
    captured = capsys.readouterr()
    assert "worse" in captured.out
    assert "1 of 6 cases got worse: attention(seq_len=16, impl=flash" in captured.err
    assert "+20.0 %" in captured.err
    assert main(["bench", "--compare", worse, str(steady)]) == 0
    assert main(["bench", "--compare", str(steady), worse, "--threshold", "30%"]) == 0
    capsys.readouterr()
    assert main(["bench", "--compare", str(steady), worse, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "worse"
    assert [change["verdict"] for change in document["changes"]].count("worse") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{f}", "--seq-lengths", "0"], 2, "--seq-lengths 0: must be greater than 0"),
        (["{f}", "--seq-lengths", "128,-4"], 2, "--seq-lengths -4: must be greater than 0"),
        (["{f}", "--seq-lengths", "many"], 2, "--seq-lengths 'many': expected a whole number, such as 16,32"),
        (["{f}", "--seq-lengths", "16,,32"], 2, "--seq-lengths '': expected a whole number"),
        (["{f}", "--seq-lengths", "16,16"], 2, "--seq-lengths: 16 was given twice"),
        (["{f}", "--seq-lengths", "8", "--seq-len", "9"], 2, "seq_len was given twice"),
        (["{f}", "--seq-lengths"], 2, "--seq-lengths: expected a value"),
        (["{f}", "--seq-lenghts", "8"], 2, "no such option --seq-lenghts (did you mean '--seq-lengths'?)"),
        (["{f}", "--impl", "flsh"], 2, "--impl 'flsh': unknown impl (did you mean 'flash'?)"),
        (["{f}", "--dtype", "float23"], 2, "did you mean 'float32'"),
        (["{f}", "--causal", "maybe"], 2, "--causal 'maybe': expected true or false"),
        (["{f}", "128"], 2, "separate the values of an option by commas"),
        (["{f}", "--only", "atention"], 2, "did you mean 'attention'"),
        (["{f}", "--device", "tpu"], 2, "unknown device 'tpu'"),
        (["{f}", "--timer", "graph"], 2, "timer 'graph' needs a GPU"),
        (["{f}", "--cache", "wram"], 2, "did you mean 'warm'"),
        (["{f}", "--rel-dev", "much"], 2, "--rel-dev 'much': expected a percentage"),
        (["{f}", "--timeout", "0"], 2, "timeout=0.0: must be greater than 0"),
        (["{f}", "-o", "{r}"], 1, "already exists; pass --force"),
        (["{f}", "-o", "x.parquet"], 2, "the file name must end in .json, .csv, .md"),
        (["nothing.py"], 1, "nothing.py: no such file"),
        (["{empty}"], 1, "contains no benchmark; decorate a function with @wl.benchmark"),
        (["{broken}"], 1, "broken.py:2: needs no_such_module, which is not installed: pip install no_such_module"),
        (["{syntax}"], 1, "syntax.py:1: SyntaxError"),
        (["{wrong}"], 2, "wrong.py:2: <lambda>() has no parameter 'm'"),
        (["{other}"], 1, "schema: not a file of benchmark results"),
        (["folder"], 2, "expected a .py file that contains an @wl.benchmark"),
        ([], 2, "give a .py file"),
        (["--plot", "{f}", "-o", "plots"], 1, "attention.py: file: not JSON"),
        (["--plot", "{other}", "-o", "plots"], 1, "schema: not a file of benchmark results"),
        (["--plot", "{r}"], 2, "--plot needs one output folder"),
        (["--plot", "{r}", "-o", "plots", "--format", "pgn"], 2, "did you mean 'png'"),
        (["--compare", "{r}"], 2, "requires 2 arguments"),
        (["--compare", "{r}", "{other}"], 1, "schema: not a file of benchmark results"),
        (["--compare", "{r}", "{r}", "--threshold", "x"], 2, "--threshold 'x': expected a percentage above 0"),
        (["--compare", "{r}", "{r}", "--impl", "flash"], 2, "--impl: unexpected argument"),
    ],
)  # fmt: skip
def test_mistakes_get_one_clear_line(
    file: str, saved: str, arguments: list[str], code: int, message: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    texts = {
        "empty": "x = 1\n",
        "broken": "import warplens\nimport no_such_module\n",
        "syntax": "def f(:\n",
        "wrong": "import warplens as wl\nwl.benchmark(x='m', values=[1])(lambda n: None)\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "other.json").write_text('{"rows": []}')
    names = {name: f"{name}.py" for name in texts} | {"f": file, "r": saved, "other": "other.json"}
    assert main(["bench", *(argument.format(**names) for argument in arguments)]) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_without_a_gpu_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warplens.bench.cuda_backend.gpu_names", lambda: None)
    path = tmp_path / "b.py"
    path.write_text(FILE.replace('device="cpu", ', ""))
    assert main(["bench", str(path)]) == 1
    assert capsys.readouterr().err == (
        "warplens: no GPU: there is no NVIDIA driver on this machine; use a machine with a GPU, "
        "or --device cpu to time CPU functions\n"
    )
    # Mistakes come first: they are the same on any machine.
    assert main(["bench", str(path), "--csv", "--markdown"]) == 2
    assert "--csv and --markdown cannot be combined" in capsys.readouterr().err
    assert main(["bench", str(path), "--seq-lengths", "0"]) == 2
    assert main(["bench", str(path), "--impl", "naive", "--device", "cpu", "--json"]) == 0


def test_an_interrupted_run_keeps_its_rows(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "b.py"
    path.write_text(FILE.replace("raise ValueError", "raise KeyboardInterrupt"))
    target = tmp_path / "r.json"
    assert main(["bench", str(path), "--impl", "naive,breaks", "-o", str(target)]) == 130
    assert "interrupted: showing 1 of 4 cases" in capsys.readouterr().err
    found = load_results(target)
    assert (len(found), found.complete) == (1, False)


def test_the_file_can_import_its_neighbours_and_sizes_are_checked_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "neighbour_of_bench.py").write_text("WORD = 'numpy'\n")
    path = tmp_path / "b.py"
    path.write_text(
        "from neighbour_of_bench import WORD\n" + FILE.replace('raise ValueError("no kernel image")', "WORD")
    )
    assert main(["bench", str(path), "--impl", "naive", "--seq-len", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["status"] == "ok"
