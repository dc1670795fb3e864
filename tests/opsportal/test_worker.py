"""How a worker ends."""

from celery.platforms import EX_FAILURE
from celery.worker import WorkController

from opsportal.celery import app


def test_worker_that_fails_waits_for_no_task(monkeypatch):
    """Else it would live on, deaf, until its last task ended: after Redis was killed under it,
    for example.
    """
    done = []
    monkeypatch.setattr(WorkController, "terminate", lambda *_: done.append("terminate"))
    monkeypatch.setattr(WorkController, "stop", lambda *_: done.append("stop"))
    worker = object.__new__(app.Worker)

    worker.stop(exitcode=EX_FAILURE)
    assert (done, worker.exitcode) == (["terminate", "stop"], EX_FAILURE)

    worker.stop()
    assert done == ["terminate", "stop", "stop"]
