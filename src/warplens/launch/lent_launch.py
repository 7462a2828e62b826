"""What a front end gets for a launch of a woven kernel: the number to pass in the place of the buffer's address."""

from __future__ import annotations

from typing import Protocol


class LentLaunch(Protocol):
    """`with launch as pointer:` launches the woven kernel with that pointer. Who takes `pointer` by itself calls
    `launched` or `failed` afterwards."""

    @property
    def pointer(self) -> int: ...

    def launched(self) -> None:
        """The kernel was given to its stream."""

    def failed(self) -> None:
        """The kernel could not be launched."""

    def __enter__(self) -> int: ...

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None: ...


class NumberLaunch:
    """A launch that gets a number and needs nothing else."""

    def __init__(self, number: int) -> None:
        self.pointer = number

    def launched(self) -> None: ...

    def failed(self) -> None: ...

    def __enter__(self) -> int:
        return self.pointer

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None: ...
