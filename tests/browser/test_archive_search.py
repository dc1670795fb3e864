"""From a word to the job, in scripts and logs, and from the job to what differs from the last
success, in a browser.
"""

import os
import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from apps.archive.models import ArchivedJob
from apps.clusters.schedulers.base import JobState
from apps.diagnosis.domain.reading.line_templates import template_lines
from apps.diagnosis.engine.base import Block
from apps.search.domain.line_totals import recount_dirty_hours
from apps.search.domain.templates import LogTemplates, store_templates
from apps.search.models import LogIndex
from tests.archive.conftest import index_words
from tests.archive.spool_writer import environment_bytes
from tests.factories import people
from tests.factories.archive import captured_job, store
from tests.search.kept_logs import job, keep_log

SUCCESS = b"""#!/bin/bash
#SBATCH --job-name=nova-sim
#SBATCH --mem=8G
module load gromacs/2023.3 cuda
export SEED=17  # "the" $seed
for i in 1 2 3; do
  echo '<script>alert(1)</script>' \x1b[31m ${OUT:-/tmp/out}
done
""" + b"".join(
    b"./prepare --step %d --input /pnfs/nova/scratch/far/batch-%04d.root\n" % (i, i)
    for i in range(20)
)
FAILURE = (
    SUCCESS.replace(b"--mem=8G", b"--mem=4G")
    .replace(b"--step 12", b"--step 12 --fast")
    .replace(b"17", b"18")
)


@pytest.fixture
def archived(nova):
    variables = [
        ("MODE", "safe"),
        ("API_TOKEN", "<masked:0123456789abcdef>"),
        ("SLURM_JOB_ID", "4711"),
    ]
    other = [
        ("MODE", "fast"),
        ("API_TOKEN", "<masked:0123456789abcdef>"),
        ("SLURM_JOB_ID", "4712"),
        ("NEW", "x" * 90),
    ]
    shared = {
        "request_key": "NOVA-0231",
        "stage": "sim",
        "user": "ana",
        "account": "nova",
        "name": "nova-sim",
    }
    store(
        captured_job(4711, script=SUCCESS, environment=environment_bytes(variables), **shared),
        captured_job(
            4712,
            minutes=60,
            script=FAILURE,
            environment=environment_bytes(other),
            arguments="sbatch --mem=4G run.sh far 17",
            caveat="The file was changed after it was submitted.",
            **shared,
        ),
        *(
            captured_job(4720 + i, minutes=i, request_key="NOVA-0232", stage="reco")
            for i in range(3)
        ),
    )
    ArchivedJob.objects.filter(job_id="4711").update(state="completed")
    ArchivedJob.objects.filter(job_id="4712").update(state="out_of_memory")
    index_words()


def picture(page, name):
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_word_leads_to_job_and_difference(
    open_as, assert_accessible, archived, liaison, width, scheme
):
    page = open_as(liaison, width=width, scheme=scheme)
    shot = f"archive-{width}-{scheme}"
    page.goto("/archive/")
    picture(page, f"{shot}-list")
    page.get_by_label("Words in script").fill("gromacs/2023.3 --mem=4G")
    page.get_by_role("button", name="Search").click()
    page.wait_for_load_state()
    assert page.locator("mark").all_inner_texts() == ["--mem=4G", "gromacs/2023.3"]
    assert_accessible(page)
    picture(page, f"{shot}-hits")

    page.get_by_role("link", name=re.compile("gromacs")).click()
    page.wait_for_load_state()  # for the script that a click with Shift needs
    assert page.url.endswith("#L4")
    assert page.get_by_text("Script may differ:").is_visible()
    page.locator("#L6 > a").first.click(modifiers=["Shift"])
    expect(page).to_have_url(re.compile("#L4-L6$"))
    expect(page.locator(".code > div.chosen")).to_have_count(3)
    # It is one line, without margins of others.
    assert page.locator(".code > div").nth(1).bounding_box()["height"] < 24
    marks = "all => [...new Set(all.map(i => getComputedStyle(i, '::before').content))]"
    assert page.locator(".code i").evaluate_all(marks) == ["none"]
    assert_accessible(page)
    picture(page, f"{shot}-job")

    page.get_by_role("link", name="Compare with the last success of NOVA-0231 sim").click()
    page.wait_for_load_state()
    assert page.locator(".diff del").all_inner_texts()[0] == "8G"
    assert page.get_by_text("1 more that differ in every run").is_visible()
    assert_accessible(page)
    picture(page, f"{shot}-diff")

    page.goto("/archive/?words=nowhere")
    assert page.get_by_text("No matching jobs").is_visible()
    picture(page, f"{shot}-empty")
    assert page.problems == []


