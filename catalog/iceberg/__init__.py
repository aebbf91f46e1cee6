"""The Iceberg catalog; the only package that knows pyiceberg."""
