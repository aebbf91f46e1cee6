"""Client of DuckDB's own protocol. `scan PORT COLUMNS` drains a table to Arrow; `statements PORT CLIENTS SECONDS HOW` counts SELECT 42.

HOW is `attached` (ATTACH once, then remote.query) or `function` (quack_query with address and token in each statement).
"""

import sys
import threading
import time

import duckdb
import duckdb_extension_httpfs
import duckdb_extension_quack

from benchmarks.peers.extensions import load


def connect(port: str) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    load(con, duckdb_extension_httpfs, "httpfs")
    load(con, duckdb_extension_quack, "quack")
    con.execute(f"ATTACH 'quack:localhost:{int(port)}' AS peer (TOKEN 'benchmark')")
    return con


def scan(port: str, columns: str) -> None:
    con = connect(port)
    started = time.perf_counter()
    rows = nbytes = 0
    for batch in con.execute(f"SELECT * FROM peer.query('SELECT {columns} FROM t')").to_arrow_reader(60_000):
        rows += batch.num_rows
        nbytes += batch.nbytes
    print(rows, nbytes, time.perf_counter() - started)


def statements(port: str, clients: int, seconds: float, how: str) -> None:
    counts = [0] * clients
    cons = [connect(port) for _ in range(clients)]
    function = f"FROM quack_query('quack:localhost:{int(port)}', 'SELECT 42', token = 'benchmark')"
    sql = function if how == "function" else "SELECT * FROM peer.query('SELECT 42')"
    ends = time.perf_counter() + seconds

    def loop(at: int) -> None:
        while time.perf_counter() < ends:
            assert cons[at].execute(sql).fetchall() == [(42,)]
            counts[at] += 1

    threads = [threading.Thread(target=loop, args=(at,)) for at in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(counts) / seconds)


if __name__ == "__main__":
    if sys.argv[1] == "scan":
        scan(sys.argv[2], sys.argv[3])
    else:
        statements(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
