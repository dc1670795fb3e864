"""States of the input files of stages."""

from django.db import models


class FileState(models.TextChoices):
    """Where an input file of a stage stands. Each is in exactly one state.

    A failed file was read by a job that failed and that is not retried. A file that was given up is
    not read any more, for a reason that a person gave.
    """

    WAITING = "waiting", "waiting"
    TAKEN = "taken", "taken"
    DONE = "done", "done"
    FAILED = "failed", "failed"
    GIVEN_UP = "given_up", "given up"


#: Files in these states can be given up: no job reads them.
NOT_IN_A_JOB = frozenset({FileState.WAITING, FileState.FAILED})


class ChosenFiles(models.TextChoices):
    """Files of a stage of which a dataset is made."""

    ALL = "all", "all input files"
    DONE = "done", "input files that are done"
    MISSING = "missing", "input files that are waiting or failed"
    GIVEN_UP = "given_up", "input files that were given up"
    OUTPUTS = "outputs", "output files that count"


class MakingState(models.TextChoices):
    """Where a dataset that is made in a catalogue stands."""

    QUEUED = "queued", "not made yet"
    MADE = "made", "made"
    REFUSED = "refused", "refused"


class StagingState(models.TextChoices):
    """Where a request to bring a dataset to disk stands."""

    QUEUED = "queued", "not sent yet"
    STAGING = "staging", "staging"
    COMPLETE = "complete", "on disk"
    REFUSED = "refused", "refused"
    OVERDUE = "overdue", "not on disk by the deadline"
    CANCELLED = "cancelled", "no longer followed"


#: The portal sends these to the catalogue, or asks for their progress.
FOLLOWED = frozenset({StagingState.QUEUED, StagingState.STAGING})
