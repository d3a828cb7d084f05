"""Whole numbers and bits in base64, each in one way."""

from __future__ import annotations

import binascii
from typing import Any

import numpy as np
import numpy.typing as npt

from app.spaces.tensor import IntArray

#: Bytes that a number may take.
_WIDTHS = (1, 2, 4, 8)


def packed_numbers(units: IntArray) -> str:
    """Whole numbers in base64: little-endian and signed, of the least number of bytes (1, 2, 4 or 8) that holds all."""
    return _base64(units.astype(_width(units)))


def unpacked_numbers(text: str, count: int) -> IntArray:
    """So many whole numbers, as :func:`packed_numbers` wrote them.

    Raises:
        TypeError, ValueError: when they are written in any other way.
    """
    packed = binascii.a2b_base64(text, strict_mode=True)
    width = len(packed) // count
    if width not in _WIDTHS or len(packed) != width * count:
        raise ValueError("numbers take 1, 2, 4 or 8 bytes each")
    units = np.frombuffer(packed, f"<i{width}")
    if _width(units) != units.dtype:
        raise ValueError("numbers take as few bytes as hold them")
    return units.astype(np.int64)


def packed_bits(bits: npt.NDArray[Any]) -> str:
    """Bits in base64, the first of eight in the highest place."""
    return _base64(np.packbits(bits))


def unpacked_bits(text: str, count: int) -> npt.NDArray[np.uint8]:
    """So many bits, as :func:`packed_bits` wrote them.

    Raises:
        TypeError, ValueError: when they are written in any other way.
    """
    packed = binascii.a2b_base64(text, strict_mode=True)
    if len(packed) != -(-count // 8) or (count % 8 and packed[-1] & (0xFF >> count % 8)):
        raise ValueError("bits are packed, and padded with zeros")
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=count)


def _base64(values: npt.NDArray[Any]) -> str:
    return binascii.b2a_base64(values.tobytes(), newline=False).decode("ascii")


def _width(units: npt.NDArray[Any]) -> np.dtype[Any]:
    """The least type that holds numbers."""
    low, high = int(units.min()), int(units.max())
    for width in _WIDTHS:
        if -(1 << (8 * width - 1)) <= low and high < 1 << (8 * width - 1):
            return np.dtype(f"<i{width}")
    raise ValueError("numbers are 64-bit integers")
