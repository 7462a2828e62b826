"""Shell completion: what click completes, and file names wherever it has nothing to offer."""

from __future__ import annotations

from click import shell_completion
from click.shell_completion import CompletionItem, ShellComplete

COMPLETION_VARIABLE = "_WARPLENS_COMPLETE"
"""The shell sets it when it asks for completions; its value names the shell."""


class _OrFileName(ShellComplete):
    """Most values are files: traces, scripts and reports. Only a verb is never one."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        found = super().get_completions(args, incomplete)
        may_be_file = bool(args) and not incomplete.startswith("-")
        return found or ([CompletionItem(incomplete, type="file")] if may_be_file else [])


def complete_file_names() -> None:
    """Let bash, zsh and fish complete file names, too."""
    for shell in (shell_completion.BashComplete, shell_completion.ZshComplete, shell_completion.FishComplete):
        shell_completion.add_completion_class(type(shell.__name__, (_OrFileName, shell), {"name": shell.name}))
