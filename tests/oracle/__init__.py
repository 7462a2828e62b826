"""Other people's readers of what warplens writes."""
