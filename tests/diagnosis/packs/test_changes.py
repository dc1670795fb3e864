"""Experiment packs: reviewed before they count, faults with lines,
verdicts and log pages by the one in force.
"""

import re
import time
from io import StringIO
from pathlib import Path
from unittest import mock

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.diagnosis.domain.log_page.outline import list_levels, list_phases, pack_marks_in
from apps.diagnosis.domain.packs.changes import checked_pack, decide_pack, propose_pack
from apps.diagnosis.domain.packs.current import markers_of
from apps.diagnosis.domain.packs.reading import MOST_UNKNOWN, read_pack
from apps.diagnosis.domain.verdicts.harvest import harvest_log
from apps.diagnosis.models import (
    Evidence,
    ExitCodeMeaning,
    ExperimentPack,
    KnownError,
    KnownErrorChange,
    LogHarvest,
    Verdict,
)
from tests.diagnosis.engine import slow_expressions
from tests.factories import people

SAMPLE_FILE = Path(__file__).parents[3] / "docs" / "experiment-pack.yaml"
SAMPLE = SAMPLE_FILE.read_text()
LOG = """>>> 2026-11-20T07:00:00 step fetch input
D/io 07:00:01 opened
<<< step done in 40 s
>>> 2026-11-20T07:01:00 step reco
W/geo 07:12:40 slow
E/geo 07:12:44 geometry tag fd-v21 is not in the registry
"""


def in_force(text, approver, at):
    pack = propose_pack(text=text, by=approver, at=at, reason="first")
    return decide_pack(proposed=pack, approve=True, by=approver, at=at)


def verdict_on(job, at) -> Verdict:
    harvest = LogHarvest.objects.get_or_create(job=job, defaults={"due_at": at})[0]
    harvest_log(
        harvest=LogHarvest.objects.select_related("job__cluster", "job__experiment").get(
            pk=harvest.pk
        ),
        at=at,
    )
    return Verdict.objects.get(job=job)


def test_sample_pack_judges_a_log_only_once_it_is_approved(make_job, liaison, approver, at):
    proposed = propose_pack(text=SAMPLE, by=liaison, at=at, reason="our errors")
    assert verdict_on(make_job(1, log=LOG), at).cause != "NOVA-GEOMETRY-TAG"
    with pytest.raises(NotAllowed):
        decide_pack(proposed=proposed, approve=True, by=liaison, at=at)
    decide_pack(proposed=proposed, approve=True, by=approver, at=at)
    verdict = verdict_on(make_job(2, log=LOG), at)
    assert (verdict.verdict, verdict.advice, verdict.cause) == (
        "code",
        "debug",
        "NOVA-GEOMETRY-TAG",
    )
    busy = verdict_on(
        make_job(3, log="start\nE/cal 07:12:44 calibration server answered BUSY (3 of 3)\n"), at
    )
    assert (busy.verdict, busy.advice) == ("service", "retry")


def test_pack_does_not_judge_jobs_of_others(make_job, approver, dune, at):
    in_force(SAMPLE, approver, at)
    assert verdict_on(make_job(1, log=LOG, experiment=dune), at).cause != "NOVA-GEOMETRY-TAG"


def test_exit_code_of_a_pack_is_evidence(make_job, approver, at):
    assert verdict_on(make_job(1, log="done reading\n", exit_code=71), at).category != "data"
    in_force(SAMPLE, approver, at)
    assert verdict_on(make_job(2, log="done reading\n", exit_code=71), at).category == "data"


def test_phases_and_levels_of_the_pack_in_force(make_job, client, liaison, approver, at):
    job = make_job(1, log=LOG)
    client.force_login(liaison)
    before = client.get(reverse("diagnosis:log", args=[job.pk]))
    assert before.context["page"].phases == ()
    in_force(SAMPLE, approver, at)
    page = client.get(reverse("diagnosis:log", args=[job.pk])).context["page"]
    assert [(shown_phase.phase.name, shown_phase.phase.seconds) for shown_phase in page.phases] == [
        ("fetch input", 40),
        ("reco", None),
    ]
    assert page.counts == {"error": 1, "warning": 1, "debug": 1}
    markers = markers_of(job.experiment_id)
    log = b"E/ WARN\nWARN\n"
    assert [line.level for line in list_levels(log, 0, pack_marks_in(log, markers))] == [
        "error",
        "warning",
    ]
    log = b"phase 1/2: a\n>>> 2026-11-20T07:00:00 step b\n<<< step done in 3 s\n"
    both = list_phases(log, 0, pack_marks_in(log, markers))
    assert [phase.name for phase in both] == ["a", "b"]
    assert (both[0].end, both[1].seconds) == (13, 3)


