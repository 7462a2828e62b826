"""`python -m warplens` is `warplens`."""

from warplens.commands import entry

entry()
