"""The trace: the decoded table of spans, and its file."""
