"""What is sent to a service: paths, bodies and forms of the contract. Pure; what sends them is elsewhere."""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from curator_client.calls import Call
from curator_client.errors import NoValue, ProtocolError
from curator_client.mechanisms import Mechanism, spelled
from curator_client.models import JSON, need

if TYPE_CHECKING:
    import numpy as np

ARROW = "application/vnd.apache.arrow.stream"
NPY = "application/x-npy"
PARQUET = "application/vnd.apache.parquet"
CSV = "text/csv"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
#: What may be registered: a file, an open file's bytes, or an array of counts.
Data: TypeAlias = "Path | str | bytes | np.ndarray[Any, Any]"
#: An amount of epsilon.
Amount = int | float | Decimal


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def session_path(id: str) -> str:
    """The path of a session."""
    return f"/v1/sessions/{segment(id)}"


def new_key() -> str:
    """An idempotency key that nobody else has."""
    return str(uuid.uuid4())


def json_text(body: object) -> str:
    """A body as JSON.

    Raises:
        TypeError: for what JSON has no word for.
        NoValue: for numbers that are none.
    """
    try:
        return json.dumps(body, allow_nan=False, default=_number)
    except ValueError:
        raise NoValue("a number is not finite, or beyond 1e308") from None


def json_call(method: str, path: str, body: object = None, *, key: str | None = None) -> Call:
    """A call with a body of JSON, or with none."""
    if body is None:
        return Call(method, path, key=key)
    content = json_text(body).encode()
    return Call(method, path, {"Content-Type": "application/json"}, lambda: {"content": content}, key)


def _number(value: object) -> object:
    """Decimals as JSON numbers, and NumPy's values as Python's.

    Raises:
        TypeError: for anything else.
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    return float(value)  # type: ignore[arg-type]


def listed(page: JSON, name: str) -> list[Any]:
    """A list that a reply has.

    Raises:
        ProtocolError: when it is none.
    """
    items = need(page, name)
    if not isinstance(items, list):
        raise ProtocolError(f"{name} is not a list")
    return items


def form(spec: str | None, data: Data | None, filename: str | None, files: ExitStack) -> Callable[[], dict[str, Any]]:
    """The form of an upload, made anew for each try; ``files`` closes what it opens. Without data it is the spec.

    Raises:
        ValueError: for bytes without a filename.
        TypeError: for a frame, or anything else that is no array of counts.
    """
    if data is not None and not isinstance(data, Path | str | bytes):
        import numpy as np

        if not isinstance(data, np.ndarray):
            raise TypeError("data are a path, bytes with a filename, or an array of counts: write a frame to a file")
        buffer = io.BytesIO()
        np.save(buffer, data, allow_pickle=False)
        data, filename = buffer.getvalue(), filename or "data.npy"
    if isinstance(data, bytes) and filename is None:
        raise ValueError("filename is needed with bytes: its ending tells the format")
    fields = {} if spec is None else {"spec": spec}

    def content() -> dict[str, Any]:
        if data is None:  # a part without a name of a file, which makes it a form of parts still
            return {"files": {name: (None, text) for name, text in fields.items()}}
        if isinstance(data, bytes):
            return {"data": fields, "files": {"data": (filename, data)}}
        path = Path(os.fspath(data))
        return {"data": fields, "files": {"data": (filename or path.name, files.enter_context(path.open("rb")))}}

    return content


def said(**given: Any) -> dict[str, Any]:
    """What is wanted, without what is left to the service: the contract's defaults hold only for what is absent."""
    return {name: value for name, value in given.items() if value is not None}


def opening_body(
    dataset: str, mechanism: Mechanism, epsilon: Amount, max_queries: int | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The body of a session or plan."""
    chosen = None if mechanism == "auto" else spelled(mechanism)
    return {"dataset": dataset, **said(mechanism=chosen, epsilon=epsilon, max_queries=max_queries, **options)}
