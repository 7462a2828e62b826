"""The version of warplens, in a module without imports."""

__version__ = "0.1.0"
