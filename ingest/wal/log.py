"""(to be written) `Log`: one pipeline's write-ahead log."""
