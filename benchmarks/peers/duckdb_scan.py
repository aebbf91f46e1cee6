"""Peer: DuckDB in this process over the same Parquet files. `GLOB COLUMNS`; prints rows, Arrow bytes and seconds."""

import sys
import time

import duckdb

con = duckdb.connect()
started = time.perf_counter()
reader = con.execute(f"SELECT {sys.argv[2]} FROM read_parquet('{sys.argv[1]}', hive_partitioning=false)").to_arrow_reader(60_000)
rows = nbytes = 0
for batch in reader:
    rows += batch.num_rows
    nbytes += batch.nbytes
print(rows, nbytes, time.perf_counter() - started)
