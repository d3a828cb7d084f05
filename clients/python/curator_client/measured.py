"""What was measured, as tables."""

from __future__ import annotations

from curator_client.answers import Table
from curator_client.errors import ProtocolError
from curator_client.models import JSON


def table_of(measured: JSON) -> Table:
    """The counts of a measurement with its values. Their error is that of the noise; they are not clipped.

    Raises:
        ValueError: when it is of something else than the counts of one table.
        ProtocolError: when it is no measurement.
    """
    if "axes" not in measured or measured.get("rows") is not None or measured.get("of") is not None:
        raise ValueError("this measurement is not the counts of one table: values() has what it is")
    try:
        values, error = measured["values"], float(measured["standard_error"])
        told = {
            "axes": measured["axes"],
            "values": values,
            "standard_errors": [error] * len(values),
            "intervals": None,
            "sequence": 0,
            "source": "measurement",
            "charged_epsilon": 0.0,
            "confidence": None,
            "interval_kind": None,
            "error_bound": None,
            "entry_hash": "",
        }
    except (KeyError, TypeError, ValueError):
        raise ProtocolError("the reply is no measurement") from None
    return Table.parse(told)
