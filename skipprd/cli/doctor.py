"""`skipprd doctor`: everything that is wrong with the configuration, at once, without connecting to anything or making anything."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from catalog.errors import ConfigurationError
from skipprd.config import SETTINGS, Finding
from skipprd.sections import Configuration

__all__ = ["arguments", "inspect", "run"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", choices=("text", "json"), default="text", help="findings as text or JSON [text]")


def run(options: argparse.Namespace) -> int:
    """Exit 0 without errors (warnings may remain), else 3."""
    from skipprd.cli.common import configuration

    try:
        config = configuration(options)
        findings = inspect(config)
    except ConfigurationError as error:
        config, findings = None, [Finding(str(error))]
    errors = sum(f.severity == "error" for f in findings)
    if options.output == "json":
        print(json.dumps({"findings": [{"severity": f.severity, "message": f.message} for f in findings], "errors": errors}))
        return 3 if errors else 0
    for finding in findings:
        print(f"{finding.severity}: {finding.message}")
    if config is not None:
        _show(config)
    print(f"{errors} error{'' if errors == 1 else 's'}, {len(findings) - errors} warning{'' if len(findings) - errors == 1 else 's'}")
    return 3 if errors else 0


def inspect(config: Configuration) -> list[Finding]:
    """Findings of the file, then of what it names on this machine. Reads only."""
    findings = list(config.findings)
    values = config.values
    findings += _folder(values.path("data_dir"), f"data_dir (from {values.origin('data_dir')})")
    for sink in config.sinks.values():
        findings += _folder(sink.warehouse, f"warehouse of {sink.place}")
    for source in config.sources.values():
        if source.kind == "File":
            path: str = getattr(source.settings, "path")  # noqa: B009 - settings is a union; File has a path
            if not any(c in path for c in "*?[") and not os.path.exists(path):
                findings.append(Finding(f"{source.place}: the path {path!r} does not exist; sync of its pipelines will fail until it does"))
            elif os.path.exists(path) and not os.access(path, os.R_OK):
                findings.append(Finding(f"{source.place}: the path {path!r} cannot be read by this user; change its rights"))
    if config.path is None:
        findings.append(Finding("there is no skippr.yml here; defaults apply. Write one with: skipprd init", severity="warning"))
    elif not config.pipeline_names:
        findings.append(Finding(f"{config.path} has no pipelines", severity="warning"))
    return sorted(findings, key=lambda f: f.severity)


def _folder(path: Path, name: str) -> list[Finding]:
    """Whether the folder can be written, or made."""
    there = next((p for p in (path, *path.parents) if p.exists()), Path("/"))
    if not there.is_dir():
        return [Finding(f"{name}: {there} is not a folder, so {path} cannot be used; name another")]
    if not os.access(there, os.W_OK | os.X_OK):
        return [Finding(f"{name}: {there} cannot be written by this user; change its rights or name another folder")]
    return []


def _show(config: Configuration) -> None:
    """Where every value that is not a default came from, and what each pipeline does."""
    for setting in SETTINGS:
        resolved = config.values.resolved(setting.name)
        if not resolved.is_default:
            print(f"  {setting.name} = {resolved.value!r} (from {resolved.origin})")
    for name, spec in sorted(config.pipelines.items()):
        split = spec.transform.namespace_fields
        table = f"(one table per {', '.join(split)})" if split else name
        target = ".".join((*spec.sink.namespace, table))
        print(f"  pipeline {spec.key}: {spec.source.kind} {spec.source.name} -> {target} in {spec.sink.warehouse}")
