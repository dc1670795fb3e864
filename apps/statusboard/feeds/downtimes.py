"""Downtimes of the grid as XML: OSG's topology (rgdowntime) and GOCDB (get_downtime).

GOCDB's services may be nested or not. XML is parsed without entities and DTD. A downtime is a
window of each of its resources; a downtime that disappears is cancelled.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from apps.statusboard.feeds.base import Feed, Message, UnreadablePayload, Window
from apps.statusboard.feeds.values import epoch, text_of

_OSG_EFFECTS = {"outage": "down", "severe": "down", "intermittent outage": "degraded"}
_GOCDB_EFFECTS = {"outage": "down", "warning": "degraded"}


class OsgDowntimes(Feed):
    name = "osg-downtimes"
    pulls = ("",)

    def parse(self, body: bytes) -> Message:
        return _message(body, "Downtime", _osg)


class Gocdb(Feed):
    name = "gocdb"
    pulls = ("",)

    def parse(self, body: bytes) -> Message:
        return _message(body, "DOWNTIME", _gocdb)


def _message(body: bytes, tag: str, read: object) -> Message:
    try:
        root = fromstring(body, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise UnreadablePayload(f"invalid XML: {type(error).__name__} {error}") from error
    if root.tag not in ("Downtimes", "results"):
        raise UnreadablePayload(f"not a list of downtimes: <{root.tag[:40]}>")
    windows: list[Window] = []
    notes: list[str] = []
    for place, entry in enumerate(root.iter(tag)):
        try:
            windows += read(entry)  # type: ignore[operator]
        except (ValueError, OverflowError, OSError) as error:
            notes.append(f"downtime {place} skipped: {error}")
    return Message((), tuple(notes), tuple(windows), is_complete=True)


def _text(entry: Element, path: str) -> str:
    return text_of(entry.findtext(path)).strip()


def _osg(entry: Element) -> Iterator[Window]:
    severity = _text(entry, "Severity").lower()
    resource = _text(entry, "ResourceName")
    yield Window(
        key=_text(entry, "ID")[:200],
        starts_at=_osg_time(_text(entry, "StartTime")),
        ends_at=_osg_time(_text(entry, "EndTime")),
        title=f"{resource}: {_text(entry, 'Class').lower()} downtime"[:200],
        text=_text(entry, "Description"),
        labels={
            "resource": resource,
            "group": _text(entry, "ResourceGroup/GroupName"),
            "host": _text(entry, "ResourceFQDN"),
            "type": ", ".join(
                text_of(name.text) for name in entry.iterfind("Services/Service/Name")
            ),
        },
        effect=_OSG_EFFECTS.get(severity, "at_risk"),
    )


def _osg_time(text: str) -> datetime:
    """Parse `Aug 18, 2026 22:00 PM UTC`: a 24-hour clock whose AM or PM is ignored."""
    date, _, rest = text.rpartition(" UTC")[0].rpartition(" ")[0].rpartition(" ")
    return datetime.strptime(f"{date} {rest}", "%b %d, %Y %H:%M").replace(tzinfo=UTC)


def _gocdb(entry: Element) -> Iterator[Window]:
    starts_at = epoch(_text(entry, "START_DATE"))
    ends_at = epoch(_text(entry, "END_DATE"))
    if starts_at is None or ends_at is None:
        raise ValueError("START_DATE or END_DATE is missing")
    number = entry.get("ID", "")
    for service in entry.findall("SERVICES/SERVICE") or [entry]:
        host = _text(service, "HOSTNAME")
        kind = _text(service, "SERVICE_TYPE")
        yield Window(
            key=f"{number} {host} {kind}"[:200],
            starts_at=starts_at,
            ends_at=ends_at,
            title=f"{host}: {entry.get('CLASSIFICATION', '').lower()} downtime"[:200],
            text=_text(entry, "DESCRIPTION"),
            labels={"host": host, "type": kind, "site": _text(service, "HOSTED_BY")},
            effect=_GOCDB_EFFECTS.get(_text(entry, "SEVERITY").lower(), "at_risk"),
        )