def test_levels_of_a_pack_count_in_verdicts(make_job, approver, at):
    log = "E/ beam: magnet 7 does not ramp\nW/ OSError: [Errno 112] Host is down\nbye\n"
    assert verdict_on(make_job(1, log=log), at).verdict == "service"
    in_force(SAMPLE, approver, at)
    verdict = verdict_on(make_job(2, log=log), at)
    assert (verdict.verdict, verdict.cause) == ("code", "ERROR-LINE")
    assert "magnet 7" in Evidence.objects.get(harvest__job=verdict.job).text


FAULTS = {
    (
        "regex: 'geometry tag",
        "regex: '(?=x)geometry tag",
    ): "NOVA-GEOMETRY-TAG, regex: The pattern does not comp",
    (
        "role: cause",
        "role: culprit",
    ): "NOVA-GEOMETRY-TAG, role: Value 'culprit' is not a valid choice",
    ("category: service", "category: weather"): "NOVA-CALIB-BUSY, category: ",
    ("id: NOVA-CALIB-BUSY", "id: NOVA-GEOMETRY-TAG"): "“NOVA-GEOMETRY-TAG” appears twice.",
    ("id: NOVA-CALIB-BUSY", "id: DNS"): "“DNS” exists and is not of this pack.",
    ("number: 71", "number: many"): "exit code many, number: ",
    ("(?P<name>", "(?P<what>"): "start: Name the phase by a group: (?P<name>…).",
    ("level: debug", "level: loud"): "level: Use one of: error, warning, debug.",
    ("regex: '^W/'", "regex: '^W('"): "regex: The expression does not compile in RE2: ",
    ("regex: '^W/'", "regex: 'W*'"): "regex: The expression matches the empty line.",
    ("level: debug, regex", "level: debug, regexp"): "Unknown field “regexp”.",
    ("\nlevels:", "\nlevel:"): "Unknown part “level”.",
    (
        "experiment: NOVA",
        "experiment: NOWHERE",
    ): "Experiment “NOWHERE” not found, or you do not have access.",
}


@pytest.mark.parametrize(("change", "fault"), FAULTS.items(), ids=range(len(FAULTS)))
def test_faults_name_their_lines_and_nothing_is_stored(change, fault, nova, approver, at):
    text = SAMPLE.replace(*change, 1)
    assert text != SAMPLE
    with pytest.raises(InvalidFields) as refused:
        propose_pack(text=text, by=approver, at=at, reason="x")
    line = text[: text.index(change[1].strip())].count("\n") + 1
    if change[1] == "id: NOVA-GEOMETRY-TAG":
        line = text[: text.rindex(change[1])].count("\n") + 1
    problems = refused.value.problems["text"]
    assert any(problem.startswith(f"Line {line}: {fault}") for problem in problems), (
        line,
        problems,
    )
    assert not ExperimentPack.objects.exists()


#: 68 kB: each of the 500 expressions compiles to 40,000 instructions.
LARGE = "experiment: NOVA\nknown_errors:\n" + "".join(
    f"- {{id: A{n}, title: a, category: service, service: s, role: cause, advice: retry, "
    f"example: a, regex: '{n}"
    "(?:a.{0,99}b){9}(?:a.{0,99}b){9}(?:a.{0,99}b){9}(?:a.{0,99}b){9}(?:a.{0,99}b){9}(?:a.{0,99}b){9}'}\n"
    for n in range(500)
)


def test_a_large_pack_is_checked_within_its_budget(nova, liaison, other_liaison):
    began = time.monotonic()
    with pytest.raises(InvalidFields) as refused:
        checked_pack(LARGE, by=liaison)
    assert time.monotonic() - began < 10
    problems = refused.value.problems["text"]
    assert all("too costly" in problem for problem in problems)
    with pytest.raises(InvalidFields) as refused:
        checked_pack(LARGE, by=other_liaison)
    assert refused.value.problems["text"] == [
        "Line 1: Experiment “NOVA” not found, or you do not have access."
    ]


def test_reading_a_pack_compiles_nothing_and_asks_few_queries(nova, django_assert_max_num_queries):
    with mock.patch("re2.compile", side_effect=AssertionError), django_assert_max_num_queries(3):
        pack = read_pack(LARGE)
    assert (len(pack.expressions), pack.faults) == (500, [])


