"""``python -m app.cli``: the command `curator` where it is not installed."""

from app.cli import main

main()
