"""`opsportal setup`: says each step before it does it, and can be repeated."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from opsportal.setup.answers import SetupAnswers, read_answers
from opsportal.setup.database import find_connection_fault, join_sql
from opsportal.setup.errors import SetupError
from opsportal.setup.files import check_directory, create_directory, create_file, exists, lock
from opsportal.setup.portal import format_admin, run_portal
from opsportal.setup.preparation import SetupWork, owner_of_static_files, prepare
from opsportal.setup.questions import DATABASE_ADMIN

_ENV_FILE = Path("/etc/opsportal/opsportal.env")
_MANIFEST = "staticfiles.json"


class Steps:
    """Prints the steps of the setup, and decides whether to take them."""

    def __init__(self, *, is_dry_run: bool) -> None:
        self.is_dry_run = is_dry_run
        self.changes = 0

    def begin(self, what: str) -> bool:
        """Print a step that changes something; return whether to take it."""
        self.changes += 1
        print(f"* {what}", flush=True)
        return not self.is_dry_run

    def keep(self, what: str) -> None:
        """Print what is there already and stays as it is."""
        print(f"  unchanged: {what}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Set up the portal; return the exit status."""
    options = parse_options(arguments)
    steps = Steps(is_dry_run=options.dry_run)
    try:
        return _set_up(options, steps)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("\nInterrupted. Run it again to continue.", file=sys.stderr)
    return 1


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="opsportal setup",
        description="Create settings, secrets, database and first admin of a portal. Repeat it at "
        "will: what is there already stays as it is. See docs/production.md.",
    )
    parser.add_argument(
        "--answers", type=Path, metavar="FILE", help="take all answers from a TOML file"
    )
    parser.add_argument("--dry-run", action="store_true", help="only print what would be done")
    parser.add_argument(
        "--env-file",
        type=Path,
        default=_ENV_FILE,
        metavar="FILE",
        help=f"file of settings; secrets are in secrets/ beside it (default: {_ENV_FILE})",
    )
    return parser.parse_args(arguments)


def _set_up(options: argparse.Namespace, steps: Steps) -> int:
    env_file = options.env_file.absolute()
    answers = read_answers(options.answers) if options.answers else SetupAnswers()
    # Held until the process ends.
    descriptor = None
    if exists(env_file.parent) and not steps.is_dry_run:
        check_directory(env_file.parent)
        descriptor = lock(env_file.parent)
    work = prepare(env_file, answers)
    if steps.is_dry_run:
        print("Dry run: nothing is changed. These are the steps.")

    _create_directories(work, steps)
    if descriptor is None and not steps.is_dry_run:
        descriptor = lock(env_file.parent)
    _create_files(work, steps)
    if not _create_database(work, steps):
        return 1
    _fill_portal(work, steps, descriptor)
    for note in work.site.notes:
        print(f"  {note}")
    if not steps.changes:
        print("Nothing was changed: everything is there already.")
    elif steps.is_dry_run:
        print("Dry run: nothing was changed.")
    else:
        print("Done. Next: services, proxy and capture, docs/production.md from section 6.")
    return 0


def _create_directories(work: SetupWork, steps: Steps) -> None:
    site = work.site
    owner = work.owner
    for directory in (site.directory, site.secrets):
        mode = owner.directory_mode
        if exists(directory):
            steps.keep(f"directory {directory}")
        elif steps.begin(f"create the directory {directory}, mode {mode:o}"):
            create_directory(directory, mode=mode, uid=os.geteuid(), gid=owner.gid)

    for name in ("VAR_DIR", "STATIC_DIR"):
        directory = Path(site.settings[name])
        if exists(directory):
            steps.keep(f"directory {directory}")
        elif steps.begin(f"create the directory {directory}, of {owner.name}"):
            create_directory(directory, mode=0o755, uid=owner.uid, gid=owner.gid)