def test_markers_that_take_too_long_leave_a_page_that_says_so(
    make_job, client, liaison, approver, at
):
    slow = f"experiment: NOVA\nlevels:\n- {{level: error, regex: '{slow_expressions.REGEX}'}}\n"
    in_force(slow, approver, at)
    job = make_job(1, log=slow_expressions.LOG)
    client.force_login(liaison)
    html = client.get(reverse("diagnosis:log", args=[job.pk])).content.decode()
    assert "phases and levels are missing here: its expressions took too long." in html


@pytest.mark.parametrize(
    "text", ["", "[]", "1", "experiment: [NOVA]", "experiment: NOVA", "a: [", "experiment: NOVA\nphases: {a: 1}",
             "experiment: NOVA\nexit_codes: [[1], {number: [1], title: {a: 1}}]",
             "experiment: NOVA\nlevels: [{level: [1]}]",
             "experiment: NOVA\nknown_errors: [{id: A, regex: [1], title: 5, example: {}}]", "? [a]\n: b"],
)  # fmt: skip
def test_wrong_forms_are_faults(text, nova):
    assert read_pack(text).faults


def test_few_unknown_parts_are_named(nova):
    """An answer about each of 45,000 took 4.6 MB."""
    text = "experiment: NOVA\nlevels: []\n" + "".join(f"x{part}: 1\n" for part in range(45_000))
    faults = read_pack(text).faults
    assert [fault.message[:19] for fault in faults][:2] == [
        "Unknown part “x0”. ",
        "Unknown part “x1”. ",
    ]
    assert len(faults) == MOST_UNKNOWN


def test_next_version_removes_what_it_no_longer_has(nova, approver, at):
    shipped = ExitCodeMeaning.objects.create(
        scope="experiment",
        name="nova",
        number=71,
        title="Old",
        source="manual",
        shipped={"title": "Old", "help": ""},
    )
    in_force(SAMPLE, approver, at)
    shipped.refresh_from_db()
    assert (shipped.title, shipped.pack) == ("No usable events in the input", "NOVA")
    assert KnownError.objects.get(pk="NOVA-CALIB-BUSY").pack == "NOVA"
    smaller = SAMPLE.replace("NOVA-CALIB-BUSY", "NOVA-CALIB-LATE").replace(
        "number: 71", "number: 72"
    )
    in_force(smaller, approver, at)
    assert not KnownError.objects.get(pk="NOVA-CALIB-BUSY").enabled
    assert KnownError.objects.get(pk="NOVA-CALIB-LATE").enabled
    assert KnownError.objects.get(pk="NOVA-GEOMETRY-TAG").version == 1
    assert KnownErrorChange.objects.filter(known_error="NOVA-CALIB-BUSY").count() == 2
    shipped.refresh_from_db()
    assert (shipped.title, shipped.pack) == ("Old", "")
    in_force(SAMPLE, approver, at)
    assert KnownError.objects.get(pk="NOVA-CALIB-BUSY").enabled
    assert not ExitCodeMeaning.objects.filter(number=72, pack="NOVA").exists()


def test_decisions_are_final_and_an_older_version_is_not_put_over_a_newer_one(
    nova, liaison, approver, dune, at
):
    first = propose_pack(text=SAMPLE, by=liaison, at=at, reason="one")
    with pytest.raises(InvalidFields, match="Version 1 is the same"):
        propose_pack(text=SAMPLE, by=liaison, at=at, reason="again")
    second = propose_pack(text=SAMPLE + "\n", by=liaison, at=at, reason="two")
    assert (first.version, second.version) == (1, 2)
    decide_pack(proposed=second, approve=True, by=approver, at=at)
    with pytest.raises(StaleState, match="Version 2 is in force"):
        decide_pack(proposed=first, approve=True, by=approver, at=at)
    with pytest.raises(InvalidTransition):
        decide_pack(proposed=second, approve=False, by=approver, at=at, reason="no")


def test_check_says_the_same_of_another_experiment_and_of_none(client, nova, dune, liaison, at):
    client.force_login(liaison)
    answers = []
    for key in ("DUNE", "NOPE"):
        text = SAMPLE.replace("experiment: NOVA", f"experiment: {key}")
        with pytest.raises(InvalidFields, match="not found, or you do not have access"):
            propose_pack(text=text, by=liaison, at=at, reason="x")
        answer = client.post(
            "/api/v1/experiment-packs/check/", {"text": text}, content_type="application/json"
        )
        answers.append((answer.status_code, answer.content.decode().replace(key, "…")))
    assert answers[0] == answers[1]
    assert answers[0][0] == 400


