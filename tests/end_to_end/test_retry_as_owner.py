"""Failed jobs that the portal did not submit run again as their owner, once each,
whatever is killed.
"""

import io
import os
import re
import shutil
import subprocess
import tarfile
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import timezone

from apps.clusters.domain import adapter_of, ensure_cluster
from apps.clusters.schedulers.base import OwnedJob, SubmissionRefused
from apps.core import tasks as core_tasks
from apps.diagnosis.models import Verdict
from apps.jobs.models import Job
from apps.submission.domain.retries.batches import counts_of, plan_batch
from apps.submission.models import RetryJob
from apps.submission.tasks import release_retries, send_to
from tests.clusters.test_slurm_submission import SlurmHarness
from tests.contracts.submission import OwnerSubmissionContract
from tests.end_to_end.test_submission_slurm import Portal, kill_midway
from tests.factories import people
from tests.factories.archive import archive_all
from tests.factories.capture import capture_once

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user"),
]
OWNER = "nobody"
HELPER = Path(settings.BASE_DIR) / "bin" / "submit-as-owner"
#: Binds a sudoers file where sudo looks for it, in a mount namespace that ends with the command.
WITH_SUDOERS = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    'mount --bind "$1" /etc/sudoers && shift && exec "$@"',
    "sh",
)
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
    helper = slurm.directory / "submit-as-owner"
    helper.write_text(HELPER.read_text().replace("\nSLURM_CONF=\n", f"\nSLURM_CONF={slurm.conf}\n"))
    helper.chmod(0o755)
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
        capture_once(
            cluster=cluster.name,
            scheduler="slurm",
            spool=slurm.state_dir,
            journal=tmp_path / "journal",
        )
        archive_all()
        slurm.wait_ended(tasks)
        portal.collect(tasks)
        Job.objects.filter(spool_id__in=tasks).update(experiment=nova)
        core_tasks.deliver_waiting()
        portal.work_off()

    take_in({array: 2})
    failed = list(Verdict.objects.filter(job__spool_id=array).order_by("job__job_id"))
    assert [(row.job.user, row.job.job_id) for row in failed] == [
        (OWNER, f"{array}_3"),
        (OWNER, f"{array}_5"),
    ]
    batch = plan_batch(
        source=failed[0].group, by=approver, at=timezone.now(), step=10, pause_minutes=0
    )
    assert batch.jobs.filter(as_owner=True).count() == 2

    (place / "fixed").touch()
    release_retries()
    assert counts_of(batch) == {"released": 2}
    # sbatch has returned, and its answer is lost.
    kill_midway(
        "apps.clusters.schedulers.slurm.submission",
        "_id_in",
        "not done",
        "submission.send_to",
        cluster.pk,
    )
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
        assert (place / f"ran-{task}").read_text().splitlines() == [
            f"{OWNER} two words {task} a b"
        ] * 2
    assert set(
        Job.objects.filter(spool_id__in=[each for each, _ in retries]).values_list(
            "user", flat=True
        )
    ) == {OWNER}


@dataclass
class SlurmOwnerHarness(SlurmHarness):
    owner: str = OWNER


class TestSlurmOwnerSubmission(OwnerSubmissionContract):
    @pytest.fixture
    def harness(self, slurm, cluster, place):
        return SlurmOwnerHarness(adapter_of(cluster), slurm.state_dir, str(place))


def owned_job(**fields):
    """Return a job to submit as its owner."""
    values = {
        "name": "retry.1",
        "owner": OWNER,
        "first_id": "1",
        "script": b"#!/bin/sh\n",
        "environment": b"",
    }
    return OwnedJob(**values | fields)


def test_task_is_submitted_while_its_siblings_are_there(slurm, cluster, place):
    adapter = adapter_of(cluster)
    program = "#!/bin/sh\ntest $SLURM_ARRAY_TASK_ID -ne 3 && sleep 600\n"
    (place / "siblings.sh").write_text(program)
    options = ("--parsable", "--array=3-6%2", "--time=12", "--output=/dev/null")
    array = slurm.run(
        "runuser", "-u", OWNER, "--", "sbatch", *options, str(place / "siblings.sh")
    ).strip()
    slurm.wait_state(f"{array}_3", "FAILED")

    for running_or_queued in (4, 5, 6):
        with pytest.raises(
            SubmissionRefused, match=f"{array}_{running_or_queued} is queued or runs"
        ):
            adapter.submit_as_owner(
                owned_job(name="retry.2", first_id=array, task=running_or_queued)
            )
    retry = adapter.submit_as_owner(
        owned_job(name="retry.2", first_id=array, task=3, directory=str(place))
    )
    assert adapter.find_submitted("retry.2") == retry
    slurm.run("scancel", array, retry)


def test_nothing_is_submitted_as_root_or_while_the_first_job_is_there(slurm, cluster, place):
    adapter = adapter_of(cluster)
    waiting = slurm.run(
        "runuser",
        "-u",
        OWNER,
        "--",
        "sbatch",
        "--parsable",
        "--hold",
        "--output=/dev/null",
        "--wrap=true",
    ).strip()

    for refused in (
        {"owner": "root"},
        {"owner": "a b"},
        {"owner": "-x"},
        {"arguments": ("a\nb",)},
        {"name": "a;b"},
    ):
        with pytest.raises(SubmissionRefused):
            adapter.submit_as_owner(owned_job(**refused))
    with pytest.raises(SubmissionRefused, match="is queued or runs"):
        adapter.submit_as_owner(owned_job(first_id=waiting))
    slurm.run("scancel", waiting)
    assert adapter.find_submitted("retry.1") is None


