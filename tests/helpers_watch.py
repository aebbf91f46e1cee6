"""A client that counts a table's rows over and over while others write, compact, reclaim and die."""

from __future__ import annotations

import threading
from collections.abc import Callable

import adbc_driver_flightsql.dbapi as flightsql

__all__ = ["CountWatcher"]


class CountWatcher:
    """While inside, a thread asks the server at `uri` again and again with one cursor.

    `sql` gives (rows, distinct ids). `written` tells how many rows may be visible at most; it never falls. What is wrong, the first
    time it is, stands in `wrong` and ends the thread.
    """

    def __init__(self, uri: str, sql: str, written: Callable[[], int]) -> None:
        self.counts = 0
        self.last = 0
        self.wrong = ""
        self._uri = uri
        self._sql = sql
        self._written = written
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="count-watcher")

    def __enter__(self) -> CountWatcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            with flightsql.connect(self._uri) as connection, connection.cursor() as cursor:
                while not self._stop.is_set() and not self.wrong:
                    cursor.execute(self._sql)
                    rows, distinct = cursor.fetchall()[0]
                    written = self._written()
                    if rows != distinct or not self.last <= rows <= written:
                        self.wrong = f"{rows} rows, {distinct} of them distinct, after {self.last}; {written} were written"
                    self.last = rows
                    self.counts += 1
        except flightsql.Error as error:
            self.wrong = f"{self._sql}: {error}"
