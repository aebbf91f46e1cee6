"""A deterministic simulator: the real log, recovery, offsets and compactor on a simulated machine."""
