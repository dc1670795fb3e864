"""Pages of recovery rules: figures with their lists, the form, the mode, and one job."""

import html
import re
from datetime import timedelta
from itertools import product

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.core.web.pagination import KeysFirst
from apps.diagnosis.domain.causes.totals import mark_dirty, recount_dirty_hours
from apps.diagnosis.models import Verdict
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.models import Collection
from apps.recovery.domain.decisions import choice
from apps.recovery.domain.decisions.carry_out import act_on_due
from apps.recovery.domain.decisions.decide import decide_due, enrol_failures
from apps.recovery.domain.decisions.explanations import (
    PlannedRetries,
    count_planned_by_group,
    jobs_of_rules,
    planned_retries_of,
)
from apps.recovery.domain.figures.daily_effects import recount_days
from apps.recovery.domain.figures.effect import ArmFigures, RuleEffect
from apps.recovery.domain.recoveries import (
    Week,
    WithoutPerson,
    monday_of,
    recount_weeks,
    who_recovered,
)
from apps.recovery.domain.rule_rows import count_last_day
from apps.recovery.domain.rule_sentences import describe_effect, explain_idleness
from apps.recovery.domain.rules.lifecycle import create_rule, set_mode
from apps.recovery.enums import Arm, Mode, Recovery
from apps.recovery.models import Decision, RecoveryRule, WeeklyRecovery
from apps.recovery.web import decisions as decision_lists
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.enums import State
from apps.submission.domain.retries.batches import plan_batch
from apps.submission.domain.retries.release import advance_batch
from apps.submission.enums import LeftOut
from apps.submission.models import RetryBatch, RetryJob, Submission
from tests.factories import clusters, people, statusboard, verdicts
from tests.factories import jobs as job_factory
from tests.factories.verdicts import failure_group
from tests.pages import text_of
from tests.recovery.conftest import GB, LATER

RULE = {
    "kind": "more-memory",
    "factor": "1.5",
    "most_factor": "2",
    "wait_minutes": "0",
    "attempts": "3",
    "core_hours_a_day": "100",
    "request_percent": "100",
    "control_percent": "5",
    "least_success_percent": "50",
    "end_states": ["out_of_memory"],
    "reason": "They need more.",
}


@pytest.fixture
def more_memory(db):
    return RecoveryRule.objects.get(name="More memory")


def page(client, user, path, **data):
    client.force_login(user)
    if data:
        return client.post(path, data, follow=True)
    return client.get(path)


def test_list_counts_what_its_links_list(client, shifter, send, fail, more_memory):
    fail(send(), {0, 2}, "resource", state="out_of_memory", requested_memory_bytes=2 * GB)
    enrol_failures(at=LATER)
    decide_due(at=LATER)
    shown = text_of(page(client, shifter, "/recovery/"))
    assert "Never acted: it is passive." in shown
    assert ">2 jobs</a> on which it would have acted." in shown
    assert more_memory.get_absolute_url() in page(client, shifter, "/recovery/").content.decode()
    listed = page(client, shifter, f"/recovery/rules/{more_memory.pk}/decisions/?version=1")
    assert "2 jobs" in text_of(listed)
    rows = listed.context["page"]
    assert len(list(rows)) == rows.paginator.count == 2
    assert "Would have acted" in text_of(listed)
    assert "memory 3 GB" in text_of(listed)
    none = page(client, shifter, f"/recovery/rules/{more_memory.pk}/decisions/?arm=acted")
    assert "No decision with these filters." in text_of(none)


def test_list_says_briefly_that_active_rules_wait_for_a_first_match(client, shifter, more_memory):
    RecoveryRule.objects.update(mode=Mode.ACTIVE)
    shown = text_of(page(client, shifter, "/recovery/"))
    rules = RecoveryRule.objects.count()
    assert shown.count("<small>no failed job has matched yet</small>") == rules
    assert "Never acted" not in shown


def test_jobs_of_the_last_day_are_divided_without_a_rest():
    figures = {Arm.ACTED: 3, Arm.CONTROL: 1, Arm.OWNER: 4, Arm.HANDLED: 2, Arm.QUESTION: 1}
    of_rule = RuleEffect({arm.value: ArmFigures(jobs=jobs) for arm, jobs in figures.items()})
    of_none = RuleEffect({Arm.NO_RULE.value: ArmFigures(jobs=5)})
    assert count_last_day({1: of_rule, None: of_none}) == {
        "decided": 16,
        "retried": 4,
        "not_retriable": 4,
        "without_rule": 5,
        "others": 3,
    }


