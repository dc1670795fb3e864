"""Processes of Celery that send spans: beat, and those that run tasks."""

from typing import Any

from celery.signals import beat_init, worker_process_init, worker_process_shutdown

from opsportal import tracing


@worker_process_init.connect
def on_worker_process_init(**_: Any) -> None:
    tracing.start(tracing.WORKER)


# The processes of a pool end without `atexit`.
@worker_process_shutdown.connect
def on_worker_process_shutdown(**_: Any) -> None:
    tracing.stop()


@beat_init.connect
def on_beat_init(sender: Any, **_: Any) -> None:
    tracing.instrument(sender.app)
    tracing.start(tracing.BEAT)
