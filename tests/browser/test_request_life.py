"""The whole life of a request in Chromium, with JavaScript and without:
from an empty form to a report and a clone.
"""

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.core import tasks
from apps.production.domain.outputs.counts import count_reports, report_output
from apps.production.models import Request, Stage
from apps.production.tasks import check_waiting
from apps.progress.domain.transitions import follow_requests
from apps.quality.tasks import check_all
from tests.factories import clusters, jobs
from tests.factories.history import history
from tests.factories.jobs import failed, record
from tests.factories.requests import request_in

KEY = "NOVA-0002"
#: Each stage by the labels of its fields.
STAGES = [
    {"Name": "generation", "Configuration": "generation.fcl", "Output dataset": "nova.mc.gen"},
    {"Name": "simulation", "Configuration": "g4_nd.fcl", "Output dataset": "nova.mc.sim"},
]
SIZES = {"Jobs": "2", "Memory": "3 GB", "Wall time": "8 h"}


class Life:
    """What people do to one request, each in a browser of their own, and what jobs do meanwhile."""

    def __init__(
        self, open_as: Callable[..., Page], javascript: bool, look: Callable[..., None]
    ) -> None:
        self.open_as, self.javascript, self.look_at_page = open_as, javascript, look
        self.pages: dict[str, Page] = {}

    def page_of(self, person: User) -> Page:
        if person.username not in self.pages:
            self.pages[person.username] = self.open_as(person, javascript=self.javascript)
        return self.pages[person.username]

    def visit(self, person: User, path: str = "") -> Page:
        page = self.page_of(person)
        page.goto(f"/requests/{KEY}/{path}")
        return page

    def look(self, page: Page) -> None:
        """Judge the page at both widths; axe-core needs JavaScript."""
        if self.javascript:
            self.look_at_page(page)
            page.set_viewport_size({"width": 390, "height": 900})
            self.look_at_page(page, contrast=False)
            page.set_viewport_size({"width": 1280, "height": 900})

    def move(self, person: User, button: str, reason: str = "") -> Page:
        """Press a button of the request's page, say why, and confirm;
        the portal's own steps follow.
        """
        page = self.visit(person)
        page.get_by_role("link", name=f"{button}…").first.click()
        if reason:
            page.get_by_label("Reason").fill(reason)
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.locator(".notes .note").first).to_be_visible()
        check_waiting()
        return page

    def approve(self, person: User, reason: str) -> None:
        """Approve the request at the desk, to which its page leads; the portal's own steps follow."""
        page = self.visit(person)
        page.get_by_role("link", name="Review and approve…").click()
        page.locator("#approval").get_by_label("Reason").fill(reason)
        page.locator("#approve").click()
        expect(page.locator(".notes .note").first).to_be_visible()
        check_waiting()

    def no_problem(self) -> None:
        assert {name: page.problems for name, page in self.pages.items() if page.problems} == {}


@pytest.fixture
def life(open_as, assert_accessible, javascript) -> Life:
    return Life(open_as, javascript, assert_accessible)


@pytest.mark.parametrize("javascript", [True, False], ids=["javascript", "no javascript"])
def test_life_of_a_request(transactional_db, life, nova, liaison, approver, shifter):
    now = {"later": timezone.now(), "deadline": ahead()}  # of no more urgency than the one to come
    history(
        request_in(
            "queued",
            by=liaison,
            experiment=nova,
            approver=approver,
            title="Last year's muons",
            **now,
        )
    )
    write(life, liaison)
    apply_fix(life, liaison)
    submit(life, liaison)
    request_changes(life, approver)
    change_and_submit_again(life, liaison)
    life.approve(approver, "good")
    assert state() == "queued"
    sign_again_after_a_material_change(life, liaison, approver)
    set_priority(life, approver, liaison)
    life.move(shifter, "Start production")
    hold_and_release(life, shifter, liaison)
    run_jobs(life, liaison)
    judge_quality(life, liaison, approver)
    read_the_report(life, liaison)
    clone(life, liaison)
    life.no_problem()


def ahead() -> date:
    return timezone.localdate() + timedelta(days=300)


def state() -> str:
    return Request.objects.get(key=KEY).state


