"""What belongs to a record of the back office, and is done elsewhere: links on its page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from django.apps import apps
from django.db.models import Model
from django.urls import reverse
from django.utils import timezone

from apps.core.domain.hidden_characters import first_characters

#: Length to which an error of accounting is shortened; its own page has all of it.
_MOST_CHARACTERS = 120


@dataclass(frozen=True)
class RecordLink:
    """A page about a record.

    Its address is that of `view`, whose argument is the attribute `argument` of the record, if set;
    the query has attributes of the record: `?q={name}`.
    """

    text: str
    view: str
    query: str = ""
    argument: str = ""

    def address_of(self, record: Model) -> str:
        arguments = []
        if self.argument:
            arguments.append(getattr(record, self.argument))
        return reverse(self.view, args=arguments) + self.query.format_map(_Quoted(record))


class _Quoted(dict[str, Any]):
    """The attributes of a record, quoted for a query."""

    def __init__(self, record: Model) -> None:
        super().__init__()
        self.record = record

    def __missing__(self, name: str) -> str:
        return quote(str(getattr(self.record, name)))


#: Links on the page of a record, by its model.
SEE_ALSO: Mapping[str, tuple[RecordLink, ...]] = {
    "clusters.Cluster": (
        RecordLink(
            "Its capture hosts and their tokens",
            "admin:archive_capturehost_changelist",
            "?q={name}",
        ),
        RecordLink("Add a capture host", "admin:archive_capturehost_add", "?clusters={name}"),
        RecordLink("Is all well?", "portal:health"),
    ),
    "archive.CaptureHost": (RecordLink("Health of captures", "portal:health"),),
    "statusboard.Service": (
        RecordLink("Schedule maintenance", "statusboard:schedule-window", "?service={slug}"),
        RecordLink("Report an incident", "statusboard:report-incident", "?service={slug}"),
        RecordLink(
            "Rules for its alerts",
            "admin:statusboard_labelrule_changelist",
            "?service__id__exact={pk}",
        ),
    ),
    "statusboard.MonitoringSource": (
        RecordLink("Test it, or rotate its token", "statusboard:source", argument="slug"),
        RecordLink(
            "What it posted", "admin:statusboard_rawpayload_changelist", "?source__id__exact={pk}"
        ),
    ),
    "accounts.User": (
        RecordLink("What the user did", "admin:core_event_changelist", "?by=people&q={username}"),
        RecordLink(
            "Changes in the back office", "admin:admin_logentry_changelist", "?user__id__exact={pk}"
        ),
    ),
    "production.ExperimentShare": (
        RecordLink("All shares, with a preview of their effect", "production:shares"),
    ),
    "diagnosis.KnownError": (RecordLink("Known errors", "diagnosis:known-errors"),),
    "core.Event": (
        RecordLink("All events of it", "admin:core_event_changelist", "?by=all&q={target_label}"),
    ),
}


def links_of(record: Model) -> list[tuple[str, str]]:
    """Return the text and the address of each link on the page of a record."""
    links = []
    if record._meta.label == "clusters.Cluster":
        links += _accounting_of(record)
    for link in SEE_ALSO.get(record._meta.label, ()):
        links.append((link.text, link.address_of(record)))
    return links


def _accounting_of(cluster: Any) -> list[tuple[str, str]]:
    """Say whether the accounting of a cluster is read, and if not, why and what to do.

    Its model is looked up, since this is imported before the models are.
    """
    collection = apps.get_model("jobs.Collection")._default_manager.filter(cluster=cluster).first()
    all_clusters = reverse("admin:jobs_collection_changelist")
    if not cluster.collects:
        return [("It collects no jobs now", all_clusters)]
    if collection is None:
        return [("Its accounting is not read yet", all_clusters)]
    address = reverse("admin:jobs_collection_change", args=[collection.pk])
    if not collection.last_error:
        until = timezone.localtime(collection.collected_until)
        return [(f"Its accounting is read until {until:%d %b %H:%M}", address)]
    error = first_characters(collection.last_error, _MOST_CHARACTERS)
    remedy = reverse("core:help", args=["jobs"]) + "#accounting-that-cannot-be-read"
    return [(f"Its accounting cannot be read: {error}", address), ("What to do", remedy)]
