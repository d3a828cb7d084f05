"""How far a log that is kept in a folder was read: it spares a fetch to read lines again that it has verified.

The file is held against the checkpoint, and made anew from the lines where it is not there or does not fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from curator_client.proofs.findings import Unfollowed
from curator_client.proofs.merkle import Frontier, peaks
from curator_client.proofs.nesting import parse_bounded
from curator_client.proofs.records import parse
from curator_client.proofs.threads import Threads


@dataclass
class Reached:
    """How far the lines of a folder were read: their tree, where they end, and what they say of each session."""

    tree: Frontier = field(default_factory=Frontier)
    end: int = 0
    threads: Threads = field(default_factory=Threads)

    def passing(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """Take in lines that are about to be verified."""
        for line in lines:
            self.end += len(line) + 1
            with suppress(Unfollowed, ValueError):  # lines that make no sense are told by a replay
                self.threads.take(parse(line), line)
            yield line

    def content(self) -> bytes:
        """As the file has it."""
        hashes = [each.hex() for each in self.tree.hashes]
        document = {"size": self.tree.size, "end": self.end, "peaks": hashes, "sessions": self.threads.document()}
        return json.dumps(document, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def read(cls, content: bytes) -> Self:
        """From the file.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: when it is none.
        """
        told = parse_bounded(content)
        size, end, hashes = told["size"], told["end"], [bytes.fromhex(each) for each in told["peaks"]]
        if type(size) is not int or type(end) is not int or len(hashes) != len(peaks(0, size)):
            raise ValueError("no frontier")
        return cls(Frontier(size, hashes), end, Threads.read(told["sessions"]))
