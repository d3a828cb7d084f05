""".npy and .npz files: arrays of a declared shape, read without pickle and without trusting a stated size."""

import contextlib
import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset

_MAX_HEADER = 10_000
_MAX_ITEM = 16


def read_array(suffix: str, path: Path, shape: tuple[int, ...], memory_limit: int) -> NDArray[Any]:
    """The array of booleans, integers or floats, of exactly ``shape``, that the file holds.

    A .npy file is mapped; a .npz file must hold one array, and is unpacked only when the sizes in its
    directory fit.

    Raises:
        InvalidDataset: for another shape or type, for a damaged or truncated file, for more than ``memory_limit``
            bytes.
    """
    if suffix == ".npz":
        return _read_npz(path, shape, memory_limit)
    with path.open("rb") as file:
        order, dtype = _check_header(file, shape, os.fstat(file.fileno()).st_size)
        start = file.tell()
    if not math.prod(shape):
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", start, shape, order)


def slabs(array: NDArray[Any], cells: int = 1 << 20) -> Iterator[tuple[int, NDArray[Any]]]:
    """(first index, slab) along the first axis, each of about ``cells`` cells: checks need no second copy of
    the array.
    """
    step = max(1, cells // max(1, math.prod(array.shape[1:])))
    for start in range(0, array.shape[0], step):
        yield start, array[start : start + step]


def _check_header(stream: IO[bytes], shape: tuple[int, ...], size: int) -> tuple[Any, np.dtype[Any]]:
    """Memory order and type, from the header; ``stream`` is left at the data.

    Raises:
        InvalidDataset: when the header is damaged, or states another shape, type or size.
    """
    header = None
    # The header is parsed as Python, which raises almost anything on damaged bytes.
    with contextlib.suppress(Exception):
        version = npy.read_magic(stream)
        if version == (1, 0):
            header = npy.read_array_header_1_0(stream, max_header_size=_MAX_HEADER)
        elif version == (2, 0):
            header = npy.read_array_header_2_0(stream, max_header_size=_MAX_HEADER)
    if header is None:
        raise InvalidDataset("the file is not a NumPy array, or its header is damaged: write it with numpy.save")
    found, fortran, dtype = header
    if dtype.hasobject or dtype.kind not in "biuf" or dtype.itemsize > _MAX_ITEM:
        raise InvalidDataset("the array must hold plain integers or floats: objects, text and records are not read")
    if found != shape:
        raise InvalidDataset(f"the array has shape {_shape(found)}, declared is {_shape(shape)}")
    if size != stream.tell() + math.prod(shape) * dtype.itemsize:
        raise InvalidDataset("the array is truncated, or something follows it: write it again with numpy.save")
    return "F" if fortran else "C", dtype


def _read_npz(path: Path, shape: tuple[int, ...], memory_limit: int) -> NDArray[Any]:
    allowed = math.prod(shape) * _MAX_ITEM + _MAX_HEADER
    problem = "the file is not a .npz archive, or is truncated or damaged: write it again with numpy.savez"
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) != 1:
                raise InvalidDataset(f"the .npz file must hold one array, it holds {len(members)}")
            member = members[0]
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
                raise InvalidDataset("the .npz file must be stored or deflated, as numpy.savez writes it")
            if member.file_size > min(allowed, memory_limit):
                raise InvalidDataset("the .npz file unpacks to more than the declared shape or the memory limit allows")
            with archive.open(member) as stream:
                order, dtype = _check_header(stream, shape, member.file_size)
                array = np.empty(math.prod(shape), dtype)
                view = array.view(np.uint8).data
                filled = 0
                while filled < len(view):
                    part = stream.read(min(1 << 20, len(view) - filled))
                    if not part:
                        raise EOFError
                    view[filled : filled + len(part)] = part
                    filled += len(part)
                # Reading on to the end is what makes zipfile compare the checksum.
                if stream.read(1):
                    raise EOFError
                return array.reshape(shape, order=order)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError):
        pass
    raise InvalidDataset(problem)


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "()"
