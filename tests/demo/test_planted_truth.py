"""What the portal says about the demo's jobs is what was planted: each verdict,
and each host that failed every job, which it excludes.
"""

import json
import os
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from django.db import connection
from django.test import TestCase, override_settings

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobRecord
from apps.clusters.schedulers.simulated import Simulated
from apps.demo.simulation.outages import BAD_HOST_SECONDS
from apps.demo.simulation.simulator import Config, Simulator
from apps.diagnosis.domain.causes.common.causes import causes_between
from apps.diagnosis.domain.causes.totals import recount_dirty_hours
from apps.diagnosis.domain.groups.profile import profile_of
from apps.diagnosis.domain.groups.sweep import sweep_groups
from apps.diagnosis.domain.verdicts.harvest import harvest_batch, queue_harvests
from apps.diagnosis.enums import GroupKind
from apps.diagnosis.models import FailureGroup, Verdict
from apps.hosts.domain.automatic import exclude_failing_hosts
from apps.hosts.domain.exclusions import end_expired_exclusions
from apps.hosts.models import HostExclusion
from apps.jobs.domain.collection.accounting import store_records
from apps.jobs.domain.statistics.explorer import Explorer
from apps.jobs.domain.statistics.questions import MEASURES, Question
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Collection, Job
from tests.factories import clusters, people

NOW = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
#: The three newest hosts that failed every job, in windows of half a day.
SINCE = NOW - 3 * timedelta(seconds=BAD_HOST_SECONDS)


def stage_of(record: JobRecord) -> str:
    """Return the stage that a job of the demo reports; private jobs have none."""
    return record.name.partition("-")[2] if record.comment.startswith("campaign=") else ""


def analyse_everything() -> None:
    """Do what workers do: read the logs, count, and sweep the groups, until nothing is left."""
    queue_harvests(job_pks=Job.objects.values_list("pk", flat=True), at=NOW)
    while harvest_batch(at=NOW):
        pass
    for minute in range(4):
        sweep_groups(recount_dirty_hours(), at=NOW + timedelta(minutes=minute))
    recompute_dirty_hours(at=NOW)


@pytest.mark.slow
@pytest.mark.xdist_group("planted truth")
class TestPlantedTruth(TestCase):
    """The jobs of three days, as the demo starts with them,
    all of whose logs are analysed at once.
    """

    truths: list[dict[str, str]]
    shifter: User

    @classmethod
    def setUpTestData(cls) -> None:
        directory = Path(cls.enterClassContext(TemporaryDirectory()))
        cls.enterClassContext(override_settings(LOG_ROOTS=[directory]))
        config = Config(directory, directory / "spool", seed=1, days=3, jobs_per_day=600, speed=10)
        simulator = Simulator(config, NOW.timestamp())
        list(simulator.advance(NOW.timestamp()))
        simulator.close()
        cls.truths = [
            json.loads(line) for line in (directory / "truth.jsonl").read_text().splitlines()
        ]
        cls.shifter = people.person("shift-one", ("shifter", None))

        cluster = clusters.cluster(
            "hepsim", options={"dir": str(directory), "log_owners": str(os.getuid())}
        )
        Collection.objects.create(cluster=cluster, collected_until=NOW)
        records = list(
            Simulated("hepsim", cluster.options).finished_jobs(since=NOW - 90 * HOUR, until=NOW)
        )
        store_records(cluster=cluster, records=records, at=NOW)
        experiments = {key: people.experiment(key) for key in ("NOVA", "DUNE", "MU2E")}
        jobs = defaultdict(list)
        for record in records:
            jobs[stage_of(record), record.account.upper()].append(record.job_id)
        for (stage, account), job_ids in jobs.items():
            Job.objects.filter(job_id__in=job_ids).update(
                stage=stage, experiment=experiments[account]
            )
        with connection.cursor() as cursor:
            # What PostgreSQL knows of these tables is from other tests, and they are in a
            # transaction: the analysis took five minutes instead of ten seconds once.
            cursor.execute("ANALYZE")
        analyse_everything()

    def planted_hosts(self) -> dict[str, int]:
        """Return how many jobs each host of the last half days failed."""
        return Counter(
            truth["host"].partition(".")[0]
            for truth in self.truths
            if truth["kind"] == "host" and datetime.fromisoformat(truth["ended_at"]) >= SINCE
        )

    def test_verdicts_are_the_planted_ones(self) -> None:
        verdicts = {
            (job, attempt): verdict
            for job, attempt, verdict in Verdict.objects.values_list(
                "job__raw_id", "job__attempt", "verdict"
            )
        }
        misses = Counter(
            (truth["kind"], truth["verdict"], verdicts[truth["raw_id"], truth["attempt"]])
            for truth in self.truths
            if verdicts[truth["raw_id"], truth["attempt"]] != truth["verdict"]
        )
        assert misses.total() <= 0.01 * len(self.truths), misses

    def test_groups_statistics_and_causes_name_the_planted_hosts(self) -> None:
        planted = self.planted_hosts()
        assert len(planted) == 3

        groups = FailureGroup.objects.filter(kind=GroupKind.HOST, last_seen_at__gte=SINCE)
        assert {group.host for group in groups} == set(planted)

        until = NOW.replace(minute=0, second=0, microsecond=0) + HOUR
        causes = causes_between(
            since=until - timedelta(days=7), until=until, user=self.shifter, at=NOW
        )
        hosts = [
            cause.value.partition(",")[0]
            for cause in causes.found
            if cause.attribute.startswith("host")
        ]
        assert set(hosts) >= set(planted)

        question = Question(
            MEASURES["failures"], ("host",), SINCE.replace(minute=0, second=0), until, {}
        )
        rows = sorted(
            Explorer(self.shifter).answer(question, limit=100).rows, key=lambda row: -row.failed
        )
        assert {row.key["host"].partition(".")[0] for row in rows[:3]} == set(planted)

    def test_exactly_the_planted_hosts_are_excluded_while_they_fail(self) -> None:
        Cluster.objects.update(submits=True)
        at = SINCE
        while at < NOW:
            end_expired_exclusions(at=at)
            exclude_failing_hosts(at=at)
            at += timedelta(minutes=20)
        exclusions = HostExclusion.objects.filter(started_at__gte=SINCE)
        assert set(exclusions.values_list("host", flat=True)) == set(self.planted_hosts())
        for exclusion in exclusions:
            assert exclusion.failed_jobs >= 0.8 * exclusion.ended_jobs

    def test_the_group_of_a_host_has_its_jobs(self) -> None:
        planted = self.planted_hosts()
        for group in FailureGroup.objects.filter(kind=GroupKind.HOST, host__in=planted):
            assert 0.9 * planted[group.host] <= group.verdicts.count() <= planted[group.host] + 2
            [host] = [trait for trait in profile_of(group).traits if trait.attribute == "host"]
            assert (host.value, host.stands_out) == (group.host, True)

    def test_what_is_common_is_computed_for_every_group(self) -> None:
        groups = FailureGroup.objects.filter(
            last_seen_at__gte=SINCE, verdicts__isnull=False
        ).distinct()
        assert [group for group in groups if not profile_of(group)] == []
