"""The pages of a log in a browser: accessible at two widths, folds open in place,
ranges by a click with Shift.
"""

import re

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.models import LogHarvest
from tests.diagnosis.conftest import make_job, roots  # noqa: F401
from tests.diagnosis.log_page.test_comparison import FAILED, GOOD
from tests.diagnosis.log_page.test_page import LOG


@pytest.fixture
def read(transactional_db, make_job, at):  # noqa: F811
    """Two failed jobs, harvested, and a success that one of them is compared with."""
    same = {"request_key": "NOVA-0001", "stage": "reco", "host": "wn-1"}
    made = [make_job(1, log=LOG), make_job(2, log=FAILED, **same)]
    make_job(3, log=GOOD, state="completed", exit_code=0, **same)
    queue_harvests(job_pks=[job.pk for job in made], at=at)
    for harvest in LogHarvest.objects.all():
        harvest_log(harvest=harvest, at=timezone.now())
    return made


def test_pages_of_a_log(read, shifter, open_as, assert_accessible):
    first, second = read
    page = open_as(shifter)
    page.goto(f"/jobs/{first.pk}/log/")
    expect(page.locator(".log-row.hit")).to_be_in_viewport()
    assert_accessible(page)
    lines = page.locator(".log-row:not(.fold)").count()
    page.get_by_role("link", name=re.compile("Begin processing the")).first.click()
    expect(page.locator(".log-row:not(.fold)")).to_have_count(lines + 500)
    page.locator(".log-row > a[href]").filter(has_text=re.compile(r"^8$")).click()
    page.wait_for_url(re.compile("at="))
    page.locator(".log-row > a[href]").filter(has_text=re.compile(r"^10$")).click(
        modifiers=["Shift"]
    )
    expect(page.locator(".log-row.chosen")).to_have_count(3)
    page.get_by_role("searchbox", name="Search in log").fill("samweb")
    page.keyboard.press("Enter")
    expect(page.locator("mark")).to_have_text("samweb")
    page.goto(f"/jobs/{second.pk}/log/compare/")
    expect(page.locator("#divergence")).to_contain_text("in declare output")
    assert_accessible(page)
    assert page.problems == []
    narrow = open_as(shifter, width=390, scheme="dark")
    for path in (f"/jobs/{first.pk}/log/?find=samweb&wrap=yes", f"/jobs/{second.pk}/log/compare/"):
        narrow.goto(path)
        assert_accessible(narrow)
