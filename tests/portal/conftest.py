from datetime import timedelta

import pytest
from django.utils import timezone

from apps.archive.models import ArchivedJob
from apps.clusters.schedulers.base import JobState
from apps.search.models import LogIndex
from tests.archive.conftest import index_words
from tests.factories import people
from tests.factories.archive import captured_job, store
from tests.search.kept_logs import job, keep_log

AT = timezone.now() - timedelta(hours=1)
LOG = b"start\nart: <b>cannot open</b> libA.so: Input/output error\nexit 21\n"


@pytest.fixture
def logs():
    LogIndex.objects.create(pk=1, complete=True)
    nova, dune = people.nova(), people.dune()
    mine = job(1, at=AT, experiment=nova, stage="reco", host="wn-1")
    keep_log(mine, LOG)
    other = job(2, at=AT - timedelta(hours=1), experiment=dune, stage="sim", host="wn-2")
    keep_log(other, b"ok", LOG)
    store(captured_job(3, script=b"#!/bin/sh\necho cannot open x\n", user="ana"))
    ArchivedJob.objects.update(experiment=nova, state=JobState.FAILED)
    index_words()
    return mine, other
