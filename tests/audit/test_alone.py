"""The proofs do without the service and its libraries."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import pytest

from curator_client import proofs

pytestmark = pytest.mark.unit

#: What an auditor need not have, or need not have loaded.
WITHOUT = {"app", "cryptography", "httpx", "numpy", "orjson", "pandas", "pyarrow", "pydantic", "scipy", "sqlalchemy"}


def test_what_importing_them_loads() -> None:
    """Catches a library of the service that comes in by any way; import-linter sees those that are imported by name."""
    modules = [f"{proofs.__name__}.{module.name}" for module in pkgutil.iter_modules(proofs.__path__)]
    assert {"merkle", "notes", "follower"} <= {name.rpartition(".")[2] for name in modules}
    code = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {name.partition(".")[0] for name in json.loads(out)}
    assert "curator_client" in loaded
    assert loaded & WITHOUT == set()
