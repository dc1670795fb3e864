"""Health of the database, the queue and the portal's own processes."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.db import connection

from apps.core.models import Heartbeat

#: A process without a heartbeat for longer than this is failing.
HEARTBEAT_LIMIT = timedelta(seconds=60)


@dataclass(frozen=True)
class Check:
    """A component of the portal and whether it is ok."""

    name: str
    ok: bool
    detail: str


def readiness(at: datetime) -> list[Check]:
    """Check database, queue and heartbeats; a failure is a check that is not ok, never an exception."""
    checks = [_database(), _queue()]
    return checks + (_heartbeats(at) if checks[0].ok else [])


def readiness_by_heartbeats(at: datetime) -> list[Check]:
    """Check the same for a page, which does not wait for the queue: beat's heartbeat passes through it."""
    beat = Heartbeat.objects.filter(name="beat").values_list("at", flat=True).first()
    carried = f"last message {_age(beat, at)} s ago" if beat else "no message yet"
    queue = Check("queue", ok=beat is not None and at - beat < HEARTBEAT_LIMIT, detail=carried)
    return [_database(), queue, *_heartbeats(at)]


def _database() -> Check:
    try:
        with connection.cursor() as cursor:
            cursor.execute("select 1")
    except Exception as error:  # any failure of the driver means: not ready
        return Check("database", ok=False, detail=type(error).__name__)
    return Check("database", ok=True, detail="ok")


def _queue() -> Check:
    try:
        cache.set("readyz", "1", timeout=5)
        answers = cache.get("readyz") == "1"
    except Exception as error:  # any failure of the driver means: not ready
        return Check("queue", ok=False, detail=type(error).__name__)
    return Check("queue", ok=answers, detail="ok" if answers else "does not store values")


def _heartbeats(at: datetime) -> list[Check]:
    hearts = {heart.name: heart for heart in Heartbeat.objects.all()}
    expected = {"beat", f"capture {settings.CAPTURE_CLUSTER}"} if settings.CAPTURE_CLUSTER else {"beat"}
    names = expected | {name for name in hearts if name.startswith("capture ")}
    checks = []
    for name in sorted(names):
        if name not in hearts:
            checks.append(Check(name, ok=False, detail="no heartbeat yet"))
            continue
        heard = hearts[name].at
        checks.append(Check(name, ok=at - heard < HEARTBEAT_LIMIT, detail=f"last heartbeat {_age(heard, at)} s ago"))
    return checks


def _age(heard: datetime, at: datetime) -> int:
    return max(0, int((at - heard).total_seconds()))


def beat_heart(*, name: str, at: datetime, detail: dict[str, Any] | None = None) -> None:
    """Record a heartbeat of the process `name`; `detail` shows on the health page."""
    Heartbeat.objects.update_or_create(name=name, defaults={"at": at, "detail": detail or {}})
