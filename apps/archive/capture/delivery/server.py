"""A sink in its own process: what it is asked by the other side, and what it answers."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from apps.archive.handover.batches import unpack
from apps.archive.handover.entry import CapturedJob
from apps.archive.sinks.base import BeginsAhead, SinkRefused, SinkUnavailable, Writer

logger = logging.getLogger(__name__)

BEGIN, WRITE = "begin", "write"

# What to do; the number of a batch that is or was begun, or 0; and the packed jobs, none where they were begun.
Question = tuple[str, int, Sequence[bytes]]
Answer = Mapping[int, str] | SinkUnavailable | SinkRefused


class Serving:
    """Holds the batches that were begun until they are written, in that order, or something fails."""

    def __init__(self, sink: Writer) -> None:
        self._sink = sink
        self._begun: dict[int, Callable[[], Sequence[CapturedJob]]] = {}

    def answer(self, question: Question) -> Answer:
        """Do what is asked; return the reasons for refused jobs, or what is to be raised on the other side."""
        what, number, pieces = question
        if what == BEGIN:
            self._begin(number, pieces)
            return {}
        answer = self._write(self._taken(number)() if number else unpack(pieces))
        if isinstance(answer, Exception):
            self._begun.clear()
        return answer

    def _begin(self, number: int, pieces: Sequence[bytes]) -> None:
        if not isinstance(self._sink, BeginsAhead):
            self._begun[number] = partial(unpack, pieces)  # small until they are written
            return
        jobs = unpack(pieces)
        self._begun[number] = lambda: jobs
        with suppress(Exception):  # which `write` meets as well, and tells
            self._sink.begin(jobs)

    def _taken(self, number: int) -> Callable[[], Sequence[CapturedJob]]:
        """Return how to get at a batch, and forget those begun before it: nobody asks for them any more."""
        taken = self._begun[number]
        self._begun = {later: jobs for later, jobs in self._begun.items() if later > number}
        return taken

    def _write(self, jobs: Sequence[CapturedJob]) -> Answer:
        try:
            return dict(self._sink.write(jobs))
        except (SinkUnavailable, SinkRefused) as error:
            return type(error)(*error.args)
        except Exception as error:  # of the sink's library, which may not be known where it goes
            logger.exception("%s", self._sink.name)
            return SinkRefused(str(error).strip() or repr(error))
