"""Writes what the service's wheel needs, as it is locked: a bill of materials, CycloneDX 1.6 as JSON.

``python release/sbom.py FOLDER``, where FOLDER has the wheels. It says what ``requirements.lock`` says, for every
platform: each distribution with its version, the hashes of its files and who asked for it. It also says what the wheel
itself has of others. The same sources give the same document.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
STATIC = ROOT / "app" / "http" / "console" / "static"
#: What is locked of one distribution: its requirement, hashes, and who asked for it.
_LOCKED = re.compile(
    r"^(?P<requirement>\S.*?) \\\n(?P<hashes>(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)(?P<via>(?:    #.*\n)*)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Locked:
    """A distribution of the lock file.

    Attributes:
        requirement: its name with its version, and on which machines it is needed.
        hashes: SHA-256 of each of its files.
        parents: the names of those that need it.
    """

    requirement: Requirement
    hashes: list[str]
    parents: list[str]

    @property
    def purl(self) -> PackageURL:
        """Its name in bills of materials."""
        version = next(iter(self.requirement.specifier)).version
        return PackageURL("pypi", None, canonicalize_name(self.requirement.name), version)


def locked(lock: str) -> Iterator[Locked]:
    """The distributions of a lock file, as ``make lock`` writes it."""
    for found in _LOCKED.finditer(lock):
        hashes = re.findall(r"sha256:([0-9a-f]{64})", found["hashes"])
        # "# via a", or "# via" above a line for each; what follows a name says in which file it asks.
        parents = re.findall(
            r"^    #   ([A-Za-z0-9._-]+)(?: \(.*\))?$", found["via"].replace("# via ", "#   "), re.MULTILINE
        )
        yield Locked(Requirement(found["requirement"]), hashes, [canonicalize_name(each) for each in parents])


def _sha256(*values: str) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=value) for value in values]


def _digest(path: Path) -> list[HashType]:
    return _sha256(hashlib.sha256(path.read_bytes()).hexdigest())


def _own(wheel: Path, kind: ComponentType) -> Component:
    """The component of a wheel that was built here."""
    name, version, _, _ = parse_wheel_filename(wheel.name)
    purl = PackageURL("pypi", None, name, str(version))
    return Component(type=kind, name=name, version=str(version), purl=purl, bom_ref=str(purl), hashes=_digest(wheel))


def _library(of: Locked) -> Component:
    marker = of.requirement.marker
    return Component(
        type=ComponentType.LIBRARY,
        name=of.purl.name,
        version=of.purl.version,
        purl=of.purl,
        bom_ref=str(of.purl),
        # Hashes of a component are of one file, and a distribution has a wheel for each platform.
        external_references=[
            ExternalReference(
                type=ExternalReferenceType.DISTRIBUTION, url=XsUri(str(of.purl)), hashes=_sha256(*of.hashes)
            )
        ],
        properties=[Property(name="python:environment-marker", value=str(marker))] if marker else [],
    )


def _vendored() -> Iterator[Component]:
    """What pages of the console load, which the wheel has in it."""
    script = STATIC / "vendor" / "htmx.min.js"
    version = re.findall(r'version:"([0-9.]+)"', script.read_text())[0]
    purl = PackageURL("npm", None, "htmx.org", version)
    yield Component(
        type=ComponentType.LIBRARY,
        name="htmx.org",
        version=version,
        purl=purl,
        bom_ref=str(purl),
        hashes=_digest(script),
        licenses=[DisjunctiveLicense(id="0BSD")],
    )
    for font in sorted(STATIC.glob("*.woff2")):
        yield Component(
            type=ComponentType.FILE,
            name=font.name,
            bom_ref=font.name,
            hashes=_digest(font),
            licenses=[DisjunctiveLicense(id="OFL-1.1")],
        )


def made(folder: Path) -> Bom:
    """The bill of materials of the service's wheel in a folder, which has the client's, too."""
    service = _own(next(folder.glob("curator_server-*.whl")), ComponentType.APPLICATION)
    client = _own(next(folder.glob("curator_client-*.whl")), ComponentType.LIBRARY)
    libraries = [(each, _library(each)) for each in locked((ROOT / "requirements.lock").read_text())]
    of: dict[str, list[Component]] = {service.name: [service], client.name: [client]}
    for _, component in libraries:
        of.setdefault(component.name, []).append(component)
    bom = Bom(components=[client, *_vendored(), *(component for _, component in libraries)])
    bom.metadata.component = service
    bom.register_dependency(service, [client, *_vendored()])
    for each, component in libraries:
        for parent in (component for name in each.parents for component in of[name]):
            bom.register_dependency(parent, [component])
    # A number that is the content's own, and no time: the document dates from its release.
    bom.metadata.timestamp = None  # type: ignore[assignment] # which its own command does, too
    assert service.hashes
    bom.serial_number = uuid5(NAMESPACE_URL, f"{service.purl}#{service.hashes[0].content}")
    return bom


def main(folder: Path) -> None:
    """Write the bill beside the wheels, named as the service's."""
    bom = made(folder)
    service = bom.metadata.component
    assert service is not None
    target = folder / f"{service.name}-{service.version}.cdx.json"
    target.write_text(JsonV1Dot6(bom).output_as_string(indent=1) + "\n")
    print(target)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python release/sbom.py FOLDER")
    main(Path(sys.argv[1]))
