"""Persons as the unit of privacy: of each person's records no more are kept than is declared.

Which ones depends on that person's own records and on a random key, and on nothing else: records are ranked by
HMAC-SHA256(key, content, ordinal, id), and the first of them are kept. The content is the positions of the declared
attributes, so that what is not declared decides nothing. The ordinal numbers a person's records of equal content from
0: without it they would all be kept or none. So a person who is added or removed brings or takes ``max_records``
records at most, and moves nobody else's (docs/privacy.md, section 2.1).

A hash of rows' positions would not do: one record more at the beginning of the file moves all that follow, and with
them which ones are kept of every person who has too many.

The key is made for one file and forgotten with it: nothing is ever ranked again.
"""

import hmac
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset
from app.declarations.spec import Persons
from app.storage.readers.codes import nameless, writing
from app.storage.readers.columns import BATCH_ROWS, texts

#: What a record takes at most beside its positions three times and its id's text three times: numbers, orders, hashes.
_RECORD_BYTES = 160
_ORDINAL = np.dtype("<u8")
#: Parts of all persons, of which one is in memory where records are too many, and what is hashed before an id to tell
#: which part it is in.
_PARTS, _PART = 128, b"curator part of persons\0"


class Capping:
    """Collects the records of all persons, and keeps the declared number of each.

    Args:
        unit: whose records they are, and how many of a person's are kept.
        lengths: of the attributes' axes, in the order in which positions are given.
        key: random bytes that do not depend on the data.
        memory_limit: bytes that the records may take.
        nulls: words that are no id, beside none at all.
    """

    def __init__(
        self, unit: Persons, lengths: Sequence[int], key: bytes, memory_limit: int, nulls: Sequence[str] = ()
    ) -> None:
        self._nulls = pa.array(["", *nulls], pa.large_string())
        self._unit, self._key, self._limit = unit, key, memory_limit
        # Widths follow from the declaration, so that what is hashed has one reading.
        self._dtypes = [np.min_scalar_type(length - 1).newbyteorder("<") for length in lengths]
        self._words: list[Any] = [pa.array([], pa.large_string())]
        self._named = self._records = self._text_bytes = 0
        self._persons: list[NDArray[np.int64]] = []
        self._columns: list[list[NDArray[Any]]] = [[] for _ in lengths]
        #: How many records are left out.
        self.beyond = 0

    def identify(self, column: Any) -> NDArray[np.int64]:
        """A number for the id of each record; -1 where there is none.

        Ids are compared by their text, without white space around it. Equal ones of different batches may have
        different numbers until all are told.

        Raises:
            InvalidDataset: when the column's type has no plain text, or ids take more memory than there is.
        """
        found, words = _identified(column, f'column "{self._unit.column}"', self._nulls)
        found[found >= 0] += self._named
        self._words.append(words)
        self._named += len(words)
        self._text_bytes += self._words[-1].nbytes
        self._check_memory()
        return found

    def add(self, codes: Sequence[NDArray[np.int64]]) -> None:
        """Records of the domain: the positions of their values on each axis, and last the numbers of their ids.

        Raises:
            InvalidDataset: when they take more memory than there is.
        """
        *codes, persons = codes
        self._records += len(persons)
        self._check_memory()
        self._persons.append(persons)
        for parts, code, dtype in zip(self._columns, codes, self._dtypes, strict=True):
            parts.append(code.astype(dtype))

    def kept(self) -> Iterator[list[NDArray[np.int64]]]:
        """The positions of the records that are kept, in batches, in the order in which they were told; how many are
        not is known from here on.
        """
        columns = [
            np.concatenate([np.zeros(0, dtype), *parts])
            for parts, dtype in zip(self._columns, self._dtypes, strict=True)
        ]
        self._columns = [[] for _ in columns]
        ids = pa.concat_arrays(self._words).dictionary_encode()
        self._words = []
        numbers = ids.indices.to_numpy(zero_copy_only=False)
        persons = numbers[np.concatenate([np.zeros(0, np.int64), *self._persons])]
        self._persons = []
        keep = _first_of_each(persons, ids.dictionary, columns, self._unit.max_records, self._key)
        self.beyond = int(np.count_nonzero(~keep))
        parts = [slice(start, start + BATCH_ROWS) for start in range(0, len(keep), BATCH_ROWS)]
        return ([column[part][keep[part]].astype(np.int64) for column in columns] for part in parts)

    def _check_memory(self) -> None:
        each = _RECORD_BYTES + 3 * sum(dtype.itemsize for dtype in self._dtypes)
        if self._records * each + 3 * self._text_bytes > self._limit:
            raise InvalidDataset(
                f"the file holds more than {self._records:,} records, and whose they are, which is more than the "
                f"memory limit of {self._limit} bytes allows for: leave out attributes, shorten what stands in "
                f'"{self._unit.column}", or raise CURATOR_MEMORY_LIMIT'
            )


