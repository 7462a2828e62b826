"""Proton's own tests of its instrumentation on warplens, with nothing but their two imports changed.

PYTHONPATH=src python -m benchmarks.proton_tests FOLDER... --out DIR

Each FOLDER has test_instrumentation.py and conftest.py of third_party/proton/test of a Triton version; the Triton that
Python imports should be of that version. Two tests also start Proton's own session, which loads CUPTI: where that
Triton was installed without the library, the one of another Triton on the path serves. Writes DIR/proton_tests.json:
per folder, the outcome of each test.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = (
    ("import triton.profiler as proton", "import warplens.compat.proton as proton"),
    ("import triton.profiler.language as pl", "import warplens.compat.proton.language as pl"),
)
SECONDS = 200
CUPTI = "triton/backends/nvidia/lib/cupti"


def with_our_imports(text: str) -> str:
    """The file with its two imports changed."""
    for theirs, ours in IMPORTS:
        if text.count(f"{theirs}\n") != 1:
            sys.exit(f"the test file has no single line {theirs!r}")
        text = text.replace(f"{theirs}\n", f"{ours}\n")
    return text


def outcomes(report: Path) -> dict[str, str]:
    """What became of each test: passed, or why not, in one line."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        problem = next((part for part in case if part.tag in ("failure", "error", "skipped")), None)
        said = "" if problem is None else f"{problem.tag}: {(problem.get('message') or '').splitlines()[0][:200]}"
        found[str(case.get("name"))] = said or "passed"
    return found


def cupti_folder(paths: list[str]) -> str | None:
    """The first folder with the library that Proton's own sessions load."""
    places = (Path(path) / CUPTI for path in paths)
    return next((str(place) for place in places if (place / "libcupti.so").exists()), None)


def run(folder: Path) -> dict[str, str]:
    """The outcomes of one folder's tests."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "conftest.py").write_text((folder / "conftest.py").read_text())
        text = with_our_imports((folder / "test_instrumentation.py").read_text())
        (place / "test_instrumentation.py").write_text(text)
        path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path}
        if cupti := cupti_folder(sys.path):
            environment.setdefault("TRITON_CUPTI_LIB_PATH", cupti)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=report.xml", "."]
        try:
            subprocess.run(command, cwd=place, env=environment, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return {"pytest": f"did not end within {SECONDS} s"}
        report = place / "report.xml"
        return outcomes(report) if report.exists() else {"pytest": "wrote no report"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = {folder.name: run(folder) for folder in arguments.folders}
    for name, tests in found.items():
        passed = sum(said == "passed" for said in tests.values())
        print(f"{name}: {passed} of {len(tests)} passed", flush=True)
        print("".join(f"  {test}: {said}\n" for test, said in tests.items() if said != "passed"), end="")
    document = {"triton": metadata.version("triton"), "tests": found}
    (arguments.out / "proton_tests.json").write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
