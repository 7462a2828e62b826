"""Wait, in a process that a program under `warplens run` started, for it to join the process group of a job."""

from __future__ import annotations

from warplens.frontends.process_group import watch_membership
from warplens.runner.profile_request import ProfileRequest


def watch(text: str) -> None:
    """Record this process once it joins a process group, as the request in `text` says."""
    request = ProfileRequest.from_text(text.partition(":")[2])

    def joined(rank: int, size: int) -> None:
        # Most processes, such as those that load data, never get here, and are not to pay for the import.
        from warplens.runner import rank_profile

        rank_profile.begin(request, rank, size)

    def leaving() -> None:
        from warplens.runner import rank_profile

        rank_profile.leaving()

    watch_membership(joined, leaving)
