"""The form shows what past jobs used beside memory and wall time,
and at its end all that would be submitted.
"""

import re

import pytest

from apps.production.domain.approvals.requirements import signers_of
from apps.production.domain.estimates.figures import estimate
from tests.factories.history import history
from tests.factories.requests import AT, S, content, draft, request_in, stage
from tests.pages import text_of
from tests.production.checks.test_check_pages import NEW, NEW_CHECK, edit, post_of
from tests.production.estimates.test_figures import TODAY
from tests.production.estimates.test_figures import past as past_stage


@pytest.fixture
def form(liaison, browse):
    return browse(liaison)


@pytest.fixture
def past(nova, liaison, approver):
    """Past jobs of the generation."""
    history(
        request_in(S.QUEUED, by=liaison, experiment=nova, approver=approver, title="Last year's")
    )


def part(text: str, anchor: str) -> str:
    """Return the text of the page from an anchor on, without its tags."""
    return " ".join(
        re.sub(r"<[^>]*>", " ", text.partition(f'id="{anchor}"')[2].partition(">")[2]).split()
    )


def test_the_distribution_weighs_requests_by_their_jobs():
    many = past_stage(
        completed=900, wall_seconds=(100.0, 200.0, 300.0, 400.0, 500.0), memory_bytes=(1e9,) * 5
    )
    few = past_stage("NOVA-0002", completed=100, wall_seconds=(9000.0,) * 5)
    written = content(stages=(stage("reco", events=1000, jobs=1000),))
    stage_estimate = estimate(written, past={"reco": (many, few)}, datasets={}, today=TODAY).stages[
        0
    ]
    assert stage_estimate.wall_used == (100, 200, 300, 500, 500)
    assert stage_estimate.memory_used == (1e9,) * 5
    assert estimate(written, past={}, datasets={}, today=TODAY).stages[0].wall_used == ()


def test_bars_stand_beside_the_fields_without_javascript(nova, liaison, form, past):
    obj = draft(liaison, nova, stages=(stage("generation"), stage("simulation")))
    page = text_of(form.get(edit(obj)))
    assert part(page, "used-0-wall_seconds").startswith("80 % of past jobs used")
    assert "half under" in part(page, "used-0-wall_seconds")
    assert part(page, "used-1-wall_seconds").startswith("no past jobs")
    assert page.count('class="spread"') == 2
    assert (
        page.index('id="resources"')
        < page.index('id="id_stages-0-memory_bytes"')
        < page.index('id="submission"')
    )


def test_bars_mark_what_would_not_suffice(nova, form, past):
    short = (stage("generation", wall_seconds=60), stage("simulation"))
    page = text_of(form.post(NEW_CHECK, post_of(content(stages=short), experiment="NOVA")))
    assert "more than requested" in part(page, "used-0-wall_seconds")[:200]
    assert 'class="mine short"' in page
    enough = text_of(form.post(NEW_CHECK, post_of(content(), experiment="NOVA")))
    assert "more than requested" not in part(enough, "used-0-wall_seconds")


def test_the_panel_replaces_bars_and_review(nova, form):
    page = text_of(form.post(NEW_CHECK, post_of(content(title="Other muons"), experiment="NOVA")))
    for anchor in ("used-0-memory_bytes", "used-1-wall_seconds"):
        assert re.search(rf'id="{anchor}" hx-swap-oob="true"', page)
    assert re.search(r'id="submission"[^>]* hx-swap-oob="true"', page)
    assert "Other muons" in part(page, "submission")


def test_the_review_says_all_that_is_submitted(nova, liaison, approver, form):
    generation = stage(
        "generation", output_dataset="nova.mc.gen_{energy}", configuration="gen_{energy}.fcl"
    )
    obj = draft(
        liaison,
        nova,
        stages=(
            generation,
            stage("simulation", output_dataset="nova.mc.sim_{energy}", events=10_000_000),
        ),
        scan="energy = 1, 2",
        campaign="MC2026a",
        requested_priority="high",
        priority_reason="The freeze.",
    )
    page = form.get(edit(obj)).content.decode()
    shown = part(page, "submission")
    assert page.index('id="submission"') < page.index('value="submit"')
    for words in (
        "2 stages at 2 points · 8,000 jobs",
        "64,000 h if every job runs to its limit",
        "due 12 Dec 2026 · priority high",
        "ND rock muons, 2026 beam",
        "For the December analysis freeze.",
        "MC2026a",
        "The freeze.",
        "v09_72 · gen_{energy}.fcl",
        "output of stage 1 → nova.mc.sim_{energy}",
        "20 M 4,000 4 GB 8 h",
        "energy = 2: nova.mc.gen_2, nova.mc.sim_2",
        f"Approver signs: {approver}",
    ):
        assert words in shown


def test_nobody_signs_their_own_request(nova, liaison, approver):
    everyone = signers_of(content(), experiment=nova, requesters=[liaison.pk], at=AT)
    assert everyone == [("Approver", [str(approver)])]
    assert signers_of(content(), experiment=nova, requesters=[approver.pk], at=AT) == [
        ("Approver", [])
    ]


def test_a_form_without_stages_has_an_empty_review(nova, form):
    page = text_of(form.post(NEW, post_of(content(stages=()), experiment="NOVA", do="check")))
    assert 'id="resources" aria-labelledby="resources-title" hidden>' in page
    assert "0 stages" in part(page, "submission")


@pytest.mark.parametrize("typed", ["4 gigs", ""])
def test_problems_of_resources_stand_beside_their_fields(typed, nova, form):
    data = post_of(content(), experiment="NOVA", do="check") | {"stages-0-memory_bytes": typed}
    page = form.post(NEW, data)
    assert '<ul class="errorlist" id="id_stages-0-memory_bytes_error">' in text_of(page)
    assert ("Resources", 1) in {(step.title, step.errors) for step in page.context["steps"]}
