"""The decoded table of spans; what everything to the right reads."""
