"""Ways to store records: deferred, spread over the lanes of a warp, through shared memory, in a launch buffer."""
