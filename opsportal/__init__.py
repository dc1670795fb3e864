"""The Django project: settings, Celery, root URLs. The functions of the portal are in `apps`."""

import gc

_USUAL_THRESHOLDS = gc.get_threshold()
# Almost everything that is loaded at the start is kept. With the default threshold of 700 objects,
# repeated garbage collections take a seventh of the start of every process.
gc.set_threshold(50_000)


def finish_start() -> None:
    """Exclude everything loaded so far from garbage collection, and restore its usual frequency.

    Web servers and workers call this before they fork: memory that no collection visits stays
    shared.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_USUAL_THRESHOLDS)