def test_rules_say_which_accounting_they_lack(client, shifter):
    assert "its accounting" not in text_of(page(client, shifter, "/recovery/"))
    until = timezone.now() - timedelta(days=2)
    Collection.objects.create(cluster=clusters.cluster("farm"), collected_until=until)
    shown = text_of(page(client, shifter, "/recovery/"))
    assert "Jobs of farm are counted up to" in shown
    assert shown.index("its accounting") < shown.index('id="last-day"')


def test_rule_is_moved_on_its_page(client, shifter, more_memory):
    last = RecoveryRule.objects.latest("position")
    shown = text_of(page(client, shifter, last.get_absolute_url()))
    count = RecoveryRule.objects.count()
    assert f"tried as number {count} of {count}" in shown
    move = f"/recovery/rules/{last.pk}/move/"
    assert f'action="{move}"' in shown
    first = RecoveryRule.objects.earliest("position")
    moved = page(client, shifter, move, before=first.pk)
    assert "Order changed." in text_of(moved)
    assert RecoveryRule.objects.earliest("position") == last
    assert f"tried as number 1 of {count}" in text_of(
        page(client, shifter, last.get_absolute_url())
    )


def test_rule_says_how_it_is_retired(client, approver, more_memory):
    address = more_memory.get_absolute_url()
    assert "To retire this one, set it to off." in text_of(page(client, approver, address))
    RecoveryRule.objects.filter(pk=more_memory.pk).update(of_pack=True)
    of_pack = text_of(page(client, approver, address))
    assert "To retire this one, leave it out of the next version of its <a" in of_pack
    RecoveryRule.objects.filter(pk=more_memory.pk).update(mode="off")
    assert "To retire" not in text_of(page(client, approver, address))


def test_page_of_a_rule_says_whether_it_helps(client, approver, more_memory):
    shown = text_of(page(client, approver, more_memory.get_absolute_url()))
    assert "When a job of any stage ends as out of memory" in shown
    assert "Never acted: it is passive. No failed job has matched it." in shown
    assert "No decision in the last 14 days." in shown
    assert "<table" not in shown.partition("<main")[2], "a table of nothing but zeros"
    assert "Wilson" not in shown
    assert "hash" not in shown


def test_page_of_a_rule_says_how_many_retries_are_planned(
    client, approver, send, fail, more_memory, monkeypatch
):
    monkeypatch.setattr(choice, "is_control", lambda **_: False)
    set_mode(rule=more_memory, mode=Mode.ACTIVE, by=approver, at=LATER, reason="Yes.")
    fail(send(), {0, 2}, "resource", state="out_of_memory", requested_memory_bytes=2 * GB)
    enrol_failures(at=LATER)
    decide_due(at=LATER)
    shown = text_of(page(client, approver, more_memory.get_absolute_url()))
    assert "Planned retries: 2. None has run yet." in shown
    compared = "of 0 jobs retried unchanged, as the control group, 0 finished. 30 are needed."
    assert compared in shown

    assert "It decided to retry 2 jobs in the last 24 hours." in shown
    listed = text_of(page(client, approver, "/recovery/"))
    assert "Rules decided to retry 2 jobs in the last 24 hours." in listed
    assert "None has finished yet." in listed
    assert "that rules examined in the last 24 hours, whenever they failed:" in listed
    assert "No question waits for an answer." in listed
    link = f"/recovery/rules/{more_memory.pk}/decisions/?arm=retried&last=day"
    assert f'<a href="{link.replace("&", "&amp;")}">2</a>' in listed
    assert page(client, approver, link).context["page"].paginator.count == 2
    assert "of its control group" not in listed

    monkeypatch.setattr(choice, "is_control", lambda **_: True)
    fail(send(), {0}, "resource", state="out_of_memory", requested_memory_bytes=2 * GB)
    enrol_failures(at=LATER)
    decide_due(at=LATER)
    assert "+ 1 of its control group" in text_of(page(client, approver, "/recovery/"))

    monkeypatch.setattr("django.utils.timezone.now", lambda: LATER + timedelta(hours=24))
    assert page(client, approver, link).context["page"].paginator.count == 0
    listed = text_of(page(client, approver, "/recovery/"))
    assert "Rules had nothing to do in the last 24 hours." in listed
    shown = text_of(page(client, approver, more_memory.get_absolute_url()))
    assert "It retried no job in the last 24 hours." in shown


