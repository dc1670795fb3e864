"""Excluded hosts in a real browser: neat and accessible; excluded on one page, returned on another."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from apps.clusters.models import Cluster, Site
from apps.hosts.domain.exclusions import exclude_host, return_host
from apps.hosts.models import HostExclusion, MeasuredState, Probe, ProbeJob, ProbeResult
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.recovery.models import RecoveryRule
from tests.browser.conftest import assert_no_sideways_scrolling, broken_words
from tests.factories import clusters, jobs, statusboard


@pytest.fixture
def excluded(transactional_db, shifter, nova):
    """Three hosts of alps on which jobs ran; one is excluded, another was."""
    at = timezone.now()
    alps = clusters.cluster("alps", submits=True)
    for number in range(3):
        times = {"started_at": at - timedelta(hours=2), "ended_at": at - timedelta(hours=1)}
        jobs.store(
            alps,
            jobs.record(number + 1, host=f"wn-{number}", submitted_at=times["started_at"], **times),
            at=at,
        )
    recompute_dirty_hours(at=at)
    for host in ("wn-0", "wn-1"):
        exclude_host(cluster=alps, host=host, reason="Bad disk, #4711.", by=shifter, at=at)
    returned = HostExclusion.objects.get(host="wn-1")
    return_host(exclusion=returned, by=shifter, at=at, reason="New disk.")
    probe, _ = Probe.objects.get_or_create(name="scratch", defaults={"script": "true"})
    job = ProbeJob.objects.create(
        cluster=alps,
        host="wn-0",
        asked=["scratch"],
        name="opsportal-probe-1",
        exclusion=HostExclusion.objects.get(host="wn-0"),
        planned_at=at,
        due_at=at,
        state="ended",
        good=False,
        ended_at=at,
    )
    message = "/scratch cannot be written"
    ProbeResult.objects.create(job=job, probe=probe, good=False, message=message, measured_at=at)
    MeasuredState.objects.create(
        cluster=alps,
        host="wn-0",
        probe=probe,
        good=False,
        message=message,
        measured_at=at,
        since=at,
    )
    return HostExclusion.objects.get(host="wn-0")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_pages_are_neat_and_accessible(
    excluded, shifter, open_as, assert_accessible, width, scheme
):
    page = open_as(shifter, width=width, scheme=scheme)
    pages = {
        "list": "/excluded-hosts/",
        "new": "/excluded-hosts/new/?cluster=alps&host=wn-2",
        "exclusion": excluded.get_absolute_url(),
        "host": "/hosts/wn-0/",
        "board": "/services/",
        "probes": "/probes/",
        "probes-of-site": "/probes/?site=alps&probe=scratch",
        "recovery": "/recovery/",
        "rule": RecoveryRule.objects.earliest("position").get_absolute_url(),
    }
    for name, path in pages.items():
        page.goto(path)
        if name == "host":
            expect(page.locator("#exclusion")).to_contain_text("Extend it or return the host")
            expect(page.locator("#probes")).to_contain_text("/scratch cannot be written")
        if name == "board":
            expect(page.locator("#measured")).to_contain_text("0 of 1")
        assert_accessible(page)
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, name
        # Sentences of rules may break at the hyphens of known errors.
        if width == 390 and name != "recovery":
            assert broken_words(page) == [], name
        if shots := os.environ.get("SCREENSHOTS"):
            page.screenshot(path=Path(shots) / f"hosts-{name}-{width}.png", full_page=True)


@pytest.mark.parametrize("path", ["/services/", "/probes/"])
def test_words_of_services_and_probes_are_whole_on_a_phone(excluded, shifter, open_as, path):
    at = timezone.now()
    site = Site.objects.create(name="Fermilab GPGrid")
    Cluster.objects.update(site=site)
    exclusion = HostExclusion.objects.get(host="wn-0")
    for probe in Probe.objects.exclude(name="scratch"):
        service = statusboard.service(f"{probe.name}-service", at, kind="catalogue")
        Probe.objects.filter(pk=probe.pk).update(service=service)
        MeasuredState.objects.create(
            cluster=exclusion.cluster,
            host="wn-0",
            probe=probe,
            good=False,
            message="not reachable",
            measured_at=at,
            since=at,
        )
    page = open_as(shifter, width=390)
    page.goto(path)
    expect(page.locator("#measured")).to_contain_text("0 of 1")
    assert broken_words(page) == []


def test_help_is_in_the_header_of_a_phone(excluded, shifter, admin, open_as):
    for user in (shifter, admin):
        page = open_as(user, width=390)
        page.goto("/services/")
        expect(page.locator(".bar").get_by_role("link", name="Help")).to_be_visible()
        assert_no_sideways_scrolling(page)


def test_host_is_excluded_on_its_page_and_returned(excluded, shifter, open_as):
    page = open_as(shifter)
    page.goto("/hosts/wn-2/")
    page.get_by_role("link", name="Exclude from new jobs…").click()
    page.get_by_label("Reason").fill("Wrong clock.")
    page.get_by_role("button", name="Exclude host").click()
    expect(page.get_by_text("New jobs of the portal do not run on wn-2")).to_be_visible()

    returning = page.locator("#return")
    returning.get_by_label("Reason").fill("Clock set.")
    returning.get_by_role("button").click()
    expect(page.get_by_text("wn-2 of alps gets new jobs again.")).to_be_visible()
    assert HostExclusion.objects.get(host="wn-2").ended_as == "returned"
