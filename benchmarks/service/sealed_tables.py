"""What a wide table that is prepared takes: its records in a sealed file that is asked, beside the same file in the
clear and beside records that are held in memory.

Run `python -m benchmarks.service.sealed_tables` (minutes, on a quiet machine). Made-up records of twelve codes, a
number and whose they are. Questions to the sealed file and to the one in the clear take turns; told are the medians
of each in seconds of the processor, and that of the ratios of one turn. Memory is that of a process of its own: by
how much it grew at most while it read the source, and by how much it had grown when it had answered one question.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.declarations.spec import TableSpec, parse_spec
from app.spaces.counts import NotCounted
from app.spaces.factory import space_of
from app.storage.private_data import CodesData
from app.storage.private_store import VaultStore
from app.storage.readers.codes import Sealing
from app.storage.sources import parquet
from app.storage.vault import Vault, VaultEntry
from benchmarks.harness import report
from benchmarks.service.asked_sources import CODES, INCOMES, MEMORY, QUESTIONS, SIZE, counts, needed, processor

RECORDS = (10**6, 10**7)
TURNS = 7
KEY = bytes(32)


def written(count: int, folder: Path, **more: Any) -> TableSpec:
    """The files of a source, and its declaration."""
    rng = np.random.default_rng(1)
    columns = {f"c{k}": rng.integers(0, SIZE, count).astype(np.int32) for k in range(CODES)}
    columns["income"] = rng.integers(0, INCOMES // 2, count).astype(np.int32)
    columns["person"] = rng.integers(0, count // 2, count).astype(np.int32)
    pq.write_table(pa.table(columns), folder / "records.parquet", row_group_size=1 << 17)
    attributes = [{"name": f"c{k}", "size": SIZE} for k in range(CODES)] + [{"name": "income", "size": INCOMES}]
    declared = {"name": "wide", "kind": "table", "budget": {"epsilon": 1.0, "delta": 1e-9}, "attributes": attributes}
    source = {"type": "parquet", "files": ["records.parquet"]}
    spec = parse_spec({**declared, "source": source, "prepare": "vault", **more})
    assert isinstance(spec, TableSpec)
    return spec


def status(what: str) -> int:
    """A line of what the system says of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(what))


def grown(done: Callable[[], object]) -> tuple[float, float]:
    """By how many MiB a process of its own grows at most while something is done, and has grown at its end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        Path("/proc/self/clear_refs").write_text("5")  # what was the most until now is forgotten
        before = status("VmRSS")
        kept = done()
        os.write(writing, f"{status('VmHWM') - before} {status('VmRSS') - before}".encode())
        os._exit(0 if kept is not None else 1)
    os.close(writing)
    with open(reading, "rb") as told:
        most, end = told.read().split()
    os.waitpid(child, 0)
    return int(most) / (1 << 20), int(end) / (1 << 20)


def main() -> None:
    """Measure and write."""
    times: list[tuple[Any, ...]] = []
    sizes: list[tuple[Any, ...]] = []
    with tempfile.TemporaryDirectory() as root:
        for count in RECORDS:
            folder = Path(root) / str(count)
            folder.mkdir()
            spec = written(count, folder)
            of_persons = written(count, folder, unit={"column": "person", "max_records": 2})

            def made(how: Sealing | None, spec: TableSpec = spec, folder: Path = folder) -> Any:
                return parquet.prepare_source(spec, [folder], memory_limit=MEMORY, sealing=how).data

            files = {key: made(Sealing(folder, key)) for key in (secrets.token_bytes(32), None)}

            def ask(data: CodesData, due: Any) -> None:
                path = Path(f"/proc/self/fd/{data.file.fileno()}")
                parquet.ask_codes(path, data.about.tobytes(), due, memory_limit=MEMORY)

            for title, (asked, _) in QUESTIONS.items():
                due, found = needed(*asked), list[list[float]]()
                for turn in range(TURNS + 1):
                    now = [processor(lambda: ask(data, due)) for data in files.values()]  # noqa: B023
                    found += [now] if turn else []
                sealed, clear = np.array(found).T
                ratio = float(np.median(sealed / clear))
                times.append((f"{count:,}", title, float(np.median(sealed)), float(np.median(clear)), ratio))

            vault = Vault(folder / "vault", KEY)
            for title, how in (("sealed", Sealing(folder, secrets.token_bytes(32))), ("held in memory", None)):
                reading, _ = grown(lambda: made(how))  # noqa: B023
                capping, _ = grown(lambda: made(how, of_persons))  # noqa: B023
                data = made(how)
                with vault.registration():
                    entry = vault.put("wide", data)
                del data

                def answered(entry: VaultEntry = entry, spec: TableSpec = spec, vault: Vault = vault) -> Any:
                    store = VaultStore(vault, MEMORY, lambda: None, ask_codes=lambda *_: np.zeros(SIZE**3, np.int64))
                    held = store.counts(space_of(spec), {"file_name": entry.file_name, "digest": entry.digest})
                    try:
                        return held, list(held.tell([counts(0, 1, 2)]))
                    except NotCounted as lacking:  # by another process, which answers as this one does at once
                        lacking.count()
                    return held, list(held.tell([counts(0, 1, 2)]))

                _, after = grown(answered)
                stored = (folder / "vault" / entry.file_name).stat().st_size / (1 << 20)
                sizes.append((f"{count:,}", title, *(round(each) for each in (reading, capping, after, stored))))
    columns = ["records", "what", "sealed (s)", "in the clear (s)", "ratio"]
    report("sealed_tables", "Questions to sealed codes", columns, times, turns=TURNS)
    columns = ["records", "records are", "reading (MiB)", "with persons (MiB)", "asked (MiB)", "file (MiB)"]
    report("sealed_memory", "Memory of a wide table that is prepared", columns, sizes)


if __name__ == "__main__":
    main()
