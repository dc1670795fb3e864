"""The job queue log, followed while the schedd writes it."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.clusters.schedulers.base import SpoolError
from apps.clusters.schedulers.htcondor import queue_log
from apps.clusters.schedulers.htcondor.queue_log import JobQueueLog
from tests.factories.htcondor_spool import Schedd

ROOT = Path(__file__).parents[3]


@pytest.fixture
def log(schedd):
    log = JobQueueLog(schedd.log)
    yield log
    log.close()


def seen(log):
    """Return all that is known of the clusters, those that are gone apart."""
    log.refresh()
    return [
        {number: (c.first_proc, sorted(c.ad().items())) for number, c in clusters.items()}
        for clusters in (log.clusters, log.destroyed)
    ]


def test_clusters_come_with_what_their_first_job_adds(schedd, log):
    schedd.submit(7, [{"Args": "one"}, {"Args": "two"}], Cmd="run.sh")
    log.refresh()

    ad = log.clusters[7].ad()

    assert (ad[b"cmd"], ad[b"args"], ad[b"procid"]) == (
        b'Cmd = "run.sh"',
        b'Args = "one"',
        b"ProcId = 0",
    )
    assert log.clusters[7].submitted() == pytest.approx(time.time(), abs=5)


def test_attributes_are_set_again_and_deleted_whatever_the_case_of_their_names(schedd, log):
    schedd.submit(7)
    schedd.append(b'103 07.-1 CMD "other"\n104 07.-1 owner\n')
    log.refresh()

    assert log.clusters[7].common[b"cmd"] == b'CMD = "other"'
    assert b"owner" not in log.clusters[7].common


def test_ads_of_users_and_job_sets_are_no_clusters(schedd, log):
    schedd.append(
        b'101 0.7 Owner *\n103 0.7 User "x"\n101 07.-100 JobSet *\n103 07.-100 JobSetId 7\n'
    )

    assert seen(log) == [{}, {}]


@pytest.mark.parametrize("rest", [1, 5, 200])
def test_a_transaction_counts_when_its_end_is_written(schedd, log, rest):
    content = schedd.submission(7)
    schedd.append(content[:-rest])
    assert seen(log) == [{}, {}]

    schedd.append(content[-rest:])
    assert [*seen(log)[0]] == [7]


def test_a_record_counts_when_its_line_is_whole(schedd, log):
    schedd.submit(7)
    schedd.append(b'103 07.-1 Cmd "half')
    log.refresh()
    assert log.clusters[7].common[b"cmd"] == b'Cmd = "/bin/true"'

    schedd.append(b'"\n')
    log.refresh()
    assert log.clusters[7].common[b"cmd"] == b'Cmd = "half"'


def test_a_new_file_takes_the_place_of_the_old_one(schedd, log):
    schedd.submit(1)
    schedd.submit(2)
    log.refresh()
    schedd.submit(3)
    schedd.remove(2)
    schedd.compact()
    schedd.submit(4)
    log.refresh()

    assert [*log.clusters] == [1, 3, 4]
    assert [*log.destroyed] == [2]


def test_a_cluster_that_came_and_went_before_the_file_was_replaced_is_not_missed(schedd, log):
    log.refresh()
    schedd.submit(5, Cmd="short.sh")
    schedd.remove(5)
    schedd.compact()
    log.refresh()

    assert log.find(5).ad()[b"cmd"] == b'Cmd = "short.sh"'


def test_who_was_away_as_the_file_was_replaced_finds_the_jobs_in_the_old_one(schedd, log):
    for number in (1, 2):
        schedd.submit(number)
    schedd.remove(2)
    schedd.compact()
    schedd.submit(3)

    assert [[*clusters] for clusters in seen(log)] == [[1, 3], [2]]


def test_a_transaction_that_the_schedd_died_in_is_forgotten(schedd, log):
    schedd.append(schedd.submission(5)[:-5])
    del schedd.ads["05.-1"], schedd.ads["5.0"]
    log.refresh()
    schedd.compact()
    schedd.submit(6)

    assert [*seen(log)[0]] == [6]


@pytest.mark.parametrize("same_size", [True, False])
def test_a_file_written_anew_in_its_place_is_read_from_its_start(schedd, log, same_size):
    schedd.submit(1)
    log.refresh()
    content = schedd.log.read_bytes()
    other = content.replace(b"107 1 ", b"107 2 ").replace(b"1.", b"3.")
    schedd.log.write_bytes(other if same_size else other[: other.index(b"105")])
    log.refresh()

    assert [*log.clusters] == ([3] if same_size else [])


def test_no_more_are_kept_of_those_that_are_gone_than_is_bearable(schedd, log, monkeypatch):
    monkeypatch.setattr(queue_log, "MOST_DESTROYED", 3)
    for number in range(1, 7):
        schedd.submit(number)
        schedd.remove(number)
    log.refresh()

    assert [*log.destroyed] == [4, 5, 6]


@pytest.mark.parametrize(
    "content",
    [b"\0" * 1000, b"nonsense\n\n\n105\n106\n106\n102 09.-1\n103 9.9 A 1\n101\n104\n103\n"],
)
def test_what_is_no_record_is_passed_over(schedd, log, content):
    schedd.append(content + b"\n")
    schedd.submit(7)

    assert [*seen(log)[0]] == [7]


def test_a_log_that_is_none_is_an_error(tmp_path):
    with pytest.raises(SpoolError, match="No such file"):
        JobQueueLog(tmp_path / "job_queue.log").refresh()
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(SpoolError, match="symbolic links"):
        JobQueueLog(tmp_path / "link").refresh()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SpoolError, match="not a regular file"):
        JobQueueLog(tmp_path / "fifo").refresh()


def test_a_log_that_is_away_for_a_while_is_read_on(schedd, log):
    schedd.submit(1)
    log.refresh()
    schedd.log.rename(schedd.spool / "away")
    with pytest.raises(SpoolError):
        log.refresh()
    (schedd.spool / "away").rename(schedd.log)
    schedd.submit(2)

    assert [*seen(log)[0]] == [1, 2]


@st.composite
def histories(draw):
    """Draw what a schedd does, as numbers of clusters submitted (positive) and removed
    (negative).
    """
    steps, there = [], []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        steps.append(number)
        there.append(number)
        if draw(st.booleans()):
            steps.append(-there.pop(draw(st.integers(0, len(there) - 1))))
    return steps


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=histories(), data=st.data())
def test_however_the_bytes_arrive_the_jobs_are_the_same(tmp_path_factory, steps, data):
    directory = tmp_path_factory.mktemp("spool")
    schedd = Schedd(directory)
    start = schedd.log.read_bytes()
    content = b"".join(
        schedd.submission(n, [{}, {"A": n}]) if n > 0 else schedd.removal(-n) for n in steps
    )
    schedd.append(content)
    whole, parts = JobQueueLog(schedd.log), JobQueueLog(directory / "parts")
    expected = seen(whole)

    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    (directory / "parts").write_bytes(start)
    for first, last in zip([0, *cuts], [*cuts, len(content)], strict=True):
        with (directory / "parts").open("ab") as file:
            file.write(content[first:last])
        parts.refresh()

    assert seen(parts) == expected
    whole.close()
    parts.close()


WRITER = """
import sys
from pathlib import Path
from tests.factories.htcondor_spool import Schedd
schedd = Schedd(Path(sys.argv[1]))
number = 0
while True:
    number += 1
    schedd.submit(number, [{}, {}])
    if number % 50 == 0:
        schedd.compact()
    print(number, flush=True)
"""


def test_a_schedd_killed_as_it_writes_leaves_what_it_has_told(tmp_path):
    """Its log is followed all the time: every cluster that it told of is there,
    and none in part.
    """
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path / "spool"], cwd=ROOT, stdout=subprocess.PIPE
    )
    told = int(writer.stdout.readline())
    log = JobQueueLog(tmp_path / "spool" / "job_queue.log")
    end = time.monotonic() + random.uniform(0.2, 0.4)
    while time.monotonic() < end:
        log.refresh()
    writer.send_signal(signal.SIGKILL)
    rest = writer.communicate(timeout=10)[0].split(b"\n")
    told = max([told, *map(int, filter(None, rest[:-1]))])

    log.refresh()

    assert set(range(1, told + 1)) <= log.clusters.keys()
    assert {len(cluster.ad()) for cluster in log.clusters.values()} == {12}
    log.close()
