"""One file per question: pure functions from a trace to frozen results."""
