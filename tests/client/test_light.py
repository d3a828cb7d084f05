"""The client loads little, and says what it lacks."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import curator_client
from curator_client.errors import MissingExtra
from curator_client.extras import server

pytestmark = pytest.mark.unit

#: What nobody needs for questions and answers, and what belongs to the service.
WITHOUT = {"app", "cryptography", "numpy", "orjson", "pandas", "polars", "pyarrow", "pydantic", "rich", "scipy"}


def loaded(code: str) -> set[str]:
    out = subprocess.check_output([sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"], text=True)
    return {name.partition(".")[0] for name in out.split()}


def test_what_importing_it_loads() -> None:
    """Catches an import of a second: httpx is for whoever calls a service, frames for whoever has the extra."""
    assert loaded("import curator_client") & (WITHOUT | {"httpx"}) == set()


def test_what_all_of_it_loads() -> None:
    """Catches a part that leans on more than the distribution needs, by any way."""
    # httpx has a command line of its own, which looks for rich.
    modules = [module.name for module in pkgutil.walk_packages(curator_client.__path__, "curator_client.")]
    assert "curator_client._async.session" in modules
    clients = "curator_client.Curator('http://127.0.0.1:9'); curator_client.AsyncCurator('http://127.0.0.1:9')"
    assert loaded(f"import {', '.join(modules)}; {clients}") & WITHOUT <= {"rich"}


def test_every_name_leads_somewhere() -> None:
    """Catches a name that is promised and not there, as names are looked up when they are used."""
    for name in curator_client.__all__:
        assert getattr(curator_client, name) is not None
    assert set(curator_client.__all__) <= set(dir(curator_client))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        curator_client.Nothing  # noqa: B018


def test_what_replays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the service's folders nothing is left out silently: the command that brings them is named."""
    monkeypatch.setitem(sys.modules, "app.verifying.folder", None)
    with pytest.raises(MissingExtra, match=r"pip install .curator-client\[replay\]"):
        server("verifying.folder")
