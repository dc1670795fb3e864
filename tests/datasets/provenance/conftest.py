"""Requests whose stages write and read datasets, as rows."""

import pytest

from apps.production.enums import RequestState
from tests.factories import requests


@pytest.fixture
def produce(nova, liaison, approver):
    """Return a function that makes a request of NOvA.

    Each stage is a pair of input and output dataset; an empty input is the previous output.
    """

    def make(*pairs, state=RequestState.RUNNING, by=liaison, experiment=nova, scan="", **changes):
        stages = []
        for number, (read, written) in enumerate(pairs, start=1):
            stages.append(
                requests.stage(f"stage{number}", input_dataset=read, output_dataset=written)
            )
        return requests.request_in(
            state,
            by=by,
            experiment=experiment,
            approver=approver,
            stages=tuple(stages),
            scan=scan,
            **changes,
        )

    return make


@pytest.fixture
def produce_for_dune(produce, dune, other_liaison):
    """The same for DUNE."""

    def make(*pairs, **changes):
        return produce(*pairs, by=other_liaison, experiment=dune, **changes)

    return make
