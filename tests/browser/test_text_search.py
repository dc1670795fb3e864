"""The search in logs and scripts, in a browser."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.search.models import LogIndex
from tests.factories import people
from tests.search.kept_logs import job, keep_log

LOG = (
    b"art: loading service Geometry\n"
    + b"cannot open shared object file /cvmfs/" * 12
    + b"\nexit\n"
)


@pytest.fixture
def logs():
    LogIndex.objects.create(pk=1, complete=True)
    for number in range(3):
        at = timezone.now() - timedelta(hours=number + 1)
        keep_log(job(number, at=at, experiment=people.nova(), stage="reco", host="wn-1"), LOG)


@pytest.mark.parametrize("width", [390, 1280])
def test_results_are_readable_and_lead_to_the_line(
    logs, shifter, open_as, live_server, assert_accessible, width
) -> None:
    page = open_as(shifter, width=width)
    page.goto(f"{live_server.url}/search/?q=%22cannot+open%22")
    assert page.locator(".text-hits li").count() == 3
    assert page.locator("mark").first.inner_text() == "cannot open"
    assert_accessible(page)
    page.locator(".facets a", has_text="reco").click()
    assert page.get_by_role("searchbox", name="Query").input_value() == '"cannot open" stage:reco'
    page.locator(".text-hits a.hit").first.click()
    assert "/log/?stream=stderr&at=30#b30" in page.url
