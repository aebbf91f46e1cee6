"""Loading a DuckDB extension from the file a package carries."""

from pathlib import Path
from types import ModuleType

import duckdb


def load(con: duckdb.DuckDBPyConnection, package: ModuleType, name: str) -> None:
    """LOAD the extension file of `package`; DuckDB checks its signature."""
    folder = Path(next(iter(package.__path__)))
    path = next(folder.rglob(f"{name}.duckdb_extension"))
    con.execute(f"LOAD '{path}'")
