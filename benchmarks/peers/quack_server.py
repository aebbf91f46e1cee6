"""Peer: DuckDB's own client-server protocol over the same Parquet files. `GLOB PORT`; prints `ready`, serves until its input ends."""

import sys

import duckdb
import duckdb_extension_httpfs
import duckdb_extension_quack

from benchmarks.peers.extensions import load

con = duckdb.connect()
load(con, duckdb_extension_httpfs, "httpfs")
load(con, duckdb_extension_quack, "quack")
if sys.argv[1] != "-":
    con.execute(f"CREATE VIEW t AS SELECT * FROM read_parquet('{sys.argv[1]}', hive_partitioning=false)")
con.execute(f"CALL quack_serve('quack:localhost:{int(sys.argv[2])}', token='benchmark')")
print("ready", flush=True)
sys.stdin.read()
