"""The refusal of a statement, with its place."""

from __future__ import annotations

from app.declarations.errors import CuratorError
from app.declarations.naming import cut


class SqlRefused(CuratorError):
    """A statement, or a part of it, has no meaning here.

    Args:
        text: the whole statement.
        start: the place of the first character that is refused, from 0.
        stop: the place behind the last.
        problem: what is wrong.
        hint: what to say instead; None where there is nothing to say.
    """

    code = "sql-refused"

    def __init__(self, text: str, start: int, stop: int, problem: str, hint: str | None = None) -> None:
        start = min(start, len(text))
        before = text[:start]
        line, column = before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1
        near = text[start:stop].split("\n")[0]
        said = problem if hint is None else f"{problem}: {hint}"
        super().__init__(
            f"line {line}, column {column}: {said}",
            line=line,
            column=column,
            length=max(1, len(near)),
            near=cut(near),
            hint=hint,
        )
