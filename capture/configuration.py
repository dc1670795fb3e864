"""The configuration of capture: options of the command line, else environment variables.

Each variable NAME may be given as NAME_FILE, the path of a file that holds the value.
docs/settings.md describes them.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from apps.core.domain.masked_names import MASKED_NAMES
from capture.watch.base import Watch

PATIENCE_SECONDS = 20.0
RESCAN_SECONDS = 10.0
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
LOG_FORMATS = ("text", "json")
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class BadConfiguration(Exception):
    """An option or variable is missing or wrong; the message says which, and repeats no secret."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What one capture does; `journal` is the directory of this cluster's journal."""

    cluster: str
    scheduler: str
    spool: Path
    journal: Path
    portal: str
    token: str = field(repr=False)
    mask_names: str
    masking_key: bytes = field(repr=False)
    watch: Watch
    once: bool
    patience_seconds: float
    rescan_seconds: float
    log_level: str
    log_format: str


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """Parse the command line; the environment has the values of options that are not given.

    Exits as argparse does, and raises `BadConfiguration`.
    """
    parser = argparse.ArgumentParser(
        prog="capture",
        description=(
            "Capture job scripts and environments from a scheduler's spool into the archive."
        ),
    )
    add_options(parser, environment)
    return parser.parse_args(arguments)


def add_options(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Add the options of capture. Raises `BadConfiguration` if a variable's file is unreadable."""

    def add(option: str, default: str, **options: Any) -> None:
        name = f"CAPTURE_{option.upper()}"
        value = read_variable(name, environment) or default
        parser.add_argument(f"--{option}", default=value, **options)

    journal = Path(read_variable("VAR_DIR", environment) or "var") / "journal"
    add("cluster", "", help="name of the cluster")
    add("scheduler", "slurm", help="scheduler of the cluster (default: %(default)s)")
    add("spool", "", metavar="DIR", help="spool directory of the scheduler")
    add(
        "journal",
        str(journal),
        metavar="DIR",
        help="directory of the journals, one per cluster (default: %(default)s)",
    )
    add("portal", "", metavar="URL", help="portal that captured jobs are handed over to")
    add(
        "watch",
        Watch.AUTO,
        choices=[*Watch],
        help=(
            "source of file events: inotify, polling, or auto, which adds polling on network file "
            "systems"
        ),
    )
    parser.add_argument("--once", action="store_true", help="exit when spool and journal are empty")
    parser.add_argument(
        "--patience-seconds",
        type=float,
        default=PATIENCE_SECONDS,
        help="with --once, exit after this time without progress (default: %(default)s)",
    )
    parser.add_argument(
        "--rescan-seconds",
        type=float,
        default=RESCAN_SECONDS,
        help="interval of full spool scans (default: %(default)s)",
    )


def read_configuration(
    options: argparse.Namespace, environment: Mapping[str, str]
) -> Configuration:
    """Return the configuration. Raises `BadConfiguration`."""
    masking_key = read_variable("MASKING_KEY", environment)
    if not masking_key:
        raise BadConfiguration("Set MASKING_KEY. Without one, secrets cannot be masked.")
    if not options.spool:
        raise BadConfiguration("Set the spool directory with --spool DIR or CAPTURE_SPOOL.")
    if options.watch not in set(Watch):  # argparse does not check a default
        raise BadConfiguration(f"CAPTURE_WATCH: choose one of {', '.join(Watch)}.")

    return Configuration(
        cluster=options.cluster,
        scheduler=options.scheduler,
        spool=Path(options.spool).absolute(),
        journal=journal_directory(options),
        portal=_checked_portal(options.portal),
        token=_required_token(environment),
        mask_names=_mask_names(environment),
        masking_key=masking_key.encode(),
        watch=Watch(options.watch),
        once=options.once,
        patience_seconds=options.patience_seconds,
        rescan_seconds=options.rescan_seconds,
        log_level=_choice("LOG_LEVEL", LOG_LEVELS, "INFO", environment),
        log_format=_choice("LOG_FORMAT", LOG_FORMATS, "text", environment),
    )


def journal_directory(options: argparse.Namespace) -> Path:
    """Return the directory of the cluster's journal.

    Raises `BadConfiguration` for a name that is no cluster's.
    """
    if not _CLUSTER.fullmatch(options.cluster):
        raise BadConfiguration(
            "Set the cluster with --cluster NAME or CAPTURE_CLUSTER, using letters, digits, . "
            "_ and - only."
        )
    journals = Path(str(options.journal)).absolute()
    return journals / str(options.cluster)


def read_variable(name: str, environment: Mapping[str, str]) -> str:
    """Return a variable, from its file if NAME_FILE is set, and "" if it is not set.

    Raises `BadConfiguration`.
    """
    path = environment.get(f"{name}_FILE")
    if not path:
        return environment.get(name, "")
    if name in environment:
        raise BadConfiguration(f"{name} and {name}_FILE are both set: give one of them.")
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"{name}_FILE: {error}") from error


def _checked_portal(portal: str) -> str:
    if not portal:
        raise BadConfiguration("Set CAPTURE_PORTAL to the portal's address.")
    url = urlsplit(portal)
    is_plain = not (url.query or url.fragment or "@" in url.netloc)
    if url.scheme not in {"http", "https"} or not url.hostname or not is_plain:
        raise BadConfiguration(
            "Set the portal with --portal or CAPTURE_PORTAL as https://HOST/, without user or "
            "password."
        )
    return portal


def _required_token(environment: Mapping[str, str]) -> str:
    token = read_variable("ARCHIVE_PORTAL_TOKEN", environment)
    if not token:
        raise BadConfiguration(
            "Set ARCHIVE_PORTAL_TOKEN or ARCHIVE_PORTAL_TOKEN_FILE to the token of this "
            "capture host."
        )
    return token


def _mask_names(environment: Mapping[str, str]) -> str:
    """Return the expression of secret names; one that is set but empty masks none."""
    if not {"CAPTURE_MASK_NAMES", "CAPTURE_MASK_NAMES_FILE"} & environment.keys():
        return MASKED_NAMES
    names = read_variable("CAPTURE_MASK_NAMES", environment)
    try:
        re.compile(names)
    except re.error as error:
        raise BadConfiguration(
            f"CAPTURE_MASK_NAMES: is not a regular expression: {error}."
        ) from error
    return names


def _choice(name: str, choices: Sequence[str], default: str, environment: Mapping[str, str]) -> str:
    value = read_variable(name, environment) or default
    if value not in choices:
        raise BadConfiguration(f"{name}: choose one of {', '.join(choices)}.")
    return value
