"""Long words in titles, names and hosts: no page grows wider than its window,
and no button leaves it.
"""

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page

from apps.core.domain.events import publish
from apps.notifications.models import Notification
from tests.browser.conftest import broken_words, wait_until_loaded
from tests.factories import jobs as job_factory
from tests.factories import people
from tests.factories.clusters import cluster
from tests.factories.requests import request_in, stage

LONG = "reconstruction_of_the_near_detector_" * 4

#: Buttons, links and cells that can't be seen in full. Columns of numbers may: on a phone a card
#: with many scrolls; so do tabs and presets.
OUTSIDE = """() => [...document.querySelectorAll("main button, main a, main input, main th, main td")]
    .filter(one => one.offsetParent)
    .filter(one => !one.closest(".log, .diff, .days, .visually-hidden, .number, .tabs, .presets, "
        + "details:not([open]) > *"))
    .map(one => [one, one.getBoundingClientRect()])
    .filter(([one, box]) => box.width && (box.left < -1 || box.right > document.documentElement.clientWidth + 1))
    .map(([one, box]) => `${one.tagName} ${one.textContent.trim().slice(0, 40)} ${box.left} to ${box.right}`)
"""


def too_wide(page: Page) -> list[str]:
    """Return what stands outside the window, and how far the page itself scrolls sideways."""
    overflow = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return [f"scrolls by {overflow} px"] * (overflow > 0) + page.evaluate(OUTSIDE)


@pytest.mark.parametrize("width", [1280, 390])
def test_long_words_leave_everything_in_sight(
    width, transactional_db, nova, liaison, approver, open_as
):
    long_stage = stage(LONG[:40], output_dataset=LONG, configuration=LONG, release=LONG[:60])
    words = {"title": LONG[:150], "purpose": LONG, "stages": (long_stage, stage("merge"))}
    words["deadline"] = timezone.localdate() + timedelta(days=300)
    approval = request_in(
        "awaiting_approval", by=liaison, experiment=nova, approver=approver, **words
    )
    queued = request_in("queued", by=liaison, experiment=nova, approver=approver, **words)
    running = request_in("running", by=liaison, experiment=nova, approver=approver, **words)
    ended = timezone.now() - timedelta(hours=1)
    job, *_ = job_factory.ran(
        cluster("hepsim"),
        running.key,
        LONG[:40],
        job_factory.failed(
            1,
            submitted_at=ended,
            started_at=ended,
            ended_at=ended,
            name=LONG,
            host=LONG,
            user=LONG[:60],
        ),
        at=timezone.now(),
    )
    paths = [
        "/",
        "/requests/",
        "/requests/inbox/",
        "/requests/queue/",
        *(f"/requests/{one.key}/" for one in (approval, queued, running)),
        f"/requests/{approval.key}/?do=approve",
        f"/requests/{queued.key}/changes/",
        f"/requests/{running.key}/comment/",
        f"/submissions/{running.key}/",
        f"/reports/requests/{running.key}/",
        f"/quality/{running.key}/",
        "/requests/holds/",
        "/jobs/",
        f"/jobs/{job.pk}/",
        "/failures/",
        "/failures/jobs/",
        "/statistics/",
        "/notifications/",
    ]
    page = open_as(approver, width=width)
    found = {}
    for path in paths:
        page.goto(path)
        wait_until_loaded(page)
        if outside := too_wide(page):
            found[path] = outside[:6]

    assert found == {}


def test_who_notified_is_one_word_beside_long_texts(
    transactional_db, nova, liaison, approver, open_as
):
    made = request_in("submitted", by=liaison, experiment=nova, approver=approver)
    at = timezone.now()
    event = publish(kind="request.reject", target=made, by="opsportal", at=at, reason="why " * 80)
    Notification.objects.create(user=liaison, event=event, at=at, request=made)
    page = open_as(liaison)
    page.goto("/notifications/")
    assert broken_words(page) == []


def test_menu_of_a_phone_is_one_line_for_a_name_of_eight_letters(transactional_db, nova, open_as):
    page = open_as(people.person("approver", ("liaison", nova)), width=390)
    page.goto("/jobs/")
    menu = page.locator(".who").bounding_box()
    brand = page.locator(".bar .brand").bounding_box()
    assert menu["height"] < 30
    assert abs(menu["y"] - brand["y"]) < 10
