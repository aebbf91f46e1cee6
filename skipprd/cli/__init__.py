"""Commands, one module each. A module has `arguments(parser)` and `run(options) -> exit code`; nothing heavy is imported before `run`."""
