"""Peer: pyarrow.json with all threads, then one zstd Parquet file. `IN.jsonl OUT.parquet`; prints rows and seconds."""

import sys
import time

import pyarrow.json as pj
import pyarrow.parquet as pq

started = time.perf_counter()
table = pj.read_json(sys.argv[1], read_options=pj.ReadOptions(use_threads=True, block_size=8 << 20))
pq.write_table(table, sys.argv[2], compression="zstd")
print(table.num_rows, time.perf_counter() - started)
