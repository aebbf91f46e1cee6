"""How a setting gets its value: flag, environment, `.env`, file, default; and every finding on the way."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from catalog.errors import ConfigurationError
from skipprd.config import BY_NAME, CONFIG_FILE, FILE_ALIASES, SETTINGS, Finding, Origin, Resolved, Setting, near
from skipprd.setting_types import SettingType, Value
from skipprd.yaml_file import Entry, ListNode, MapNode, Node, Scalar, read_yaml

__all__ = ["Resolver"]


class Resolver:
    """Finds the file, reads `.env`, and resolves settings, collecting every finding instead of stopping at the first.

    Not thread safe. Raises ConfigurationError only where there is nothing to go on with: a file that is missing or not YAML.
    """

    def __init__(self, flags: Mapping[str, str], environ: Mapping[str, str], cwd: Path) -> None:
        self.findings: list[Finding] = []
        self._flags = flags
        self._environ = environ
        self._cwd = cwd
        self._dotenv: dict[str, tuple[str, str]] = {}
        named = flags.get("config") or environ.get("SKIPPR_CONFIG")
        self.path = Path(os.path.abspath(cwd / named)) if named else cwd / CONFIG_FILE
        self.exists = bool(named) or self.path.exists()
        self.folder = self.path.parent
        if self.exists:
            self.root = read_yaml(self.path)
        else:
            self.root = MapNode((), 1)
        self._read_dotenv()

    def place(self, line: int, key: str) -> str:
        """`skippr.yml:3 (skippr.data_dir)`."""
        return f"{self._shown_path()}:{line} ({key})"

    def error(self, message: str, scope: str = "") -> None:
        """Keep a finding, once however often it is met."""
        finding = Finding(message, scope)
        if finding not in self.findings:
            self.findings.append(finding)

    def scalar(self, node: Node, key: str, scope: str = "") -> str | None:
        """Text of a scalar with `${NAME}` replaced; None for an empty value or after a finding."""
        if not isinstance(node, Scalar):
            kind = "list" if isinstance(node, ListNode) else "map"
            self.error(f"{self.place(node.line, key)}: expected a single value, found a {kind}", scope)
            return None
        return None if node.is_null else self._substituted(node, key, scope)

    def text(self, node: Node, key: str, type_: SettingType, scope: str = "") -> str | tuple[str, ...] | None:
        """Text of a scalar, or texts of a list where the type is a list; None for an empty value or after a finding."""
        if not (type_.is_list and isinstance(node, ListNode)):
            return self.scalar(node, key, scope)
        parts: list[str] = []
        for at, item in enumerate(node.items):
            part = self._substituted(item, f"{key}[{at}]", scope) if isinstance(item, Scalar) else self.scalar(item, f"{key}[{at}]", scope)
            if part is None:
                return None
            parts.append(part)
        return tuple(parts)

    def _substituted(self, node: Scalar, key: str, scope: str) -> str | None:
        text = node.text
        if "${" not in text:
            return text
        name = text[2:-1]
        if not (text.startswith("${") and text.endswith("}") and name.replace("_", "a").isalnum()):
            self.error(f"{self.place(node.line, key)}: {text!r} is not understood: only a whole value may be ${{NAME}}", scope)
            return None
        found = self.variable(name)
        if found is None:
            self.error(
                f"{self.place(node.line, key)}: {text} stands for the environment variable {name}, which is not set; "
                f"export {name} or write it into {self.folder / '.env'}", scope,
            )
        return found

    def parse(self, type_: SettingType, text: str | tuple[str, ...], where: str, scope: str = "") -> Value | None:
        """The value of `text`; None after a finding."""
        try:
            return type_.parse(text) if isinstance(text, str) else type_.parse_list(text)
        except ValueError as error:
            self.error(f"{where}: {text!r} is not allowed: {error}", scope)
            return None

    def variable(self, name: str) -> str | None:
        """An environment variable, or what `.env` says."""
        return self._environ[name] if name in self._environ else self._dotenv[name][0] if name in self._dotenv else None

    def settings(self) -> dict[str, Resolved]:
        """Every setting of the table."""
        section = self.root.get("skippr")
        entries: dict[str, Entry] = {}
        if section is not None and isinstance(section.value, MapNode):
            for entry in section.value.entries:
                name = FILE_ALIASES.get(entry.key, entry.key)
                if name in BY_NAME and BY_NAME[name].in_file:
                    entries[name] = entry
                else:
                    known = [s.name for s in SETTINGS if s.in_file]
                    self.error(f"{self.place(entry.line, 'skippr.' + entry.key)}: unknown key {entry.key!r}; {near(entry.key, known)}")
        elif section is not None and not (isinstance(section.value, Scalar) and section.value.is_null):
            self.error(f"{self.place(section.line, 'skippr')}: expected a map of settings")
        return {setting.name: self._resolve(setting, entries.get(setting.name)) for setting in SETTINGS}

    def override(self, setting: Setting) -> Resolved | None:
        """The value that flag or environment give, None where neither does."""
        if setting.name in self._flags:
            origin = Origin(f"flag {setting.flag}", self._cwd)
            return self._parsed(setting, self._flags[setting.name], origin)
        if setting.env in self._environ:
            return self._parsed(setting, self._environ[setting.env], Origin(f"environment variable {setting.env}", self._cwd))
        if setting.env in self._dotenv:
            text, place = self._dotenv[setting.env]
            return self._parsed(setting, text, Origin(f"{place} ({setting.env})", self.folder))
        return None

    def from_entry(self, setting: Setting, entry: Entry, key: str) -> Resolved | None:
        """The value an entry of the file gives, None where it is empty or wrong."""
        text = self.text(entry.value, key, setting.type)
        return None if text is None else self._parsed(setting, text, Origin(self.place(entry.line, key), self.folder))

    def unknown_variables(self) -> list[str]:
        """SKIPPR_ variables that are nobody's name; warnings, since a platform may inject some (`SKIPPR_SERVICE_HOST`)."""
        known = {setting.env for setting in SETTINGS}
        names = sorted({n for n in (*self._environ, *self._dotenv) if n.startswith("SKIPPR_")} - known)
        return [f"environment variable {name} is not a setting; {near(name, sorted(known))}" for name in names]

    def _resolve(self, setting: Setting, entry: Entry | None) -> Resolved:
        found = self.override(setting)
        if found is None and entry is not None:
            found = self.from_entry(setting, entry, f"skippr.{entry.key}")
        if found is not None:
            return found
        value = None if setting.default is None else setting.type.parse(setting.default)
        return Resolved(value, Origin("default", self.folder), is_default=True)

    def _parsed(self, setting: Setting, text: str | tuple[str, ...], origin: Origin) -> Resolved | None:
        if text == "" and not setting.type.is_list:
            return None
        value = self.parse(setting.type, text, f"{setting.name} from {origin}")
        return None if value is None else Resolved(value, origin)

    def _shown_path(self) -> str:
        try:
            return str(self.path.relative_to(self._cwd))
        except ValueError:
            return str(self.path)

    def _read_dotenv(self) -> None:
        path = self.folder / ".env"
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines() if path.is_file() else []
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: cannot be read ({error}); it must be a readable UTF-8 file of NAME=value lines") from None
        for number, raw in enumerate(lines, 1):
            line = raw.strip().removeprefix("export ").strip()
            if not line or line.startswith("#"):
                continue
            name, equals, value = line.partition("=")
            name, value = name.strip(), value.strip()
            if not equals or not name.replace("_", "a").isalnum():
                self.error(f"{path}:{number}: expected NAME=value")
                continue
            if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            self._dotenv[name] = (value, f"{path}:{number}")
