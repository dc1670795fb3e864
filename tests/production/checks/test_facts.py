"""What the checks know is what is in the database,
and asking it costs the same for one stage and for a hundred.
"""

import json
from copy import copy
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import Membership
from apps.core.domain.events import events_of
from apps.production.domain.checks.base import ClusterLimits, StageBefore
from apps.production.domain.checks.facts import facts_for
from apps.production.domain.checks.report import run_checks
from apps.production.domain.content.stages import content_of
from apps.production.domain.lifecycle.moves import check_request, submit_request
from apps.production.domain.requests.drafts import save_draft
from apps.production.domain.types.arguments import runs_in
from apps.production.models import Request
from apps.statusboard.models import DowntimeWindow, Service
from tests.factories import clusters
from tests.factories.history import history
from tests.factories.requests import AT, S, content, draft, request_in, stage
from tests.production.checks.test_rules import monte_carlo


@pytest.fixture
def queued(nova, liaison, approver):
    def make(**changes):
        return request_in(S.QUEUED, by=liaison, experiment=nova, approver=approver, **changes)

    return make


def known(nova, written=None, **more):
    return facts_for(written or content(), experiment=nova, at=AT, **more)


def found(nova, written, **more) -> dict[str, str]:
    return {
        run_check.rule: run_check.message
        for run_check in run_checks(written, known(nova, written, **more))
    }


def test_nothing_is_known_of_an_empty_portal(nova):
    facts = known(nova)
    assert (facts.others, facts.written_by, facts.datasets, facts.offers) == ((), {}, None, ())
    assert (facts.former_contact, facts.estimate.past_jobs) == ("", 0)


def test_earlier_requests_are_known_by_what_they_claim(nova, dune, queued, liaison):
    mine = queued(
        **{name: getattr(monte_carlo(), name) for name in ("workflow", "arguments", "stages")}
    )
    wanted = monte_carlo()
    rules = found(nova, wanted)
    assert f"{mine} already uses runs 900001-900100" in rules["run_numbers_unique"]
    assert "4,000 seeds from 1,000" in rules["seeds_unique"]
    assert {"title_unique", "output_unique"} <= rules.keys()
    assert (
        not {"run_numbers_unique", "seeds_unique", "title_unique", "output_unique"}
        & found(dune, wanted).keys()
    )
    assert "run_numbers_unique" not in found(nova, content_of(mine), request=mine)


def test_drafts_and_what_was_given_up_claim_nothing(nova, liaison, approver):
    draft(liaison, nova)
    for state in (S.REJECTED, S.CANCELLED):
        request_in(state, by=liaison, experiment=nova, approver=approver)
    assert (known(nova).others, known(nova).written_by) == ((), {})


@pytest.mark.parametrize("mine", ["150-250", "5", "1-10, 400", "900000000000"])
def test_requests_whose_runs_meet_are_known_however_they_are_written(mine, nova, queued):
    written = [
        "100-200",
        "250",
        "5",
        "7-9",
        "251-399",
        "10-20, 300-500",
        " 160 - 170 ",
        "900000000000",
        "x",
        "",
        "1-2-3",
    ]
    one, others = queued(), []
    for number, runs in enumerate(written):
        others.append(copy(one))
        others[-1].pk, others[-1].key, others[-1].title = None, f"NOVA-9{number:03}", f"With {runs}"
        others[-1].arguments = {"run_block": runs}
    keys = {
        other.key: other.arguments["run_block"] for other in Request.objects.bulk_create(others)
    }
    wanted = replace(monte_carlo(), title="", arguments={"run_block": mine})
    named = {keys[other.key] for other in known(nova, wanted).others}

    def met(runs):
        try:
            return any(a <= d and c <= b for a, b in runs_in(runs) for c, d in runs_in(mine))
        except ValueError:
            return False

    assert {runs for runs in written if met(runs)} <= named
    assert not {"7-9", "251-399"} & named or mine == "1-10, 400"


def test_services_and_releases_of_earlier_stages(nova, queued, samweb):
    for _ in range(2):
        queued(stages=(stage("Reco", services=("samweb",)), stage("other")))
    facts = known(nova, content(stages=(stage("reco"),)))
    assert facts.stages_before == {"reco": StageBefore(2, {"samweb": 2})}
    assert facts.releases == {"v09_72"}
    assert known(nova, content(stages=(stage(release="v09_27"),))).releases == {"v09_72"}
    assert known(nova, content(stages=(stage(release=""),))).releases == set()


