"""Interface of archive sinks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from capture.wire.entry import CapturedJob


class SinkError(Exception):
    """A sink does not keep what it was given."""


class SinkUnavailable(SinkError):
    """The sink cannot be reached now. Nothing is wrong with the jobs: try again later."""


class SinkRefused(SinkError):
    """The sink can be reached and does not take these jobs, at least one of them;
    the message says why.
    """


class BadSink(SinkError):
    """The URL of a sink cannot be used; the message names the part that is wrong."""


@dataclass(frozen=True, slots=True)
class SinkURL:
    """A sink's URL in its parts: `scheme://host:port,host:port/path?option=value`.

    Never holds a password.
    """

    scheme: str
    hosts: tuple[str, ...]
    path: str
    options: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `BadSink`. The user part is refused: secrets come by the environment or a file."""
        scheme = text.partition(":")[0]
        if "@" in text.partition("://")[2].partition("/")[0]:
            raise BadSink(
                f"the URL of the {scheme} sink names a user: give it by the settings instead"
            )
        try:
            parts = urlsplit(text)
            hosts = tuple(
                host for host in parts.netloc.split(",") if urlsplit(f"//{host}").port != 0 and host
            )
        except ValueError:  # whose own words hold a part of what may be a password
            raise BadSink(f"the URL of the {scheme} sink has a bad host or port") from None
        if not parts.scheme:
            raise BadSink(f"{text!r} is no URL of a sink, such as store: or files:///DIRECTORY")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        return cls(parts.scheme, hosts, unquote(parts.path), options)

    def only(self, *known: str) -> None:
        """Raises `BadSink` where an option is none of `known`."""
        unknown = sorted(self.options.keys() - set(known))
        if unknown:
            raise BadSink(
                f"the {self.scheme} sink has no option {unknown[0]!r}, only: "
                f"{', '.join(known) or 'none'}"
            )


class Writer(Protocol):
    """A place that keeps captured jobs.

    It may be given the same job more than once and must keep it once.

    All calls come from one thread, or process, of its own.
    """

    #: Under this name the portal keeps what the sink lacks: the same for the same place, different
    #: for others.
    name: str

    def write(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
        """Keep `jobs` durably and return the reasons for those that the sink does not take,
        by their index.

        Raises `SinkUnavailable`, and then may have kept any of them; or `SinkRefused` where it
        cannot tell which one is at fault: then none was kept, and each is tried alone.
        """

    def close(self) -> None:
        """Let go of connections. Called when the worker process ends."""


class Sink(Writer, Protocol):
    """A writer that is made of a URL, in the process that uses it.

    One that shows who submitted a job has an attribute `wants_described` that is true: it gets a
    job again when its user, account and name become known.
    """

    @classmethod
    def from_url(cls, url: SinkURL) -> Self:
        """Open the sink, without reaching out yet, and without threads. Raises `BadSink`."""


def write_all(sink: Writer, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
    """Write jobs, each alone where one of them makes the batch fail;
    return the reasons for those refused, by index.

    Raises `SinkUnavailable`.
    """
    try:
        return sink.write(jobs)
    except SinkUnavailable:
        raise
    except Exception:  # one of them is at fault: the others must not wait for it
        refused: dict[int, str] = {}
        for index, job in enumerate(jobs):
            try:
                if reason := sink.write([job]).get(0):
                    refused[index] = reason
            except SinkUnavailable:
                raise
            except Exception as error:  # what a sink raises over one job must not cost the others
                refused[index] = str(error).strip() or repr(error)
        return refused
