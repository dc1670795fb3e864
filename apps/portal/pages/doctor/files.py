"""Directories and files that settings name: there, writable, with space, and closed to others."""

import os
import shutil
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from django.conf import settings

from apps.core.http.bucket_url import is_object_store
from apps.portal.pages.doctor.findings import DoctorFinding, ok, problem, warning
from opsportal.env import setting_files
from opsportal.setup.files import env_faults

GIGABYTE = 1_000_000_000
WARNING_FREE_BYTES = 2 * GIGABYTE
PROBLEM_FREE_BYTES = GIGABYTE // 5
#: Settings in one file, where docs/production.md puts it, or in a checkout.
ENVIRONMENT_FILES = (Path("/etc/opsportal/opsportal.env"), settings.BASE_DIR / ".env")


def check_directories(at: datetime) -> Iterator[DoctorFinding]:
    """Check that the portal can write to its directories, and that they have space."""
    directories = {"VAR_DIR": settings.VAR_DIR}
    if not is_object_store(settings.JOB_ARCHIVE):
        # Made when the first month is archived.
        directories["JOB_ARCHIVE"] = _nearest(Path(settings.JOB_ARCHIVE))
    for setting, directory in directories.items():
        finding = _writable(setting, directory)
        yield finding
        if not finding.fix:
            yield _free_space(setting, directory)
    yield _static_files()


def check_log_roots(at: datetime) -> Iterator[DoctorFinding]:
    """Check that each directory of LOG_ROOTS is there and can be listed."""
    if not settings.LOG_ROOTS:
        yield ok("LOG_ROOTS", "not set: no log is read from files")
    for root in settings.LOG_ROOTS:
        if not root.is_dir():
            seen = "is no directory here"
        elif not os.access(root, os.R_OK | os.X_OK):
            seen = "cannot be read by this user"
        else:
            yield ok(f"LOG_ROOTS {root}", "can be read")
            continue
        yield problem(
            f"LOG_ROOTS {root}",
            seen,
            "Mount it where workers read logs and give their group the right to read, or correct "
            "LOG_ROOTS.",
        )


def check_secret_files(at: datetime) -> Iterator[DoctorFinding]:
    """Check that files with secrets can be read, and changed, by nobody else."""
    paths = list(setting_files().values())
    paths += [path for path in ENVIRONMENT_FILES if path.exists()]
    for setting in ("FEED_NETRC", "ARCHIVE_KAFKA_KEY"):
        if value := getattr(settings, setting):
            paths.append(Path(value))
    is_well = True
    for path in paths:
        if fault := _fault_of_rights(path):
            is_well = False
            yield problem(f"rights of {path}", fault, f"Run `chmod 640 {path}`.")
    if is_well:
        yield ok("rights of secrets", f"{len(paths)} files, none open to others")


def check_quoting(at: datetime) -> Iterator[DoctorFinding]:
    """Check that systemd, a shell and `opsportal-manage` read the same settings from the file."""
    for path in ENVIRONMENT_FILES:
        try:
            faults = env_faults(path.read_text())
        except (OSError, UnicodeDecodeError):
            continue  # not there, or only its group may read it
        if not faults:
            yield ok(f"quotes in {path}", "read alike by systemd and by a shell")
            continue
        lines = [f"{name} (line {number})" for number, name in faults.items()]
        yield warning(
            f"quotes in {path}",
            f"systemd and a shell may read differently: {', '.join(lines[:10])}",
            "Write NAME='VALUE' with single quotes, and without single quotes, backslashes and line"
            " breaks in the value; a value that needs them goes into a file, as NAME_FILE.",
        )


def _fault_of_rights(path: Path) -> str:
    """Return how others can get at a file, or nothing."""
    try:
        mode = path.stat().st_mode
        for parent in path.absolute().parents:
            if not parent.stat().st_mode & stat.S_IXOTH:
                return ""  # others do not get there
    except OSError as error:
        return f"cannot be looked at: {error.strerror}"
    if mode & stat.S_IWOTH:
        return "everybody on this host can change it"
    if mode & stat.S_IROTH:
        return "everybody on this host can read it"
    return ""


def _nearest(directory: Path) -> Path:
    """Return the directory, or the nearest one above it that exists."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    return directory


def _writable(setting: str, directory: Path) -> DoctorFinding:
    name = f"{setting} {directory}"
    if not directory.is_dir():
        seen = "is no directory"
    elif not os.access(directory, os.W_OK | os.X_OK):
        seen = "cannot be written by this user"
    else:
        return ok(name, "can be written")
    return problem(
        name, seen, f"Run `install -d -o opsportal -g opsportal {directory}`, or correct {setting}."
    )


def _free_space(setting: str, directory: Path) -> DoctorFinding:
    name = f"space in {setting}"
    free_bytes = shutil.disk_usage(directory).free
    seen = f"{free_bytes / GIGABYTE:.1f} GB free in {directory}"
    if free_bytes >= WARNING_FREE_BYTES:
        return ok(name, seen)
    judge = problem if free_bytes < PROBLEM_FREE_BYTES else warning
    return judge(name, seen, f"Free space there, or move it to a larger disk by {setting}.")


def _static_files() -> DoctorFinding:
    name = f"STATIC_DIR {settings.STATIC_ROOT}"
    if (Path(settings.STATIC_ROOT) / "staticfiles.json").is_file():
        return ok(name, "collected")
    if settings.DEBUG:
        return ok(name, "not collected, which DEBUG does not need")
    return problem(
        name, "static files are not collected", "Run `opsportal collectstatic --noinput`."
    )
