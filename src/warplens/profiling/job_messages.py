"""Print a message once that several ranks on this host would print: by the first of them."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from pathlib import Path


class JobMessages:
    """The first rank to print a message holds a name for it as long as it runs: an abstract socket, which needs no file
    and is gone with its process. Ranks with the same parent process and the same trace are of one job."""

    def __init__(self, path: Path | None) -> None:
        self._job = f"{os.getppid()} {path}"
        self._held: dict[str, socket.socket] = {}

    def is_first(self, text: str) -> bool:
        """Whether no other rank has printed this message; true where that cannot be known."""
        if not sys.platform.startswith("linux"):
            return True
        name = hashlib.sha256(f"{self._job} {text}".encode(errors="replace")).hexdigest()[:32]
        if name in self._held:
            return True
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            holder.bind(f"\0warplens-{name}")
        except OSError:
            holder.close()
            return False
        self._held[name] = holder
        return True

    def close(self) -> None:
        """Release all names: other ranks may print the messages again."""
        while self._held:
            self._held.popitem()[1].close()
