"""What the suites of readers and vault share: reading bytes as an upload, and the check that a refusal
tells no value.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.declarations.errors import InvalidDataset
from app.declarations.spec import parse_spec
from app.storage.private_data import CsrData, DenseData, PrivateData
from app.storage.readers import read_private

BUDGET = {"epsilon": 1, "delta": 1e-9}
ROOMY = 1 << 28
SECRET = "s3cr3t"
"""Stands for a private value in a file that must be refused."""


@pytest.fixture(scope="session")
def read() -> Callable[..., PrivateData]:
    """read(spec, filename, content, memory_limit=...): what the readers make of `content` uploaded as
    `filename`.
    """

    def call(spec: Mapping[str, Any], filename: str, content: bytes, memory_limit: int = ROOMY) -> PrivateData:
        with tempfile.NamedTemporaryFile(prefix="upload-") as file:
            file.write(content)
            file.flush()
            parsed = parse_spec({"name": "test", "budget": BUDGET, **spec})
            return read_private(parsed, filename, Path(file.name), memory_limit=memory_limit).data

    return call


@pytest.fixture(scope="session")
def refuse(read: Callable[..., PrivateData]) -> Callable[..., InvalidDataset]:
    """refuse(spec, filename, content, *needles): the refusal of `content`. Its message holds all
    `needles`, and neither it nor anything it drags along (chained errors, extra facts) holds "s3cr3t",
    which stands for a private value.
    """

    def call(
        spec: Mapping[str, Any], filename: str, content: bytes, *needles: str, memory_limit: int = ROOMY
    ) -> InvalidDataset:
        with pytest.raises(InvalidDataset) as caught:
            read(spec, filename, content, memory_limit)
        error = caught.value
        for needle in needles:
            assert needle in error.detail, error.detail
        link: BaseException | None = error
        while link is not None:
            assert SECRET not in f"{link!r} {link} {vars(link)}"
            assert isinstance(link, InvalidDataset), "a parser's own error is chained: it may quote a value"
            link = link.__cause__ or link.__context__
        return error

    return call


@pytest.fixture(scope="session")
def matrix() -> Callable[[PrivateData], list[list[int]]]:
    """matrix(data): the matrix of a graph or matrix data set as plain lists, whatever its layout."""

    def call(data: PrivateData) -> list[list[int]]:
        if isinstance(data, CsrData):
            dense = [[0] * data.shape[1] for _ in range(data.shape[0])]
            for row in range(data.shape[0]):
                columns = data.indices[data.indptr[row] : data.indptr[row + 1]].tolist()
                assert columns == sorted(set(columns)), "columns of a row must ascend strictly"
                for column, entry in zip(columns, data.data[data.indptr[row] :].tolist(), strict=False):
                    dense[row][column] = entry
            return dense
        assert isinstance(data, DenseData)
        return data.array.tolist()

    return call
