"""Where a statement runs."""
