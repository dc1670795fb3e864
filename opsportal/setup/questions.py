"""What the setup asks. Answers that are settings have the names of the settings."""

import os
import pwd
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from opsportal.env import Environment
from opsportal.servers import hosts_of

#: Settings that a site never has.
FORBIDDEN = frozenset({"DEBUG", "DEMO"})
#: Settings whose values are generated unless they are given.
GENERATED = ("SECRET_KEY", "MASKING_KEY", "METRICS_TOKEN")


@dataclass(frozen=True)
class SetupQuestion:
    """A question and its default, which may depend on the answers before it; `None`: required."""

    key: str
    text: str
    default: Callable[[Mapping[str, str]], str | None]
    is_secret: bool = False


def _fixed(value: str | None) -> Callable[[Mapping[str, str]], str | None]:
    return lambda _answers: value


def default_user() -> str:
    """Return the system user of the portal: `opsportal` for root, else the user who runs this."""
    if os.geteuid() == 0:
        return "opsportal"
    return pwd.getpwuid(os.geteuid()).pw_name


def default_database_admin(answers: Mapping[str, str]) -> str:
    """Return `local` where root can become the user `postgres` of a server on this host."""
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        return "none"
    hosts = hosts_of(answers.get("DATABASE_URL", ""))
    is_here = all(host in _names_of_this_host() for host, _ in hosts)
    return "local" if os.geteuid() == 0 and is_here else "none"


def _names_of_this_host() -> set[str]:
    return {"localhost", "127.0.0.1", "::1", socket.getfqdn()}


def _default_zone(_answers: Mapping[str, str]) -> str:
    try:
        return Path("/etc/timezone").read_text(encoding="ascii").strip() or "UTC"
    except (OSError, UnicodeDecodeError):
        return "UTC"


def _default_sender(answers: Mapping[str, str]) -> str:
    host = urlsplit(answers["PORTAL_URL"]).hostname
    return f"opsportal@{host}"


REDIS = SetupQuestion("REDIS_URL", "Redis or Valkey", _fixed("redis://127.0.0.1:6379/0"))
SETTINGS = (
    SetupQuestion(
        "PORTAL_URL", "Address of the portal, such as https://opsportal.example.org", _fixed(None)
    ),
    SetupQuestion("TIME_ZONE", "Time zone of the site", _default_zone),
    SetupQuestion(
        "LOG_ROOTS",
        "Directories of job logs, separated by commas (empty: no log is read)",
        _fixed(""),
    ),
    SetupQuestion(
        "EMAIL_URL",
        "Mail server, such as smtp://mail.example.org:25 (empty: no mail)",
        _fixed(""),
    ),
    SetupQuestion("EMAIL_FROM", "Sender address of mail", _default_sender),
    SetupQuestion(
        "SUPPORT_CONTACT", "Whom to ask for help with a login (may be empty)", _fixed("")
    ),
    SetupQuestion(
        "TRUST_PROXY",
        "Is the portal behind a proxy that sets X-Forwarded-For, such as deploy/nginx.conf?",
        _fixed("true"),
    ),
    SetupQuestion("VAR_DIR", "Directory of the portal's own files", _fixed("/var/lib/opsportal")),
    SetupQuestion(
        "STATIC_DIR",
        "Directory of static files, which nginx serves",
        lambda answers: f"{answers['VAR_DIR']}/static",
    ),
    REDIS,
    SetupQuestion(
        "DATABASE_URL",
        "PostgreSQL; without a password, one is generated",
        _fixed("postgresql://opsportal@127.0.0.1:5432/opsportal"),
    ),
)
SYSTEM_USER = SetupQuestion(
    "system_user", "System user that runs the portal", lambda _answers: default_user()
)
DATABASE_ADMIN = SetupQuestion(
    "database_admin",
    "How to create role and database: local (psql as the user postgres), a URL such as "
    "postgresql://postgres:PASSWORD@HOST/postgres, or none (print the SQL)",
    default_database_admin,
)
ADMIN = (
    SetupQuestion("admin_name", "User name of the first admin", _fixed("admin")),
    SetupQuestion("admin_email", "Mail address of that admin", _fixed(None)),
    SetupQuestion("admin_password", "Password of that admin", _fixed(None), is_secret=True),
)
ASKED = (SYSTEM_USER, *SETTINGS)
KEYS = frozenset(question.key for question in (*ASKED, DATABASE_ADMIN, *ADMIN)) | (
    Environment.model_fields.keys() - FORBIDDEN
)


def is_setting(key: str) -> bool:
    """Return whether an answer is a setting of the portal."""
    return key in Environment.model_fields


def holds_secret(key: str) -> bool:
    """Return whether a setting is a secret, which has a file of its own."""
    return is_setting(key) and "SecretStr" in repr(Environment.model_fields[key].annotation)


def find_fault(key: str, value: str) -> str:
    """Return what is wrong with an answer on its own; empty: nothing."""
    if "\x00" in value:
        return "contains a NUL character"
    if key == "system_user":
        return _find_user_fault(value)
    if key == "database_admin":
        return _find_admin_fault(value)
    if is_setting(key):
        return _find_setting_fault(key, value)
    return "" if value else "is missing"


def _find_setting_fault(key: str, value: str) -> str:
    if not value and key in {"DATABASE_URL", "REDIS_URL"}:
        return "is missing"
    if not value and Environment.model_fields[key].get_default() in (None, "", [], {}):
        return ""
    try:
        Environment.model_validate({key: value})
    except ValidationError as error:
        problem = error.errors()[0]
        if problem["type"] == "string_pattern_mismatch":
            return f"is not valid. {Environment.model_fields[key].description}"
        return problem["msg"].removeprefix("Value error, ")
    if key in {"VAR_DIR", "STATIC_DIR"} and not value.startswith("/"):
        return "must begin with /"
    return _find_database_fault(value) if key == "DATABASE_URL" else ""


def _find_user_fault(value: str) -> str:
    try:
        uid = pwd.getpwnam(value).pw_uid
    except KeyError:
        return (
            f"there is no user {value}: useradd --system --home-dir /var/lib/opsportal "
            f"--shell /usr/sbin/nologin {value}"
        )
    if os.geteuid() not in (0, uid):
        return f"only root can set up a portal of the user {value}"
    return ""


def _find_admin_fault(value: str) -> str:
    if value in {"local", "none"}:
        return "needs root" if value == "local" and os.geteuid() != 0 else ""
    if value.partition("://")[0] not in {"postgresql", "postgres"}:
        return "must be local, none or begin with postgresql://"
    return ""


def _find_database_fault(value: str) -> str:
    parts = urlsplit(value)
    if not parts.username:
        return "names no role: postgresql://ROLE@HOST:5432/NAME"
    if not parts.path.strip("/"):
        return "names no database: postgresql://ROLE@HOST:5432/NAME"
    if parts.password and not parts.password.isascii():
        return "has a password with other than ASCII characters"
    return ""