def packed(script: bytes, environment: bytes = b"") -> bytes:
    """Return what the helper reads."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, data in (("script.sh", script), ("environment", environment)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return content.getvalue()


def test_helper_takes_no_program_or_setting_from_its_caller(slurm, place):
    intruder = place / "intruder"
    intruder.mkdir()
    for program in ("mktemp", "tar", "sbatch", "env"):
        (intruder / program).write_text(
            f'#!/bin/sh\ntouch {place}/intruded\nexec /usr/bin/{program} "$@"\n'
        )
        (intruder / program).chmod(0o755)
    result = subprocess.run(
        [
            "/usr/sbin/runuser",
            "-u",
            OWNER,
            "--",
            slurm.directory / "submit-as-owner",
            "--output=/dev/null",
            "--",
        ],
        input=packed(
            f"#!/bin/sh\n/usr/bin/env > {place}/variables\n".encode(), b"COLOUR=red\0LD_PRELOAD=\0"
        ),
        env={
            "PATH": f"{intruder}:/usr/bin:/bin",
            "SLURM_CONF": "/nowhere/slurm.conf",
            "TMPDIR": "/nowhere",
            "SBATCH_TEST_ONLY": "1",
            "SECRET": "of the portal",
        },
        capture_output=True,
        check=True,
    )

    slurm.wait_ended([result.stdout.decode().strip()])
    assert not (place / "intruded").exists()
    variables = (place / "variables").read_text()
    assert "COLOUR=red\n" in variables
    assert "SECRET" not in variables


def test_script_that_waits_for_its_job_holds_nobody(slurm, cluster, place):
    begun = time.monotonic()
    script = b"#!/bin/sh\n#SBATCH --wait --output=/dev/null\nsleep 600\n"
    retry = adapter_of(cluster).submit_as_owner(
        owned_job(name="retry.waits", script=script, directory=str(place))
    )
    assert time.monotonic() - begun < 20
    assert slurm.states(retry)[retry] in {"PENDING", "RUNNING"}
    slurm.run("scancel", retry)
    assert not list(Path("/tmp").glob("submit-as-owner.*"))


def test_sbatch_that_hangs_is_ended_by_the_helper(place):
    """Under sudo neither the portal nor its `timeout` may signal it,
    and a job could come after the look-up.
    """
    hanging = place / "hanging"
    hanging.mkdir()
    (hanging / "sbatch").write_text(f"#!/bin/sh\nexec sleep 1000 > {place}/hangs\n")
    (hanging / "sbatch").chmod(0o755)
    helper = place / "helper"
    text = HELPER.read_text().replace("\nPATH=", f"\nPATH={hanging}:")
    assert "--kill-after=5 50" in text
    helper.write_text(text.replace("--kill-after=5 50", "--kill-after=1 1"))
    helper.chmod(0o755)
    command = ["/usr/sbin/runuser", "-u", OWNER, "--", helper, "--"]
    result = subprocess.run(
        command, input=packed(b"#!/bin/sh\n"), capture_output=True, timeout=20, check=False
    )
    assert (result.returncode, result.stdout) == (124, b"")
    assert not list(Path("/tmp").glob("submit-as-owner.*"))


def test_documented_rule_of_sudo_allows_the_helper_and_nothing_else(slurm, place):
    text = (Path(settings.BASE_DIR) / "docs" / "submission.md").read_text()
    (rule,) = re.findall(r"^    (opsportal ALL=.*)$", text, re.MULTILINE)
    helper = slurm.directory / "submit-as-owner"
    rule = rule.replace("opsportal ", "daemon ").replace("%nova", "%nogroup")
    sudoers = slurm.directory / "sudoers"
    sudoers.write_text(
        rule.replace("/opt/opsportal/current/bin/submit-as-owner", str(helper)) + "\n"
    )
    sudoers.chmod(0o440)

    def sudo(user: str, *command: str) -> subprocess.CompletedProcess[str]:
        words = [
            *WITH_SUDOERS,
            sudoers,
            "/usr/sbin/runuser",
            "-u",
            "daemon",
            "--",
            "sudo",
            "-n",
            "-u",
            user,
            *command,
        ]
        script = packed(f"#!/bin/sh\nid -un > {place}/by-sudo\n".encode())
        result = subprocess.run(
            words, input=script, capture_output=True, check=False, env={"PATH": os.environ["PATH"]}
        )
        result.stdout, result.stderr = result.stdout.decode(), result.stderr.decode()
        return result

    allowed = sudo(OWNER, str(helper), "--output=/dev/null", "--")
    assert allowed.returncode == 0, allowed.stderr
    slurm.wait_ended([allowed.stdout.strip()])
    assert (place / "by-sudo").read_text() == f"{OWNER}\n"
    for user in ("root", "#0", "games", "-u root"):
        assert sudo(user, str(helper), "--").returncode == 1
    for command in (
        ["/bin/sh"],
        ["env", "X=1", str(helper)],
        ["-s"],
        ["-E", str(helper), "--"],
        ["LD_PRELOAD=/x", str(helper)],
    ):
        assert sudo(OWNER, *command).returncode == 1
    for option in ("--uid=0", "--uid=games", "--gid=0"):
        refused = sudo(OWNER, str(helper), option, "--output=/dev/null", "--")
        assert (refused.returncode != 0, refused.stdout) == (True, "")
