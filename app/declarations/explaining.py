"""Problems of declarations and requests in words: where each is, and what to change.

The words are this project's, whatever library found the problem. Models are walked along the way that it tells, so that
a sentence has the fields and items of the JSON that was sent and nothing of the types it was read by. What was sent is
never repeated, but for the names of fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from app.declarations.naming import cut, listed, meant, unknown

#: Describing a problem takes a kilobyte and a tenth of a millisecond, and a refusal shows only a few: beyond so many
#: they are counted alone.
_MOST_FOUND, _MOST_TOLD = 100, 5
#: A way from the whole to a field or item.
Path = tuple[str | int, ...]

#: What a value has to be that is of another type, by what the name of the problem begins with.
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "finite_number": "a finite number",
    "string": "a text",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dict": "an object",
    "model": "an object",
    "none_required": "null",
}
#: What to change of a number, a text or a list that passes a limit.
_LIMITS = {
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} items",
    "too_long": "must have at most {max_length} items",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "decimal_max_digits": "must have at most {max_digits} digits",
}
_LITERAL = re.compile(r"'[^']*'|\w+")


@dataclass(frozen=True)
class _Problem:
    """A problem of one field or item: a sentence, or what it has to be, of which there may be several."""

    path: Path
    words: str
    needed: tuple[str, ...] = ()
    meant: str = ""


def explain(error: ValidationError, kind: Any, sent: Any) -> str:
    """One sentence a problem: where it is and what to change, without the offending value.

    Args:
        error: what was found.
        kind: the type that was read, a model or a union of models.
        sent: the JSON in which it was found.
    """
    told = problems(error, kind, sent, _MOST_FOUND)
    more = f"; and {len(told) - _MOST_TOLD:,} more" if len(told) > _MOST_TOLD else ""
    return "; ".join(told[:_MOST_TOLD]) + more


def problems(error: ValidationError, kind: Any, sent: Any, most: int = 1000) -> list[str]:
    """A sentence for each field or item with a problem, in the order they were found; of more than ``most`` only how
    many there are.
    """
    if error.error_count() > most:
        return [f"{error.error_count():,} fields are unknown or not of their kind"]
    found: dict[Path, list[_Problem]] = {}
    for item in error.errors(include_url=False):
        problem = _problem(item, kind, sent)
        found.setdefault(problem.path, []).append(problem)
    # What is wrong within a list or an object is said of there, and not of the whole as well.
    outer = {path[:depth] for path in found for depth in range(len(path))}
    return [_sentence(path, same) for path, same in found.items() if path not in outer]


def _sentence(path: Path, same: list[_Problem]) -> str:
    # A value that fits none of several types is told of by each of them.
    needed = list(dict.fromkeys(need for problem in same for need in problem.needed))
    if "a number" in needed and "a whole number" in needed:
        needed.remove("a whole number")
    if not needed:
        return same[0].words
    *others, last = needed
    near = next((problem.meant for problem in same if problem.meant), "")
    return f"{_dotted(path)}: must be {', '.join(others)}{' or ' if others else ''}{last}{near}"


def _dotted(path: Path) -> str:
    """A way in JSON as a sentence has it."""
    return ".".join(cut(str(step)) for step in path) or "body"


def _problem(item: ErrorDetails, kind: Any, sent: Any) -> _Problem:
    type, context, given = item["type"], item.get("ctx", {}), item["input"]
    path, kinds = _walked(kind, item["loc"])
    path = _found(path, sent, missing=type == "missing")
    where = _dotted(path)
    if type.startswith("union_tag"):
        field = context["discriminator"].strip("'")
        tags = [str(tag) for each in kinds for tag in get_args(each.model_fields[field].annotation)]
        near = meant(given[field], tags) if isinstance(given.get(field), str) else ""
        return _Problem((*path, field), f"{_dotted((*path, field))}: say which: {listed(tags, len(tags))}{near}")
    if type == "extra_forbidden":
        fields = list(_fields(_walked(kind, item["loc"][:-1])[1]))
        words = unknown("field", str(path[-1]), fields, "the fields are")
        return _Problem(path, words if len(path) == 1 else f"{_dotted(path[:-1])}: {words}")
    if type == "literal_error":
        allowed = tuple(_LITERAL.findall(context["expected"].replace(" or ", " ").replace("True", "true")))
        near = meant(given, [name.strip("'") for name in allowed]) if isinstance(given, str) else ""
        return _Problem(path, "", allowed, near)
    if type in _LIMITS:
        if context.get("min_length") == 1:
            return _Problem(path, f"{where}: must not be empty")
        limits = {name: _shown(limit) for name, limit in context.items() if isinstance(limit, int | float | Decimal)}
        return _Problem(path, f"{where}: {_LIMITS[type].format(**limits)}")
    if type == "string_pattern_mismatch":
        return _Problem(path, f"{where}: must match the pattern {context['pattern']}")
    needed = tuple(words for prefix, words in _KINDS.items() if type.startswith(prefix))
    if needed:
        return _Problem(path, "", needed)
    if type == "missing":
        return _Problem(path, f"{where}: must be given")
    if type == "value_error":
        return _Problem(path, f"{where}: {context['error']}")
    return _Problem(path, f"{where}: is not of its kind: see how the API describes it")


def _shown(limit: float | Decimal) -> str:
    """A limit as a sentence has it: 0.0 is 0."""
    return f"{int(limit):,}" if limit == int(limit) else f"{limit:,}"


def _walked(kind: Any, steps: tuple[int | str, ...]) -> tuple[Path, list[Any]]:
    """The fields and items on the way through a type, and what types may stand at its end.

    Where there are several types the next step tells which of them was tried: that is none of the JSON.
    """
    path: list[int | str] = []
    kinds, several = list(_options(kind)), True
    for step in steps:
        if several and len(kinds) > 1 and isinstance(step, str):
            kinds = [each for each in kinds if step in _tags(each)] or kinds
            several = False
            continue
        path.append(step)
        kinds = list(dict.fromkeys(inner for each in kinds for inner in _within(each, step)))
        several = True
    return tuple(path), kinds


def _found(path: Path, sent: Any, *, missing: bool) -> Path:
    """A way through JSON without the steps that it does not have: what was sent may be short for what was read."""
    found: list[int | str] = []
    for number, step in enumerate(path, 1):
        inside = isinstance(sent, list) and isinstance(step, int) and step < len(sent)
        if inside or (isinstance(sent, dict) and step in sent):
            sent = sent[step]
        elif not (missing and number == len(path)):
            continue
        found.append(step)
    return tuple(found)


def _options(kind: Any) -> Iterator[Any]:
    """The types that a value may be of, null apart."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _options(get_args(kind)[0])
    elif origin in (Union, UnionType):
        for each in get_args(kind):
            yield from _options(each)
    elif kind is not NoneType:
        yield kind


def _tags(kind: Any) -> set[str]:
    """The tags that tell a model apart from others."""
    if not _is_model(kind):
        return set()
    tags = (_literals(field.annotation) for field in kind.model_fields.values() if field.is_required())
    return {str(tag) for tag in next(filter(None, tags), ())}


def _literals(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _within(kind: Any, step: int | str) -> Iterator[Any]:
    """The types of a field or item of a type."""
    if _is_model(kind):
        fields = {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
        if step in fields:
            yield from _options(fields[str(step)])
        elif kind.model_config.get("extra") == "allow":
            yield from _options(get_args(get_type_hints(kind)["__pydantic_extra__"])[1])
        return
    items = get_args(kind) if get_origin(kind) in (list, tuple, dict) else ()
    for each in items[1:] if get_origin(kind) is dict else items:
        if each is not Ellipsis:
            yield from _options(each)


def _fields(kinds: Iterable[Any]) -> Iterator[str]:
    """The names of all fields of some models: first those of a model itself, then those that it shares with others."""
    for kind in filter(_is_model, kinds):
        own = kind.__annotations__
        for name in sorted(kind.model_fields, key=lambda name: name not in own):
            yield kind.model_fields[name].alias or name