def test_members_without_the_role_of_a_liaison_propose_no_pack(nova, at):
    member = people.person("nova-shifter", ("shifter", nova))
    with pytest.raises(NotAllowed, match="Only the OPG and liaisons of"):
        propose_pack(text=SAMPLE, by=member, at=at, reason="x")


def test_pages_check_propose_and_approve(client, nova, liaison, approver, at):
    client.force_login(liaison)
    wrong = client.post(
        reverse("diagnosis:packs"), {"text": SAMPLE.replace("role: cause", "role: <b>"), "check": 1}
    )
    assert wrong.status_code == 400
    assert "regex: &#x27;calibration server answered BUSY&#x27;" in wrong.text  # the example
    assert re.search(r"Line \d+: NOVA-GEOMETRY-TAG, role: Value .{1,8}&lt;b&gt;", wrong.text)
    assert "<b>" not in wrong.text.split("NOVA-GEOMETRY-TAG, role")[1][:60]
    checked = client.post(reverse("diagnosis:packs"), {"text": SAMPLE, "check": 1})
    assert "New: NOVA-GEOMETRY-TAG, NOVA-CALIB-BUSY, exit code 71" in checked.text
    assert not ExperimentPack.objects.exists()
    with SAMPLE_FILE.open("rb") as file:
        sent = client.post(reverse("diagnosis:packs"), {"file": file, "reason": "ours", "save": 1})
    pack = ExperimentPack.objects.get()
    assert sent.url == pack.get_absolute_url()
    assert ">Approve<" not in client.get(sent.url).text
    client.post(reverse("diagnosis:decide-pack", args=[pack.pk]), {"do": "approve"})
    pack.refresh_from_db()
    assert pack.state == "proposed"
    client.force_login(approver)
    assert "New: NOVA-GEOMETRY-TAG" in client.get(sent.url).text
    client.post(reverse("diagnosis:decide-pack", args=[pack.pk]), {"do": "approve"})
    pack.refresh_from_db()
    assert (pack.state, pack.decided_by) == ("applied", approver.username)
    assert "applied, in force" in client.get(sent.url).text


def test_api_checks_proposes_and_decides(api, nova, liaison, approver, other_liaison):
    address = "/api/v1/experiment-packs/"
    wrong = api(liaison).post(
        f"{address}check/", {"text": SAMPLE.replace("number: 71", "number: x")}, format="json"
    )
    assert wrong.status_code == 400
    assert "Line 25: exit code x" in wrong.text
    assert (
        api(liaison).post(f"{address}check/", {"text": SAMPLE}, format="json").json()["phases"] == 1
    )
    made = api(liaison).post(address, {"text": SAMPLE, "reason": "ours"}, format="json")
    assert (made.status_code, made.json()["state"], made.json()["version"]) == (201, "proposed", 1)
    place = f"{address}{made.json()['id']}/"
    assert api(other_liaison).get(place).status_code == 404
    assert api(liaison).post(f"{place}approve/", {}, format="json").status_code == 403
    assert api(approver).post(f"{place}approve/", {}, format="json").json()["state"] == "applied"


def test_command_checks_and_proposes(nova, liaison, approver, tmp_path):
    output = StringIO()
    call_command("experiment_pack", str(SAMPLE_FILE), stdout=output)
    assert "added: NOVA-GEOMETRY-TAG, NOVA-CALIB-BUSY, exit code 71" in output.getvalue()
    assert not ExperimentPack.objects.exists()
    wrong = tmp_path / "pack.yaml"
    wrong.write_text(SAMPLE.replace("role: cause", "role: x"))
    with pytest.raises(CommandError, match=r"pack.yaml: Line 10: NOVA-GEOMETRY-TAG, role"):
        call_command("experiment_pack", str(wrong))
    with pytest.raises(CommandError, match="Only approvers"):
        call_command(
            "experiment_pack",
            str(SAMPLE_FILE),
            "--user",
            liaison.username,
            "--reason",
            "r",
            "--approve",
        )
    assert not ExperimentPack.objects.exists()
    call_command(
        "experiment_pack",
        str(SAMPLE_FILE),
        "--user",
        approver.username,
        "--reason",
        "r",
        "--approve",
    )
    assert ExperimentPack.objects.get().state == "applied"
