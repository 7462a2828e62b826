"""What a front end gets for one launch of a woven kernel, whatever the session does with it."""

from __future__ import annotations


class LentLaunch:
    """`with launch as pointer:` launches the woven kernel with that pointer.

    A caller that cannot use `with` takes `pointer`, and calls `launched` or `failed` afterwards.
    """

    __slots__ = ()

    pointer: int
    """What the kernel takes as its buffer."""

    def launched(self) -> None:
        """The kernel was launched."""

    def failed(self) -> None:
        """The kernel could not be launched."""

    def __enter__(self) -> int:
        return self.pointer

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.launched()
        else:
            self.failed()
