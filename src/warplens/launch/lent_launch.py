"""What a front end gets for one launch of a woven kernel, whatever the session does with it."""

from __future__ import annotations

from typing import Protocol


class LentLaunch(Protocol):
    """`with launch as pointer:` launches the woven kernel with that pointer.

    A caller that cannot use `with` takes `pointer`, and calls `launched` or `failed` afterwards.
    """

    @property
    def pointer(self) -> int: ...

    def launched(self) -> None: ...

    def failed(self) -> None: ...

    def __enter__(self) -> int: ...

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None: ...
