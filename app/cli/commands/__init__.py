"""The commands, one module a group. A module adds its own to :mod:`app.cli.groups` when it is imported."""
