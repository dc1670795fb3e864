"""Read and check the values of settings; each function raises `ValueError`."""

import json
import re
import zlib
from ipaddress import ip_network
from typing import Any
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo

from pydantic import SecretStr, ValidationInfo

from apps.core.http.bucket_url import ObjectStoreURL, is_object_store
from opsportal.servers import check_database_url, check_redis_url

#: Roles for `SSO_ROLES`. They repeat `apps.accounts.enums.Role`, which needs Django.
ROLES = ("liaison", "approver", "shifter", "admin")


def split_commas(value: Any) -> Any:
    """Return the parts of a text that commas separate."""
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.split(",") if part.strip()]


def check_database(value: SecretStr) -> SecretStr:
    """Return the URL of a PostgreSQL database."""
    check_database_url(value.get_secret_value())
    return value


def check_redis(value: SecretStr) -> SecretStr:
    """Return the URL of Redis, Valkey or Sentinels."""
    check_redis_url(value.get_secret_value())
    return value


def check_job_archive(value: str) -> str:
    """Return the directory or the object store of archived months."""
    if is_object_store(value):
        ObjectStoreURL.parse(value)
    elif "://" in value:
        raise ValueError("is neither a directory nor s3://BUCKET/PREFIX")
    return value


def check_store_key(value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
    """Return a key of the object store, which it needs."""
    if is_object_store(info.data.get("JOB_ARCHIVE")) and not (value and value.get_secret_value()):
        raise ValueError("is needed for the object store of JOB_ARCHIVE")
    return value


def check_address(value: str) -> str:
    """Return the address of a web server."""
    # Raises ValueError for an invalid URL.
    parts = urlsplit(value)
    if (
        not parts.hostname
        or (parts.port or 0) < 0
        or parts.query
        or parts.fragment
        or parts.username is not None
    ):
        raise ValueError("is not an address such as https://opsportal.example.org")
    return value


def check_zone(value: str) -> str:
    """Return the name of a time zone."""
    try:
        ZoneInfo(value)
    except (KeyError, OSError, ValueError) as error:
        raise ValueError("is not a time zone of the IANA list, such as Europe/Berlin") from error
    return value


def check_regex(value: str) -> str:
    """Return a regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return value


def check_key(value: SecretStr) -> SecretStr:
    """Return a key; reject one that is short, a placeholder, or repetitive.

    A repetitive key compresses to almost nothing.
    """
    key = value.get_secret_value()
    placeholder = re.match("django-insecure|change.?me", key, re.IGNORECASE)
    if len(key) < 50 or placeholder or len(zlib.compress(key.encode())) < 40:
        generate = "python3 -c 'import secrets; print(secrets.token_urlsafe(50))'"
        raise ValueError(f"must have at least 50 random characters; generate it with: {generate}")
    return value


def check_mail_server(value: SecretStr) -> SecretStr:
    """Return the URL of a mail server."""
    try:
        parts = urlsplit(value.get_secret_value())
        is_valid = parts.scheme in {"smtp", "smtps"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        # The message of the error contains a part of the value.
        is_valid = False
    if not is_valid or parts.path.strip("/") or parts.query not in {"", "tls=start"}:
        raise ValueError(
            "is not a mail server such as smtp://USER:PASSWORD@HOST:587?tls=start; encode %, "
            "@, / and : in it"
        )
    return value


def check_mail_address(value: str) -> str:
    """Return an address for mail."""
    if not re.fullmatch(r"[^\s@<>,;:\"]+@[^\s@<>,;:\"]+", value):
        raise ValueError("is not an address such as opsportal@example.org")
    return value


def check_networks(value: list[str]) -> list[str]:
    """Return networks such as 10.1.0.0/16."""
    for network in value:
        # Raises ValueError for an invalid network.
        ip_network(network)
    return value


def read_roles(value: Any) -> Any:
    """Parse `SSO_ROLES`: JSON that maps groups to roles."""
    if not isinstance(value, str):
        return value
    try:
        by_group = json.loads(value or "{}")
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error
    for roles in by_group.values() if isinstance(by_group, dict) else ():
        for role in roles:
            if not re.fullmatch(f"({'|'.join(ROLES)})(:[-A-Za-z0-9_]+)?", str(role)):
                raise ValueError(
                    f"has no role {role!r}: roles are {', '.join(ROLES)}, with :EXPERIMENT "
                    "for one alone"
                )
    return by_group


def check_headers(value: SecretStr) -> SecretStr:
    """Return headers in the form of OpenTelemetry, without naming a bad one, which is secret."""
    split_headers(value.get_secret_value())
    return value


def split_headers(headers: str) -> dict[str, str]:
    """Return the headers of `NAME=VALUE,NAME=VALUE`, whose values are encoded as in a URL."""
    values = {}
    for header in split_commas(headers):
        name, equals, value = header.partition("=")
        if not (equals and re.fullmatch(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+", name.strip())):
            raise ValueError("must be NAME=VALUE, with commas between several headers")
        values[name.strip()] = unquote(value.strip())
    return values


def split_blanks(value: Any) -> Any:
    """Return the parts of a text that blanks separate."""
    return value.split() if isinstance(value, str) else value
