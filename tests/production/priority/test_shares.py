"""Shares: who sets them, what they change, the preview before, and what jobs used of them."""

from datetime import timedelta

import pytest

from apps.core.errors import InvalidFields, NotAllowed, StaleState
from apps.core.models import Event
from apps.jobs.models import HourlyTotals
from apps.production.domain.experiment_shares import read_shares
from apps.production.domain.lifecycle.moves import set_priority
from apps.production.domain.priority.listing import queue_state
from apps.production.domain.priority.prospects import ranks_by_class, what_if_level
from apps.production.domain.priority.ranks import ranked_requests
from apps.production.domain.priority.rescoring import rescore_all
from apps.production.domain.priority.shares import set_shares, share_rows, what_if_shares
from apps.production.models import ExperimentShare, QueueEntry, Request, ShareUse
from apps.progress.domain.share_use import count_share_use, count_work_by_day
from tests.factories import clusters
from tests.factories.people import person
from tests.factories.requests import AT, request_in

HOUR = timedelta(hours=1)


def use(experiment, core_seconds: int) -> None:
    ShareUse.objects.update_or_create(
        experiment=experiment, defaults={"core_seconds": core_seconds, "days": 30, "as_of": AT}
    )


@pytest.fixture
def two(nova, dune, queued, other_liaison, approver):
    """One request of each experiment; NOvA used three times as much as DUNE."""
    made = queued(), request_in("queued", by=other_liaison, experiment=dune, approver=approver)
    use(nova, 3_000_000)
    use(dune, 1_000_000)
    rescore_all(at=AT + HOUR)
    return made


def order() -> list[str]:
    return [request.key for request in ranked_requests()]


def save(by, weights, **more):
    return set_shares(weights=weights, by=by, at=AT + HOUR, reason="agreed in November", **more)


def test_who_used_less_than_its_share_comes_first(two):
    assert order() == ["DUNE-0001", "NOVA-0001"]
    shares = {row.experiment.key: (row.share, row.used) for row in share_rows()}
    assert shares == {"NOVA": (0.5, 0.75), "DUNE": (0.5, 0.25)}


def test_shares_are_set_with_an_event_for_each_and_rank_at_once(two, nova, dune, approver):
    assert save(approver, {nova.pk: 400, dune.pk: 100}) == [nova]
    assert order() == ["NOVA-0001", "DUNE-0001"]
    event = Event.objects.get(kind="share.set")
    assert (event.target_label, event.old, event.new, event.reason) == (
        "NOvA",
        "100",
        "400",
        "agreed in November",
    )
    assert event.data == {"share_old": 0.5, "share_new": 0.8}
    assert save(approver, {nova.pk: 400}) == []
    assert Event.objects.filter(kind="share.set").count() == 1


def test_preview_tells_the_ranks_that_saving_gives_and_changes_nothing(two, nova, approver):
    rows, shifts = what_if_shares({nova.pk: 400}, at=AT + HOUR)
    assert {row.experiment.key: row.share for row in rows} == {"NOVA": 0.8, "DUNE": 0.2}
    assert {(shift.request.key, shift.now, shift.then) for shift in shifts} == {
        ("NOVA-0001", 2, 1),
        ("DUNE-0001", 1, 2),
    }
    assert order() == ["DUNE-0001", "NOVA-0001"]
    assert not ExperimentShare.objects.exists()
    save(approver, {nova.pk: 400})
    assert order() == ["NOVA-0001", "DUNE-0001"]


def test_what_if_of_a_class_tells_the_rank_that_setting_it_gives(two, approver):
    nova_one = two[0]
    assert dict(ranks_by_class(nova_one, at=AT + HOUR)) == {
        "urgent": 1,
        "high": 1,
        "normal": 2,
        "low": 2,
    }
    assert what_if_level(nova_one, priority_class="", number=1, at=AT + HOUR) == 2
    set_priority(request=nova_one, priority_class="high", by=approver, at=AT + HOUR, reason="x")
    assert order()[0] == "NOVA-0001"
    draft = Request(state="draft")
    assert what_if_level(draft, priority_class="low", number=1, at=AT) is None