@pytest.mark.parametrize(
    ("mode", "version", "arms", "sentence"),
    [
        ("off", 1, {}, "Never acted: it is off."),
        ("active", 1, {}, "Never acted: no failed job has matched it."),
        ("passive", 1, {"passive": 1}, "Never acted: it is passive."),
        ("active", 2, {"question": 12}, "Version 2 has not acted."),
        ("active", 1, {"question": 12, "control": 1}, ""),
    ],
)
def test_rule_that_never_acted_says_why(more_memory, mode, version, arms, sentence):
    more_memory.mode = mode
    more_memory.version = version
    effect = RuleEffect({arm: ArmFigures(jobs=jobs) for arm, jobs in arms.items()})
    assert explain_idleness(more_memory, effect) == sentence


def test_list_sums_up_what_waits_and_for_whom(client, shifter, more_memory):
    cluster = clusters.cluster()
    questioned = job_factory.row(
        cluster, 1, at=LATER, state="out_of_memory", request_key="NOVA-0001"
    )
    left = job_factory.row(cluster, 2, at=LATER, state="out_of_memory", user="mkowalska")
    for job in (questioned, left):
        verdicts.verdict(job, "resource", at=LATER)
    RecoveryRule.objects.update(mode=Mode.ACTIVE)
    decided = {"rule": more_memory, "version": 1, "decided_at": LATER, "due_at": LATER}
    Decision.objects.create(job=questioned, arm="question", why="Beyond.", **decided)
    Decision.objects.create(job=left, arm="owner", why=LeftOut.NOT_SENT.label, **decided)
    for path in ("/recovery/", more_memory.get_absolute_url()):
        shown = text_of(page(client, shifter, path))
        assert "1 job</a> waits for an answer from approvers and shifters" in shown
        assert 'owner=mkowalska">1 of mkowalska</a' in shown
        assert "Answer…" in shown


#: Decisions with rule or not, reason, state of the later attempt, and owner of the job.
DECIDED = [
    ("owner", True, LeftOut.NOT_SENT.label, "", "mkowalska"),
    ("owner", True, LeftOut.NOT_SENT.label, "", "mkowalska"),
    ("owner", True, LeftOut.NOT_SENT.label, "", "bob"),
    ("owner", True, LeftOut.NOT_SENT.label, "failed", "bob"),
    ("owner", True, LeftOut.NO_SCRIPT.label, "", "bob"),
    ("handled", True, LeftOut.SUCCEEDED.label, "completed", "bob"),
    ("question", True, "Beyond.", "", "bob"),
    ("acted", True, "", "", "bob"),
    ("no-rule", False, "", "", "bob"),
]


@pytest.fixture
def decided(more_memory):
    """Decisions of each kind, today."""
    cluster = clusters.cluster()
    now = timezone.now()
    RecoveryRule.objects.update(mode=Mode.ACTIVE)
    for number, (arm, has_rule, why, later_state, owner) in enumerate(DECIDED):
        job = job_factory.row(cluster, number, at=now, user=owner)
        verdicts.verdict(job, "resource", at=now)
        Verdict.objects.filter(job=job).update(later_state=later_state)
        Decision.objects.create(
            job=job,
            arm=arm,
            rule=more_memory if has_rule else None,
            version=1 if has_rule else 0,
            why=why,
            decided_at=now,
            due_at=now,
        )
    recount_days([now.date()])


def test_every_number_of_decisions_links_to_exactly_its_jobs(client, shifter, decided, more_memory):
    numbers = {}
    for path in ("/recovery/", more_memory.get_absolute_url()):
        shown = page(client, shifter, path).content.decode()
        link = r'href="(/recovery/[^"]*decisions/[^"]*)"\s*>(\d+)'
        for address, number in re.findall(link, shown):
            numbers[html.unescape(address)] = int(number)
    for address, number in numbers.items():
        listed = page(client, shifter, address).context["page"]
        assert listed.paginator.count == len(listed) == number, address
    of_rule = f"/recovery/rules/{more_memory.pk}/decisions/"
    expected = {
        "/recovery/decisions/?last=day": 9,
        "/recovery/decisions/?last=day&arm=no-rule": 1,
        "/recovery/decisions/?arm=waits-for-owner&owner=mkowalska": 2,
        "/recovery/decisions/?arm=waits-for-owner&owner=bob": 1,
        f"{of_rule}?arm=waits-for-owner": 3,
        f"{of_rule}?version=1&arm=owner": 5,
        f"{of_rule}?version=1&arm=handled": 1,
    }
    assert expected.items() <= numbers.items()


