"""Our client: adbc_driver_flightsql. `scan URI SQL` drains to Arrow; `statements URI CLIENTS SECONDS` counts SELECT 42."""

import sys
import threading
import time

import adbc_driver_flightsql.dbapi as flightsql


def scan(uri: str, sql: str) -> None:
    with flightsql.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        started = time.perf_counter()
        cursor.execute(sql)
        rows = nbytes = 0
        for batch in cursor.fetch_record_batch():
            rows += batch.num_rows
            nbytes += batch.nbytes
        print(rows, nbytes, time.perf_counter() - started)


def statements(uri: str, clients: int, seconds: float) -> None:
    counts = [0] * clients
    connections = [flightsql.connect(uri, autocommit=True) for _ in range(clients)]
    ends = time.perf_counter() + seconds

    def loop(at: int) -> None:
        with connections[at].cursor() as cursor:
            while time.perf_counter() < ends:
                cursor.execute("SELECT 42")
                assert cursor.fetchall() == [(42,)]
                counts[at] += 1

    threads = [threading.Thread(target=loop, args=(at,)) for at in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in connections:
        connection.close()
    print(sum(counts) / seconds)


if __name__ == "__main__":
    if sys.argv[1] == "scan":
        scan(sys.argv[2], sys.argv[3])
    else:
        statements(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
