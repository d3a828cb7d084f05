"""What is held of every format of tables whose versions are counted where they lie: one declaration, one folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.datasets.source_files import JSON
from tests.datasets.test_asked_sources import opened, running
from tests.datasets.test_sources import counted, refusal
from tests.kit.service import ask, unique, where

ROWS: JSON = {"zebra-column": [0, 1, 1, 2], "age": [20.0, None, 30.0, 79.0], "year": [1, 2, 3, 4], "month": [0] * 4}
"""What each appends to its table twice: the first version has each row once."""


def nothing_outside_is_opened(declared: JSON, place: Path, folder: Path) -> None:
    """A link to what is outside is refused before it is read, one that stays inside is followed.

    Args:
        declared: a data set of 3 records in ``folder / "lake"``, which alone the server may open.
        place: the folder or file in there that is made a link.
    """
    inside, outside = folder / "lake", folder / "elsewhere"
    for target, refused in ((outside, True), (inside / "beside", False)):
        shutil.move(place, target)
        place.symlink_to(target)
        if refused:
            found = refusal(declared, inside)
            assert "leads outside" in found.detail
            assert "elsewhere" not in found.detail
        else:
            assert counted(declared, inside).report.kept == 3
        place.unlink()
        shutil.move(target, place)


def is_registered_and_asked(declared: JSON, missing: JSON, folder: Path) -> None:
    """Over HTTP: a version is registered and asked, its place is told to nobody, and one that is not there is refused.

    Args:
        declared: a data set whose source is the first version of a table of ``ROWS``.
        missing: a source of the same table, of a version that it does not have.
    """
    with running(folder / "var", folder) as service:
        name = unique("versions")
        whole = {**declared, "name": name, "budget": {"epsilon": 9.0, "delta": 1e-9}}
        reply = service.admin.post("/v1/datasets", files={"spec": (None, json.dumps(whole))})
        assert reply.status_code == 201, reply.text
        assert reply.json()["report"]["read"] == 4
        analyst = service.principal("analyst")
        id = opened(analyst, name, "gaussian")
        assert ask(analyst, id, where(ward=1))["value"] == 2
        assert "zebra" not in analyst.get(f"/v1/datasets/{name}").text
        other = {**whole, "name": "x", "source": missing}
        reply = service.admin.post("/v1/datasets", files={"spec": (None, json.dumps(other))})
        assert reply.status_code == 422
        assert "tells no such version" in reply.json()["detail"]