def _create_files(work: SetupWork, steps: Steps) -> None:
    site = work.site
    owner = work.owner
    for name in site.env:
        path = site.file_of(name.removesuffix("_FILE"))
        if path in site.new_secrets:
            if steps.begin(f"write the secret {path}, mode {owner.secret_mode:o}"):
                create_file(path, site.new_secrets[path], owner)
        elif name.endswith("_FILE"):
            steps.keep(f"secret {site.env[name]}")

    if not site.is_new:
        steps.keep(f"settings {site.env_file}")
    elif steps.begin(f"write the settings {site.env_file}, mode {owner.secret_mode:o}"):
        create_file(site.env_file, site.env_text, owner)


def _create_database(work: SetupWork, steps: Steps) -> bool:
    """Create role and database; return whether the portal has one now."""
    target = work.target
    if not work.statements:
        steps.keep(f"role {target.role} and database {target.name}")
        return True
    if work.admin is None:
        print(
            f"The database {target.name} cannot be used yet, and {DATABASE_ADMIN.key} is none. "
            "Let an admin of PostgreSQL run this, in psql, and then repeat the setup:\n"
            f"{join_sql(list(work.statements.values()))}",
            end="",
        )
        return steps.is_dry_run
    for what, statement in work.statements.items():
        if steps.begin(f"create the PostgreSQL {what}"):
            work.admin.run(statement)
    if steps.is_dry_run:
        return True
    fault = find_connection_fault(target.url)
    if fault:
        raise SetupError(f"DATABASE_URL: {fault}")
    return True


def _fill_portal(work: SetupWork, steps: Steps, descriptor: int | None) -> None:
    """Check the settings, apply migrations, collect static files, create the first admin."""
    site = work.site

    def run(*arguments: str, text: str = "") -> str:
        return run_portal(
            arguments, settings=site.env, owner=work.owner, text=text, lock=descriptor
        )

    if steps.is_dry_run and (site.is_new or work.statements):
        needs_migrations = True
    else:
        print("  checking the settings", flush=True)
        print(run("check", "--deploy"), end="")
        needs_migrations = work.is_new_database or _lacks_migrations(run)
    if not needs_migrations:
        steps.keep("migrations of the database")
    elif steps.begin("apply the migrations to the database; this takes a minute"):
        run("migrate", "--no-input", "--skip-checks", "--verbosity=0")

    _collect_static_files(work, steps, descriptor)

    if not work.needs_first_admin:
        steps.keep("there is an admin")
    elif steps.begin(f"create the admin {work.answers.values['admin_name']}"):
        print(f"  {run('first_admin', text=format_admin(work.answers.values))}", end="")


def _lacks_migrations(run: Callable[..., str]) -> bool:
    try:
        run("migrate", "--check", "--skip-checks")
    except SetupError:
        return True
    return False


def _collect_static_files(work: SetupWork, steps: Steps, descriptor: int | None) -> None:
    """Collect static files, unless all are there: nginx may be serving them."""
    directory = Path(work.site.settings["STATIC_DIR"])
    owner = owner_of_static_files(work.site, work.owner)

    def collect(*options: str) -> str:
        arguments = ["collectstatic", "--no-input", *options]
        return run_portal(arguments, settings=work.site.env, owner=owner, lock=descriptor)

    if _is_collected(directory) and "\n0 static files copied" in collect("--dry-run"):
        steps.keep(f"static files in {directory}")
    elif steps.begin(f"collect static files in {directory}"):
        collect("--verbosity=0")


def _is_collected(directory: Path) -> bool:
    """Return whether collecting has come to its end: it writes the manifest after the files."""
    manifest = directory / _MANIFEST
    if not manifest.is_file():
        return False
    written_at = manifest.stat().st_mtime
    for path in directory.rglob("*"):
        is_compressed = path.suffix in {".gz", ".br"}  # afterwards; without them all works
        if path.is_file() and not is_compressed and path.stat().st_mtime > written_at:
            return False
    return True
