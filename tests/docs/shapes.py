"""What pages show, without what noise may change."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:e[+-]?\d+)?")
#: What noise may change, in this order, beside numbers.
_BY_NOISE = (
    (r",? +too uncertain$", ""),
    (r"[━─┏┓┡┩└┘┌┐├┤┼┬┴┳╇┃│]+", " "),
    (r"\b(?=\d*[a-f])[0-9a-f]{5,64}\b", "#"),
    (r"\b(?:estimate|measurement|cached)$", "source"),
    (r"\((?:unbiased|model)\)", "(kind)"),
    (_NUMBER.pattern, "#"),
    (r"# ± #|# ± n/a|n/a|\bnull\b|\bNone\b", "#"),
    # Of groups that all err alike one number is told, else the least and the largest.
    (r"# to #|± # to ± #|\(#, #\)", "#"),
    (r"interval ± #", "interval #"),
    (r"[ \t]+", " "),
    # Where the log has come by then.
    (r"in the log of (?:none|# entries)", "in the log of #"),
)


def shape(printed: str) -> list[str]:
    """What was printed, line by line, without what noise may change."""
    lines = []
    for line in printed.splitlines():
        if "not in the log yet" in line:  # what comes into the log comes a moment after it was answered
            continue
        for pattern, word in _BY_NOISE:
            line = re.sub(pattern, word, line.strip())
        lines.append(line)
    return lines
