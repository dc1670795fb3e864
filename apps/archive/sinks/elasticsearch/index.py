"""The indices for jobs and their setup, by the options in the sink's URL."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from apps.archive.sinks.base import BadSink, SinkURL
from apps.archive.sinks.elasticsearch.documents import MAPPINGS

OPTIONS = ("replicas", "shards", "codec", "period", "retention", "ilm", "setup")
INDEX_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
CODECS = ("default", "best_compression")
# The first day of a job's period, and the maximum number of days in a period.
_PERIODS = {"daily": ("%Y.%m.%d", 1), "monthly": ("%Y.%m.01", 31), "yearly": ("%Y.01.01", 366)}


@dataclass(frozen=True, slots=True)
class Index:
    """The index for jobs: one, or one per period, so that old ones are easy to delete.

    The index of a job follows from its key alone, so that a job written again is the same document.
    """

    name: str
    replicas: int | None
    shards: int | None
    codec: str
    period: str
    retention_days: int | None
    ilm: str
    setup: bool

    @classmethod
    def from_url(cls, url: SinkURL) -> Self:
        """Return the index of a URL. Raises `BadSink`."""
        url.only(*OPTIONS)
        name = url.path.removeprefix("/")
        if not INDEX_NAME.fullmatch(name):
            raise BadSink(
                f"{name!r} is not an index name, such as jobs: lower-case letters, digits, . "
                "_ and -"
            )
        index = cls(
            name=name,
            replicas=number_option(url, "replicas", least=0),
            shards=number_option(url, "shards", least=1),
            codec=choice_option(url, "codec", CODECS),
            period=choice_option(url, "period", tuple(_PERIODS)),
            retention_days=number_option(url, "retention", least=1),
            ilm=url.options.get("ilm", ""),
            setup=choice_option(url, "setup", ("yes", "no")) != "no",
        )
        if index.retention_days and not index.period:
            raise BadSink(
                "the option retention needs period=daily, monthly or yearly: it deletes whole "
                "indices"
            )
        if index.retention_days and index.ilm:
            raise BadSink(
                "give only one of the options retention and ilm: retention creates a policy, "
                "ilm names one"
            )
        return index

    @property
    def template_name(self) -> str:
        return f"opsportal-{self.name}"

    def of(self, submitted_at: datetime) -> str:
        """Return the name of the index for jobs submitted at this time."""
        return (
            f"{self.name}-{submitted_at.strftime(_PERIODS[self.period][0])}"
            if self.period
            else self.name
        )

    def template(self) -> dict[str, Any]:
        """Return the index template.

        It includes the component template `opsportal-INDEX@custom`, if that exists.
        """
        settings: dict[str, Any] = {
            "number_of_replicas": self.replicas,
            "number_of_shards": self.shards,
            "codec": self.codec or None,
        }
        if policy := self.ilm or (self.template_name if self.retention_days else ""):
            settings["lifecycle"] = {
                "name": policy,
                "parse_origination_date": True if self.period else None,
            }
        custom = f"{self.template_name}@custom"
        return {
            "index_patterns": [f"{self.name}-*" if self.period else self.name],
            "priority": 200 + len(self.name),  # of two matching patterns, the longer name wins
            "composed_of": [custom],
            "ignore_missing_component_templates": [custom],
            "template": {
                "settings": {"index": without_none(settings)},
                "mappings": MAPPINGS,
                "aliases": {self.name: {}} if self.period else {},
            },
        }

    def policy(self) -> dict[str, Any] | None:
        """Return the lifecycle policy to create, or None.

        The policy deletes an index when the youngest job in it is old enough.
        """
        if self.retention_days is None:
            return None
        # The age of an index is counted from its first day.
        days = self.retention_days + _PERIODS[self.period][1]
        return {"phases": {"delete": {"min_age": f"{days}d", "actions": {"delete": {}}}}}


def without_none(settings: dict[str, Any]) -> dict[str, Any]:
    """Leave out values that are None, at every depth."""
    return {
        name: without_none(value) if isinstance(value, dict) else value
        for name, value in settings.items()
        if value is not None
    }


def number_option(url: SinkURL, option: str, *, least: int) -> int | None:
    """Return an option of a URL that is a number, None without it. Raises `BadSink`."""
    text = url.options.get(option)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and least <= int(text) <= 100_000):
        raise BadSink(f"the option {option} is a number from {least}, not {text!r}")
    return int(text)


def choice_option(url: SinkURL, option: str, known: tuple[str, ...]) -> str:
    """Return an option of a URL that is one of these, empty without it. Raises `BadSink`."""
    text = url.options.get(option, "")
    if text and text not in known:
        raise BadSink(f"the option {option} is one of {', '.join(known)}, not {text!r}")
    return text
