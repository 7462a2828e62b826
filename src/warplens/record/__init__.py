"""The bytes a mark leaves behind, and how their clocks become nanoseconds."""
