"""Interface of archive sinks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from capture.wire.entry import CapturedJob


class SinkError(Exception):
    """A sink did not store the jobs that it was given."""


class SinkUnavailable(SinkError):
    """The sink cannot be reached now. The jobs are not at fault: try again later."""


class SinkRefused(SinkError):
    """The sink is reachable but refuses at least one of these jobs; the message says why."""


class BadSink(SinkError):
    """The URL of a sink cannot be used; the message names the part that is wrong."""


@dataclass(frozen=True, slots=True)
class SinkURL:
    """The parts of a sink's URL: `scheme://host:port,host:port/path?option=value`.

    Never contains a password.
    """

    scheme: str
    hosts: tuple[str, ...]
    path: str
    options: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a URL. Raises `BadSink`, also for a user: secrets come from environment or file."""
        scheme = text.partition(":")[0]
        if "@" in text.partition("://")[2].partition("/")[0]:
            raise BadSink(
                f"the URL of the {scheme} sink contains a user: set it in the settings instead"
            )
        try:
            parts = urlsplit(text)
            hosts = tuple(
                host for host in parts.netloc.split(",") if urlsplit(f"//{host}").port != 0 and host
            )
        except ValueError:  # its message could contain a part of a password
            raise BadSink(f"the URL of the {scheme} sink has a bad host or port") from None
        if not parts.scheme:
            raise BadSink(
                f"{text!r} is not the URL of a sink, such as store: or files:///DIRECTORY"
            )
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        return cls(parts.scheme, hosts, unquote(parts.path), options)

    def only(self, *known: str) -> None:
        """Raise `BadSink` if an option is not one of `known`."""
        unknown = sorted(self.options.keys() - set(known))
        if unknown:
            raise BadSink(
                f"the {self.scheme} sink has no option {unknown[0]!r}, only: "
                f"{', '.join(known) or 'none'}"
            )


class Writer(Protocol):
    """A place that stores captured jobs.

    It may be given the same job more than once and must store it once. All calls come from one
    thread, or from one process of its own.
    """

    #: Key of the sink's backlog in the portal: the same for the same place, different for others.
    name: str

    def write(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
        """Store `jobs` durably; return the reasons for refused jobs, by index.

        Raises `SinkUnavailable`, after which any of the jobs may have been stored. Raises
        `SinkRefused` if the sink cannot tell which job is at fault: then none was stored, and each
        is tried alone.
        """

    def close(self) -> None:
        """Close connections. Called when the worker process ends."""


class Sink(Writer, Protocol):
    """A writer created from a URL, in the process that uses it.

    A sink that shows who submitted a job has a true attribute `wants_described`: it gets a job
    again when its user, account and name become known.
    """

    @classmethod
    def from_url(cls, url: SinkURL) -> Self:
        """Create the sink without connecting or starting threads. Raises `BadSink`."""


def write_all(sink: Writer, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
    """Write jobs; if one makes the batch fail, write each alone.

    Return the reasons for refused jobs, by index. Raises `SinkUnavailable`.
    """
    try:
        return sink.write(jobs)
    except SinkUnavailable:
        raise
    except Exception:  # one job is at fault: the others must not wait for it
        refused: dict[int, str] = {}
        for index, job in enumerate(jobs):
            try:
                if reason := sink.write([job]).get(0):
                    refused[index] = reason
            except SinkUnavailable:
                raise
            except Exception as error:  # an error for one job must not affect the others
                refused[index] = str(error).strip() or repr(error)
        return refused