def test_decision_names_what_retried_the_job_and_why_the_portal_cannot(client, shifter, decided):
    requeued = Decision.objects.get(arm="handled")
    for later_attempt, text in ((2, "Requeued under the same job ID"), (None, "Already retried")):
        Verdict.objects.filter(job=requeued.job_id).update(later_attempt=later_attempt)
        listed = text_of(page(client, shifter, "/recovery/decisions/?arm=handled"))
        assert f">{text}</a>" in listed
        assert text in text_of(page(client, shifter, f"/recovery/jobs/{requeued.job_id}/"))
    left = text_of(page(client, shifter, "/recovery/decisions/?arm=owner"))
    assert left.count(">Left to its owner</a>") == 4
    assert left.count(">The portal cannot retry it</a>") == 1


@pytest.mark.parametrize(
    ("acted", "control", "sentence"),
    [
        ((90, 10), (20, 20), "It helps: of 100 jobs, 40 more complete"),
        ((10, 90), (20, 20), "It does harm: of 100 jobs, 40 fewer complete"),
        ((50, 50), (20, 20), "It is not clear whether it helps"),
        (
            (50, 50),
            (20, 9),
            "not known yet: of 29 jobs retried unchanged, as the control group, 29 finished. 30",
        ),
    ],
)
def test_rule_says_in_words_whether_it_helps(more_memory, acted, control, sentence):
    arms = {}
    for arm, (completed, failed) in {"acted": acted, "control": control}.items():
        arms[arm] = ArmFigures(jobs=completed + failed, completed=completed, failed=failed)
    retries, comparison = describe_effect(more_memory, RuleEffect(arms), planned=0)
    assert (
        retries == f"{acted[0]} of 100 finished retries completed ({acted[0]} %). Not finished: 0."
    )
    assert sentence in comparison


def test_approver_lets_a_rule_act_and_shifter_does_not(client, approver, shifter, more_memory):
    path = f"/recovery/rules/{more_memory.pk}/mode/"
    refused = page(client, shifter, path, mode="active", reason="Please.")
    assert refused.status_code == 403
    asked = page(client, approver, path, mode="active")
    assert "Write why: version 1 has matched fewer than 30 jobs" in text_of(asked)
    acts = page(client, approver, path, mode="active", reason="Agreed in the meeting.")
    assert "“More memory” is active now." in text_of(acts)
    stopped = page(client, shifter, path, mode="off")
    assert "“More memory” is off now." in text_of(stopped)


def test_new_rule_is_passive(client, shifter):
    saved = page(client, shifter, "/recovery/new/", name="Twice", **RULE)
    assert "Rule saved. It is passive" in text_of(saved)
    rule = RecoveryRule.objects.get(name="Twice")
    assert (rule.mode, rule.version) == ("passive", 1)
    assert rule.definition["condition"]["end_states"] == ["out_of_memory"]


def test_wrong_input_is_named_at_its_field(client, shifter):
    shown = page(client, shifter, "/recovery/new/", **{**RULE, "name": "More memory"})
    assert shown.status_code == 400
    assert "Another rule has this name." in text_of(shown)
    shown = page(client, shifter, "/recovery/new/", **{**RULE, "name": "New", "factor": "3"})
    assert "The bound is smaller than the factor of one retry." in text_of(shown)
    shown = page(client, shifter, "/recovery/new/", **{**RULE, "name": "New", "exit_codes": "x"})
    assert "“x” is no whole number." in text_of(shown)
    nothing = {**RULE, "name": "New"}
    del nothing["end_states"]
    shown = page(client, shifter, "/recovery/new/", **nothing)
    assert "a rule must not match anything" in text_of(shown)