def write(life: Life, liaison: User) -> None:
    """Write a draft of two stages; it saves itself where there is JavaScript,
    and by its button elsewhere.
    """
    page = life.page_of(liaison)
    page.goto("/requests/")
    page.get_by_role("link", name="New request").click()
    page.get_by_role("link", name="General").click()
    page.get_by_role("button", name="Add stage").click()
    page.get_by_label("Title").fill("ND rock muons, 2026 beam")
    page.get_by_label("Purpose").fill("For the December analysis freeze.")
    page.get_by_label("Deadline", exact=True).fill(ahead().isoformat())
    for place, names in enumerate(STAGES):
        for label, text in (names | SIZES).items():
            page.get_by_label(label, exact=True).nth(place).fill(text)
    page.get_by_label("Release", exact=True).first.fill("v09_72")
    page.get_by_label("Events", exact=True).first.fill("20,000")
    page.locator("#stage-2 > .fold > summary").press("Enter")
    page.get_by_text("Differs from the other stages").nth(1).click()
    page.get_by_label("Release", exact=True).nth(2).fill("v09_73")
    if life.javascript:
        page.get_by_text(f"{KEY} saved").wait_for()
        page.wait_for_url(f"**/requests/{KEY}/edit/")
    else:
        page.get_by_role("button", name="Save draft").first.click()
        page.get_by_text(f"Saved {KEY} as a draft.").wait_for()
    assert [stage.name for stage in Request.objects.get(key=KEY).stages.all()] == [
        "generation",
        "simulation",
    ]


def apply_fix(life: Life, liaison: User) -> None:
    """Read checks and estimate, which load automatically with JavaScript,
    and fix a problem with one click.
    """
    page = life.page_of(liaison) if life.javascript else life.visit(liaison, "edit/")
    if not life.javascript:
        page.get_by_role("button", name="Run checks").click()
    checks = page.locator("#checks")
    expect(checks.get_by_text("Based on 100 past jobs of NOVA-0001")).to_be_visible()
    expect(
        checks.get_by_text("The first stage uses v09_72. Is this release intended?")
    ).to_be_visible()
    life.look(page)
    line = checks.get_by_role("listitem").filter(has_text="The first stage uses v09_72.")
    line.get_by_role("button", name="Use v09_72").click()
    page.get_by_text(f"Saved {KEY} with 1 fix: Use v09_72.").wait_for()
    assert [stage.release for stage in Request.objects.get(key=KEY).stages.all()] == [
        "v09_72",
        "v09_72",
    ]


def submit(life: Life, liaison: User) -> None:
    page = life.page_of(liaison)
    page.get_by_role("button", name="Submit").first.click()
    page.get_by_text(f"Submitted {KEY} for approval.").wait_for()
    check_waiting()
    assert state() == "awaiting_approval"


def request_changes(life: Life, approver: User) -> None:
    """Find the request in the inbox, say beside a field what is wrong, and give it back."""
    page = life.page_of(approver)
    page.goto("/requests/inbox/")
    page.get_by_role("link", name=KEY).first.click()
    life.look(page)
    page.get_by_role("link", name="Discuss stage 2").click()
    page.get_by_label("About").select_option("stages.1.memory_bytes")
    page.get_by_label("Comment").fill("Such jobs needed up to 4 GB.")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.get_by_text("1 open of 1", exact=True)).to_be_visible()
    life.move(approver, "Request changes", "See what I say about memory.")
    assert state() == "changes_requested"


def change_and_submit_again(life: Life, liaison: User) -> None:
    page = life.visit(liaison)
    expect(page.get_by_text("Waiting for you.")).to_be_visible()
    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.get_by_text("Such jobs needed up to 4 GB.").first).to_be_visible()
    page.get_by_label("Memory", exact=True).nth(1).fill("4 GB")
    page.get_by_role("button", name="Submit").first.click()
    page.get_by_text(f"Submitted {KEY} for approval.").wait_for()
    check_waiting()
    parts = page.get_by_role("navigation", name="Parts of the request")
    parts.get_by_role("link", name="Discussion").click()
    page.get_by_role("button", name="Resolve").click()
    parts.get_by_role("link", name="Discussion").click()
    expect(page.get_by_text("0 open of 1", exact=True)).to_be_visible()
    parts.get_by_role("link", name="Activity").click()
    page.get_by_role("link", name="Changes", exact=True).click()
    assert state() == "awaiting_approval"


