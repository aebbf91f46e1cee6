"""Keys of every row, and the names they are made of. Reversible; no path or host of one machine is part of any of them (I10)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from catalog.errors import ConfigurationError

__all__ = ["NAME_PATTERN", "PipelineKey", "check_name"]

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def check_name(kind: str, value: str, origin: str) -> str:
    """`value` if it may name a tenant, workspace or pipeline, else ConfigurationError naming value and origin."""
    if not NAME_PATTERN.fullmatch(value):
        raise ConfigurationError(
            f"{kind} {value!r} (from {origin}) is not allowed: use 1 to 128 of A-Z a-z 0-9 _ . -, starting with a letter or digit"
        )
    return value


@dataclass(frozen=True, slots=True, order=True)
class PipelineKey:
    """Identity of a pipeline, and the partition key of all its rows."""

    tenant: str
    workspace: str
    pipeline: str

    def __post_init__(self) -> None:
        check_name("tenant", self.tenant, "pipeline key")
        check_name("workspace", self.workspace, "pipeline key")
        check_name("pipeline", self.pipeline, "pipeline key")

    def __str__(self) -> str:
        return f"{self.tenant}#{self.workspace}#{self.pipeline}"

    @staticmethod
    def parse(text: str) -> PipelineKey:
        """Inverse of `str`. Raises ConfigurationError."""
        parts = text.split("#")
        if len(parts) != 3:
            raise ConfigurationError(f"{text!r} is not a pipeline key of the form tenant#workspace#pipeline")
        return PipelineKey(*parts)
