"""A torch that is installed but sees no GPU, for the examples that check this first."""

from types import SimpleNamespace

Tensor = object
cuda = SimpleNamespace(is_available=lambda: False)
nn = SimpleNamespace(Module=object)