def test_changed_rule_is_a_version_that_nobody_signed(client, approver, shifter, more_memory):
    set_mode(rule=more_memory, mode=Mode.ACTIVE, by=approver, at=LATER, reason="Yes.")
    path = f"/recovery/rules/{more_memory.pk}/edit/"
    form = text_of(page(client, shifter, path))
    assert "Edit More memory as version 2" in form
    saved = page(client, shifter, path, base="1", **{**RULE, "factor": "1.8"})
    assert "New version saved." in text_of(saved)
    more_memory.refresh_from_db()
    assert (more_memory.version, more_memory.mode) == (2, "passive")
    assert more_memory.definition["action"]["factor"] == 1.8
    stale = page(client, shifter, path, base="1", **{**RULE, "factor": "1.9"})
    assert "has version 2 by now" in text_of(stale)


def test_rule_of_another_experiment_is_hidden(client, liaison, shifter, more_memory):
    hidden = create_rule(
        name="Of DUNE",
        experiment=people.dune(),
        definition=more_memory.definition,
        by=shifter,
        at=LATER,
        reason="Theirs.",
    )
    assert page(client, liaison, hidden.get_absolute_url()).status_code == 404
    assert "Of DUNE" not in text_of(page(client, liaison, "/recovery/"))
    assert page(client, liaison, "/recovery/new/").status_code == 403


def test_job_is_explained(client, shifter, liaison, send, fail, more_memory):
    first = send()
    fail(first, {1}, "resource", state="out_of_memory", requested_memory_bytes=2 * GB)
    enrol_failures(at=LATER)
    decide_due(at=LATER)
    decision = Decision.objects.get()
    shown = text_of(page(client, shifter, f"/recovery/jobs/{decision.job_id}/"))
    assert "Would have acted: <a" in shown
    assert "Yes, it decides" in shown
    assert "No: the end state is out of memory, not timeout" in shown
    assert "No: it is for known error NOSPACE only" in shown, "the job may have other known errors"


@pytest.fixture
def recovered(send, fail):
    """Three failed jobs of a week, one of which a rule recovered; return the week's Monday."""
    fail(send(), {0, 1, 2}, "resource", state="out_of_memory", requested_memory_bytes=2 * GB)
    enrol_failures(at=LATER)
    decide_due(at=LATER)
    first = Decision.objects.earliest("pk")
    Decision.objects.filter(pk=first.pk).update(recovery="by-rule")
    monday = monday_of(LATER.date())
    recount_weeks([monday])
    return monday


def test_hands_off_share_by_experiment_and_cause_equals_its_lists(client, shifter, recovered):
    address = f"/recovery/weeks/{recovered}/"
    breakdown = page(client, shifter, address).context["breakdown"]
    (experiment,) = breakdown.experiments
    (cause,) = breakdown.verdicts
    assert (experiment.key, experiment.jobs, experiment.by_rule) == ("NOVA", 3, 1)
    assert (cause.key, cause.jobs, cause.by_rule) == ("resource", 3, 1)
    assert cause.saved_seconds == 300
    for filters, jobs in (
        ("experiment=NOVA", 3),
        ("experiment=NOVA&recovery=by-rule", 1),
        ("category=resource&recovery=by-rule", 1),
        ("category=service", 0),
        ("verdict=resource", 3),
        ("verdict=service", 0),
        ("experiment=none", 0),
        ("experiment=DUNE", 0),
    ):
        listed = page(client, shifter, f"{address}?{filters}")
        assert listed.context["page"].paginator.count == jobs, filters
    with time_machine.travel(LATER, tick=False):
        shown = page(client, shifter, "/recovery/")
    assert f'href="{address}?experiment=NOVA&amp;recovery=by-rule"' in shown.content.decode()
    assert ">33.3 %</td>" in text_of(shown)
    assert ">5 min</td>" in text_of(shown)


def test_week_lists_each_job_once(client, shifter, recovered, monkeypatch):
    Decision.objects.update(recovery="waiting")
    monkeypatch.setattr(decision_lists, "PAGE_SIZE", 1)
    expected = list(Decision.objects.order_by("-failed_at", "-pk"))
    for most, filters in product([1, 2, 1000], ["", "recovery=waiting", "category=resource"]):
        monkeypatch.setattr(KeysFirst, "most", most)
        listed = []
        for number in (1, 2, 3):
            shown = page(client, shifter, f"/recovery/weeks/{recovered}/?{filters}&page={number}")
            assert shown.context["page"].paginator.count == 3
            assert "3 production jobs that failed" in text_of(shown)
            listed += list(shown.context["page"])
        assert listed == expected, (most, filters)


