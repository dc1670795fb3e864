"""A browser follows the log of a job while it runs, and stops when the job has ended."""

from datetime import timedelta

from django.urls import reverse
from playwright.sync_api import expect

from apps.diagnosis.domain.reading.running_logs import find_running_log
from tests.diagnosis.conftest import roots  # noqa: F401
from tests.diagnosis.reading.test_running_logs import capture  # noqa: F401
from tests.factories import jobs


def test_page_follows_a_growing_log_until_the_job_ends(
    transactional_db,
    capture,  # noqa: F811
    roots,  # noqa: F811
    nova,
    at,
    shifter,
    open_as,
    assert_accessible,
):
    archived, path = capture(), roots / "run-4711.out"
    find_running_log(archived_id=archived.pk, job_id="4711", at=at)
    path.write_text("event 1\n")
    page = open_as(shifter)
    page.goto(reverse("diagnosis:running-log", args=["alps", "4711"]))
    tail = page.locator("#tail")
    expect(tail).to_contain_text("event 1")
    assert_accessible(page)
    with path.open("a") as file:
        file.write("event 2\n")
    expect(tail).to_contain_text("event 2")
    path.write_text("fresh\n")
    expect(tail.get_by_role("status")).to_contain_text("The log shrank.")
    expect(tail).not_to_contain_text("event 1")
    jobs.row(
        archived.cluster,
        4711,
        at=at + timedelta(hours=1),
        submitted_at=at,
        started_at=at,
        experiment=nova,
    )
    expect(tail).to_contain_text("The job has ended.")
    assert tail.get_attribute("hx-get") is None
