"""The MCP server: the tools under their names, errors as answers, over standard input and output."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from warplens.agents.agent_tools import Tools
from warplens.agents.bounded_answer import tidied
from warplens.agents.workspace import Workspace
from warplens.errors import WarplensError
from warplens.text import one_line, printable
from warplens.version import __version__

NEEDED = "the MCP server needs the package mcp: pip install 'warplens[mcp]'"
INSTRUCTIONS = (
    "warplens shows what happens inside GPU kernels: which warp did what, when, for how many cycles. The loop that "
    "works: profile a program, get_findings, read_source of the region that a finding names, change the code, profile "
    "again, compare the two traces, keep or revert. Every finding has a gain as an interval of kernel time, what would "
    "refute it, and what to do next. verify_regions tells whether a region's machine code is what its author marked; "
    "sensitivity measures which regions the kernel's end depends on. Answers are bounded: pass the cursor of an answer "
    "to get the next page."
)
TOOLS = (
    "list_traces", "list_kernels", "get_findings", "region_statistics", "compare", "read_source", "verify_regions",
    "profile", "sensitivity",
)  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


def make_server(workspace: Workspace) -> Any:
    """A server for the traces and programs of a workspace."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise WarplensError(NEEDED) from None

    server = MCPServer("warplens", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    tools = Tools(workspace)
    for name in TOOLS:
        tool = getattr(tools, name)
        server.tool(name=name, description=inspect.getdoc(tool))(_answering(tool, ToolError))
    return server


def _answering(tool: F, problem: type[Exception]) -> F:
    """A tool whose errors are answers: one line, no stack trace. Numbers have the digits that matter."""

    @functools.wraps(tool)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return tidied(tool(*arguments, **named))
        except WarplensError as error:
            raise problem(printable(one_line(str(error)))) from None

    return call  # type: ignore[return-value]
