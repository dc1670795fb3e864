"""Writing to a sink so that one bad job costs its neighbours nothing."""

from collections.abc import Mapping, Sequence

from apps.archive.handover.entry import CapturedJob
from apps.archive.sinks.base import SinkUnavailable, Writer


def write_all(sink: Writer, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
    """Write them, each alone where they are not taken together; return the reasons for those not taken.

    Raises `SinkUnavailable`.
    """
    try:
        return sink.write(jobs)
    except SinkUnavailable:
        raise
    except Exception:  # one of them is at fault: the others must not wait for it
        return {index: reason for index, job in enumerate(jobs) if (reason := _write_alone(sink, job))}


def _write_alone(sink: Writer, job: CapturedJob) -> str:
    """Return why the sink does not take it, or an empty text."""
    try:
        return sink.write([job]).get(0, "")
    except SinkUnavailable:
        raise
    except Exception as error:  # what a sink raises over one job must not cost the others
        return str(error).strip() or repr(error)
