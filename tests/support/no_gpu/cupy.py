"""A CuPy that is installed but sees no GPU, for the examples that check this first."""


def is_available() -> bool:
    return False


class RawKernel:
    def __init__(self, *_: object, **__: object) -> None:
        """Compiled when it is launched."""


RawModule = RawKernel
