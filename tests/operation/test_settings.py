"""Settings: what the environment may say, and that no secret is ever repeated."""

import base64
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings import Settings, nearest_variable, parse_bytes, settings_table, unknown_variables
from app.storage.database import make_engines

pytestmark = pytest.mark.unit

KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("CURATOR_"):
            monkeypatch.delenv(name)


def test_defaults() -> None:
    settings = Settings()
    assert settings.data_dir == Path("var")
    assert settings.sqlalchemy_url.startswith("sqlite:////")
    assert settings.vault_key_bytes() is None
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < settings.memory_limit <= physical // 2


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "CURATOR_DATA_DIR": "/srv/curator",
        "CURATOR_DATABASE_URL": "postgresql+psycopg://db/curator",
        "CURATOR_ADMIN_KEY": "an-admin-key",
        "CURATOR_VAULT_KEY": KEY,
        "CURATOR_MEMORY_LIMIT": "4GiB",
        "CURATOR_METRICS_OPEN": "1",
        "CURATOR_LOG_LEVEL": "WARNING",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.vault_dir == Path("/srv/curator/vault")
    assert settings.keys_dir == Path("/srv/curator/keys")
    assert settings.sqlalchemy_url == "postgresql+psycopg://db/curator"
    assert settings.vault_key_bytes() == bytes(range(32))
    assert settings.memory_limit == 4 * 2**30
    assert settings.metrics_open
    assert settings.log_level == "warning"
    assert settings.admin_key is not None
    assert settings.admin_key.get_secret_value() == "an-admin-key"
    assert not re.search(f"an-admin-key|{re.escape(KEY)}", f"{settings!r} {settings} {settings.model_dump()}")


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, _, _ in settings_table():
        monkeypatch.setenv(name, "")
    assert Settings().admin_key is None
    assert Settings().vault_key is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CURATOR_VAULT_KEY", "s3cr3t-not-base64!"),
        ("CURATOR_VAULT_KEY", base64.b64encode(b"s3cr3t too short").decode()),
        ("CURATOR_VAULT_KEY", base64.b64encode(bytes(33)).decode()),
        ("CURATOR_MEMORY_LIMIT", "s3cr3t"),
        ("CURATOR_MEMORY_LIMIT", "1KiB"),
        ("CURATOR_REQUEST_TIMEOUT_SECONDS", "1e999"),
        ("CURATOR_QUEUE_LIMIT", "0"),
        ("CURATOR_LOG_LEVEL", "s3cr3t"),
    ],
)
def test_a_bad_value_is_refused_and_not_repeated(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert value not in str(caught.value)
    assert name.removeprefix("CURATOR_").lower() in str(caught.value)


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"source_hosts": "db.example.org lab.example.org"}, "comma between two"),
        ({"source_hosts": "postgresql://db.example.org"}, "comma between two"),
        ({"log_old_key": KEY}, "CURATOR_LOG_KEY"),
        ({"dask_url": "tls://scheduler:8786"}, "CURATOR_DASK_"),
        ({"finisher": "table", "database_url": "postgresql://h/d", "dask_ca": "ca.pem"}, "CURATOR_DASK_"),
    ],
)
def test_what_nothing_would_read_is_refused(named: dict[str, str], told: str) -> None:
    """Settings that somebody took to matter. Catches a list that is one host nobody has, a key that vouches for none,
    and a cluster that no work reaches."""
    with pytest.raises(ValidationError, match=told):
        Settings(**named)


def test_hosts_are_those_that_a_connection_may_name() -> None:
    """Catches a form of a host that a connection may have and the setting not."""
    hosts = "db.example.org:5432, 10.0.0.2,[2001:db8::1]:5432,2001:db8::1,/run/postgresql,xn--bcher-kva.example,"
    assert len(Settings(source_hosts=hosts).hosts_of_sources) == 6


@pytest.mark.parametrize(
    "url",
    [
        "mysql://root:hunter2@x/y", "oracle://a:hunter2@b", "foo", "hunter2://", "postgresql+asyncpg://u:hunter2@x/y",
        "postgresql://u:hunter2@x:port/y", "nonsense+sqlite:///x.db",
    ],
)  # fmt: skip
def test_a_database_of_another_kind(url: str) -> None:
    """Catches stack traces of a start, and a password repeated. What to write is named."""
    with pytest.raises(ValidationError, match="postgresql://user") as caught:
        Settings(database_url=url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&cache=shared&uri=true",
        "sqlite:///x.db?vfs=unix-none", "sqlite://host/x.db",
    ],
)  # fmt: skip
def test_a_database_without_a_file(url: str) -> None:
    """Catches budgets that are forgotten at the end of the process, and names that lead past the lock."""
    with pytest.raises(ValidationError, match="sqlite:////absolute"):
        Settings(database_url=url)


