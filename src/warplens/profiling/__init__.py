"""wl.profile: a run from its first mark to its trace."""
