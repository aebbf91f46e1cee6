"""What several commands share: settings out of parsed options, the set-up of a process."""

from __future__ import annotations

import argparse

from skipprd.console import Console
from skipprd.sections import Configuration

__all__ = ["configuration", "start"]


def configuration(options: argparse.Namespace) -> Configuration:
    """The configuration as the flags in `options`, the environment and the file give it. Raises ConfigurationError."""
    given = {name.removeprefix("setting:"): value for name, value in vars(options).items() if name.startswith("setting:")}
    return Configuration({name: value for name, value in given.items() if value is not None})


def start(options: argparse.Namespace, console: Console | None = None) -> Configuration:
    """Read the configuration, set up logging and failpoints. Raises ConfigurationError for what concerns every command."""
    from skipprd import failpoints, logs

    config = configuration(options)
    config.check()
    logs.setup(config.values.text("log_format"), config.values.text("log_level"), console)
    rules = config.values.text_or_none("failpoints")
    if rules:
        failpoints.install(rules, config.values.origin("failpoints"))
    log = None
    for finding in config.findings:
        if finding.severity == "warning":
            if log is None:
                import logging

                log = logging.getLogger("skipprd.config")
            log.warning(finding.message)
    return config
