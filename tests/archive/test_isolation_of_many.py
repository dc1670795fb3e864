"""Sinks that start at the same time: each drain gets the process of its own sink."""

import threading
from contextlib import closing

from apps.archive.capture.isolation import Nursery
from tests.contracts.sink import a_job


class Named:
    """Refuses everything in its own name."""

    def __init__(self, name):
        self.name = name

    def write(self, jobs):
        return {0: self.name}

    def close(self):
        pass


def test_each_drain_writes_to_its_own_sink():
    with closing(Nursery([Named(f"sink {number}") for number in range(8)])) as nursery:
        for _ in range(5):
            told, together = {}, threading.Barrier(8)

            def write(sink, told=told, together=together):
                together.wait()
                told[sink.name] = sink.write([a_job(1)])

            threads = [threading.Thread(target=write, args=(sink,)) for sink in nursery.sinks]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert told == {sink.name: {0: sink.name} for sink in nursery.sinks}
            for sink in nursery.sinks:
                sink.close()
