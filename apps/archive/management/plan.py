"""What `manage.py capture` is to do, from its options and the settings."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from django.conf import global_settings, settings
from django.core.management.base import CommandError

from apps.archive.capture.main import open_spool
from apps.archive.capture.plan import Plan, PlannedPlace, PlannedSink
from apps.archive.capture.watch.base import Watch
from apps.archive.sinks.base import BeginsAhead
from apps.archive.sinks.registry import open_sinks

_PLAIN = (str, bytes, bool, int, float, timedelta, type(None))


def plan_capture(
    cluster: str,
    directory: Path,
    urls: Sequence[str],
    *,
    scheduler: str,
    spool: Path | None,
    once: bool,
    patience_seconds: float,
    rescan_seconds: float,
    watch: str,
    **_: Any,
) -> Plan:
    """Return the plan. Raises `CommandError`, `CaptureFailed` and `BadSink` where it cannot be carried out at all."""
    if not settings.MASKING_KEY:
        raise CommandError("Set MASKING_KEY or SECRET_KEY. Without one, secrets cannot be masked.")
    if spool is None:
        raise CommandError("Set the spool directory with --spool DIR or CAPTURE_SPOOL.")
    open_spool(cluster, scheduler, spool.absolute())
    opened = zip(open_sinks(urls), urls, strict=True)
    sinks = [
        PlannedSink(sink.name, url, getattr(sink, "uses_models", True), isinstance(sink, BeginsAhead))
        for sink, url in opened
    ]
    logging = cast(dict[str, Any], settings.LOGGING)
    levels = {name: logger["level"] for name, logger in logging["loggers"].items() if "level" in logger}
    return Plan(
        cluster=cluster,
        scheduler=scheduler,
        spool=spool.absolute(),
        directory=directory,
        once=once,
        patience_seconds=patience_seconds,
        rescan_seconds=rescan_seconds,
        watch=Watch(watch),
        mask_names=settings.CAPTURE_MASK_NAMES,
        masking_key=settings.MASKING_KEY.encode(),
        sinks=tuple(sinks),
        places=tuple(_places(sinks)),
        settings=_settings_of_sinks(),
        log_format=logging["formatters"]["line"]["fmt"],
        log_levels={"": logging["root"]["level"]} | levels,
    )


def _places(sinks: Sequence[PlannedSink]) -> list[PlannedPlace]:
    """Return the portals that a capture with these sinks belongs to, each beside a sink that needs the same."""
    places = []
    if settings.HAS_DATABASE:
        beside = next((number for number, sink in enumerate(sinks) if sink.uses_models), None)
        places.append(PlannedPlace("", beside))
    portals = [(number, sink.url) for number, sink in enumerate(sinks) if sink.url.startswith("portal+")]
    return places + [PlannedPlace(url, number) for number, url in portals]


def _settings_of_sinks() -> Mapping[str, Any]:
    """Return Django's settings as values that another program can take, with few apps and no logging of their own."""
    names = [name for name in dir(settings) if name.isupper() and name != "SECRET_KEY"]  # which a sink needs not
    values = {name: getattr(settings, name) for name in names}
    ours = {name: value for name, value in values.items() if getattr(global_settings, name, ...) != value}
    plain = {name: value for name, value in ours.items() if _is_plain(value)}
    return plain | {"INSTALLED_APPS": settings.CAPTURE_APPS, "LOGGING_CONFIG": None, "SUBSCRIBERS_ELSEWHERE": True}


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, (*value, *value.values())))
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN or isinstance(value, Path)
