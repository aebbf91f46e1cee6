"""Sources: what lists partitions and reads them from a position."""