def test_refusals(two, nova, dune, liaison, shifter, admin, approver):
    local = person("nova-approver", ("approver", nova))
    for by in (liaison, shifter, local):
        with pytest.raises(NotAllowed):
            save(by, {nova.pk: 5})
    for weights in ({nova.pk: -1}, {nova.pk: 10_001}, {nova.pk: 0, dune.pk: 0}, {0: 5}):
        with pytest.raises(InvalidFields):
            save(approver, weights)
        with pytest.raises(InvalidFields):
            what_if_shares(weights, at=AT)
    with pytest.raises(InvalidFields):
        set_shares(weights={nova.pk: 5}, by=approver, at=AT, reason=" ")
    assert save(admin, {nova.pk: 5}) == [nova]


def test_second_of_two_people_is_told(two, nova, dune, approver, second_approver):
    seen = queue_state().version
    save(approver, {nova.pk: 300}, version=seen)
    with pytest.raises(
        StaleState, match="opg-one changed the queue in the meantime: shares of NOVA were set"
    ):
        save(second_approver, {dune.pk: 300}, version=seen)
    assert read_shares().weights == {nova.pk: 300, dune.pk: 100}


def test_use_is_summed_from_the_totals_of_requests_alone(nova, dune):
    cluster = clusters.cluster("farm")

    def row(experiment, hours_ago, core_seconds, key):
        HourlyTotals.objects.create(
            hour=AT - hours_ago * HOUR,
            cluster=cluster,
            experiment=experiment,
            request_key=key,
            state="completed",
            jobs=1,
            wall_seconds=1,
            core_seconds=core_seconds,
            cpu_seconds=1.0,
            last_ended_at=AT,
        )

    row(nova, 1, 100, "NOVA-0001")
    row(nova, 700, 20, "NOVA-0002")
    row(nova, 721, 5_000, "NOVA-0003")
    row(nova, 2, 7_000, "")
    row(None, 3, 9_000, "NOVA-0001")
    use(dune, 44)
    assert count_share_use(at=AT) == 1
    assert list(ShareUse.objects.values_list("experiment__key", "core_seconds")) == [("NOVA", 120)]
    assert count_share_use(at=AT + timedelta(days=60)) == 0
    assert read_shares().used_part(nova.pk) is None


def test_work_of_requests_is_counted_by_whole_days(nova):
    cluster = clusters.cluster("farm")
    midnight = AT.replace(hour=0, minute=0, second=0, microsecond=0)
    day = timedelta(days=1)
    rows = (
        (midnight, 1, "NOVA-0001"),  # today is not over
        (midnight - HOUR, 20, "NOVA-0001"),
        (midnight - day, 300, "NOVA-0002"),
        (midnight - day, 4_000, ""),
        (midnight - 5 * day, 50_000, "NOVA-0001"),
        (midnight - 31 * day, 600_000, "NOVA-0001"),
    )
    for hour, core_seconds, key in rows:
        HourlyTotals.objects.create(
            hour=hour,
            cluster=cluster,
            experiment=nova,
            request_key=key,
            state="completed",
            jobs=1,
            wall_seconds=1,
            core_seconds=core_seconds,
            cpu_seconds=1.0,
            last_ended_at=AT,
        )
    for _ in range(2):
        count_work_by_day(at=AT)
    assert queue_state().work_by_day == [50_000, 320]


def test_without_any_use_nobody_has_points_for_it(queued):
    term = next(
        term for term in QueueEntry.objects.get(pk=queued().pk).terms if term["key"] == "share"
    )
    assert (term["points"], term["why"]) == (0.0, "No recent jobs, so no share is used.")
