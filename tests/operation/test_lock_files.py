"""The lock files: what an installation takes is pinned as what asks for it names it."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.unit

PIN = re.compile(r"^(?P<name>[\w.-]+)(?:\[(?P<extras>[\w.,-]+)\])?==(?P<version>\S+)", re.MULTILINE)


def pinned(lock: Path) -> dict[str, set[str]]:
    """The extras that each distribution is pinned with."""
    found = PIN.finditer(lock.read_text())
    return {canonicalize_name(each["name"]): set((each["extras"] or "").split(",")) - {""} for each in found}


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_extras_are_pinned_with_their_names(root: Path, name: str) -> None:
    """Catches a pin that leaves out an extra which another package asks for: from the day on which a newer version is
    published, pip of Python 3.11 refuses the whole lock file ("must have their versions pinned")."""
    pins = pinned(root / name)
    asked: dict[str, set[str]] = {}
    for distribution in distributions():
        own = canonicalize_name(distribution.metadata["Name"])
        for text in distribution.requires or [] if own in pins or own == "curator-server" else []:
            needed = Requirement(text)
            environments = [{"extra": extra} for extra in pins.get(own, set()) | {""}]
            if needed.marker is None or any(needed.marker.evaluate(each) for each in environments):
                asked.setdefault(canonicalize_name(needed.name), set()).update(needed.extras)
    assert asked["psycopg"] == {"binary"}  # without what somebody asks for there is nothing to compare
    assert {own: extras - pins[own] for own, extras in asked.items() if own in pins and extras - pins[own]} == {}


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-build.lock"])
def test_one_version_of_everything(root: Path, name: str) -> None:
    """Catches wheels that are built, or a service that is run, with other libraries than those that were tested: each
    pin with its hashes is one of the development's."""
    entry = re.compile(r"^([\w.-]+)(?:\[[^\]]*\])?==(\S+).*\n((?:    --hash=.*\n)+)", re.MULTILINE)
    pins, tested = (entry.findall((root / each).read_text()) for each in (name, "requirements-dev.lock"))
    assert pins
    assert set(pins) <= set(tested)
