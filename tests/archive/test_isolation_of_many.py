"""Sinks and places that start at the same time: each who asks gets the process of its own."""

import threading
from contextlib import closing

import pytest

from apps.archive.capture.delivery.isolation import Nursery
from tests.contracts.sink import a_job


class Named:
    """A sink that refuses everything in its own name, and a place that has it for a rule."""

    def __init__(self, name):
        self.name = name

    def write(self, jobs):
        return {0: self.name}

    def masking_rules(self):
        return [self.name]

    def close(self):
        pass


@pytest.fixture
def nursery():
    sinks = [Named(f"sink {number}") for number in range(4)]
    places = [(Named(f"place {number}"), None) for number in range(4)]
    with closing(Nursery(sinks, places)) as nursery:
        yield nursery


def test_each_is_told_by_its_own_process(nursery):
    asking = {sink.name: lambda sink=sink: sink.write([a_job(1)])[0] for sink in nursery.sinks}
    asking |= {f"place {n}": lambda place=place: place.masking_rules()[0] for n, place in enumerate(nursery.places)}
    for _ in range(5):
        told, together = {}, threading.Barrier(len(asking))

        def ask(name, told=told, together=together):
            together.wait()
            told[name] = asking[name]()

        threads = [threading.Thread(target=ask, args=(name,)) for name in asking]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert told == {name: name for name in asking}
        for each in (*nursery.sinks, *nursery.places):
            each.close()
