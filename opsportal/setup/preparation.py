"""Detect what exists and what is missing, and check every answer. Nothing is changed."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import redis

from opsportal.servers import redis_client
from opsportal.setup.answers import SetupAnswers
from opsportal.setup.database import (
    Admin,
    DatabaseError,
    DatabaseTarget,
    choose_admin,
    create_database_sql,
    create_role_sql,
    find_connection_fault,
    is_empty,
    look_at,
)
from opsportal.setup.errors import SetupError
from opsportal.setup.files import Owner, exists
from opsportal.setup.portal import find_admin_faults, has_admin
from opsportal.setup.questions import (
    ADMIN,
    ASKED,
    DATABASE_ADMIN,
    REDIS,
    SYSTEM_USER,
    default_user,
    find_fault,
)
from opsportal.setup.site import SetupSite, check_directories, find_var_owner, is_real_directory

_TIMEOUT_SECONDS = 5


@dataclass(frozen=True)
class SetupWork:
    """The changes to make.

    `statements` are the SQL that creates what is missing, by what it creates. `admin` runs them;
    `None`: a person has to. `is_new_database`: it has no tables, or is to be created.
    """

    site: SetupSite
    answers: SetupAnswers
    owner: Owner
    target: DatabaseTarget
    statements: dict[str, str]
    admin: Admin | None
    is_new_database: bool
    needs_first_admin: bool


def prepare(env_file: Path, answers: SetupAnswers) -> SetupWork:
    """Return what is to be done, having asked all questions.

    Raises `BadAnswers` for answers that do not work, `SetupError` for files that are not safe.
    """
    site = SetupSite(env_file=env_file)
    check_directories([site.directory, site.secrets])
    if exists(env_file):
        site.load(answers)
        _default_system_user(site, answers)
        for name, reason in _find_redis_faults(site.settings).items():
            raise SetupError(f"{env_file}: {name}: {reason}")
    else:
        answers.complete(ASKED)
        answers.ask_again([REDIS], lambda: _find_redis_faults(answers.values))
        site.create(answers)
    for name in ("VAR_DIR", "STATIC_DIR"):
        is_real_directory(Path(site.settings[name]))
    owner = _make_owner(answers.values[SYSTEM_USER.key])

    target = DatabaseTarget.parse(site.settings["DATABASE_URL"])
    admin = None
    statements: dict[str, str] = {}
    if _find_database_fault(target, answers):
        answers.complete([DATABASE_ADMIN])
        admin = choose_admin(answers.values[DATABASE_ADMIN.key], target.url)
        statements = _list_missing(site, target, admin, answers)

    is_new_database = bool(statements) or is_empty(target.url)
    needs_first_admin = is_new_database or not has_admin(settings=site.settings, owner=owner)
    if needs_first_admin:
        answers.complete(ADMIN)
        answers.ask_again(
            ADMIN,
            lambda: find_admin_faults(answers.values, settings=site.settings, owner=owner),
        )
    return SetupWork(
        site, answers, owner, target, statements, admin, is_new_database, needs_first_admin
    )


def _default_system_user(site: SetupSite, answers: SetupAnswers) -> None:
    """Let the user of a site that is there be the owner of its files, without a question."""
    if SYSTEM_USER.key not in answers.values:
        uid = find_var_owner(site.settings)
        name = default_user() if uid is None else pwd.getpwuid(uid).pw_name
        answers.values[SYSTEM_USER.key] = name
    name = answers.values[SYSTEM_USER.key]
    answers.reject({SYSTEM_USER.key: find_fault(SYSTEM_USER.key, name)})


def _make_owner(name: str) -> Owner:
    entry = pwd.getpwnam(name)
    return Owner(name=name, uid=entry.pw_uid, gid=entry.pw_gid)


def _find_redis_faults(settings: Mapping[str, str]) -> dict[str, str]:
    try:
        client = redis_client(
            settings[REDIS.key],
            socket_connect_timeout=_TIMEOUT_SECONDS,
            socket_timeout=_TIMEOUT_SECONDS,
        )
        with client:
            client.ping()
    except (redis.RedisError, ValueError) as error:
        return {REDIS.key: f"Redis does not answer: {error}"}
    return {}


def _find_database_fault(target: DatabaseTarget, answers: SetupAnswers) -> str:
    try:
        return find_connection_fault(target.url)
    except DatabaseError as error:
        answers.reject({"DATABASE_URL": str(error)})
        raise


def _list_missing(
    site: SetupSite, target: DatabaseTarget, admin: Admin | None, answers: SetupAnswers
) -> dict[str, str]:
    """Return the statements that create what the server lacks; without an admin, all of them.

    Raises `BadAnswers` if nothing is missing, but the role cannot log in.
    """
    create_role = {f"role {target.role}": create_role_sql(target)}
    create_database = {f"database {target.name}": create_database_sql(target)}
    if admin is None:
        return create_role | create_database
    try:
        server = look_at(admin, target)
    except DatabaseError as error:
        answers.reject({DATABASE_ADMIN.key: str(error)})
        raise

    if server.owner not in {"", target.role}:
        reason = f"the database {target.name} belongs to {server.owner}, not to {target.role}"
        answers.reject({"DATABASE_URL": reason})
    if server.has_role:
        answers.reject({"DATABASE_URL": _find_role_fault(site, target, has_database=server.owner)})
        create_role = {}
    if server.owner:
        create_database = {}
    return create_role | create_database


def _find_role_fault(site: SetupSite, target: DatabaseTarget, *, has_database: str) -> str:
    """Return why a role that is there cannot be used; its password is never changed."""
    if site.is_password_new:
        return (
            f"the role {target.role} exists already: give its password, as in "
            f"postgresql://{target.role}:PASSWORD@HOST/{target.name}"
        )
    fault = find_connection_fault(target.url)
    if has_database or "password authentication failed" in fault:
        return fault
    return ""


def owner_of_static_files(site: SetupSite, owner: Owner) -> Owner:
    """Return who collects static files: who did so before, else the portal's user."""
    path = Path(site.settings["STATIC_DIR"])
    if not is_real_directory(path):
        return owner
    uid = path.stat().st_uid
    if uid not in {0, os.geteuid(), owner.uid}:
        raise SetupError(f"{path} belongs to another user: chown -R {owner.name} {path}")
    return _make_owner(pwd.getpwuid(uid).pw_name)
