"""Wiring, configuration and the command line."""
