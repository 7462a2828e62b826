"""Install the built wheel in a clean environment of each Python, and use it: `make test-wheel`.

Needs the package index, so `make test` leaves it out.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import GOLDEN, ROOT

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
OPTIONAL = {
    "triton",
    "torch",
    "cutlass",
    "cuda",
    "mcp",
    "matplotlib",
    "IPython",
    "pytest",
    "pandas",
    "cupy",
    "numba",
    "tilelang",
    "tvm",
    "jax",
    "helion",
    "pyspark",
    "warp",
}
"""Libraries that a module of warplens may ask for, and that `pip install warplens` does not bring."""

IMPORT_ALL = f"""
import importlib, json, pkgutil, warplens
failed = {{}}
for module in pkgutil.walk_packages(warplens.__path__, "warplens.", onerror=lambda name: None):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in {OPTIONAL!r}:
            failed[module.name] = repr(error)
    except Exception as error:
        if "pip install" not in str(error):
            failed[module.name] = repr(error)
for name in warplens.__all__:
    getattr(warplens, name)
print(json.dumps(failed))
"""


def interpreter(version: str) -> str | None:
    """A Python of this version that starts: on the PATH, or installed by pyenv."""
    installed = (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}")
    for found in [shutil.which(f"python{version}"), *map(str, installed)]:
        if found and subprocess.run([found, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return found
    return None


def said(*command: str | Path, cwd: Path) -> str:
    """Run a command away from the source tree, with nothing of this environment in it."""
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(pip, check=True)
    (built,) = folder.glob("warplens-*.whl")
    return built


def declared() -> list[str]:
    """The versions of Python that the package says it supports."""
    return re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())


def test_the_package_declares_the_versions_that_are_tested() -> None:
    assert tuple(declared()) == VERSIONS


def extras() -> list[str]:
    """The requirements of every extra that users install, but for PySpark: it is plain Python, published as source."""
    table = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2].partition("\n#")[0]
    listed = (need for one in re.findall(r"^\w+ = (\[.*\])$", table, re.MULTILINE) for need in ast.literal_eval(one))
    return [need for need in listed if not need.startswith("pyspark")]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_extra_has_wheels_for_the_version(version: str, tmp_path: Path) -> None:
    assert any(need.startswith("triton") for need in extras())
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps"]
    wheels = ["--only-binary=:all:", "--python-version", version, "--target", str(tmp_path)]
    subprocess.run([*pip, *wheels, *extras()], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_works_in_a_clean_environment(version: str, wheel: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    subprocess.run([python, "-m", "venv", tmp_path / "env"], check=True)
    env = tmp_path / "env" / "bin"
    subprocess.run(
        [env / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel], check=True
    )
    assert said(env / "python", "-m", "pip", "check", cwd=tmp_path).startswith("No broken requirements")
    assert json.loads(said(env / "python", "-c", IMPORT_ALL, cwd=tmp_path)) == {}
    assert "no records were lost" in said(env / "warplens", "demo", "-o", "demo", cwd=tmp_path)
    capture = GOLDEN / "captures" / "triton_matmul.wlcap"
    for file in ("demo/demo.warplens", str(capture)):
        assert "no records were lost" in said(env / "warplens", "info", file, cwd=tmp_path)
        assert json.loads(said(env / "warplens", "stats", file, "--json", cwd=tmp_path))["rows"]
    said(env / "warplens", "report", str(capture), "-o", "report.html", cwd=tmp_path)
    headers = Path(said(env / "warplens", "info", "--include-dir", cwd=tmp_path).strip())
    assert tmp_path in headers.parents
    assert (headers / "warplens.cuh").is_file()
