"""Input: what arguments and options stand for."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import typer

from app.cli.errors import Refusal


def text_of(argument: str) -> str:
    """The text that an argument stands for: itself, ``@FILE``, or ``-`` for standard input."""
    if argument == "-":
        return sys.stdin.read()
    if argument.startswith("@"):
        return Path(argument[1:]).read_text(encoding="utf-8")
    return argument


def parse_object(text: str, where: str) -> dict[str, Any]:
    """A JSON object.

    Args:
        text: the JSON.
        where: what to call it in a refusal.

    Raises:
        Refusal: when it is something else.
    """
    try:
        parsed = json.loads(text, object_pairs_hook=_object_of)
    except ValueError as error:
        raise Refusal(f"{where} is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise Refusal(f"{where} is not a JSON object")
    return parsed


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members.

    Raises:
        ValueError: when two members have one name: only the second of them would be sent.
    """
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has two members {twice!r}")
    return members


def parse_decimal(text: str, what: str) -> Decimal:
    """A finite number, exactly as it was typed.

    Args:
        text: the number.
        what: what to call it in a refusal.

    Raises:
        Refusal: when it is something else.
    """
    try:
        value = Decimal(text)
    except ArithmeticError:
        value = Decimal("nan")
    if not value.is_finite():
        raise Refusal(f"{what} must be a number, not {text!r}")
    return value


def parse_size(text: str, what: str) -> int:
    """A number of bytes, such as 500MB.

    Args:
        text: the size.
        what: the option that has it.

    Raises:
        typer.BadParameter: when it is something else.
    """
    from app.settings import parse_bytes

    try:
        size = parse_bytes(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=what) from None
    assert isinstance(size, int)
    return size


def parse_mechanism(text: str) -> dict[str, Any]:
    """A mechanism: JSON, or a construction alone, whose options are then the service's defaults.

    Raises:
        Refusal: when it is meant as JSON and is no JSON object.
    """
    return parse_object(text, text) if text.lstrip().startswith("{") else {"construction": text}
