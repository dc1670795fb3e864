"""Failed jobs that the portal did not submit run again as their owner, once each, whatever is killed."""

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from apps.clusters.domain import adapter_of, ensure_cluster
from apps.clusters.schedulers.base import OwnedJob, SubmissionRefused
from apps.core import tasks as core_tasks
from apps.diagnosis.models import Verdict
from apps.jobs.models import Job
from apps.submission.domain.retrying.batches import counts_of, plan_batch
from apps.submission.models import RetryJob
from apps.submission.tasks import release_retries, send_to
from tests.end_to_end.test_submission_slurm import Portal, kill_midway
from tests.factories import people
from tests.factories.archive import archive_all

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user"),
]
OWNER = "nobody"
#: Fails as long as there is no file `fixed`, and notes who ran it with what.
SCRIPT = """#!/bin/sh
#SBATCH --time=3
echo "$(id -un) $COLOUR $SLURM_ARRAY_TASK_ID $*" >> {place}/ran-$SLURM_ARRAY_TASK_ID
test -e {place}/fixed
"""


@pytest.fixture
def place(slurm):
    """A directory that the owner may write to, with the helper as a site would install it."""
    directory = slurm.jobs_dir / "of-owner"
    directory.mkdir(exist_ok=True)
    shutil.chown(directory, OWNER)
    shutil.copy(Path(settings.BASE_DIR) / "bin" / "submit-as-owner", slurm.directory)
    for each in (slurm.jobs_dir, slurm.directory):
        each.chmod(0o755)
    return directory


@pytest.fixture
def cluster(slurm, place):
    command = f"/usr/sbin/runuser -u {{user}} -- {slurm.directory}/submit-as-owner"
    return ensure_cluster(
        name=slurm.cluster,
        scheduler="slurm",
        by="test",
        at=people.LONG_AGO,
        options={"conf": str(slurm.conf), "log_owners": "root", "owner_command": command},
    )


def test_jobs_of_others_run_again_as_their_owner_once(slurm, cluster, place, nova, tmp_path):
    # A job of no experiment fails in the same way; this approver does not see it.
    approver = people.person("opg-nova", ("approver", nova))
    slurm.wait_ended([slurm.submit("#!/bin/sh\nexit 1\n", "--output=/dev/null")])
    script = SCRIPT.format(place=place)
    environment = {"COLOUR": "two words", "SBATCH_EXPORT": "ALL"}
    (place / "job.sh").write_text(script)
    array = slurm.run(
        *(
            "runuser",
            "-u",
            OWNER,
            "--",
            "sbatch",
            "--parsable",
            "--array=3,5",
            f"--chdir={place}",
            "--output=/dev/null",
        ),
        *(str(place / "job.sh"), "a", "b"),
        env=environment,
    ).strip()
    portal = Portal(cluster, slurm, tmp_path / "journal")

    def take_in(tasks):
        call_command(
            *("capture", "--once", "--cluster", cluster.name, "--scheduler", "slurm"),
            *("--spool", str(slurm.state_dir), "--journal", str(tmp_path / "journal")),
        )
        archive_all()
        slurm.wait_ended(tasks)
        portal.collect(tasks)
        Job.objects.filter(spool_id__in=tasks).update(experiment=nova)
        core_tasks.deliver_waiting()
        portal.work_off()

    take_in({array: 2})
    failed = list(Verdict.objects.filter(job__spool_id=array).order_by("job__job_id"))
    assert [(row.job.user, row.job.job_id) for row in failed] == [(OWNER, f"{array}_3"), (OWNER, f"{array}_5")]
    batch = plan_batch(source=failed[0].group, by=approver, at=timezone.now(), step=10, pause_minutes=0)
    assert batch.jobs.filter(as_owner=True).count() == 2

    (place / "fixed").touch()
    release_retries()
    assert counts_of(batch) == {"released": 2}
    # sbatch has returned, and its answer is lost.
    kill_midway("apps.clusters.schedulers.slurm.submission", "_id_in", "not done", "send_to", cluster.pk)
    lost = RetryJob.objects.get(sending_at__isnull=False)
    assert lost.spool_id == ""
    send_to(cluster_id=cluster.pk)
    lost.refresh_from_db()
    assert (lost.spool_id, lost.tries) == ("", 1)  # it may still be on its way
    RetryJob.objects.filter(pk=lost.pk).update(sending_at=timezone.now() - timedelta(hours=1))
    send_to(cluster_id=cluster.pk)
    send_to(cluster_id=cluster.pk)
    retries = list(batch.jobs.values_list("spool_id", "tries"))
    assert all(spool_id and tries == 1 for spool_id, tries in retries)
    take_in({spool_id: 1 for spool_id, _ in retries})
    RetryJob.objects.filter(pk=lost.pk).update(sending_at=lost.sending_at)
    send_to(cluster_id=cluster.pk)
    release_retries()

    batch.refresh_from_db()
    assert (batch.state, counts_of(batch)) == ("finished", {"succeeded": 2})
    for task in ("3", "5"):
        assert (place / f"ran-{task}").read_text().splitlines() == [f"{OWNER} two words {task} a b"] * 2
    assert set(Job.objects.filter(spool_id__in=[each for each, _ in retries]).values_list("user", flat=True)) == {OWNER}


def owned_job(**fields):
    """Return a job to submit as its owner."""
    values = {"name": "retry.1", "owner": OWNER, "first_id": "1", "script": b"#!/bin/sh\n", "environment": b""}
    return OwnedJob(**values | fields)


def test_task_is_submitted_while_its_siblings_are_there(slurm, cluster, place):
    adapter = adapter_of(cluster)
    program = "#!/bin/sh\ntest $SLURM_ARRAY_TASK_ID -ne 3 && sleep 600\n"
    (place / "siblings.sh").write_text(program)
    options = ("--parsable", "--array=3-6%2", "--time=12", "--output=/dev/null")
    array = slurm.run("runuser", "-u", OWNER, "--", "sbatch", *options, str(place / "siblings.sh")).strip()
    slurm.wait_state(f"{array}_3", "FAILED")

    for running_or_queued in (4, 5, 6):
        with pytest.raises(SubmissionRefused, match=f"{array}_{running_or_queued} is queued or runs"):
            adapter.submit_as_owner(owned_job(name="retry.2", first_id=array, task=running_or_queued))
    retry = adapter.submit_as_owner(owned_job(name="retry.2", first_id=array, task=3, directory=str(place)))
    assert adapter.find_submitted("retry.2") == retry
    slurm.run("scancel", array, retry)


def test_nothing_is_submitted_as_root_or_while_the_first_job_is_there(slurm, cluster, place):
    adapter = adapter_of(cluster)
    waiting = slurm.run(
        "runuser", "-u", OWNER, "--", "sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true"
    ).strip()

    for refused in ({"owner": "root"}, {"owner": "a b"}, {"owner": "-x"}, {"arguments": ("a\nb",)}, {"name": "a;b"}):
        with pytest.raises(SubmissionRefused):
            adapter.submit_as_owner(owned_job(**refused))
    with pytest.raises(SubmissionRefused, match="is queued or runs"):
        adapter.submit_as_owner(owned_job(first_id=waiting))
    slurm.run("scancel", waiting)
    assert adapter.find_submitted("retry.1") is None
