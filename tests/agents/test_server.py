"""The server as an agent sees it: with the client of the official package, in process and over stdio."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

mcp = pytest.importorskip("mcp", reason="mcp is not installed: pip install 'warplens[mcp]'")

from mcp import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters  # noqa: E402

from tests.support.paths import ROOT  # noqa: E402
from warplens.agents.server import TOOLS, make_server  # noqa: E402
from warplens.agents.workspace import Workspace  # noqa: E402
from warplens.analyse.evidence_packet import tokens  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "findings"

PROGRAM = """
import sys
import numpy as np
from warplens import samples
from warplens.decode import decode

STEPS = {steps}
run = samples.simulated(STEPS)
assert run.error < 1e-3
decode(run.capture).save(sys.argv[1], force=True)
"""


def talk(server: Any, script: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    async def session() -> None:
        async with Client(server, read_timeout_seconds=120) as client:
            await script(client)

    asyncio.run(session())


async def ask(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    answer: dict[str, Any] = json.loads(result.content[0].text)
    assert tokens(answer) <= 4000
    return answer


def test_tools_are_described_and_typed(tmp_path: Path) -> None:
    async def script(client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert {tool.name for tool in listed} == set(TOOLS)
        for tool in listed:
            assert tool.description
            assert tool.input_schema["type"] == "object"
        findings = next(tool for tool in listed if tool.name == "get_findings")
        assert findings.input_schema["required"] == ["trace"]

    talk(make_server(Workspace(tmp_path)), script)


def test_errors_are_answers_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.warplens").write_bytes(b"not a trace")

    async def script(client: Client) -> None:
        for tool, arguments, complaint in (
            ("get_findings", {"trace": "absent.warplens"}, "no such trace"),
            ("get_findings", {"trace": "../x.warplens"}, "outside the folder"),
            ("get_findings", {"trace": "broken.warplens"}, "broken.warplens"),
            ("profile", {"script": "x.py"}, "--run-in"),
            ("list_traces", {"budget": 1}, "budget=1"),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            text = result.content[0].text
            assert complaint in text
            assert "Traceback" not in text

    talk(make_server(Workspace(tmp_path)), script)


def test_a_session_from_a_slow_kernel_to_a_verified_change(tmp_path: Path) -> None:
    """Profile, find, read the source, change it, profile again, compare: over stdio, as an agent would."""
    (tmp_path / "kernel.py").write_text(PROGRAM.format(steps=128))
    command = [sys.executable, "-m", "warplens", "mcp", str(tmp_path), "--run-in", str(tmp_path)]
    server = StdioServerParameters(command=command[0], args=command[1:], env={"PYTHONPATH": str(ROOT / "src")})

    async def script(client: Client) -> None:
        before = await ask(client, "profile", script="kernel.py", arguments=["before.warplens"], launches=0)
        assert before["traces"] == ["before.warplens"], before
        kernels = await ask(client, "list_kernels", trace="before.warplens")
        assert kernels["kernels"][0]["kernel"] == "matmul"
        found = await ask(client, "get_findings", trace="before.warplens", budget=1500)
        assert found["findings"]
        rows = await ask(client, "region_statistics", trace="before.warplens")
        assert {row["region"] for row in rows["regions"]} >= {"load", "multiply"} or rows["regions"]
        (tmp_path / "kernel.py").write_text(PROGRAM.format(steps=64))
        after = await ask(client, "profile", script="kernel.py", arguments=["after.warplens"], launches=0)
        assert after["traces"] == ["after.warplens"]
        change = await ask(client, "compare", before="before.warplens", after="after.warplens")
        assert change["kernels"][0]["after_ns"] < change["kernels"][0]["before_ns"]

    talk(server, script)


def test_findings_of_a_real_trace_over_the_protocol(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "serial.warplens", tmp_path)

    async def script(client: Client) -> None:
        answer = await ask(client, "get_findings", trace="serial.warplens", budget=1000)
        assert answer["findings"][0]["gain"]["high"] > 0
        assert answer["schema"] == 1

    talk(make_server(Workspace(tmp_path)), script)
