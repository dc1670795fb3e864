"""The URL of an S3-compatible object store: `s3://BUCKET/PREFIX?endpoint=…&region=…`."""

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qsl, urlsplit

SCHEME = "s3://"
#: The region of servers that know none.
DEFAULT_REGION = "us-east-1"

_EXAMPLE = "s3://BUCKET/PREFIX?endpoint=https://s3.example.org&region=REGION"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_PREFIX = re.compile(r"([A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*)?")
_REGION = re.compile(r"[A-Za-z0-9-]+")


@dataclass(frozen=True, slots=True)
class ObjectStoreURL:
    """A bucket, and the prefix of the portal's objects in it. Never contains a key.

    Without an `endpoint` it is Amazon's.
    """

    bucket: str
    prefix: str
    endpoint: str
    region: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the parts of a URL. Raises `ValueError`, which does not quote the URL."""
        try:
            parts = urlsplit(text)
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True))
        except ValueError:
            if "?" in text:
                raise ValueError(f"is not a URL such as {_EXAMPLE}") from None
            options = {}
        if "@" in parts.netloc:
            raise ValueError("contains a key: keys have settings of their own")
        if unknown := sorted(options.keys() - {"endpoint", "region"}):
            raise ValueError(f"has no option {unknown[0]!r}, only: endpoint, region")
        prefix = parts.path.strip("/")
        if not (_BUCKET.fullmatch(parts.netloc) and _PREFIX.fullmatch(prefix)) or parts.fragment:
            raise ValueError(f"is not a bucket and a prefix such as {_EXAMPLE}")
        endpoint = options.get("endpoint", "").rstrip("/")
        region = options.get("region", DEFAULT_REGION if endpoint else "")
        if endpoint:
            _check_endpoint(endpoint)
        if not _REGION.fullmatch(region):
            raise ValueError(f"needs an endpoint or a region: {_EXAMPLE}")
        return cls(parts.netloc, prefix, endpoint, region)

    @property
    def name(self) -> str:
        """The bucket with its prefix, as messages name it."""
        return f"{SCHEME}{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def server(self) -> str:
        """The server, as messages name it."""
        return self.endpoint or f"Amazon S3 ({self.region})"


def is_object_store(archive: object) -> bool:
    """Return whether a setting names an object store, and not a directory."""
    return str(archive).startswith(SCHEME)


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # The message of the error contains a part of the value.
        is_valid = False
    else:
        is_valid = is_valid and "@" not in parts.netloc
        is_valid = is_valid and not (parts.path or parts.query or parts.fragment)
    if not is_valid:
        raise ValueError("has an endpoint that is not an address such as https://s3.example.org")
