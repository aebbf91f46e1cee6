"""The control plane: conditional items, offsets, and the Iceberg catalog over them.

`catalog.SkipprCatalog` is loaded on first use, so that importing this package loads neither pyiceberg nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catalog.iceberg.skippr_catalog import SkipprCatalog

__all__ = ["SkipprCatalog"]


def __getattr__(name: str) -> object:
    if name == "SkipprCatalog":
        from catalog.iceberg.skippr_catalog import SkipprCatalog

        return SkipprCatalog
    raise AttributeError(f"module 'catalog' has no attribute {name!r}")
