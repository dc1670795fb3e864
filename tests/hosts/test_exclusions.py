"""Hosts that people exclude, extend and return, and which hosts new jobs then avoid."""

from datetime import timedelta

import pytest

from apps.clusters.models import Host
from apps.core.errors import InvalidFields, NotAllowed, StaleState
from apps.core.models import Event
from apps.hosts.domain.avoided import AvoidedHosts, hosts_to_avoid
from apps.hosts.domain.exclusions import (
    count_by_cluster,
    exclude_host,
    extend_exclusion,
    return_host,
)
from apps.hosts.models import HostExclusion
from tests.factories import clusters

DAY = timedelta(days=1)


@pytest.fixture
def exclude(alps, run_well, shifter, at):
    """Return a function that excludes a host of alps, on which jobs ran before."""

    def excluding(host="wn-1", *, by=shifter, **changes):
        return exclude_host(
            **{"cluster": alps, "host": host, "reason": "Bad disk.", "by": by, "at": at} | changes
        )

    run_well(alps, ["wn-1", "wn-2.example.org", "wn-3"])
    return excluding


def list_hosts(cluster, names, at):
    for name in names:
        Host.objects.create(cluster=cluster, name=name, listed_at=at)


def test_approvers_and_shifters_exclude_extend_and_return(exclude, approver, shifter, at):
    exclusion = exclude("wn-2.example.org")
    assert (exclusion.host, exclusion.expires_at, exclusion.by) == ("wn-2", at + DAY, "shift-one")
    extend_exclusion(exclusion=exclusion, expires_at=at + 3 * DAY, by=approver, at=at)
    row = return_host(exclusion=exclusion, by=approver, at=at + DAY, reason="New disk.")
    assert (row.ended_at, row.ended_as, row.ended_by) == (at + DAY, "returned", str(approver))
    assert row.end_reason == "New disk."
    kinds = Event.objects.filter(kind__startswith="host.").order_by("pk")
    assert list(kinds.values_list("kind", flat=True)) == [
        "host.excluded",
        "host.extended",
        "host.returned",
    ]
    assert kinds[1].old == "2026-11-21 12:00 UTC"


def test_liaisons_may_not(exclude, liaison, at):
    exclusion = exclude()
    with pytest.raises(NotAllowed):
        exclude("wn-3", by=liaison)
    with pytest.raises(NotAllowed):
        extend_exclusion(exclusion=exclusion, expires_at=at + DAY, by=liaison, at=at)
    with pytest.raises(NotAllowed):
        return_host(exclusion=exclusion, by=liaison, at=at, reason="No.")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"reason": " "}, "reason"),
        ({"reason": "x" * 2001}, "reason"),
        ({"host": "wn-[1-3]"}, "host"),
        ({"host": "wn-1,wn-3"}, "host"),
        ({"host": ""}, "host"),
        ({"host": "wn-9"}, "host"),
        ({"expires_at": timedelta(0)}, "expires_at"),
        ({"expires_at": timedelta(days=91)}, "expires_at"),
    ],
)
def test_invalid_exclusions_are_refused_beside_their_field(exclude, at, changes, field):
    if "expires_at" in changes:
        changes = {"expires_at": at + changes["expires_at"]}
    with pytest.raises(InvalidFields) as refusal:
        exclude(**changes)
    assert list(refusal.value.problems) == [field]
    assert not HostExclusion.objects.exists()


def test_host_that_the_scheduler_does_not_list_is_refused(exclude, alps, at):
    list_hosts(alps, ["wn-1"], at)
    with pytest.raises(InvalidFields):
        exclude("wn-3")
    exclude("wn-1")


def test_host_is_excluded_once_and_again_after_its_end(exclude, shifter, at):
    exclusion = exclude()
    with pytest.raises(StaleState, match="already excluded"):
        exclude()
    return_host(exclusion=exclusion, by=shifter, at=at, reason="Fine.")
    with pytest.raises(StaleState, match="already ended"):
        return_host(exclusion=exclusion, by=shifter, at=at, reason="Fine.")
    with pytest.raises(StaleState, match="already ended"):
        extend_exclusion(exclusion=exclusion, expires_at=at + 2 * DAY, by=shifter, at=at)
    exclude()


def test_expired_exclusion_can_neither_be_extended_nor_returned(exclude, shifter, at):
    exclusion = exclude()
    with pytest.raises(StaleState):
        extend_exclusion(exclusion=exclusion, expires_at=at + 3 * DAY, by=shifter, at=at + DAY)
    with pytest.raises(StaleState):
        return_host(exclusion=exclusion, by=shifter, at=at + DAY, reason="Late.")


def test_new_jobs_avoid_the_excluded_hosts_of_their_cluster(exclude, alps, at):
    other = clusters.cluster("other", submits=True)
    exclude("wn-3")
    exclude("wn-1")
    assert hosts_to_avoid(alps, at=at) == AvoidedHosts(("wn-1", "wn-3"))
    assert hosts_to_avoid(other, at=at) == AvoidedHosts()
    assert hosts_to_avoid(alps, at=at + DAY) == AvoidedHosts()
    assert count_by_cluster(at) == [("alps", 2)]


def test_if_no_other_host_is_left_none_is_avoided(exclude, alps, at):
    exclude("wn-3")
    exclude("wn-1")
    assert hosts_to_avoid(alps, at=at, besides=["wn-2.example.org"]).all_excluded
    exclude("wn-2")
    assert hosts_to_avoid(alps, at=at) == AvoidedHosts((), all_excluded=True)


def test_hosts_are_named_as_the_scheduler_lists_them_now(exclude, alps, at):
    """A scheduler refuses jobs that name a host it does not know."""
    exclude("wn-1")
    exclude("wn-2")
    list_hosts(alps, ["wn-1"], at - timedelta(hours=1))
    list_hosts(alps, ["wn-2.example.org", "wn-3"], at)
    assert hosts_to_avoid(alps, at=at).names == ("wn-2.example.org",)
    assert hosts_to_avoid(alps, at=at + timedelta(hours=23)).names == ("wn-2.example.org",)