class SpilledCapping:
    """Does what :class:`Capping` does, with the records of some of the persons in memory at a time: all others lie in a
    file without a name, sealed under a key that is nowhere else. Of each person it keeps the very same records.

    Args:
        unit: whose records they are, and how many of a person's are kept.
        lengths: of the attributes' axes, in the order in which positions are given.
        key: random bytes that do not depend on the data.
        memory_limit: bytes that the records of one part of all persons may take.
        nulls: words that are no id, beside none at all.
        folder: on whose disk the file lies.

    Raises:
        Unwritable: as what is called here does, when the disk refuses.
    """

    def __init__(
        self,
        unit: Persons,
        lengths: Sequence[int],
        key: bytes,
        memory_limit: int,
        nulls: Sequence[str] = (),
        folder: Path | None = None,
    ) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._unit, self._key = unit, key
        self._of_part = partial(Capping, unit, lengths, key, memory_limit, nulls)
        self._nulls = pa.array(["", *nulls], pa.large_string())
        self._types = [np.min_scalar_type(length - 1) for length in lengths]
        self._file, self._cipher, self._end = nameless(folder), AESGCM(os.urandom(32)), 0
        self._pieces: list[list[tuple[int, int]]] = [[] for _ in range(_PARTS)]
        self._words: Any = None
        #: How many records are left out.
        self.beyond = 0

    def identify(self, column: Any) -> NDArray[np.int64]:
        """A number for the id of each record of the next batch; -1 where there is none. See :meth:`Capping.identify`.

        Raises:
            InvalidDataset: when the column's type has no plain text.
        """
        found, self._words = _identified(column, f'column "{self._unit.column}"', self._nulls)
        return found

    def add(self, codes: Sequence[NDArray[np.int64]]) -> None:
        """Records of the batch that was identified last: positions, and last the numbers of their ids."""
        *codes, persons = codes
        digests = [hmac.digest(self._key, _PART + text.encode(), "sha256") for text in self._words.to_pylist()]
        parts = np.array([digest[0] % _PARTS for digest in digests], np.uint8)[persons]
        order = np.argsort(parts, kind="stable")
        ends = np.cumsum(np.bincount(parts, minlength=_PARTS))
        columns = [code.astype(kind)[order] for code, kind in zip(codes, self._types, strict=True)]
        whose = self._words.take(pa.array(persons[order]))
        for part, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if start < end:
                arrays = [*(pa.array(column[start:end]) for column in columns), whose[start:end]]
                self._write(part, pa.RecordBatch.from_arrays(arrays, [str(at) for at in range(len(arrays))]))

    def _write(self, part: int, batch: Any) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        # Each nonce is used once: it is where the piece begins.
        sealed = self._cipher.encrypt(self._end.to_bytes(12, "big"), sink.getvalue().to_pybytes(), None)
        with writing():
            self._file.write(sealed)
        self._pieces[part].append((self._end, len(sealed)))
        self._end += len(sealed)

    def kept(self) -> Iterator[list[NDArray[np.int64]]]:
        """The positions of the records that are kept, in batches; how many are not is known when all were taken.

        Raises:
            InvalidDataset: when those of one part take more memory than there is.
        """
        with writing():
            self._file.flush()
        for pieces in self._pieces:
            capping = self._of_part()
            for start, size in pieces:
                self._file.seek(start)
                plain = self._cipher.decrypt(start.to_bytes(12, "big"), self._file.read(size), None)
                *columns, whose = pa.ipc.open_stream(plain).read_next_batch().columns
                persons = capping.identify(whose)
                capping.add([*(column.to_numpy().astype(np.int64) for column in columns), persons])
            yield from capping.kept()
            self.beyond += capping.beyond
        self._file.close()