def test_a_question_mark_in_a_folder() -> None:
    """What follows it would be taken for parameters: another file, the same for several folders."""
    with pytest.raises(ValidationError, match="question mark"):
        Settings(data_dir=Path("/srv/what?/data"))


def test_the_file_of_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is locked against what the driver opens, by every kind of name. Catches a lock beside another file."""
    (tmp_path / "real" / "below").mkdir(parents=True)
    (tmp_path / "folder").symlink_to(tmp_path / "real" / "below")
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "x.db")
    monkeypatch.chdir(tmp_path)
    for name in ("x.db", f"{tmp_path}/folder/x.db", "link.db", "folder/../y.db", "./folder/./x.db", "a%3Fb#c.db"):
        settings = Settings(database_url=f"sqlite:///{name}")
        reading, writing = make_engines(settings.sqlalchemy_url)
        with writing.connect() as connection:
            opened = connection.exec_driver_sql("PRAGMA database_list").fetchone()
        reading.dispose()
        writing.dispose()
        assert opened is not None
        assert settings.embedded_database is not None
        assert settings.embedded_database.samefile(opened[2])
        assert settings.embedded_database == Path(os.path.realpath(settings.embedded_database))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1048576", 2**20),
        ("4GiB", 2**32),
        ("4 gib", 2**32),
        ("4G", 2**32),
        ("500MB", 500_000_000),
        ("1.5KiB", 1536),
        ("2T", 2**41),
        ("7b", 7),
    ],
)
def test_sizes(text: str, number: int) -> None:
    assert parse_bytes(text) == number


@pytest.mark.parametrize("text", ["", "GiB", "-1", "4XB", "1e9", "4 G i B", "٤"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_bytes(text)


def test_table_is_complete() -> None:
    """Every setting is explained, under the name that sets it, and no default of this machine is printed."""
    rows = settings_table()
    assert [name for name, _, _ in rows] == [f"CURATOR_{field.upper()}" for field in Settings.model_fields]
    assert all(meaning.endswith(".") for _, _, meaning in rows)
    assert ("CURATOR_MEMORY_LIMIT", "half of memory") in [row[:2] for row in rows]


def test_unknown_variables() -> None:
    environment = {
        "CURATOR_VALUT_KEY": "x",
        "CURATOR_VAULT_KEY": "x",
        "CURATOR_URL": "x",
        "PATH": "x",
        "CURATOR_X": "",
    }
    assert unknown_variables(environment) == ["CURATOR_VALUT_KEY", "CURATOR_X"]


def test_nearest_variables() -> None:
    assert nearest_variable("CURATOR_VALUT_KEY") == "CURATOR_VAULT_KEY"
    assert nearest_variable("curator_database_ulr") == "CURATOR_DATABASE_URL"
    assert nearest_variable("CURATOR_ZZZ") is None


@pytest.mark.slow
def test_importing_reads_and_makes_nothing(root: Path, tmp_path: Path) -> None:
    """In a process of its own whose environment would be refused if it were read."""
    code = "import app.settings, app.storage.vault, app.storage.readers"
    environment = {
        **os.environ,
        "CURATOR_VAULT_KEY": "bad",
        "PYTHONPATH": str(root),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)
    assert list(tmp_path.iterdir()) == []


def test_whose_word_is_taken() -> None:
    """Catches a proxy that is taken for a client, and a client for a proxy, in either kind of address."""
    settings = Settings(trusted_proxies="10.0.0.2, 192.0.2.0/28,2001:db8::/48")
    for host in ("10.0.0.2", "192.0.2.15", "2001:db8:0:1::7"):
        assert settings.trusts(host)
    for host in ("10.0.0.3", "192.0.2.16", "2001:db9::7", "unknown", ""):
        assert not settings.trusts(host)
    assert not Settings().trusts("127.0.0.1")


@pytest.mark.parametrize(("most", "said", "a_client"), [(2048, None, 512), (64, 60, 60), (3, None, 1)])
def test_connections_of_one_client(most: int, said: int | None, a_client: int) -> None:
    """Catches a server of few connections that serves nobody, and a number that nothing reads."""
    assert Settings(max_connections=most, max_connections_per_client=said).connections_a_client == a_client
