"""`manage.py capture`: copy every job out of a scheduler's spool before the scheduler
deletes it.
"""

import os
import re
import socket
import sys
from argparse import ArgumentParser
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.archive.sinks.base import BadSink
from apps.archive.sinks.registry import open_sinks
from capture import kept_plan
from capture.capture import PATIENCE_SECONDS
from capture.main import CaptureFailed, open_spool, run
from capture.plan import Plan
from capture.resources import go_as_others
from capture.watch.base import Watch
from opsportal.env import Environment

_PROGRAM = Path(__file__).parents[4] / "manage.py"
#: The others are watched when the program is loaded; Slurm has eleven.
_MOST_WATCHED_EARLY = 100
#: Of the database's options those that libpq does not know.
_OPTIONS_OF_DJANGO = {"assume_role", "isolation_level", "pool", "server_side_binding"}
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Command(BaseCommand):
    """Runs until SIGTERM or SIGINT; with --once, until spool and journal are empty."""

    help = "Capture job scripts and environments from a scheduler's spool into the archive."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--cluster", default=settings.CAPTURE_CLUSTER, help="name of the cluster"
        )
        parser.add_argument(
            "--scheduler",
            default=settings.CAPTURE_SCHEDULER,
            help="scheduler of the cluster (default: %(default)s)",
        )
        parser.add_argument(
            "--spool",
            type=Path,
            default=settings.CAPTURE_SPOOL,
            help="spool directory of the scheduler",
        )
        parser.add_argument(
            "--journal",
            type=Path,
            default=settings.CAPTURE_JOURNAL,
            help="directory of the journals, one per cluster (default: %(default)s)",
        )
        parser.add_argument(
            "--portal",
            default=settings.CAPTURE_PORTAL,
            metavar="URL",
            help=(
                "portal that captured jobs are handed over to (default: CAPTURE_PORTAL, else the "
                "database)"
            ),
        )
        parser.add_argument(
            "--sink",
            action="append",
            default=[],
            dest="sinks",
            metavar="URL",
            help="sink for the jobs of this run, in addition to ARCHIVE_SINKS; repeatable",
        )
        parser.add_argument(
            "--once",
            action="store_true",
            help="exit when spool and journal are empty and each --sink has its jobs",
        )
        parser.add_argument(
            "--patience-seconds",
            type=float,
            default=PATIENCE_SECONDS,
            help="with --once, exit after this time without progress (default: %(default)s)",
        )
        parser.add_argument(
            "--rescan-seconds",
            type=float,
            default=10.0,
            help="interval of full spool scans (default: %(default)s)",
        )
        parser.add_argument(
            "--watch",
            choices=[*Watch],
            default=settings.CAPTURE_WATCH,
            help=(
                "source of file events: inotify, polling, or auto, which adds polling on network "
                "file systems"
            ),
        )

    def handle(self, **options: Any) -> None:
        try:
            plan = make_plan(**options)
            if not getattr(self, "_called_from_command_line", False):
                run(plan, out=self.stdout.write, err=self.stderr.write)
                return
        except (BadSink, CaptureFailed) as error:
            raise CommandError(str(error)) from error
        self.stdout.flush()
        self.stderr.flush()
        _keep_for_next_start(plan)
        # As a command of its own, this gives its place to a program without Django, which is much
        # smaller.
        go_as_others()  # the program goes first by itself
        command = [sys.executable, str(_PROGRAM), "capture", "--planned", str(plan.keep())]
        os.execv(command[0], command)  # noqa: S606 -- itself


def _keep_for_next_start(plan: Plan) -> None:
    """Let the next start of the same command begin without Django,
    where the journal's disk takes it.
    """
    if plan.once:
        return
    watched = (
        ()
        if plan.watch is Watch.POLLING
        else open_spool(plan.cluster, plan.scheduler, plan.spool).watched()
    )
    kept = plan.packed(), [str(path) for path in islice(watched, _MOST_WATCHED_EARLY)]
    with suppress(OSError):
        kept_plan.keep(
            kept,
            str(plan.directory),
            arguments=sys.argv[2:],
            environment=os.environ,
            names=Environment.model_fields,
        )


