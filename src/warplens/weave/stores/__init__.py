"""How records reach memory: at once, deferred, spread over a warp's lanes, or through shared memory."""
