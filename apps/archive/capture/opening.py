"""Sinks and places that are opened in the process that uses them: only there, what they need takes memory."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast

from apps.archive.capture.entry import CapturedJob
from apps.archive.capture.isolation import Place
from apps.archive.capture.plan import PlannedPlace, PlannedSink
from apps.archive.sinks.base import BeginsAhead, Sink, SinkUnavailable

_setting_up = threading.Lock()


class LaterSink:
    """A sink that is opened when it is first written to."""

    def __init__(self, planned: PlannedSink, settings: Mapping[str, Any]) -> None:
        self.name = planned.name
        self._planned = planned
        self._settings = settings
        self._sink: Sink | None = None

    def write(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
        """Let the sink write. Raises `SinkUnavailable` also where it cannot be opened."""
        return self._opened().write(jobs)

    def close(self) -> None:
        if self._sink:
            self._sink.close()

    def _opened(self) -> Sink:
        if self._sink is None:
            try:
                set_up_django(self._settings, models=self._planned.uses_models)
                from apps.archive.sinks.registry import open_sink

                self._sink = open_sink(self._planned.url)
            except Exception as error:  # of whatever is imported: no job is at fault
                raise SinkUnavailable(f"it cannot be opened: {error}") from error
        return self._sink


class LaterBeginner(LaterSink):
    """The same for a sink that begins ahead."""

    def begin(self, jobs: Sequence[CapturedJob]) -> None:
        """Let it begin. Raises `SinkUnavailable`."""
        cast(BeginsAhead, self._opened()).begin(jobs)


class LaterPlace:
    """A place that is opened when it is first asked."""

    def __init__(self, planned: PlannedPlace, settings: Mapping[str, Any]) -> None:
        self._planned = planned
        self._settings = settings
        self._place: Place | None = None

    def report(self, cluster: str, detail: Mapping[str, Any]) -> None:
        self._opened().report(cluster, detail)

    def masking_rules(self) -> Sequence[Any]:
        return self._opened().masking_rules()

    def close(self) -> None:
        if self._place:
            self._place.close()

    def _opened(self) -> Place:
        if self._place is None:
            set_up_django(self._settings, models=not self._planned.url)
            from apps.archive.sinks.base import SinkURL

            if self._planned.url:
                from apps.archive.sinks.portal import PortalClient

                self._place = PortalClient.from_url(SinkURL.parse(self._planned.url))
            else:
                from apps.archive.own_database import OwnDatabase

                self._place = OwnDatabase()
        return self._place


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
