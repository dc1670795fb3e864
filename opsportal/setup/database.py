"""The PostgreSQL role and database: looks at what there is, and creates what is missing.

The password of a role never leaves the setup: the server gets its SCRAM verifier, which is all that
it stores.
"""

import base64
import hashlib
import hmac
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote, urlsplit

import psycopg

from opsportal.servers import POSTGRESQL_PORT, connection_options, hosts_of
from opsportal.setup.errors import SetupError

OLDEST_VERSION = 15
_SCRAM_ROUNDS = 4096


class DatabaseError(SetupError):
    """PostgreSQL did not do what it was asked."""


class Admin(Protocol):
    """Runs SQL with the rights to create roles and databases."""

    def run(self, statement: str) -> list[str]:
        """Return the first column of each row. Raises `DatabaseError`."""
        ...


class UrlAdmin:
    """An admin who logs in by a URL."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, statement: str) -> list[str]:
        """Return the first column of each row. Raises `DatabaseError`."""
        try:
            with psycopg.connect(
                self.url, autocommit=True, **connection_options(self.url)
            ) as connection:
                cursor = connection.execute(statement.encode())
                if cursor.description is None:
                    return []
                return [str(row[0]) for row in cursor.fetchall()]
        except psycopg.Error as error:
            raise DatabaseError(str(error).strip()) from error


class LocalAdmin:
    """The system user `postgres` of this host; needs root."""

    def __init__(self, port: int) -> None:
        self.port = port

    def run(self, statement: str) -> list[str]:
        """Return the first column of each row. Raises `DatabaseError`."""
        command = ["runuser", "-u", "postgres", "--", "psql", "--no-psqlrc", "--quiet"]
        command += ["--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]
        command += [f"--port={self.port}", "--dbname=postgres"]
        if not (shutil.which("runuser") and shutil.which("psql")):
            raise DatabaseError("needs the programs runuser and psql")
        done = subprocess.run(
            command, input=statement, cwd="/", capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise DatabaseError(done.stderr.strip() or f"psql ended with {done.returncode}")
        return done.stdout.splitlines()


def choose_admin(answer: str, database_url: str) -> Admin | None:
    """Return the admin that the answer `database_admin` describes; `None` for `none`."""
    if answer == "none":
        return None
    if answer == "local":
        hosts = hosts_of(database_url)
        return LocalAdmin(hosts[0][1] if hosts else POSTGRESQL_PORT)
    return UrlAdmin(answer)


@dataclass(frozen=True)
class DatabaseTarget:
    """What a `DATABASE_URL` names; `password` is empty if it has none."""

    url: str
    role: str
    name: str
    password: str

    @classmethod
    def parse(cls, url: str) -> "DatabaseTarget":
        """Return the parts of a URL that has a role and a database."""
        parts = urlsplit(url)
        return cls(
            url=url,
            role=unquote(parts.username or ""),
            name=unquote(parts.path.strip("/")),
            password=unquote(parts.password or ""),
        )

    def with_password(self, password: str) -> "DatabaseTarget":
        """Return the same with a password, which needs no encoding in a URL."""
        role, _, rest = self.url.partition("://")[2].partition("@")
        scheme = self.url.partition("://")[0]
        url = f"{scheme}://{role.partition(':')[0]}:{password}@{rest}"
        return DatabaseTarget(url=url, role=self.role, name=self.name, password=password)


def find_connection_fault(url: str) -> str:
    """Return why nobody can work with a database; empty: it can be used.

    Raises `DatabaseError` for a server that is too old, which no setup can change.
    """
    try:
        with psycopg.connect(url, **connection_options(url)) as connection:
            version = connection.info.server_version // 10_000
    except psycopg.Error as error:
        return str(error).strip()
    if version < OLDEST_VERSION:
        raise DatabaseError(f"is PostgreSQL {version}; the portal needs {OLDEST_VERSION} or later")
    return ""


def is_empty(url: str) -> bool:
    """Return whether a database that can be used has no table yet."""
    with psycopg.connect(url, **connection_options(url)) as connection:
        cursor = connection.execute(
            "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'public')"
        )
        (has_table,) = cursor.fetchone() or (False,)
    return not has_table


@dataclass(frozen=True)
class Server:
    """The parts of a target that exist. `owner` is empty if the database does not exist."""

    has_role: bool
    owner: str


def look_at(admin: Admin, target: DatabaseTarget) -> Server:
    """Return what the server has. Raises `DatabaseError`, also for a server that is too old."""
    version = int(admin.run("SHOW server_version_num")[0]) // 10_000
    if version < OLDEST_VERSION:
        raise DatabaseError(f"is PostgreSQL {version}; the portal needs {OLDEST_VERSION} or later")
    role = quote_text(target.role)
    name = quote_text(target.name)
    roles = admin.run(f"SELECT 1 FROM pg_roles WHERE rolname = {role}")
    owners = admin.run(f"SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = {name}")
    return Server(has_role=bool(roles), owner="".join(owners))


def create_role_sql(target: DatabaseTarget) -> str:
    """Return the statement that creates the role; it holds no password, only its verifier."""
    verifier = quote_text(make_verifier(target.password))
    return f"CREATE ROLE {quote_name(target.role)} LOGIN PASSWORD {verifier}"


def create_database_sql(target: DatabaseTarget) -> str:
    """Return the statement that creates the database."""
    name = quote_name(target.name)
    owner = quote_name(target.role)
    return f"CREATE DATABASE {name} OWNER {owner} TEMPLATE template0 ENCODING 'UTF8'"


def join_sql(statements: Sequence[str]) -> str:
    """Return statements as `psql` reads them."""
    return "".join(f"    {statement};\n" for statement in statements)


def quote_name(name: str) -> str:
    """Return an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return an SQL literal."""
    escaped = text.replace("'", "''")
    if "\\" in escaped:
        backslashes = escaped.replace("\\", "\\\\")
        return f" E'{backslashes}'"
    return f"'{escaped}'"


def make_verifier(password: str, salt: bytes = b"") -> str:
    """Return the SCRAM-SHA-256 verifier of an ASCII password, as RFC 5803 and PostgreSQL write it.

    Without a salt, it gets a random one.
    """
    salt = salt or secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, _SCRAM_ROUNDS)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    stored_key = hashlib.sha256(client_key).digest()
    return (
        f"SCRAM-SHA-256${_SCRAM_ROUNDS}:{_encode(salt)}${_encode(stored_key)}:{_encode(server_key)}"
    )


def _encode(binary: bytes) -> str:
    return base64.b64encode(binary).decode("ascii")
