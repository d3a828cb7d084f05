"""An object store that speaks as S3 does, on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count

import boto3
import certifi
from moto.server import ThreadedMotoServer

from benchmarks.harness import free_port

ACCESS, SECRET = "accesskeyofthestore", "secretkeyofthestore"
_numbers = count()


class Store:
    """A server of objects that can go away and come back with what it holds."""

    def __init__(self) -> None:
        self._port = free_port()
        self._server: ThreadedMotoServer | None = None
        self.start()

    @property
    def environment(self) -> Mapping[str, str]:
        """What its clients read."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            # Tests do without the system's, which take long to read; its clients do not start without any.
            "SSL_CERT_FILE": certifi.where(),
        }

    @property
    def client(self) -> boto3.client:
        """What looks into it from outside."""
        named = {"endpoint_url": self.environment["AWS_ENDPOINT_URL"], "region_name": "us-east-1"}
        return boto3.client("s3", aws_access_key_id=ACCESS, aws_secret_access_key=SECRET, **named)

    def bucket(self, *, versions: bool = False) -> str:
        """The name of a new bucket."""
        name = f"bucket-{next(_numbers)}"
        self.client.create_bucket(Bucket=name)
        if versions:
            self.client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return name

    def contents(self, bucket: str) -> dict[str, bytes]:
        """All that lies in a bucket."""
        found = self.client.list_objects_v2(Bucket=bucket).get("Contents", [])
        return {each["Key"]: self.client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read() for each in found}

    def start(self) -> None:
        self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        assert self._server is not None
        self._server.stop()


@contextmanager
def object_store() -> Iterator[Store]:
    """A store that ends with the context."""
    store = Store()
    try:
        yield store
    finally:
        store.stop()
