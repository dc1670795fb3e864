"""Whose files a job may show: its user's, and those of the accounts that the cluster's options
allow.
"""

import os
import pwd

import pytest

from apps.clusters.domain import adapter_of
from apps.clusters.schedulers.user_files import FileReader, account_of
from apps.diagnosis.domain.reading import log_access as log_access_module
from apps.diagnosis.domain.reading.log_access import log_access, uid_of
from apps.diagnosis.domain.reading.log_scans import scan_logs
from apps.diagnosis.domain.reading.log_windows import log_view
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.models import LogExcerpt, LogHarvest, Verdict

SECRET = "the portal's secret key"
ACCOUNTS = {
    "root": 0,
    "nobody": 65534,
    "alice": os.getuid() + 1,
    "mallory": os.getuid() + 2,
    "prodsvc": 54321,
}


@pytest.fixture(autouse=True)
def accounts(monkeypatch):
    """Accounts of a host on which the account that runs the tests is `self`."""
    known = {**ACCOUNTS, "self": os.getuid()}
    monkeypatch.setattr(log_access_module, "uid_of", known.get)


@pytest.fixture
def job_of(make_job):
    """Make a job of this user on a cluster with this option `log_owners`."""

    def make(user: str, log_owners: str = "", **fields):
        job = make_job(user=user, **fields)
        job.cluster.options = {"log_owners": log_owners} if log_owners else {}
        job.cluster.save()
        return job

    return make


def texts(view) -> list[str]:
    return [line.line.text for line in view.lines]


def test_log_of_the_jobs_own_user_is_shown(job_of, roots, monkeypatch):
    job = job_of("carol", log="mine\n")
    if os.getuid() == 0:  # a job's user is never taken for root
        os.chown(roots / "1.out", 54321, -1)
    monkeypatch.setattr(log_access_module, "uid_of", {"carol": (roots / "1.out").stat().st_uid}.get)
    assert texts(log_view(job)) == ["mine"]


def test_log_of_another_user_is_neither_shown_nor_harvested_nor_scanned(job_of, at):
    job = job_of("mallory", log=f"{SECRET}\n")
    view = log_view(job)
    assert texts(view) == []
    assert view.problem.endswith("but the job ran as mallory.")
    assert not scan_logs(job=job, at=at).read
    queue_harvests(job_pks=[job.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(), at=at)
    row = LogHarvest.objects.get()
    assert (row.state, row.attempts, LogExcerpt.objects.count()) == ("path_not_allowed", 1, 0)
    assert any(
        "but the job ran as mallory" in reason["text"] for reason in Verdict.objects.get().reasons
    )


def test_hard_link_is_not_shown_even_where_the_cluster_allows_its_owner(job_of, roots):
    (roots.parent / "secret").write_text(SECRET)
    os.link(roots.parent / "secret", roots / "1.out")
    view = log_view(job_of("mallory", "self"))
    assert texts(view) == []
    assert "hard link" in view.problem


@pytest.mark.parametrize("owners", ["self", str(os.getuid()), f"prodsvc , {os.getuid()}"])
def test_owner_whom_the_cluster_allows_is_shown_for_any_job(job_of, owners):
    assert texts(log_view(job_of("nobody-knows", owners, log="by the service account\n"))) == [
        "by the service account"
    ]


@pytest.mark.parametrize("owners", ["", "prodsvc", "no-such-account", ",", "99999999999999999999"])
def test_user_unknown_on_this_host_is_shown_nothing(job_of, owners):
    view = log_view(job_of("nobody-knows", owners, log="whose?\n"))
    assert texts(view) == []
    assert "the job's user nobody-knows is not an ordinary account on this host" in view.problem


@pytest.mark.parametrize("user", ["root", "nobody", ""])
def test_root_and_nobody_own_logs_only_where_the_cluster_says_so(job_of, user):
    assert log_access(job_of(user, "prodsvc")).uid is None
    assert log_access(job_of(user, "root,nobody", number=2)).allowed_uids == {0, 65534}


def test_uid_of_accounting_counts_more_than_the_name(job_of, roots):
    """Names may differ between cluster and worker, or be given again."""
    assert log_access(job_of("alice", uid=4711)).uid == 4711
    assert log_access(job_of("no-such-user", number=2, uid=4712)).uid == 4712
    assert log_access(job_of("alice", number=3, uid=0)).uid is None
    assert log_access(job_of("alice", number=4)).uid == ACCOUNTS["alice"]


def test_accounts_are_looked_up_on_this_host():
    assert uid_of("root") == 0
    assert uid_of("no such user") is uid_of("nul\0") is uid_of("") is None


def test_rights_of_the_jobs_user_are_checked_only_where_the_cluster_says_so(job_of, roots):
    """A service account owns the log, and keeps it from the job's user."""
    job = job_of("alice", "self", log="for the service account alone\n")
    (roots / "1.out").chmod(0o600)
    assert texts(log_view(job)) == ["for the service account alone"]
    job.cluster.options["check_log_rights"] = True
    view = log_view(job)
    assert texts(view) == []
    assert "the job's user alice may not " in view.problem


def test_rights_are_those_of_the_uid_in_accounting(job_of):
    job = job_of("daemon", uid=4711)
    assert log_access(job).reader is None
    job.cluster.options = {"check_log_rights": True}
    assert log_access(job).reader == FileReader(4711)
    job.uid = pwd.getpwnam("daemon").pw_uid
    assert log_access(job).reader == account_of("daemon")
    job.uid = 0
    assert log_access(job).reader == FileReader()


def test_adapter_is_not_given_the_options(job_of):
    cluster = job_of("alice", "prodsvc").cluster
    cluster.options["check_log_rights"] = True
    cluster.scheduler = "slurm"  # which refuses options that it does not know
    assert adapter_of(cluster).name == "slurm"