def test_category_is_that_of_the_verdict_now(client, shifter, recovered):
    address = f"/recovery/weeks/{recovered}/?category"
    newest = Decision.objects.latest("pk")
    Verdict.objects.filter(job=newest.job_id).update(category="service")
    assert list(page(client, shifter, f"{address}=service").context["page"]) == [newest]
    others = page(client, shifter, f"{address}=resource").context["page"]
    assert others.paginator.count == len(list(others)) == 2
    nothing = page(client, shifter, f"{address}=service&experiment=DUNE").context["page"]
    assert nothing.paginator.count == 0


def test_pages_of_a_group_say_how_many_jobs_rules_will_retry(
    client, shifter, other_liaison, rule, send, fail
):
    rule("Service problem", control_percent=0)
    fail(send(), {0, 2})
    enrol_failures(at=LATER)
    group = failure_group(at=LATER)
    Verdict.objects.update(group=group)
    mark_dirty({hour_of(verdict.ended_at) for verdict in Verdict.objects.all()})
    recount_dirty_hours()
    addresses = [group.get_absolute_url(), f"/retries/group/{group.pk}/"]
    for address in addresses:
        assert "retried by" not in text_of(page(client, shifter, address))
    decide_due(at=LATER)
    for address in addresses:
        shown = text_of(page(client, shifter, address))
        sentence = re.search("2 jobs will be retried by .*? a person, not before .*?[.]", shown)
        assert sentence
        assert "/recovery/" in sentence[0]
    assert planned_retries_of(group, other_liaison) == PlannedRetries(0, None)
    assert count_planned_by_group([group], shifter) == {group.pk: 2}
    shown = text_of(page(client, shifter, addresses[0]))
    head = shown.partition('class="actions"')[2]
    assert head.index("will be retried by") < head.index("Retry 2 jobs yourself…")
    assert re.search('<a href="[^"]*" *>Retry 2 jobs yourself…', head), "not a button"
    assert shown.count("will be retried by a recovery rule") == 2

    act_on_due(at=LATER + timedelta(minutes=10))
    for address in addresses:
        assert "retried by" not in text_of(page(client, shifter, address))
    shown = text_of(page(client, shifter, addresses[0]))
    assert shown.count("will be retried in a batch") == 2
    RetryJob.objects.update(state="released")
    shown = text_of(page(client, shifter, addresses[0]))
    assert shown.count('soft">being retried') == 2
    assert f'href="{RetryBatch.objects.get().get_absolute_url()}"' in shown


def test_retry_takes_the_jobs_of_rules_only_if_the_user_says_so(client, shifter, rule, send, fail):
    rule("Service problem", control_percent=0)
    fail(send(), {0, 2})
    enrol_failures(at=LATER)
    decide_due(at=LATER)
    fail(send(), {1})
    group = failure_group(at=LATER)
    Verdict.objects.update(group=group)
    mark_dirty({hour_of(verdict.ended_at) for verdict in Verdict.objects.all()})
    recount_dirty_hours()

    address = f"/retries/group/{group.pk}/"
    shown = text_of(page(client, shifter, address))
    assert "− 2</td><td><a" in shown
    assert "retried by recovery rules" in shown
    assert ">Retry 1 job</button>" in shown
    both = page(client, shifter, f"{address}?with_planned=on")
    assert ">Retry 3 jobs</button>" in text_of(both)
    assert both.context["form"]["with_planned"].value() is True

    posted = page(client, shifter, address, pause_minutes=5, attempts=3, with_planned="False")
    assert "1 job will be retried." in text_of(posted)
    posted = page(client, shifter, address, pause_minutes=5, attempts=3, with_planned="True")
    assert "2 jobs will be retried." in text_of(posted)


def test_retry_of_a_stage_leaves_jobs_to_rules_unless_the_user_takes_them(
    client, shifter, rule, send, fail, assignment
):
    rule("Service problem", control_percent=0)
    fail(send(), {0, 2})
    enrol_failures(at=LATER)
    decide_due(at=LATER)
    fail(send(), {1})

    address = f"/submissions/{assignment.request.key}/"
    assert "will retry 2 of them, which are left to the rules" in text_of(
        page(client, shifter, address)
    )
    retry = f"{address}retry/"
    posted = text_of(page(client, shifter, retry, position=0))
    assert "1 failed job will be retried. 2 more are left to recovery rules." in posted
    assert Submission.objects.exclude(retry_of=None).get().tasks == 1
    posted = text_of(page(client, shifter, retry, position=0))
    assert "recovery rules will retry 2 failed jobs of this stage" in posted
    posted = text_of(page(client, shifter, retry, position=0, with_planned="on"))
    assert "2 failed jobs will be retried." in posted


