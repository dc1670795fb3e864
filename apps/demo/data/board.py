"""The status board of the demo: service tree, monitoring source, planned windows, announcements."""

from datetime import datetime, timedelta
from pathlib import Path

from django.db import transaction

from apps.accounts.models import User
from apps.statusboard.domain.announcements import post_announcement
from apps.statusboard.domain.sources import add_token, create_source, rebuild_services_of, record_heartbeat
from apps.statusboard.domain.tree import ensure_service
from apps.statusboard.domain.windows import schedule_window
from apps.statusboard.enums import Monitoring
from apps.statusboard.models import Announcement, DowntimeWindow, MonitoringSource, Service

SOURCE = "farm-monitoring"
_SILENCE = timedelta(minutes=15)

#: Slug, name, kind, parent, monitoring, advice while it is down.
_TREE: tuple[tuple[str, str, str, str, Monitoring, str], ...] = (
    ("data", "Data handling", "", "", Monitoring.NONE, ""),
    ("samweb", "samweb", "data catalogue", "data", Monitoring.FEED,
     "Jobs that fetch or declare files will fail: do not submit before it is back."),
    ("dcache", "dCache", "storage", "data", Monitoring.FEED, "Transfers will fail: do not submit before it is back."),
    ("tape", "Tape library", "mass storage", "data", Monitoring.MANUAL,
     "Input that is only on tape will not be staged."),
    ("software", "Software", "", "", Monitoring.NONE, ""),
    ("cvmfs", "CVMFS", "software", "software", Monitoring.FEED, "Jobs cannot start: do not submit before it is back."),
    ("databases", "Databases", "", "", Monitoring.NONE, ""),
    ("conditions-db", "Conditions DB", "database", "databases", Monitoring.FEED,
     "Simulation and reconstruction will fail: do not submit these."),
    ("beam-db", "Beam DB", "database", "databases", Monitoring.NONE, ""),
    ("compute", "Compute", "", "", Monitoring.NONE, ""),
    ("farm", "Worker nodes", "compute", "compute", Monitoring.FEED,
     "Jobs wait in the queue; those that ran are requeued."),
    ("tokens", "Token issuer", "identity", "", Monitoring.MANUAL, "Nothing can be submitted without new tokens."),
)  # fmt: skip


@transaction.atomic
def load_board(*, users: dict[str, User], token_file: Path, since: datetime, at: datetime) -> None:
    """Make what is missing of the board, watched since `since`, and a token for the monitoring source."""
    source = _load_source(token_file, since, at)
    services: dict[str, Service] = {}
    for slug, name, kind, parent, monitoring, advice in _TREE:
        services[slug] = ensure_service(
            slug=slug,
            name=name,
            kind=kind,
            parent=services.get(parent),
            monitoring=monitoring,
            source=source if monitoring is Monitoring.FEED else None,
            monitored_since=since,
            advice=advice,
            by="demo",
            at=at,
        )
    if source.last_seen_at is None:
        _hear_history(source, since, at)
    if not DowntimeWindow.objects.exists():
        _load_windows(services, users["shifter"], at)
    if not Announcement.objects.exists():
        _load_announcements(services, users["approver"], at)


def _load_source(token_file: Path, since: datetime, at: datetime) -> MonitoringSource:
    source = MonitoringSource.objects.filter(slug=SOURCE).first()
    if source is None:
        source, token = create_source(
            slug=SOURCE,
            name="Monitoring of the farm",
            by="demo",
            at=at,
            heartbeat_timeout_seconds=int(_SILENCE.total_seconds()),
            monitored_since=since,
        )
    elif token_file.exists():
        return source
    else:
        token = add_token(source=source, by="demo", at=at, revoke_others=True)
    token_file.parent.mkdir(parents=True, exist_ok=True)
    token_file.touch(mode=0o600)
    token_file.write_text(token)
    return source


def _hear_history(source: MonitoringSource, since: datetime, at: datetime) -> None:
    """Let the source have been heard all through the history that the simulated cluster begins with."""
    moment = since
    while moment < at:
        record_heartbeat(source=source, heartbeat=True, at=moment)
        moment += _SILENCE
    record_heartbeat(source=source, heartbeat=True, at=at)
    rebuild_services_of(source=source, since=since)


def _load_windows(services: dict[str, Service], by: User, at: datetime) -> None:
    hour = at.replace(minute=0, second=0, microsecond=0)
    plans = (
        ("Tape drives: new firmware", ["tape"], -1, 5, "Reads from tape wait; nothing is lost."),
        ("Network work, building 2", ["dcache", "farm"], 66, 68, "Jobs longer than the time left will be held."),
        ("CVMFS: new stratum 1", ["cvmfs"], 29, 31, "Jobs that start then wait for their software."),
        ("Conditions DB: index rebuild", ["conditions-db"], -30, -29, "Queries were slow for an hour."),
    )
    for title, slugs, begins, ends, text in plans:
        schedule_window(
            services=[services[slug] for slug in slugs],
            title=title,
            text=text,
            starts_at=hour + timedelta(hours=begins),
            ends_at=hour + timedelta(hours=ends),
            by=by,
            at=at - timedelta(hours=48),
        )


def _load_announcements(services: dict[str, Service], by: User, at: datetime) -> None:
    post_announcement(
        title="New memory default",
        body="Reco v09_72 needs 4 GB. Templates are changed; drafts keep what they ask for.",
        by=by,
        at=at - timedelta(hours=26),
    )
    post_announcement(
        title="Network work, building 2",
        body="In three days, for two hours. Jobs longer than the time left will be held.",
        services=[services["dcache"], services["farm"]],
        ends_at=at + timedelta(hours=68),
        by=by,
        at=at - timedelta(hours=20),
    )
