"""The project: settings, Celery, root URLs. What the portal does lives in `apps`."""

import gc

_USUAL_THRESHOLDS = gc.get_threshold()
# Almost all that is loaded at a start stays. With the usual threshold of 700 objects, looking
# through it for garbage again and again takes a seventh of the start of each process.
gc.set_threshold(50_000)


def finish_start() -> None:
    """Keep all that is loaded out of later collections of garbage,
    which become as frequent as usual again.

    Web server and workers call it before they fork: what no collection looks at stays shared.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_USUAL_THRESHOLDS)