def test_state_and_downtime_of_a_needed_service(nova, samweb):
    window = DowntimeWindow.objects.create(
        title="Upgrade",
        starts_at=AT + timedelta(days=1),
        ends_at=AT + timedelta(days=2),
        scheduled_by="x",
    )
    window.services.add(samweb)
    facts = known(nova, content(stages=(stage("reco", services=("samweb",)),)))
    now = facts.service_states["samweb"]
    assert (now.name, now.state, [w.title for w in now.windows]) == (
        "SAM web",
        "unknown",
        ["Upgrade"],
    )
    DowntimeWindow.objects.update(cancelled_at=AT)
    facts = known(nova, content(stages=(stage("reco", services=("samweb",)),)))
    assert facts.service_states["samweb"].windows == ()


def test_what_clusters_offer(nova):
    clusters.cluster("alps", "slurm", max_memory_bytes=8 * 10**9, max_wall_seconds=3600)
    assert known(nova).offers == (ClusterLimits("alps", 8 * 10**9, 3600),)
    assert "fits_cluster" in found(nova, content())


def test_datasets_are_looked_up_where_there_is_a_catalogue(nova, settings, tmp_path):
    path = tmp_path / "datasets.json"
    path.write_text(json.dumps({"datasets": [{"name": "raw", "files": 3, "events": 0}]}))
    settings.DATASET_CATALOGUE = f"file:{path}"
    assert "input_not_empty" in found(nova, content(stages=(stage("reco", input_dataset="raw"),)))
    assert "input_exists" in found(nova, content(stages=(stage("reco", input_dataset="rwa"),)))
    path.unlink()
    rules = found(nova, content(stages=(stage("reco", input_dataset="rwa"),)))
    assert "input_exists" not in rules
    assert "cannot be read" in rules["catalogue_available"]


def test_contact_who_left(nova, liaison):
    request = draft(liaison, nova)
    assert known(nova, request=request).former_contact == ""
    Membership.objects.filter(user=liaison).delete()
    request.refresh_from_db()
    assert "contact_is_member" in found(nova, content(), request=request)


def test_tests_before_the_last_change_are_old(nova, liaison):
    request = draft(liaison, nova)
    history(request)
    assert "test_up_to_date" not in found(nova, content(), request=request)
    changed = content(stages=(stage("generation", configuration="new.fcl"), stage("simulation")))
    save_draft(request=request, content=changed, version=1, by=liaison, at=AT + timedelta(hours=1))
    assert "test_up_to_date" in found(nova, changed, request=request)


def test_estimate_rests_on_past_stages_of_the_experiment(nova, dune, queued):
    history(queued())
    estimate = known(nova).estimate
    assert [one.past_jobs for one in estimate.stages] == [100, 0]
    assert known(dune).estimate.past_jobs == 0


def test_submission_keeps_what_the_checks_said(nova, liaison, queued):
    queued()
    request = draft(liaison, nova)
    submit_request(request=request, by=liaison, at=AT)
    said = events_of(request).get(kind="request.submit").data
    assert said["checks_count"] == 3
    assert said["checks"][0] == {
        "rule": "title_unique",
        "severity": "warning",
        "path": "title",
        "message": "NOVA-0001 has the same title. Is this a duplicate?",
    }
    check_request(request=request, at=AT)
    assert events_of(request).get(kind="request.pass").data["checks_count"] == 3


def test_queries_grow_neither_with_stages_nor_with_requests(nova, liaison, queued, samweb):
    Service.objects.create(slug="dcache", name="dCache")

    def count(written, request=None) -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            facts_for(written, experiment=nova, request=request, at=AT)
        return len(queries)

    history(queued(stages=(stage("s0", services=("samweb",)),)), name="s0")
    few = count(content(stages=(stage("s0", services=("samweb",)),)))
    for n in range(4):
        history(
            queued(stages=tuple(stage(f"s{i}", services=("samweb", "dcache")) for i in range(5))),
            name=f"s{n}",
        )
    many = content(stages=tuple(stage(f"s{i}", services=("samweb", "dcache")) for i in range(50)))
    assert count(many) == few <= 25
