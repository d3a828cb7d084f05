"""Numbers and times in words for pages. Those in :data:`FILTERS` are filters of its templates."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from markupsafe import Markup, escape

#: Control characters, and what no text may have.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]")


def epsilon(value: float | str | None) -> str:
    """An amount of a budget for a person: three digits behind the point or three that say something, rounded down, so
    that nobody is shown more than there is; a dash for None."""
    return _amount(value, ROUND_FLOOR)


def taken(value: float | str | None) -> str:
    """An amount that a budget loses, as :func:`epsilon` has what it has: rounded up, so that nothing is shown to cost
    less than it does. What an amount is above by its last binary digits is no more of it.
    """
    return _amount(value, ROUND_CEILING)


def _amount(value: float | str | None, rounding: str) -> str:
    if value is None:
        return "–"
    exact = Decimal(str(value))
    if not exact.is_finite():
        return "–"
    if exact == 0:
        return "0"
    if rounding == ROUND_CEILING:
        exact = Context(prec=14).plus(exact)
    if abs(exact) >= 1:
        return f"{exact.quantize(Decimal('0.001'), rounding).normalize():f}"
    return f"{Context(prec=3, rounding=rounding).plus(exact).normalize():f}"


def delta(value: float) -> str:
    """A very small number, as a power of ten."""
    return f"{value:.3g}".replace("e-0", "e-")


def percent(part: float) -> str:
    """A part of a whole, as drawings have it: between none and all."""
    return f"{100 * min(max(part, 0.0), 1.0):.2f}%" if math.isfinite(part) else "0%"


def whole_percent(part: float) -> str:
    """A part of a whole for a person: whole per cents, and never all or nothing where it is not."""
    if 0 < part < 0.01:
        return "below 1%"
    return f"{min(math.floor(100 * part), 100)}%" if part < 1 else "100%"


def drawing(svg: str) -> Markup:
    """A drawing of :mod:`curator_client.figures`, whose texts are escaped there."""
    return Markup(svg)  # noqa: S704


def capitalize_first(text: str) -> str:
    """A sentence that begins with a large letter, and is else as it was."""
    return text[:1].upper() + text[1:]


def day(text: str) -> str:
    """The day of a time in UTC; the year where it is another one."""
    at = datetime.fromisoformat(text).astimezone(UTC)
    return f"{at.day} {at:%b}" if at.year == datetime.now(UTC).year else f"{at.day} {at:%b %Y}"


def moment(text: str | None) -> str:
    """A time in UTC as people read it; a dash for None."""
    if text is None:
        return "–"
    at = datetime.fromisoformat(text).astimezone(UTC)
    return f"{at.day} {at:%B %Y, %H:%M} UTC"


def short_hash(text: str | None) -> str:
    """A hash by its beginning and its end."""
    return "" if text is None else text if len(text) <= 12 else f"{text[:8]}…{text[-3:]}"


def rough(value: float | None, digits: int = 3) -> str:
    """A number of so many digits that say something, with commas between thousands; a dash for None."""
    if value is None or not math.isfinite(value):
        return "–"
    exact = Context(prec=max(digits, 1)).plus(Decimal(repr(float(value))))
    if exact and abs(exact.adjusted()) > 15:
        return f"{exact:.{digits - 1}e}"
    whole = f"{exact:,f}"
    return whole.rstrip("0").rstrip(".") if "." in whole else whole


def typed(text: str) -> Markup:
    """A text in a form, letter by letter, as it is sent back and names what it named: with joiners and marks of
    direction, which other texts of pages spell out. Control characters are spelled out here as well.
    """
    return escape(_CONTROLS.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", text))


#: What templates call by their names.
FILTERS = (
    capitalize_first,
    day,
    delta,
    drawing,
    epsilon,
    moment,
    percent,
    rough,
    short_hash,
    taken,
    typed,
    whole_percent,
)
