"""The project: settings, Celery, root URLs. What the portal does lives in `apps`."""

import gc

# Almost all that is loaded at a start stays. With the usual threshold of 700 objects, looking through it for garbage
# again and again takes a seventh of the start of each process.
gc.set_threshold(50_000)