def _identified(column: Any, where: str, nulls: Any) -> tuple[NDArray[np.int64], Any]:
    """A number for the id of each record, -1 where there is none, and the ids in the order of their numbers.

    Raises:
        InvalidDataset: when the column's type has no plain text; ``where`` says which it is.
    """
    if pa.types.is_dictionary(column.type):
        words, codes = texts(column.dictionary, where), column.indices
    else:
        encoded = texts(column, where).dictionary_encode()
        words, codes = encoded.dictionary, encoded.indices
    words = pc.utf8_trim_whitespace(words)
    told = np.append(pc.invert(pc.or_(pc.is_null(words), pc.is_in(words, value_set=nulls))), False).astype(bool)
    numbers = codes.fill_null(len(words)).to_numpy(zero_copy_only=False).astype(np.int64)
    present = told[numbers]
    # A dictionary may hold far more than its rows name, and comes again with every batch.
    used, renumbered = np.unique(numbers[present], return_inverse=True)
    found = np.full(len(numbers), -1, np.int64)
    found[present] = renumbered
    return found, words.take(pa.array(used))


def _first_of_each(
    persons: NDArray[np.int64], ids: Any, columns: Sequence[NDArray[Any]], most: int, key: bytes
) -> NDArray[np.bool_]:
    """Which records are among the first of their person, by keyed hash."""
    many = np.bincount(persons, minlength=len(ids)) > most
    keep: NDArray[np.bool_] = ~many[persons]
    ranked = np.flatnonzero(~keep)
    if not len(ranked):
        return keep
    # Numbers from 0, in the order of the ids below.
    whose = np.cumsum(many)[persons[ranked]] - 1
    names = [text.encode() for text in ids.filter(pa.array(many)).to_pylist()]
    contents = [column[ranked] for column in columns]
    ordinals = _ordinals(_equal(whose, len(names), contents))
    messages = np.column_stack(
        [part.view(np.uint8).reshape(len(ranked), -1) for part in (*contents, ordinals.astype(_ORDINAL))]
    )
    hashes = np.empty((len(ranked), 2), np.uint64)
    width = messages.shape[1]
    for start in range(0, len(ranked), BATCH_ROWS):
        block = messages[start : start + BATCH_ROWS].tobytes()
        owners = whose[start : start + BATCH_ROWS].tolist()
        # Content and ordinal are of fixed width, so that the id needs no length of its own.
        digests = [
            hmac.digest(key, block[i * width : (i + 1) * width] + names[owner], "sha256")[:16]
            for i, owner in enumerate(owners)
        ]
        hashes[start : start + len(owners)] = np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2)
    order = np.lexsort((hashes[:, 1], hashes[:, 0], whose))
    keep[ranked[order]] = places(whose[order]) < most
    return keep


def _equal(persons: NDArray[np.int64], count: int, contents: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """A number for each record that records of one person and of equal content have in common, and no others; persons
    have numbers below ``count``.
    """
    label = persons
    for column in contents:
        length = int(column.max()) + 1
        if count * length >= 2**62:
            _, label = np.unique(label, return_inverse=True)
            count = int(label.max()) + 1
        label = label * length + column.astype(np.int64)
        count *= length
    return label


def _ordinals(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many records before each have its label."""
    order = np.argsort(labels, kind="stable")
    ordinals = np.empty(len(labels), np.int64)
    ordinals[order] = places(labels[order])
    return ordinals


def places(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of the equal numbers before each there are, where equal ones stand together."""
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    places: NDArray[np.int64] = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
    return places
