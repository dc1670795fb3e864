"""Sinks and places that are opened in the process that uses them: only there, what they need takes memory."""

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from apps.archive.capture.delivery.isolation import Place
from apps.archive.capture.plan import PlannedPlace, PlannedSink
from apps.archive.sinks.base import BeginsAhead, Sink, SinkUnavailable, SinkURL
from apps.archive.wire.entry import CapturedJob

_setting_up = threading.Lock()


class LaterSink:
    """A sink that is opened when it is first written to."""

    def __init__(self, planned: PlannedSink, settings: Mapping[str, Any]) -> None:
        self.name = planned.name
        self._planned = planned
        self._settings = settings

    def write(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
        """Let the sink write. Raises `SinkUnavailable` also where it cannot be opened."""
        return self._opened.write(jobs)

    def close(self) -> None:
        if "_opened" in vars(self):
            self._opened.close()

    @cached_property
    def _opened(self) -> Sink:
        try:
            set_up_django(self._settings, models=self._planned.uses_models)
            from apps.archive.sinks.registry import open_sink

            return open_sink(self._planned.url)
        except Exception as error:  # of whatever is imported: no job is at fault
            raise SinkUnavailable(f"it cannot be opened: {error}") from error


class LaterBeginner(LaterSink):
    """The same for a sink that begins ahead."""

    def begin(self, jobs: Sequence[CapturedJob]) -> None:
        """Let it begin. Raises `SinkUnavailable`."""
        cast(BeginsAhead, self._opened).begin(jobs)


class LaterPlace:
    """A place that is opened when it is first asked."""

    def __init__(self, planned: PlannedPlace, settings: Mapping[str, Any]) -> None:
        self._planned = planned
        self._settings = settings

    def report(self, cluster: str, detail: Mapping[str, Any]) -> None:
        self._opened.report(cluster, detail)

    def masking_rules(self) -> Sequence[Any]:
        return self._opened.masking_rules()

    def close(self) -> None:
        if "_opened" in vars(self):
            self._opened.close()

    @cached_property
    def _opened(self) -> Place:
        set_up_django(self._settings, models=not self._planned.url)
        if self._planned.url:
            from apps.archive.sinks.portal import PortalClient

            return PortalClient.from_url(SinkURL.parse(self._planned.url))
        from apps.archive.sinks.store import OwnDatabase

        return OwnDatabase()


def set_up_django(values: Mapping[str, Any], *, models: bool) -> None:
    """Give Django these settings, and the models of the apps among them, unless it has all that already."""
    with _setting_up:
        from django.apps import apps
        from django.conf import settings

        if not settings.configured:
            settings.configure(**values)
        if models and not apps.ready:
            import django

            django.setup()
