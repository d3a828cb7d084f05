"""What no refusal may hold: words of the libraries that find problems, and of the language."""

from __future__ import annotations

import re

FOREIGN = re.compile(
    r"Input should|Extra inputs|Field required|Unable to|discriminator|[Vv]alid (dictionary|integer|string|list|tuple)"
    r"|pydantic|NoneType|function-|Value error|Assertion|type=|literal\[|list\[|union\[|constrained|ctx|Decimal|dict"
    r"|\bint\b|\bfloat\b|\bstr\b|\btuple\b|Error\b|Condition\b|Where\b|<class|object at"
)
