"""Ingest: sources, decoding, the write-ahead log, and its compaction into the lake."""
