"""The entry point: finds the command, builds its parser from the table of settings, runs it; an error becomes one line and an exit code."""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from typing import Final, NoReturn, Protocol, cast

from catalog.errors import EXIT_CODE, InvalidRequest, SkipprError, exit_code
from skipprd.config import SETTINGS

__all__ = ["COMMANDS", "EXIT_CODES", "Command", "main", "parser_of"]

COMMANDS: Final[dict[str, str]] = {
    "sync": "read a pipeline's source through the write-ahead log into its tables",
    "serve": "answer SQL over Arrow Flight SQL",
    "query": "run one SQL statement, here or on a server",
    "doctor": "check the configuration without connecting to anything",
    "discover": "list a pipeline's partitions with format, size and schema",
    "schema": "show the schemas of a pipeline's tables and what would change",
    "tables": "list, describe, snapshots, recreate",
    "init": "write a commented starter skippr.yml",
    "debug": "tools for tests and support",
}
EXIT_CODES: Final[dict[int, str]] = {
    0: "ok",
    1: "a bug or an error outside the table below",
    2: "usage: a wrong flag, statement or name",
    3: "configuration: the message names the value, where it came from and what to do",
    4: "unavailable: something needed does not answer; try again later",
    5: "conflict: another writer has the pipeline, a table was dropped, a schema change needs approval",
    6: "data: broken input or stored bytes; dead letters with --fail-on-deadletter",
}
_EPILOG: Final = "exit codes: " + "; ".join(f"{code} {text.partition(':')[0]}" for code, text in EXIT_CODES.items())


class Command(Protocol):
    """What a command's module offers."""

    def arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int: ...


class _Parser(argparse.ArgumentParser):
    """Errors become `InvalidRequest`, so that they are one line like every other."""

    def error(self, message: str) -> NoReturn:
        raise InvalidRequest(f"{message}; see: {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from skipprd.lifecycle import fill_streams

        fill_streams()
    try:
        code = _main(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        from skipprd.lifecycle import end_quietly

        end_quietly()
        return 0
    except KeyboardInterrupt:
        return 130
    except SkipprError as error:
        return _report(error, given)
    except Exception as error:  # noqa: BLE001 - the last place: a bug becomes one line, the traceback is one flag away
        return _report(error, given)


def _main(given: list[str]) -> int:
    if not given or given[0] in {"-h", "--help", "help"}:
        print(_overview(), file=sys.stdout if given else sys.stderr)
        return 0 if given else 2
    if given[0] == "--version":
        from importlib.metadata import version

        print(f"skipprd {version('skipprd')}")
        return 0
    name = given[0]
    if name not in COMMANDS:
        from skipprd.config import near

        raise InvalidRequest(f"there is no command {name!r}; {near(name, list(COMMANDS))}")
    command = cast(Command, import_module(f"skipprd.cli.{name}"))
    options = parser_of(name, command).parse_args(given[1:])
    return command.run(options)


def parser_of(name: str, command: Command) -> argparse.ArgumentParser:
    """The parser of one command: its own arguments, then every setting of the table that concerns it."""
    parser = _Parser(
        prog=f"skipprd {name}", description=COMMANDS[name], epilog=_EPILOG, allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34, width=110),
    )
    command.arguments(parser)
    parser.add_argument("--debug", action="store_true", help="show a traceback where an error ends the command")
    groups: dict[str, argparse._ArgumentGroup] = {}
    for setting in SETTINGS:
        if not setting.on(name) or not setting.in_flags:
            continue
        group = groups.get(setting.group) or groups.setdefault(setting.group, parser.add_argument_group(setting.group.lower()))
        default = f" [{setting.default}]" if setting.default is not None else ""
        text = f"{setting.help}{default} (environment: {setting.env})".replace("%", "%%")
        if setting.type.is_flag:
            group.add_argument(setting.flag, dest=f"setting:{setting.name}", nargs="?", const="true", metavar="true|false", help=text)
        else:
            group.add_argument(setting.flag, dest=f"setting:{setting.name}", metavar=setting.type.metavar, help=text)
    return parser


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
    return (
        "usage: skipprd COMMAND [OPTIONS]\n\n"
        "Files and streams into Apache Iceberg through a write-ahead log, SQL over Arrow Flight.\n\ncommands:\n"
        + "\n".join(lines)
        + f"\n\n  skipprd COMMAND --help   options of a command\n  skipprd --version        the version\n\n{_EPILOG}"
    )


def _report(error: BaseException, given: Sequence[str]) -> int:
    """One line on stderr, `error: ...`, or a JSON object with --output json; the exit code."""
    code = 4 if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT) else exit_code(error)
    known = any(isinstance(error, kind) for kind in EXIT_CODE) or isinstance(error, OSError)
    text = " ".join(str(error).split()) or type(error).__name__
    if not known:
        text = f"internal: {type(error).__name__}: {text} (a bug: run again with --debug and report what it prints)"
    elif isinstance(error, OSError):
        text = f"{text} (the operating system refused; what was acknowledged before is safe, run again when it is mended)"
    if "--debug" in given:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    if _wants_json(given):
        import json

        details = {"kind": type(error).__name__, "exit_code": code, "message": text, "retryable": getattr(error, "retryable", False)}
        diff = getattr(error, "diff", None)
        print(json.dumps({"error": details | ({"diff": list(diff)} if diff else {})}), file=sys.stderr)
    else:
        print(f"error: {text}", file=sys.stderr)
    return code


def _wants_json(given: Sequence[str]) -> bool:
    return "--output=json" in given or ("--output", "json") in pairwise(given)
