"""Health of the database, the queue and the portal's processes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.cache import cache
from django.db import DEFAULT_DB_ALIAS, connection

from apps.core.domain.schema import find_faults, summarise
from apps.core.models import Heartbeat

#: A process without a heartbeat for longer than this is failing.
HEARTBEAT_LIMIT = timedelta(seconds=60)
#: A worker or a waiting beat that is silent for this long is retired, if another one does its work.
RETIRED_AFTER = timedelta(hours=24)
#: The heartbeat of a retired process is deleted after this time.
FORGOTTEN_AFTER = timedelta(days=30)
#: Names of heartbeats, or prefixes of them. A worker beats `QUEUE` when it receives a message from
#: beat.
BEAT = "beat"
WAITING_BEAT = "waiting beat on "
QUEUE = "queue"
WORKER = "worker "
CAPTURE = "capture "
#: Databases whose schema this process has seen to match the models. A later migration needs a
#: restart anyway.
_matching_schemas: set[str] = set()


@dataclass(frozen=True)
class Check:
    """A component of the portal, and whether it is healthy."""

    name: str
    ok: bool
    detail: str
    #: The process is gone for good and another one does its work, so nothing is wrong.
    is_retired: bool = False


def check_readiness() -> list[Check]:
    """Check what this process needs to serve requests: database, schema, queue.

    A failure is a check that is not ok; nothing is raised.
    """
    return [_database(), _schema(), _queue()]


def check_components(at: datetime, *, ask_queue: bool = False) -> list[Check]:
    """Check all processes of the portal by their heartbeats.

    Pages do not query the queue; its health follows from the messages that it carries from beat to
    a worker.
    """
    if not (database := _database()).ok:
        return [database]
    hearts = {heart.name: heart for heart in Heartbeat.objects.all()}
    retired = retired_processes(hearts, at)
    for name in retired:
        del hearts[name]
    processes = [*_portal_processes(hearts, at), *_captures(hearts, at)]
    queue = _queue() if ask_queue else _carried(hearts, at)
    return [database, queue, *processes, *retired.values()]


def retired_processes(hearts: Mapping[str, Heartbeat], at: datetime) -> dict[str, Check]:
    """Return the workers and waiting beats that are gone for good, by name.

    They are silent for `RETIRED_AFTER`, while a worker of the same queue, or beat, runs: the last
    worker of a queue is never retired. A capture is not either: its spool may hold jobs.
    """
    replaced = set()
    for name, heart in hearts.items():
        if at - heart.at < HEARTBEAT_LIMIT:
            replaced.add(_work_of(name))
    retired = {}
    for name in sorted(hearts):
        heart = hearts[name]
        may_retire = name.startswith((WORKER, WAITING_BEAT))
        if may_retire and at - heart.at >= RETIRED_AFTER and _work_of(name) in replaced:
            detail = (
                f"retired: last heartbeat {(at - heart.at).days} d ago, and another process does "
                "its work"
            )
            retired[name] = Check(name, ok=True, detail=detail, is_retired=True)
    return retired


def _work_of(name: str) -> str:
    """Return what a process does: `worker harvest` for the worker `harvest@host`."""
    if name.startswith(WAITING_BEAT):
        return BEAT
    return name.partition("@")[0]


def forget_retired(*, at: datetime) -> int:
    """Delete the heartbeats of processes that are retired for long; return their number."""
    hearts = {heart.name: heart for heart in Heartbeat.objects.all()}
    names = []
    for name in retired_processes(hearts, at):
        if at - hearts[name].at >= FORGOTTEN_AFTER:
            names.append(name)
    old = Heartbeat.objects.filter(name__in=names, at__lte=at - FORGOTTEN_AFTER)
    return old.delete()[0]


def _database() -> Check:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_is_in_recovery(), current_setting('transaction_read_only')")
            is_standby, read_only = cursor.fetchone()
    except Exception as error:
        # Any error of the driver means that it is not ready.
        return Check("database", ok=False, detail=_reason(error))
    if is_standby:
        return Check("database", ok=False, detail="a standby, which accepts no changes")
    if read_only == "on":
        return Check("database", ok=False, detail="read-only: it accepts no changes")
    return Check("database", ok=True, detail="ok")


def _reason(error: Exception) -> str:
    """Return what the public may know of an error; libpq says it of the last of several hosts."""
    if "session is read-only" in str(error):
        return "no primary: the servers that answer accept no changes"
    return type(error).__name__


def _schema() -> Check:
    """Compare the schema with the models, until it matched once."""
    if DEFAULT_DB_ALIAS not in _matching_schemas:
        try:
            faults = find_faults(database=DEFAULT_DB_ALIAS)
        except Exception as error:
            # Any error of the driver means that it is not ready.
            return Check("schema", ok=False, detail=type(error).__name__)
        if faults:
            return Check("schema", ok=False, detail=summarise(faults))
        _matching_schemas.add(DEFAULT_DB_ALIAS)
    return Check("schema", ok=True, detail="ok")


def _queue() -> Check:
    try:
        cache.set("readyz", "1", timeout=5)
        answers = cache.get("readyz") == "1"
    except Exception as error:
        # Any error of the driver means that it is not ready.
        return Check("queue", ok=False, detail=type(error).__name__)
    return Check("queue", ok=answers, detail="ok" if answers else "does not store values")


def _carried(hearts: Mapping[str, Heartbeat], at: datetime) -> Check:
    """Assess the queue by its last message.

    Without beat or a worker no message is carried, so the queue itself may be healthy.
    """
    heart = hearts.get(QUEUE)
    if heart:
        carried = f"last message {_age(heart.at, at)} s ago"
    else:
        carried = "no message yet"
    if heart and at - heart.at < HEARTBEAT_LIMIT:
        return Check("queue", ok=True, detail=carried)
    runs = [name for name in hearts if name == BEAT or name.startswith(WORKER)]
    if all(at - hearts[name].at < HEARTBEAT_LIMIT for name in runs) and len(runs) > 1:
        return Check(
            "queue",
            ok=False,
            detail=f"{carried}, though beat and workers run: no Redis, or they are stuck",
        )
    return Check("queue", ok=False, detail=f"{carried}: beat or a worker is missing")


def _portal_processes(hearts: Mapping[str, Heartbeat], at: datetime) -> list[Check]:
    checks = []
    for name in sorted(hearts):
        if name.startswith(WORKER):
            checks.append(_process(name, hearts[name].at, at))
    if not any(check.ok for check in checks):
        checks.append(Check("workers", ok=False, detail="none is running"))
    waiting = [name for name in sorted(hearts) if name.startswith(WAITING_BEAT)]
    return [
        _beat(hearts.get(BEAT), at),
        *(_process(name, hearts[name].at, at) for name in waiting),
        *checks,
    ]


def _beat(heart: Heartbeat | None, at: datetime) -> Check:
    """Assess the beat that sends the periodic tasks, and name its host."""
    if not heart:
        return Check(BEAT, ok=False, detail="no heartbeat yet")
    check = _process(BEAT, heart.at, at)
    host = heart.detail.get("host")
    return replace(check, detail=f"on {host}: {check.detail}") if host else check


def _captures(hearts: Mapping[str, Heartbeat], at: datetime) -> list[Check]:
    checks = []
    for name in sorted(hearts):
        if name.startswith(CAPTURE):
            checks.append(_process(name, hearts[name].at, at))
    cluster = settings.CAPTURE_CLUSTER
    if cluster and not any(name.startswith(f"{CAPTURE}{cluster} on ") for name in hearts):
        checks.append(Check(f"{CAPTURE}{cluster}", ok=False, detail="no heartbeat yet"))
    return checks


def _process(name: str, beat_at: datetime, at: datetime) -> Check:
    age = _age(beat_at, at)
    if at - beat_at < HEARTBEAT_LIMIT:
        return Check(name, ok=True, detail=f"last heartbeat {age} s ago")
    return Check(
        name, ok=False, detail=f"dead, or cut off from the database: last heartbeat {age} s ago"
    )


def _age(beat_at: datetime, at: datetime) -> int:
    return max(0, int((at - beat_at).total_seconds()))


def beat_heart(*, name: str, at: datetime, detail: Mapping[str, Any] | None = None) -> None:
    """Record a heartbeat of the process `name`; the health page shows `detail`."""
    Heartbeat.objects.update_or_create(name=name, defaults={"at": at, "detail": dict(detail or {})})


def beat_capture(*, cluster: str, host: str, at: datetime, detail: Mapping[str, Any]) -> None:
    """Record a heartbeat of the capture process of a cluster on a host.

    Two hosts of one cluster count as two processes.
    """
    beat_heart(
        name=f"{CAPTURE}{cluster} on {host}",
        at=at,
        detail={**detail, "cluster": cluster, "host": host},
    )


def forget_heart(*, name: str) -> None:
    """Delete the heartbeat of a process that has stopped normally."""
    Heartbeat.objects.filter(name=name).delete()
