"""The files of the image and of the deployment, where no Docker engine is: a linter and a schema look at them, and what
they say is done."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import ValidationError, validate

from app.settings import settings_table
from app.storage.job_table import GRANTS

pytestmark = [pytest.mark.integration, pytest.mark.slow]

BIN = Path(sys.executable).parent
REPLICAS = ("app1", "app2", "app3", "app4")


def checked(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(BIN / command[0]), *command[1:]], capture_output=True, text=True, check=False)


def stages(root: Path) -> list[str]:
    """The stages of the image's file."""
    return re.split(r"^FROM ", (root / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]


def homes(path: Path) -> list[str]:
    """The servers among which a proxy divides sessions."""
    return re.findall(r"^server (\S+):8000 resolve ", path.read_text(), re.MULTILINE)


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
    @pytest.mark.parametrize("name", ["docker-compose.yml", "deploy/object-store.yml"])
    def test_it_is_a_compose_file(self, root: Path, tmp_path: Path, name: str) -> None:
        """By the schema of the specification. A misspelt key shows that it looks."""
        file = root / name
        command = ("check-jsonschema", "--builtin-schema", "vendor.compose-spec")
        found = checked(*command, str(file))
        assert found.returncode == 0, found.stdout
        careless = tmp_path / "docker-compose.yml"
        careless.write_text(file.read_text().replace("image: ", "imgae: ", 1))
        assert checked(*command, str(careless)).returncode == 1

    def test_what_it_names_is_there(self, root: Path) -> None:
        """Catches a network, a volume, a service or a file that is named and not there, and a variable that has neither
        a default nor words that ask for it."""
        text = (root / "docker-compose.yml").read_text()
        assert set(re.findall(r"\$\{(\w+):\?set \1\}", text)) == {
            "POSTGRES_PASSWORD",
            "WORKER_PASSWORD",
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
        named = homes(root / "deploy" / "homes.conf")
        assert serving == set(named) == set(REPLICAS)
        assert serving == set(file["services"]["proxy"]["depends_on"])

    def test_every_variable_is_a_setting(self, root: Path) -> None:
        """Catches a misspelt one, with which no server starts."""
        file = yaml.safe_load((root / "docker-compose.yml").read_text())
        known = {name for name, _, _ in settings_table()}
        for name in ("migrate", *REPLICAS):
            named = set(file["services"][name]["environment"])
            assert {"CURATOR_TRUSTED_PROXIES", "CURATOR_DATABASE_URL"} <= named <= known

    def test_an_object_store_is_added_for_every_replica(self, root: Path) -> None:
        """Catches a server that keeps its private files elsewhere than the others, signs with a key of its own, or
        starts before the bucket is there; and what clients of the store are told otherwise than it is made."""
        file = yaml.safe_load((root / "deploy" / "object-store.yml").read_text())
        services, networks = file["services"], yaml.safe_load((root / "docker-compose.yml").read_text())["networks"]
        store, bucket = services.pop("store"), services.pop("bucket")
        assert set(services) == set(REPLICAS)
        known = {name for name, _, _ in settings_table()}
        for service in services.values():
            told = service["environment"]
            assert {name for name in told if not name.startswith("AWS_")} == {"CURATOR_VAULT_URL", "CURATOR_LOG_KEY"}
            assert {name for name in told if name.startswith("CURATOR_")} <= known
            assert told["AWS_ACCESS_KEY_ID"] == store["environment"]["MINIO_ROOT_USER"]
            assert told["AWS_SECRET_ACCESS_KEY"] == store["environment"]["MINIO_ROOT_PASSWORD"]
            assert told["CURATOR_VAULT_URL"].split("/")[2] == bucket["command"][-1].split("/")[1]
            assert "bucket" in service["depends_on"]
        assert {*store["networks"], *bucket["networks"]} <= set(networks)
        assert {volume.partition(":")[0] for volume in store["volumes"]} == set(file["volumes"])

    def test_workers_have_no_keys(self, root: Path) -> None:
        """Catches one that is given the vault's key, the data folder, or a role that sees more than jobs."""
        worker = yaml.safe_load((root / "docker-compose.yml").read_text())["services"]["worker"]
        assert set(worker["environment"]) == {"CURATOR_DATABASE_URL", "CURATOR_MEMORY_LIMIT"}
        assert "//curator_worker:" in worker["environment"]["CURATOR_DATABASE_URL"]
        assert (worker["volumes"], worker["networks"], worker["deploy"]["replicas"]) == ([], ["back"], 2)
        grants = re.findall("^GRANT.*$", (root / "deploy" / "worker.sql").read_text(), re.MULTILINE)
        assert grants == [GRANTS.format(role="curator_worker") + ";"]

    def test_the_service_writes_to_its_volume_alone(self, root: Path) -> None:
        """Catches a container of the service, or a proxy, that could be altered while it runs; that the service writes
        nowhere else is tested where it is installed."""
        file = yaml.safe_load((root / "docker-compose.yml").read_text())
        for name in ("migrate", *REPLICAS, "worker", "proxy"):
            service = file["services"][name]
            assert service["read_only"] is True, name
            assert service["tmpfs"] == ["/tmp"], name
            assert service["cap_drop"] == ["ALL"], name
            assert service["security_opt"] == ["no-new-privileges:true"], name


MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"


def resources() -> list[dict[str, Any]]:
    """All that the kustomization applies, but for what it generates."""
    named = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"]
    return [each for name in named for each in yaml.safe_load_all((MANIFESTS / name).read_text())]


def templates() -> dict[str, dict[str, Any]]:
    """The pods, by the names of what makes them."""
    return {each["metadata"]["name"]: each["spec"]["template"] for each in resources() if "template" in each["spec"]}


def selected(selector: dict[str, Any]) -> set[str]:
    """The names of the pods that a selector means."""
    wanted = [{"key": k, "operator": "In", "values": [v]} for k, v in selector.get("matchLabels", {}).items()]
    wanted += selector.get("matchExpressions", [])
    assert all(each["operator"] == "In" for each in wanted)
    return {
        name
        for name, pod in templates().items()
        if all(pod["metadata"]["labels"].get(each["key"]) in each["values"] for each in wanted)
    }


class TestKubernetes:
    """By the schemas of Kubernetes itself, in which every field that is not known is a mistake."""

    def test_every_manifest_is_one(self) -> None:
        """Catches a field that Kubernetes would pass over, a value of another type, and a file that nobody applies."""
        files = {path.name for path in MANIFESTS.glob("*.yaml")} - {"kustomization.yaml"}
        assert files == set(yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["resources"])
        for each in resources():
            validate(each, "1.33", strict=True)
        kinds = {each["kind"] for each in resources()}
        assert {"StatefulSet", "Service", "Job", "Deployment", "PodDisruptionBudget", "NetworkPolicy"} <= kinds

    @pytest.mark.parametrize(
        ("field", "careless"),
        [
            ("readOnlyRootFilesystem", "readOnlyRootFileSystem"),
            ("serviceName", "servicename"),
            ("maxUnavailable", "maxUnavailble"),
            ("policyTypes", "policyType"),
            ("backoffLimit", "backOffLimit"),
        ],
    )
    def test_a_misspelt_field_fails(self, field: str, careless: str) -> None:
        """Shows that it looks, at every depth."""
        misspelt = 0
        for each in resources():
            text = yaml.safe_dump(each)
            if f"{field}:" in text:
                misspelt += 1
                with pytest.raises(ValidationError):
                    validate(yaml.safe_load(text.replace(f"{field}:", f"{careless}:")), "1.33", strict=True)
        assert misspelt

    def test_what_is_named_is_there(self, root: Path) -> None:
        """Catches a secret, a map of settings or a claim that nobody makes, and that docs/operations/kubernetes.md does
        not ask for.
        """
        made = {each["metadata"]["name"] for each in resources() if each["kind"] == "PersistentVolumeClaim"}
        generated = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["configMapGenerator"]
        page = (root / "docs" / "operations" / "kubernetes.md").read_text()
        asked = set(re.findall(r"create (?:secret \w+|configmap) (\S+)", page))
        assert asked == {"curator", "curator-worker", "curator-proxy", "curator-tls"}
        made |= asked | {each["name"] for each in generated}
        named: set[str] = set()
        for pod in templates().values():
            text = yaml.safe_dump(pod)
            assert "secretKeyRef" not in text or "curator-worker" in text
            for container in pod["spec"]["containers"]:
                named |= {ref["name"] for each in container.get("envFrom", []) for ref in each.values()}
                mounts = {each["name"] for each in container["volumeMounts"]}
                assert mounts == {each["name"] for each in pod["spec"]["volumes"]}
            for volume in pod["spec"]["volumes"]:
                named |= {
                    each.get("name") or each.get("secretName") or each.get("claimName")
                    for kind, each in volume.items()
                    if kind in ("configMap", "secret", "persistentVolumeClaim")
                }
        assert named <= made, named - made

    def test_everything_selects_what_it_means(self) -> None:
        """Catches a service of no pods, a policy that protects none, and a budget of others."""
        for each in resources():
            spec, name = each["spec"], each["metadata"]["name"]
            if each["kind"] == "Service":
                assert selected({"matchLabels": spec["selector"]}) == {name}
            elif each["kind"] in ("StatefulSet", "Deployment", "PodDisruptionBudget"):
                assert selected(spec["selector"]) == {name}
            elif each["kind"] == "NetworkPolicy":
                everybody = set(templates())
                meant = {"curator": everybody, "curator-database": everybody - {"curator-proxy"}}
                meant |= {"curator-server": {"curator"}}
                assert selected(spec["podSelector"]) == meant.get(name, {name})

    def test_nobody_reaches_a_server_but_the_proxy(self) -> None:
        """Servers believe whom it says it speaks for (`CURATOR_TRUSTED_PROXIES`). Catches a way round it."""
        policies = [each["spec"] for each in resources() if each["kind"] == "NetworkPolicy"]
        ways = [
            way
            for each in policies
            if "curator" in selected(each["podSelector"]) and "Ingress" in each["policyTypes"]
            for way in each.get("ingress", [])
        ]
        assert [selected(source["podSelector"]) for way in ways for source in way["from"]] == [{"curator-proxy"}]
        assert any("Ingress" in each["policyTypes"] and "ingress" not in each for each in policies)

    def test_every_pod_has_a_home(self) -> None:
        """Catches a pod that is asked nothing, and a home that nobody lives in."""
        (servers,) = (each for each in resources() if each["kind"] == "StatefulSet")
        space = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["namespace"]
        name, service, count = servers["metadata"]["name"], servers["spec"]["serviceName"], servers["spec"]["replicas"]
        expected = [f"{name}-{number}.{service}.{space}.svc.cluster.local" for number in range(count)]
        assert homes(MANIFESTS / "homes.conf") == expected
        (budget,) = (each for each in resources() if each["kind"] == "PodDisruptionBudget")
        assert budget["spec"]["maxUnavailable"] < count

    def test_every_variable_is_a_setting(self) -> None:
        """Catches a misspelt one, with which no server starts, and one that Kubernetes would set by itself."""
        known = {name for name, _, _ in settings_table()}
        generated = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())["configMapGenerator"]
        named = {literal.partition("=")[0] for each in generated for literal in each.get("literals", [])}
        for pod in templates().values():
            assert pod["spec"]["enableServiceLinks"] is False
            named |= {each["name"] for one in pod["spec"]["containers"] for each in one.get("env", [])}
        assert named <= known, named - known

    def test_workers_have_no_keys(self) -> None:
        """Catches one that is given the vault's key, the data folder, or a way in."""
        (container,) = templates()["curator-worker"]["spec"]["containers"]
        assert "envFrom" not in container
        assert {each["name"] for each in container["env"]} == {"CURATOR_DATABASE_URL", "CURATOR_MEMORY_LIMIT"}
        assert [each["name"] for each in container["volumeMounts"]] == ["scratch"]
        assert "ports" not in container

    def test_no_container_can_be_altered(self) -> None:
        """Catches one that runs as root, writes outside of its volumes, or has rights that it does not need."""
        for name, pod in templates().items():
            assert pod["spec"]["automountServiceAccountToken"] is False, name
            assert pod["spec"]["securityContext"]["runAsNonRoot"] is True, name
            assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
            for container in pod["spec"]["containers"]:
                assert container["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }, name
                assert "memory" in container["resources"]["limits"], name