def sign_again_after_a_material_change(life: Life, liaison: User, approver: User) -> None:
    page = life.visit(liaison, "edit/")
    expect(page.get_by_text("Any other change withdraws the signatures")).to_be_visible()
    page.get_by_label("Events", exact=True).first.fill("40,000")
    page.get_by_role("button", name="Save changes").first.click()
    page.wait_for_url(f"**/requests/{KEY}/")
    check_waiting()
    assert state() == "awaiting_approval"
    page = life.visit(approver)
    signatures = page.locator("#signatures")
    expect(signatures.get_by_text(f"2 changes since {approver.username} signed")).to_be_visible()
    expect(signatures.get_by_text("20,000 → 40,000").first).to_be_visible()
    life.look(page)
    life.approve(approver, "still good")
    assert state() == "queued"


def set_priority(life: Life, approver: User, liaison: User) -> None:
    page = life.visit(approver)
    page.get_by_role("link", name="Set priority…").click()
    page.get_by_label("Class").select_option("high")
    page.get_by_label("Number").fill("9")
    page.get_by_label("Reason").fill("The freeze comes first.")
    page.get_by_role("button", name="Set priority").click()
    expect(page.get_by_text("The freeze comes first.").first).to_be_visible()
    page = life.visit(liaison)
    page.get_by_role("link", name="1st of 2 in the queue").click()
    expect(page.get_by_role("link", name=KEY).first).to_be_visible()
    life.look(page)


def hold_and_release(life: Life, shifter: User, liaison: User) -> None:
    life.move(shifter, "Hold", "The farm is full.")
    assert state() == "on_hold"
    page = life.visit(liaison)
    expect(page.get_by_text("The farm is full.").first).to_be_visible()
    life.move(shifter, "Release")
    assert state() == "running"


def run_jobs(life: Life, liaison: User) -> None:
    """Let both stages run, with one job that failed and came again;
    the portal sees the last one end.
    """
    end = timezone.now()
    cluster = clusters.cluster()
    times = {"submitted_at": end, "started_at": end, "ended_at": end}
    ran(
        cluster,
        "generation",
        end,
        failed(1, **times),
        record(1, attempt=2, **times),
        record(2, **times),
    )
    page = life.visit(liaison)
    rows = page.locator("#progress").get_by_role("row")
    expect(rows.filter(has_text="generation").get_by_text("2 of 2")).to_be_visible()
    expect(rows.filter(has_text="simulation").get_by_text("0 of 2")).to_be_visible()
    life.look(page)
    ran(cluster, "simulation", end, record(3, **times), record(4, **times))
    follow_requests(at=end)
    assert state() == "data_quality"


def ran(cluster: Cluster, stage: str, at: datetime, *records) -> None:
    jobs.ran(cluster, KEY, stage, *records, at=at)


def judge_quality(life: Life, liaison: User, approver: User) -> None:
    """Report fewer events than were asked for; an approver waives what the checks say of it,
    the portal closes it.
    """
    for stage in Stage.objects.filter(request__key=KEY):
        counts = {
            "files_out": 2,
            "events_in": 40_000 if stage.position else None,
            "events_out": 39_000,
        }
        report_output(stage=stage, key="all", counts=counts, by=liaison, at=timezone.now())
    count_reports(at=timezone.now())
    tasks.deliver_waiting()
    check_all()
    page = life.visit(approver)
    page.get_by_role("link", name="All results").click()
    expect(page.get_by_text("not passed").first).to_be_visible()
    life.look(page)
    page.wait_for_load_state()
    for tick in page.get_by_role("checkbox", name="Waive “").all():
        tick.check()
    page.get_by_label("Reason").fill("The study needs no more.")
    page.get_by_role("button", name=re.compile("^Waive (selected|[0-9]+ and close)$")).click()
    expect(page.get_by_text(f"{KEY} is now “done”.")).to_be_visible()
    assert state() == "done"
    for _ in range(3):
        tasks.deliver_waiting()


def read_the_report(life: Life, liaison: User) -> None:
    page = life.visit(liaison)
    page.get_by_role("link", name="Production report").click()
    page.wait_for_url("**/reports/frozen/*/")
    expect(page.get_by_text("4 jobs completed", exact=True)).to_be_visible()
    expect(page.get_by_role("row", name="generation 3 1")).to_be_visible()
    life.look(page)


def clone(life: Life, liaison: User) -> None:
    page = life.visit(liaison)
    page.get_by_role("button", name="Clone").click()
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_label("Output dataset").first).to_have_value("nova.mc.gen_v2")
    page.goto("/requests/NOVA-0003/")
    expect(page.get_by_role("link", name=KEY).first).to_be_visible()
