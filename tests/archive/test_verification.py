"""The archive against accounting's copies, with copies that the test makes up."""

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from apps.archive.domain.retention import delete_expired, save_retention_rule
from apps.archive.domain.verification import CopyResult, check_copies
from apps.archive.models import ArchivedJob, RetentionRule
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import StoredCopy
from apps.clusters.schedulers.environment import pack
from apps.clusters.schedulers.slurm.scheduler import Slurm
from apps.core.domain.secrets.masking import Masker
from tests.factories.archive import START, captured_job, store

pytestmark = pytest.mark.django_db

VARIABLES = [
    (b"A", b"1"),
    (b"MULTI", b"one\nB=two"),
    (b"MY_TOKEN", b"first\nsecond"),
    (b"Z", b"last"),
]
#: As slurmdbd's lines are cut into variables.
LINES = [
    (b"A", b"1"),
    (b"MULTI", b"one"),
    (b"B", b"two"),
    (b"MY_TOKEN", b"first\nsecond"),
    (b"Z", b"last"),
]


@pytest.fixture
def masked(settings):
    settings.CAPTURE_MASK_NAMES, settings.MASKING_KEY = "TOKEN", "k" * 50
    variables, _ = Masker(names="TOKEN", key=b"k" * 50).mask(VARIABLES)
    return pack(variables)


def check(monkeypatch, *copies, at=START, **options):
    monkeypatch.setattr(Slurm, "stored_copies", lambda self, ids: iter(copies))
    findings = check_copies(cluster=Cluster.objects.get(), since=START, by="test", at=at, **options)
    return [(finding.kind, finding.detail) for finding in findings]


def copy(**changes):
    values = {
        "spool_id": "1",
        "submitted_at": START,
        "script": captured_job(1).script,
        "environment": pack(LINES),
    }
    return StoredCopy(**values | changes)


def test_masked_and_multi_line_values_are_compared(monkeypatch, masked):
    store(captured_job(1, environment=masked))
    other = [(name, b"third" if name == b"MY_TOKEN" else value) for name, value in LINES]

    assert check(monkeypatch, copy()) == [(CopyResult.NEWLINES, "")]
    assert check(monkeypatch, copy(environment=pack(other))) == [
        (CopyResult.ENVIRONMENT, "from variable MY_TOKEN on")
    ]
    assert check(monkeypatch, copy(environment=pack(LINES[:-1]))) == [
        (CopyResult.ENVIRONMENT, "from variable Z on")
    ]
    more = pack([*LINES, (b"MORE", b"secret")])
    assert check(monkeypatch, copy(environment=more)) == [
        (CopyResult.ENVIRONMENT, "accounting has more: MORE")
    ]


def test_value_with_a_secret_inside_is_compared(monkeypatch, settings):
    settings.CAPTURE_MASK_NAMES, settings.MASKING_KEY = "TOKEN", "k" * 50
    copied = [(b"OPTIONS", b"--n 2 --password x"), (b"Z", b"last")]
    variables, _ = Masker(names="TOKEN", key=b"k" * 50).mask(copied)
    store(captured_job(1, environment=pack(variables)))
    other = [(b"OPTIONS", b"--n 2 --password y"), (b"Z", b"last")]

    assert check(monkeypatch, copy(environment=pack(copied))) == [(CopyResult.ALIKE, "")]
    assert check(monkeypatch, copy(environment=pack(other))) == [
        (CopyResult.ENVIRONMENT, "from variable OPTIONS on")
    ]


def test_holes_other_scripts_and_lacking_jobs_are_told(monkeypatch):
    store(captured_job(1, environment=pack([(b"A", b"1")]), script=b"one\ntwo\n"))
    same = pack([(b"A", b"1")])

    assert check(monkeypatch, copy(script=b"one\ntwo\n", environment=same)) == [
        (CopyResult.ALIKE, "")
    ]
    assert check(monkeypatch, copy(script=None, environment=None)) == [
        (CopyResult.HOLE, ""),
        (CopyResult.NO_ENVIRONMENT, ""),
    ]
    assert check(monkeypatch, copy(script=b"one\n2\n", environment=same)) == [
        (CopyResult.SCRIPT, "from line 2 on")
    ]
    assert check(monkeypatch) == [(CopyResult.NO_COPY, "")]
    later = copy(submitted_at=START + timedelta(hours=1))
    assert check(monkeypatch, later) == [(CopyResult.NO_COPY, ""), (CopyResult.MISSING, "")]


def test_job_whose_end_is_not_known_is_filled_in_only_by_name(monkeypatch):
    store(captured_job(2))

    too_soon = "not filled in: it ended less than an hour ago, or is not collected"
    assert (CopyResult.MISSING, too_soon) in check(monkeypatch, copy(), backfill=True)
    assert (CopyResult.BACKFILLED, "") in check(monkeypatch, copy(), backfill=True, job_ids=["1"])
    assert (CopyResult.BACKFILLED, "") not in check(
        monkeypatch, copy(), backfill=True, job_ids=["1"]
    )

    assert ArchivedJob.objects.get(job_id="1").caveat == "from slurmdbd's copy, not from the spool"


@pytest.mark.parametrize("limits", [{"max_age_days": 30}, {"max_bytes": 0}])
def test_what_retention_has_deleted_is_not_filled_in_again(monkeypatch, limits):
    store(captured_job(1))
    at = START + timedelta(days=60)
    save_retention_rule(rule=RetentionRule(**limits), by="test", at=at)
    assert delete_expired(by="test", at=at, batches=9) == 1
    fresh = copy(spool_id="2", submitted_at=at)

    report = check(monkeypatch, copy(), fresh, at=at, backfill=True, job_ids=["1", "2"])

    assert report == [(CopyResult.EXPIRED, ""), (CopyResult.BACKFILLED, "")]


def test_scheduler_that_keeps_no_copies_says_so():
    store(captured_job(1, scheduler="simulated"))

    with pytest.raises(CommandError, match="simulated keeps no copies of scripts to check against"):
        call_command("archive", "check", "--cluster", "alps")
