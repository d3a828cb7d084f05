"""Reading multisets, against a Counter of strings."""

import csv
import io
import itertools
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.readers import multisets as multisets_module

pytestmark = pytest.mark.unit

SPEC = {"kind": "multiset"}


def contents(data: Any) -> dict[str, int]:
    """The multiset as a dictionary, in its order."""
    blob, ends = data.blob.tobytes(), data.offsets.tolist()
    words = [blob[left:right].decode() for left, right in itertools.pairwise(ends)]
    return dict(zip(words, data.counts.tolist(), strict=True))


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=5)
records = st.lists(st.tuples(words, st.integers(0, 9)), min_size=1, max_size=40)


@given(records, st.booleans(), st.booleans(), st.lists(words, max_size=5))
def test_against_a_counter(
    read: Any, rows: list[tuple[str, int]], counted: bool, as_parquet: bool, others: list[str]
) -> None:
    """Any Unicode, quotes and line ends included; counts add up; look-up finds all of it and 0 for the
    rest.
    """
    expected: Counter[str] = Counter()
    for word, count in rows:
        expected[word] += count if counted else 1
    if as_parquet:
        columns: dict[str, Any] = {"element": [word for word, _ in rows]}
        if counted:
            columns["count"] = [count for _, count in rows]
        data = read(SPEC, "a.parquet", parquet(**columns))
    else:
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer, quoting=csv.QUOTE_ALL)
        writer.writerow(["element", "count"] if counted else ["element"])
        writer.writerows(rows if counted else [(word,) for word, _ in rows])
        data = read(SPEC, "a.csv", buffer.getvalue().encode())
    assert contents(data) == +expected
    assert list(contents(data)) == sorted(+expected, key=str.encode)
    assert data.mass == expected.total()
    asked = [*expected, *others, "", "\0"]
    assert data.lookup(asked).tolist() == [expected[word] for word in asked]


def test_merging_as_it_goes(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multisets_module, "_MERGE_BYTES", 1)
    column = [f"w{i % 7}" for i in range(300_000)]
    assert contents(read(SPEC, "a.parquet", parquet(element=column))) == dict(sorted(Counter(column).items()))


def test_repeated_long_strings_are_not_written_out(read: Any, refuse: Any) -> None:
    """100,000 rows of one string of 2 MiB would be 200 GiB."""
    long = "x" * (2 << 20)
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array([long]))
    assert contents(read(SPEC, "a.parquet", parquet(element=column))) == {long: 100_000}
    refuse(SPEC, "a.parquet", parquet(element=column), "memory limit", memory_limit=1 << 20)


@pytest.mark.parametrize(
    ("content", "needle"),
    [
        (b"element,count\na,1\nb,s3cr3t\n", 'row 2: "count" must be a whole number'),
        (b"element,count\na,1\nb,-1\n", 'row 2: "count"'),
        (b"element,count\na,1\nb,1.5\n", 'row 2: "count"'),
        (b"element,count\na,1\nb,\n", 'row 2: "count"'),
        (b"element,count\na,1\n,1\n", 'row 2: "element" is empty'),
        (b"element\na\n\nb\n", 'row 2: "element" is empty'),
        (b"element,count\na,1\ns3cr3t\xff,1\n", "row 2 is not valid UTF-8"),
        (b"s3cr3t,1\na,1\n", 'no column "element"'),
        (b"element,count\n", "no records"),
        (b"element,count\na,2147483647\nb,1\n", "capacity of 2147483647"),
        (b"element,count\na,2147483648\n", "capacity of 2147483647"),
    ],
)
def test_refusals(refuse: Any, content: bytes, needle: str) -> None:
    refuse(SPEC, "a.csv", content, needle)


def test_other_refusals(refuse: Any) -> None:
    refuse(SPEC, "a.npy", b"junk", "not read from .npy")
    refuse(SPEC, "a.parquet", parquet(element=["a", None]), 'row 2: "element" is empty')
    refuse(SPEC, "a.parquet", parquet(element=pa.array(["a", None]).dictionary_encode()), 'row 2: "element"')
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    refuse(SPEC, "a.parquet", parquet(element=broken), "damaged")


def test_zero_counts(read: Any) -> None:
    data = read(SPEC, "a.csv", b"element,count\na,0\n")
    assert contents(data) == {}
    assert data.mass == 0
    assert data.lookup(["a"]).tolist() == [0]


@pytest.mark.slow
def test_words_of_a_language(read: Any, shared: Any) -> None:
    lines = (shared / "data/afwiki-words/afwiki-2024-02-20.txt").read_text().splitlines()
    expected = {word: int(count) for word, count in (line.split(" ") for line in lines)}
    data = read(SPEC, "a.txt", "\n".join(["element count", *lines]).encode())
    assert data.lookup(expected).tolist() == list(expected.values())
    assert data.mass == sum(expected.values())
    assert len(data.counts) == len(expected)
