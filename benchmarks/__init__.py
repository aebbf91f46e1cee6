"""Timings beside peers in the same run; one module a claim."""
