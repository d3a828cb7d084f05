"""The files of the image and of the deployment, where no Docker engine is: a linter and a schema look at them, and what
they say is done."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from app.settings import settings_table

pytestmark = [pytest.mark.integration, pytest.mark.slow]

BIN = Path(sys.executable).parent
REPLICAS = ("app1", "app2", "app3", "app4")


def checked(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(BIN / command[0]), *command[1:]], capture_output=True, text=True, check=False)


def stages(root: Path) -> list[str]:
    """The stages of the image's file."""
    return re.split(r"^FROM ", (root / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]


class TestImage:
    def test_the_linter_finds_nothing(self, root: Path, tmp_path: Path) -> None:
        """Neither faults nor matters of style. A file with a fault shows that it looks."""
        found = checked("hadolint", "--failure-threshold", "style", str(root / "Dockerfile"))
        assert (found.returncode, found.stdout) == (0, ""), found.stdout
        careless = tmp_path / "Dockerfile"
        careless.write_text((root / "Dockerfile").read_text().replace("USER 10001:10001", "USER root"))
        assert "DL3002" in checked("hadolint", str(careless)).stdout

    def test_its_wheels_are_those_of_a_release(self, root: Path, tmp_path: Path) -> None:
        """The first stage, done with what it copies and nothing else. Catches a file that it needs and does not copy,
        one that `.dockerignore` keeps from it, and wheels that differ from those of `make wheels`."""
        copied = [
            path for line in re.findall(r"^COPY (?!--from)(.+) \S+$", stages(root)[0], re.M) for path in line.split()
        ]
        admitted = re.findall(r"^!(.+)$", (root / ".dockerignore").read_text(), re.MULTILINE)
        assert {*copied, "requirements.lock"} == set(admitted)
        for name in copied:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            ignored = shutil.ignore_patterns("__pycache__")
            if (root / name).is_dir():
                shutil.copytree(root / name, tmp_path / name, ignore=ignored)
            else:
                shutil.copyfile(root / name, tmp_path / name)
        (command,) = re.findall(r"^RUN python (release/wheels.py) /dist$", stages(root)[0], re.MULTILINE)
        made, own = tmp_path / "dist", tmp_path / "own"
        subprocess.run([sys.executable, command, str(made)], cwd=tmp_path, check=True, capture_output=True)
        subprocess.run([sys.executable, str(root / command), str(own)], check=True, capture_output=True)
        assert {each.name: each.read_bytes() for each in made.iterdir()} == {
            each.name: each.read_bytes() for each in own.iterdir()
        }
        assert len(list(own.iterdir())) == 2

    def test_what_is_installed_is_locked(self, root: Path) -> None:
        """Catches a package that is taken as an index has it on the day of the build."""
        installs = re.findall(r"\bpip\b.* install (.+)$", (root / "Dockerfile").read_text(), re.MULTILINE)
        assert installs == [
            "--require-hashes -r requirements-build.lock",
            "--require-hashes -r requirements.lock",
            "--no-index --no-deps /dist/*.whl",
        ]

    def test_nobody_is_root_and_health_is_told(self, root: Path) -> None:
        """Catches a last stage that runs as root, cannot be told ill from well, or is stopped by a signal that does not
        drain it."""
        last = stages(root)[-1]
        assert re.search(r"^USER [1-9]\d+:[1-9]\d+$", last, re.MULTILINE)
        assert "/healthz" in last[last.index("\nHEALTHCHECK ") :]
        assert "\nSTOPSIGNAL SIGTERM\n" in last


class TestCompose:
    def test_it_is_a_compose_file(self, root: Path, tmp_path: Path) -> None:
        """By the schema of the specification. A misspelt key shows that it looks."""
        file = root / "docker-compose.yml"
        command = ("check-jsonschema", "--builtin-schema", "vendor.compose-spec")
        found = checked(*command, str(file))
        assert found.returncode == 0, found.stdout
        careless = tmp_path / "docker-compose.yml"
        careless.write_text(file.read_text().replace("read_only: true", "read_olny: true", 1))
        assert checked(*command, str(careless)).returncode == 1

    def test_what_it_names_is_there(self, root: Path) -> None:
        """Catches a network, a volume, a service or a file that is named and not there, and a variable that has neither
        a default nor words that ask for it."""
        text = (root / "docker-compose.yml").read_text()
        assert set(re.findall(r"\$\{(\w+):\?set \1\}", text)) == {
            "POSTGRES_PASSWORD",
            "CURATOR_ADMIN_KEY",
            "CURATOR_VAULT_KEY",
            "CURATOR_TLS_DIR",
        }
        assert not re.findall(r"\$\{\w+\}|\$\w", text)
        file = yaml.safe_load(text)
        for name, service in file["services"].items():
            assert set(service.get("networks", [])) <= set(file["networks"]), name
            assert set(service.get("depends_on", {})) <= set(file["services"]), name
            for volume in service.get("volumes", []):
                source = volume.partition(":")[0]
                if source.startswith("./"):
                    assert (root / source).is_file(), source
                elif not source.startswith("${"):
                    assert source in file["volumes"], source

    def test_the_proxy_knows_every_replica(self, root: Path) -> None:
        """Catches a replica that is asked nothing, and a home that nobody lives in."""
        file = yaml.safe_load((root / "docker-compose.yml").read_text())
        serving = {name for name, service in file["services"].items() if "serve" in service.get("command", ())}
        named = re.findall(
            r"^\s*server (\w+):8000 resolve ", (root / "deploy" / "nginx.conf").read_text(), re.MULTILINE
        )
        assert serving == set(named) == set(REPLICAS)
        assert serving == set(file["services"]["proxy"]["depends_on"])

    def test_every_variable_is_a_setting(self, root: Path) -> None:
        """Catches a misspelt one, with which no server starts."""
        file = yaml.safe_load((root / "docker-compose.yml").read_text())
        known = {name for name, _, _ in settings_table()}
        for name in ("migrate", *REPLICAS):
            named = set(file["services"][name]["environment"])
            assert {"CURATOR_TRUSTED_PROXIES", "CURATOR_DATABASE_URL"} <= named <= known

    def test_the_service_writes_to_its_volume_alone(self, root: Path) -> None:
        """Catches a container of the service, or a proxy, that could be altered while it runs; that the service writes
        nowhere else is tested where it is installed."""
        file = yaml.safe_load((root / "docker-compose.yml").read_text())
        for name in ("migrate", *REPLICAS, "proxy"):
            service = file["services"][name]
            assert service["read_only"] is True, name
            assert service["tmpfs"] == ["/tmp"], name
            assert service["cap_drop"] == ["ALL"], name
            assert service["security_opt"] == ["no-new-privileges:true"], name
