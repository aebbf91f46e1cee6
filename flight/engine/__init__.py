"""DuckDB as a locked-down engine over pinned Iceberg snapshots and live rows."""