def test_rule_has_not_acted_before_the_retry_is_planned(client, shifter, rule, send, fail):
    acting = rule("Service problem", control_percent=0)
    fail(send(), {0, 2})
    enrol_failures(at=LATER)
    decide_due(at=LATER)
    recount_days({row.time.date() for row in Decision.objects.all()})
    decisions = f"/recovery/rules/{acting.pk}/decisions/"
    assert "all to be retried" in text_of(page(client, shifter, "/recovery/"))
    assert text_of(page(client, shifter, decisions)).count("Will be retried") == 2

    act_on_due(at=LATER + timedelta(minutes=10))
    assert "to be retried" not in text_of(page(client, shifter, "/recovery/"))
    assert "Will be retried" not in text_of(page(client, shifter, decisions))


def test_rule_retries_no_job_that_a_person_put_into_a_batch(rule, fail, send, shifter):
    rule("Service problem", control_percent=0)
    fail(send(), {0, 2})
    enrol_failures(at=LATER)
    group = failure_group(at=LATER)
    Verdict.objects.update(group=group)
    decide_due(at=LATER)
    assert planned_retries_of(group, shifter).jobs == 2
    plan_batch(source=group, by=shifter, at=LATER, with_planned=True)
    assert planned_retries_of(group, shifter) == PlannedRetries(0, None)
    assert jobs_of_rules(group, shifter) == frozenset()


def test_pages_of_a_job_in_a_batch_of_a_person_name_only_that_batch(
    client, shifter, rule, fail, send
):
    acting = rule("Service problem", control_percent=0)
    fail(send(), {0})
    enrol_failures(at=LATER)
    group = failure_group(at=LATER)
    Verdict.objects.update(group=group)
    decide_due(at=LATER)
    job = Decision.objects.get().job
    addresses = (f"/jobs/{job.pk}/", f"/recovery/jobs/{job.pk}/")
    batch = plan_batch(source=group, by=shifter, at=LATER, with_planned=True)
    samweb = statusboard.service("samweb", LATER - timedelta(days=3))
    outage = open_incident(
        service=samweb, state=State.DOWN, title="503", by=shifter, at=timezone.now()
    )
    Verdict.objects.update(service="samweb")

    def shown(address):
        text = re.sub("<[^>]*>", "", text_of(page(client, shifter, address)))
        return " ".join(text.split())

    for address in addresses:
        assert f"Waits in batch {batch.pk} until samweb is up." in shown(address)
        assert "n another batch of retries" not in shown(address)
        assert "retries it" not in shown(address)
        assert "Will be retried" not in shown(address)
    version = Decision.objects.get().version
    decisions = shown(f"/recovery/rules/{acting.pk}/decisions/")
    assert "Will be retried" not in decisions
    assert "Left to a person who retries it" in decisions
    assert f"batch {batch.pk}" in decisions
    by_person = f"A person put it there. {acting}, version {version}, leaves it to them."
    assert by_person in shown(addresses[1])

    close_incident(incident=outage, by=shifter, at=timezone.now(), reason="It answers.")
    for address in addresses:
        assert f"Waits in batch {batch.pk} for its turn." in shown(address)
    advance_batch(batch=batch, at=timezone.now())
    for address in addresses:
        assert f"Being retried in batch {batch.pk}: submitted, not finished yet." in shown(address)


def test_long_list_of_a_week_takes_one_query_more(client, shifter, recovered, monkeypatch):
    """To count it, or to find the keys between which verdicts have the category."""
    address = f"/recovery/weeks/{recovered}/"
    page(client, shifter, address)
    numbers = []
    for most, filters in ((1000, ""), (1, ""), (1, "category=resource")):
        monkeypatch.setattr(KeysFirst, "most", most)
        monkeypatch.setattr(decision_lists, "PAGE_SIZE", 1)
        with CaptureQueriesContext(connection) as queries:
            client.get(f"{address}?{filters}")
        numbers.append(len(queries))
    short, long, with_category = numbers
    assert long == short + 1
    assert with_category == short + 1