def test_two_selected_jobs_are_compared_by_keyboard(open_as, archived, liaison):
    page = open_as(liaison)
    page.goto("/archive/?user=ana")
    page.get_by_role("button", name="Compare selected").click()
    page.get_by_text("Select two jobs to compare.").wait_for()
    assert page.url.endswith("/archive/?user=ana")
    for job_id in ("4712", "4711"):
        page.get_by_label(f"Select job {job_id}").focus()
        page.keyboard.press("Space")
    page.get_by_role("button", name="Compare selected").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/diff/**")

    assert page.get_by_role("heading", name="Compare job 4712").is_visible()
    assert page.problems == []


def test_line_leads_to_all_jobs_with_it(open_as, archived, liaison):
    page = open_as(liaison)
    page.goto("/archive/?job=4712")
    page.get_by_role("link", name="4712").click()
    page.get_by_role("link", name="Jobs with line 4").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/archive/?line=**")

    assert page.locator("tbody").filter(has=page.locator("input[type=checkbox]")).count() == 2
    assert page.locator("mark").all_inner_texts() == ["module load gromacs/2023.3 cuda"] * 2


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


LINES_LOG = (
    b"art: loading service Geometry\n"
    b"cannot open shared object file /cvmfs/nova.example.org/v09_73/lib/libGeometry_service.so:"
    b" Input/output error\n"
    b"art: exit with status 21\n"
)


@pytest.fixture
def logs_with_lines():
    LogIndex.objects.create(pk=1, complete=True)
    for number in range(6):
        at = timezone.now() - timedelta(hours=number + 1)
        row = job(
            number,
            at=at,
            experiment=people.nova(),
            stage="reco",
            host=f"wn-{number % 3}",
            state=JobState.FAILED,
        )
        log = LINES_LOG.replace(b"v09_73", b"v%d" % number)
        keep_log(row, log)
        blocks = [Block(log, 0, len(log), 1)]
        store_templates([LogTemplates(row, template_lines(blocks))], at=at)
    recount_dirty_hours()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_line_leads_to_watch_known_error_and_search(
    logs_with_lines, approver, open_as, assert_accessible, width, scheme
) -> None:
    page = open_as(approver, width=width, scheme=scheme)
    page.goto("/search/?q=%22cannot+open+shared%22")
    expect(page.get_by_role("link", name="Where else?")).to_have_count(6)
    assert_accessible(page)
    picture(page, f"line-search-{width}")

    page.get_by_role("link", name="Where else?").first.click()
    page.wait_for_url("**/where-else/?template=**")
    address = page.url
    picture(page, f"line-where-else-{width}")
    page.get_by_role("button", name="Watch this line").click()
    expect(page.get_by_role("button", name="Stop watching")).to_be_visible()
    expect(page.get_by_text("You will be notified when a job writes this line")).to_be_visible()
    assert_accessible(page)

    page.goto("/notifications/")
    watches = page.locator("#watches")
    expect(watches.get_by_role("link", name=re.compile("cannot open shared"))).to_be_visible()
    assert_accessible(page)
    picture(page, f"line-notifications-{width}")
    watches.get_by_role("button", name=re.compile("Remove")).click()
    expect(page.get_by_text("You no longer watch this line.")).to_be_visible()
    expect(page.locator("#watches")).to_have_count(0)

    page.goto(address)
    page.get_by_role("link", name="Make a known error…").click()
    pattern = page.locator("[name=regex]")
    assert r"cannot[ \t]+open[ \t]+shared" in pattern.input_value()
    page.locator("[name=title]").fill("Library cannot be read")
    page.locator("[name=category]").select_option("site")
    page.locator("[name=service]").select_option("cvmfs")
    page.locator("[name=advice]").select_option("retry")
    page.get_by_role("button", name="Try pattern").click()
    expect(page.locator("#preview")).to_contain_text("6 of 6 failed jobs match.")
    picture(page, f"line-known-error-{width}")

    page.goto(address)
    page.get_by_role("link", name="Search this text").click()
    page.wait_for_url("**/search/?q=**")
    expect(page.locator(".text-hits li")).to_have_count(6)
    assert page.get_by_role("searchbox", name="Query").input_value() == (
        '"cannot open shared object file*: Input/output error" in:log'
    )
    assert page.problems == []