def make_plan(
    *,
    cluster: str,
    scheduler: str,
    spool: Path | None,
    journal: Path,
    portal: str,
    sinks: list[str],
    once: bool,
    patience_seconds: float,
    rescan_seconds: float,
    watch: str,
    **_: Any,
) -> Plan:
    """Return the plan of a capture with these options.

    Raises `CommandError`, `CaptureFailed` and `BadSink` if it cannot be carried out.
    """
    if not _CLUSTER.fullmatch(cluster or ""):
        raise CommandError(
            "Set the cluster with --cluster NAME or CAPTURE_CLUSTER, using letters, digits, . "
            "_ and - only."
        )
    if not settings.MASKING_KEY:
        raise CommandError("Set MASKING_KEY or SECRET_KEY. Without one, secrets cannot be masked.")
    if spool is None:
        raise CommandError("Set the spool directory with --spool DIR or CAPTURE_SPOOL.")
    open_spool(cluster, scheduler, spool.absolute())
    if sinks:
        django.setup()  # which most captures need not wait for: the store of scripts is a sink too
        open_sinks(sinks)
    if portal and sinks:
        raise CommandError(
            "--sink needs the portal's database. Over HTTP, jobs go to the sinks of the portal."
        )
    logging = cast(dict[str, Any], settings.LOGGING)
    levels = {
        name: logger["level"] for name, logger in logging["loggers"].items() if "level" in logger
    }
    return Plan(
        cluster=cluster,
        scheduler=scheduler,
        spool=spool.absolute(),
        directory=(journal / cluster).absolute(),
        once=once,
        patience_seconds=patience_seconds,
        rescan_seconds=rescan_seconds,
        watch=Watch(watch),
        mask_names=settings.CAPTURE_MASK_NAMES,
        masking_key=settings.MASKING_KEY.encode(),
        portal=_address(portal) if portal else database_conninfo(),
        token=settings.ARCHIVE_PORTAL_TOKEN,
        broker=settings.REDIS_URL,
        most_bytes=settings.ARCHIVE_INTAKE_MAX_BYTES,
        host=socket.gethostname(),
        sinks=tuple(sinks),
        log_format=logging["formatters"]["line"]["fmt"],
        log_levels={"": logging["root"]["level"]} | levels,
    )


def _address(portal: str) -> str:
    """Raises `CommandError`, which repeats nothing that may be a password."""
    url = urlsplit(portal)
    if (
        url.scheme not in {"http", "https"}
        or not url.hostname
        or "@" in url.netloc
        or url.query
        or url.fragment
    ):
        raise CommandError(
            "Set the portal with --portal or CAPTURE_PORTAL as https://HOST/, without user or "
            "password."
        )
    if not settings.ARCHIVE_PORTAL_TOKEN:
        raise CommandError(
            "Set ARCHIVE_PORTAL_TOKEN or ARCHIVE_PORTAL_TOKEN_FILE to the token of this "
            "capture host."
        )
    return portal


def database_conninfo() -> str:
    """Return how to connect to the portal's database without Django.

    Raises `CommandError` where there is none.
    """
    if not settings.HAS_DATABASE:
        raise CommandError(
            "Set CAPTURE_PORTAL to the portal's address, or DATABASE_URL to its database."
        )
    database = settings.DATABASES["default"]
    values = {
        "dbname": database["NAME"],
        "user": database["USER"],
        "password": database["PASSWORD"],
        "host": database["HOST"],
        "port": database["PORT"],
        "client_encoding": "UTF8",
    }
    values |= {
        name: value for name, value in database["OPTIONS"].items() if name not in _OPTIONS_OF_DJANGO
    }

    parameters = []
    for name, value in values.items():
        if value:
            # Connection strings of libpq quote with backslashes.
            escaped = str(value).replace("\\", r"\\").replace("'", r"\'")
            parameters.append(f"{name}='{escaped}'")
    return " ".join(parameters)