def test_last_action_is_that_of_the_newest_retry(client, shifter, send, fail, rule):
    """Neither an earlier retry nor a newer decision without one counts."""
    acting = rule("More memory", control_percent=0)
    fail(send(), {0, 1, 2}, "resource", state="out_of_memory", requested_memory_bytes=2 * GB)
    enrol_failures(at=LATER)
    decide_due(at=LATER)
    earlier, newest, question = Decision.objects.order_by("pk")
    moments = {}
    for days, decision in ((9, earlier), (3, newest), (1, question)):
        moments[decision.pk] = LATER - timedelta(days=days)
        Decision.objects.filter(pk=decision.pk).update(decided_at=moments[decision.pk])
    Decision.objects.filter(pk=question.pk).update(arm="question")
    recount_days({LATER.date(), *[moment.date() for moment in moments.values()]})
    shown = page(client, shifter, "/recovery/")
    last_at = {row.rule.pk: row.last_at for row in shown.context["rows"]}
    assert last_at.pop(acting.pk) == moments[newest.pk]
    assert set(last_at.values()) == {None}


def test_hands_off_share_of_others_is_not_shown(client, other_liaison, recovered):
    shown = page(client, other_liaison, f"/recovery/weeks/{recovered}/?experiment=NOVA")
    assert shown.context["breakdown"].experiments == []
    assert shown.context["page"].paginator.count == 0
    assert "NOVA" not in shown.content.decode().replace("?experiment=NOVA", "")


def test_page_of_a_job_says_that_a_rule_will_retry_it(client, shifter, rule, send, fail):
    by = rule("Service problem", control_percent=0)
    fail(send(), {0})
    enrol_failures(at=LATER)
    job = Decision.objects.get().job
    assert "The recovery rule" not in text_of(page(client, shifter, f"/jobs/{job.pk}/"))
    decide_due(at=LATER)
    shown = page(client, shifter, f"/jobs/{job.pk}/")
    sentence = re.search("The recovery rule .*? will retry it, .*?[.]", text_of(shown))[0]
    assert by.get_absolute_url() in sentence
    assert 'class="button main"' not in shown.text.partition("Debug re-run")[0].rpartition("<h1")[2]

    act_on_due(at=LATER + timedelta(minutes=10))
    assert "The recovery rule" not in text_of(page(client, shifter, f"/jobs/{job.pk}/"))


def test_jobs_that_the_cluster_requeued_count_apart_from_those_of_rules(shifter, rule, send, fail):
    rule("Service problem", control_percent=0)
    fail(send(), {0, 2})
    enrol_failures(at=LATER)
    decide_due(at=LATER)
    Decision.objects.update(recovery=Recovery.BY_RULE)
    first = Decision.objects.earliest("pk")
    Verdict.objects.filter(job=first.job_id).update(later_attempt=2, later_state="completed")
    week = Week(monday=monday_of(first.failed_at.date()), by_rule=2)
    assert who_recovered(week, shifter) == WithoutPerson(by_cluster=1, by_rules=1)
    assert who_recovered(Week(monday=week.monday), shifter) == WithoutPerson(0, 0)


def test_week_without_a_known_outcome_claims_no_share(client, shifter, nova):
    week = monday_of(timezone.now().date())
    WeeklyRecovery.objects.create(
        week=week, experiment=nova, category="site", recovery=Recovery.WAITING, jobs=118
    )

    def shown(path):
        without_tags = re.sub("<[^>]*>", "", text_of(page(client, shifter, path)))
        return " ".join(without_tags.split())

    assert "118 jobs failed this week, with no outcome known yet." in shown("/recovery/")
    assert "NOvA 118" not in shown("/recovery/")
    assert "NOvA 118 0 – –" in shown(f"/recovery/weeks/{week}/")
    assert "0.0 %" not in shown("/recovery/")
    assert "118 production jobs failed or were cancelled since Monday, UTC: outcome" in shown("/")
    WeeklyRecovery.objects.create(
        week=week, experiment=nova, category="site", recovery=Recovery.BY_RULE, jobs=2
    )
    divided = "2 ended well without a person (1.7 %): rules retried 2, the cluster requeued 0"
    assert divided in shown("/recovery/")
    assert divided in shown("/")
