"""How the text of a setting becomes a value. Every parser takes text and raises ValueError saying what would be right."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = [
    "ADDRESS", "BOOLEAN", "BYTES", "CHARACTER", "COUNT", "PATH", "RAW_TEXTS", "SECONDS", "TEXT", "TEXTS", "SettingType", "Value", "choice",
    "is_loopback", "parse_bytes", "parse_seconds", "show_bytes", "show_seconds", "split_address",
]

Value = str | int | float | bool | tuple[str, ...]

_BYTE_UNITS: Final = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}
_SECONDS_PER_UNIT: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ISO_DURATION: Final = re.compile(
    r"P(?:(?P<d>\d+(?:\.\d+)?)D)?(?:T(?:(?P<h>\d+(?:\.\d+)?)H)?(?:(?P<m>\d+(?:\.\d+)?)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SettingType:
    """A kind of value: what --help calls it, how text becomes it, what is said about it in the documentation."""

    metavar: str
    parse: Callable[[str], Value]
    description: str
    is_list: bool = False
    empty_parts: bool = False
    is_flag: bool = False
    choices: tuple[str, ...] = ()

    def parse_list(self, parts: tuple[str, ...]) -> Value:
        """The value of a list written in the file."""
        if not self.empty_parts and not all(part.strip() for part in parts):
            raise ValueError("it has an empty element")
        return parts if self.empty_parts else _distinct(parts)


def _text(text: str) -> str:
    if not text:
        raise ValueError("it is empty")
    return text


def _path(text: str) -> str:
    if "\0" in text:
        raise ValueError("a path holds no NUL character")
    return _text(text)


def _boolean(text: str) -> bool:
    match text.strip().lower():
        case "true" | "yes" | "on" | "1":
            return True
        case "false" | "no" | "off" | "0":
            return False
    raise ValueError("write true or false")


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9][0-9_]*", text.strip()) or int(text) < 1:
        raise ValueError("write a whole number of at least 1")
    return int(text)


def parse_bytes(text: str) -> int:
    """A size such as `10485760`, `10MiB` or `1.5 GB`, in bytes. MB is 10^6, MiB and M are 2^20."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip().replace("_", ""))
    unit = _BYTE_UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise ValueError("write a size such as 10MiB, 64MB or 10485760")
    size = round(float(found[1]) * unit)
    if size < 1:
        raise ValueError("it must be at least one byte")
    return size


def parse_seconds(text: str) -> float:
    """A duration such as `60`, `60s`, `5m`, `250ms`, `1.5h` or ISO 8601 `PT60S`, in seconds."""
    stripped = text.strip()
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", stripped)
    if found and found[2].lower() in _SECONDS_PER_UNIT:
        return float(found[1]) * _SECONDS_PER_UNIT[found[2].lower()]
    iso = _ISO_DURATION.fullmatch(stripped)
    if iso and any(iso.groups()):
        return sum(float(iso[unit] or 0) * _SECONDS_PER_UNIT[unit] for unit in ("d", "h", "m", "s"))
    raise ValueError("write a duration such as 60s, 5m, 250ms or PT60S")


def show_bytes(size: int) -> str:
    """A size for people, in the largest binary unit that divides it, else in the nearest."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size // factor}{unit}" if size % factor == 0 else f"{size / factor:.1f}{unit}"
    return f"{size}B"


def show_seconds(seconds: float) -> str:
    """A duration for people."""
    return f"{seconds * 1000:g}ms" if 0 < seconds < 1 else f"{seconds:g}s"


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. Raises ValueError."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError("write host:port, such as 127.0.0.1:31337 (port 0 takes a free one)")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _address(text: str) -> str:
    split_address(text)
    return text.strip()


def _texts(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if text.strip() and not all(parts):
        raise ValueError("it has an empty element: write a,b,c")
    return _distinct(parts) if text.strip() else ()


def _distinct(parts: tuple[str, ...]) -> tuple[str, ...]:
    twice = next((part for at, part in enumerate(parts) if part in parts[:at]), None)
    if twice is not None:
        raise ValueError(f"it names {twice!r} twice")
    return parts


def _character(text: str) -> str:
    if len(text) != 1:
        raise ValueError("write exactly one character")
    return text


def choice(*values: str) -> SettingType:
    """One of a few words."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in values:
            raise ValueError(f"write one of {', '.join(values)}")
        return word

    return SettingType("|".join(values), parse, ", ".join(f"`{v}`" for v in values), choices=values)


TEXT: Final = SettingType("TEXT", _text, "text")
PATH: Final = SettingType("PATH", _path, "a path")
BOOLEAN: Final = SettingType("true|false", _boolean, "`true` or `false`", is_flag=True)
COUNT: Final = SettingType("N", _count, "a whole number")
BYTES: Final = SettingType("SIZE", parse_bytes, "a size, as `10MiB`")
SECONDS: Final = SettingType("TIME", parse_seconds, "a duration, as `60s`")
ADDRESS: Final = SettingType("HOST:PORT", _address, "`host:port`")
CHARACTER: Final = SettingType("C", _character, "one character")
RAW_TEXTS: Final = SettingType("A,B", lambda text: tuple(text.split(",")), "a list; elements may be empty", is_list=True, empty_parts=True)
TEXTS: Final = SettingType("A,B", _texts, "a list, as `a,b`", is_list=True)
