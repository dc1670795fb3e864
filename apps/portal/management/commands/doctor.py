"""`manage.py doctor`: look at a running site, and say what is wrong and how to fix it."""

import json
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from apps.portal.pages.doctor.checks import CHECKS, DoctorCheck
from apps.portal.pages.doctor.findings import DoctorFinding, FindingLevel, problem

#: How long a check may take. A statement in the database gets two thirds of it.
LIMIT_SECONDS = 15.0


class Command(BaseCommand):
    """Prints a line for each finding; fails if one is a problem."""

    help = "Check a running site: versions, database, Redis, processes, queues, files."
    #: The doctor runs them itself, as one of its checks.
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--json", action="store_true", dest="as_json", help="print one JSON object"
        )

    def handle(self, *args: Any, as_json: bool, **options: Any) -> None:
        findings, left_out = examine(CHECKS, at=timezone.now())
        if as_json:
            rows = [asdict(finding) for finding in findings]
            self.stdout.write(json.dumps({"findings": rows, "not_checked": left_out}, indent=1))
        else:
            self._print(findings, left_out)
        if any(finding.level == FindingLevel.PROBLEM for finding in findings):
            sys.exit(1)

    def _print(self, findings: Iterable[DoctorFinding], left_out: list[str]) -> None:
        for finding in findings:
            line = f"{finding.level:<8} {finding.check}: {finding.seen}"
            if finding.fix:
                line += f" - {finding.fix}"
            self.stdout.write(line)
        if left_out:
            self.stdout.write(f"not checked, because of these problems: {', '.join(left_out)}")


def examine(
    checks: Iterable[DoctorCheck], *, at: datetime, limit_seconds: float = LIMIT_SECONDS
) -> tuple[list[DoctorFinding], list[str]]:
    """Run the checks in their order.

    Return what they found, and the names of those that were left out because one that they need
    found a problem. No check raises, and each ends in `limit_seconds`.
    """
    findings: list[DoctorFinding] = []
    left_out = []
    broken: set[str] = set()
    for check in checks:
        if broken.intersection(check.needs):
            left_out.append(check.name)
            continue
        if check.asks_database:
            results = _in_transaction(check, at, limit_seconds)
        else:
            results = _in_thread(check, at, limit_seconds)
        if any(finding.level == FindingLevel.PROBLEM for finding in results):
            broken.add(check.name)
        findings += results
    return findings, left_out


def _in_transaction(check: DoctorCheck, at: datetime, limit_seconds: float) -> list[DoctorFinding]:
    """Run a check whose statements have a time limit."""
    limit_ms = int(limit_seconds * 1_000 * 2 / 3)
    results: list[DoctorFinding] = []
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = {limit_ms}")
            results.extend(check.findings(at))  # keeps what came before an error
    except DatabaseError as error:
        results.append(
            problem(
                check.name,
                f"{type(error).__name__}: {_first_line(error)}",
                "Start PostgreSQL (`systemctl start postgresql`), or correct DATABASE_URL and the "
                "rights of its role.",
            )
        )
    except Exception as error:  # an error of one check must not hide the others
        results.append(_failure(check, error))
    return results


def _in_thread(check: DoctorCheck, at: datetime, limit_seconds: float) -> list[DoctorFinding]:
    """Run a check that uses no database, and stop waiting for it after a time.

    A file system of a server that is down, for example, never answers.
    """
    results: list[DoctorFinding] = []

    def run() -> None:
        try:
            results.extend(check.findings(at))  # keeps what came before an error
        except Exception as error:  # an error of one check must not hide the others
            results.append(_failure(check, error))

    thread = threading.Thread(target=run, name=f"doctor {check.name}", daemon=True)
    thread.start()
    thread.join(limit_seconds)
    copied = list(results)
    if thread.is_alive():
        copied.append(
            problem(
                check.name,
                f"no answer in {limit_seconds:.0f} s",
                "Look at the server or the file system that it waits for.",
            )
        )
    return copied


def _failure(check: DoctorCheck, error: Exception) -> DoctorFinding:
    return problem(
        check.name,
        f"the check failed: {type(error).__name__}: {_first_line(error)}",
        "Report this as a fault of the portal, with this line.",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0]
