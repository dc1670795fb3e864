"""Pages of recovery: rules with their effect, one rule, its decisions, questions, one job."""

from datetime import date
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from apps.accounts.domain.experiments import visible_experiments
from apps.accounts.enums import Role
from apps.accounts.models import Experiment, User
from apps.accounts.permissions import scope_of
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.events import events_of
from apps.core.errors import InvalidFields, NotAllowed, StaleState
from apps.core.web.errors import show_errors
from apps.core.web.pagination import KeysCountedFirst, KeysFirst
from apps.core.web.query import number_in, read_query_or_warn
from apps.diagnosis.enums import Category, VerdictKind
from apps.diagnosis.models import Verdict
from apps.jobs.domain.records.jobs import collections_behind
from apps.jobs.models import Job
from apps.production.domain.holds import may_lift
from apps.recovery.domain.decision_lists import DecisionFilter, decisions_of, with_jobs
from apps.recovery.domain.decisions.explanations import explain_decision
from apps.recovery.domain.decisions.owner_questions import (
    grouped_owner_questions,
    jobs_by_owner,
    jobs_by_rule,
)
from apps.recovery.domain.decisions.questions import (
    grouped_questions,
    hold_over,
    leave_failed,
    next_step,
    questions_for,
    read_question,
    retry_beyond,
)
from apps.recovery.domain.figures.effect import LEAST_CONTROLS, ArmFigures, RuleEffect
from apps.recovery.domain.recoveries import (
    NO_EXPERIMENT,
    breakdown_for,
    categories_of,
    failures_of,
    weeks_for,
    who_recovered,
    with_categories,
)
from apps.recovery.domain.rule_rows import (
    DAYS,
    count_last_day,
    count_planned_retries,
    day_rows,
    effects_of_last_day,
    rule_rows,
    sum_core_seconds,
    version_rows,
)
from apps.recovery.domain.rule_sentences import (
    describe_effect,
    describe_last_day,
    describe_rule_of_last_day,
    list_not_retried,
)
from apps.recovery.domain.rules.lifecycle import (
    LEAST_EVIDENCE,
    change_rule,
    create_rule,
    definition_of,
    evidence_of,
    move_rule,
    set_mode,
    visible_rules,
)
from apps.recovery.domain.rules.packs import export_rules
from apps.recovery.domain.waiting_batches import find_waiting_batches
from apps.recovery.enums import Arm, Mode, Recovery
from apps.recovery.models import Decision, RecoveryRule
from apps.recovery.permissions import may_activate_rule, may_write_any_rule, may_write_rule
from apps.recovery.web.decisions import PAGE_SIZE, page_of, value_of
from apps.recovery.web.forms import AnswerForm, ModeForm, RuleForm, initial_answer, initial_of

QUESTIONS_SHOWN = 5
DECISIONS_SHOWN = 10
SHOWN_JOBS = 100


@require_safe
def rules(request: AuthenticatedRequest) -> HttpResponse:
    """List the rules with the effect of their current versions, and questions to people."""
    now = timezone.now()
    last_day = effects_of_last_day(request.user, at=now)
    owner_questions = list(grouped_owner_questions(request.user))
    rows = rule_rows(request.user, last_day, jobs_by_rule(owner_questions))
    weeks = weeks_for(request.user, at=now)
    waiting = list(grouped_questions(request.user))
    active = sum(row.rule.mode == Mode.ACTIVE for row in rows)
    context = {
        "last_day": describe_last_day(last_day, active=active),
        "totals": sum_core_seconds(rows),
        "rows": rows,
        "any_acted": any(row.effect.retried.jobs for row in rows),
        "questions": waiting[:QUESTIONS_SHOWN],
        "questions_in_all": len(waiting),
        "questioned_jobs": sum(question["jobs"] for question in waiting),
        "owners": jobs_by_owner(owner_questions),
        "last_day_jobs": count_last_day(last_day),
        "waiting_batches": find_waiting_batches(request.user, now),
        "may_write": may_write_any_rule(request.user),
        "as_of": now,
        "behind": collections_behind(now),
        "weeks": [week for week in weeks if week.jobs],
        "this_week": weeks[-1],
        "without_person": who_recovered(weeks[-1], request.user),
        "breakdown": breakdown_for(request.user, monday=weeks[-1].monday),
        "minutes_per_job": settings.RECOVERY_MINUTES_PER_JOB,
        "active": active,
        "least_controls": LEAST_CONTROLS,
    }
    return render(request, "recovery/rules.html", context)


@require_safe
def rule(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Show one rule: its sentence, whether it helps, its decisions, versions and mode."""
    order = list(visible_rules(request.user))
    places = {listed.pk: place for place, listed in enumerate(order)}
    if pk not in places:
        raise Http404
    shown = order[places[pk]]
    versions = version_rows(shown, request.user)
    current = next(row for row in versions if row.version.number == shown.version)
    planned = count_planned_retries([shown], request.user).get(pk, 0)
    now = timezone.now()
    last_day = effects_of_last_day(request.user, at=now, rule=shown).get(pk, RuleEffect())
    waiting = list(grouped_questions(request.user).filter(rule=shown))
    owners = jobs_by_owner(grouped_owner_questions(request.user).filter(rule=shown))
    context = {
        "last_day": describe_rule_of_last_day(shown, last_day, current.effect),
        "questions": waiting[:QUESTIONS_SHOWN],
        "questions_in_all": len(waiting),
        "questioned_jobs": sum(question["jobs"] for question in waiting),
        "owners": owners,
        "rule": shown,
        "definition": definition_of(shown),
        "effect": current.effect,
        "effect_sentences": describe_effect(shown, current.effect, planned=planned),
        "not_retried": list_not_retried(current.effect),
        "arms": _arms_with_jobs(current.effect),
        "least_controls": LEAST_CONTROLS,
        "versions": versions,
        "days": day_rows(shown, request.user, today=now.date()),
        "most_days": DAYS,
        "latest": with_jobs(
            decisions_of(request.user, DecisionFilter(version=shown.version), shown)
        )[:DECISIONS_SHOWN],
        "evidence": evidence_of(shown),
        "least_evidence": LEAST_EVIDENCE,
        "modes": Mode.choices,
        "place": places[pk] + 1,
        "rules_in_all": len(order),
        "others": [other for other in order if other.pk != pk],
        "next_rule": order[places[pk] + 1] if places[pk] + 1 < len(order) else None,
        "may_write": may_write_rule(request.user, shown.experiment_id),
        "may_activate": may_activate_rule(request.user, shown.experiment_id),
        "events": events_of(shown).reverse()[:20],
    }
    return render(request, "recovery/rule.html", context)


class ArmRow(NamedTuple):
    """A row of the table that shows whether a rule helps."""

    arm: Arm
    figures: ArmFigures


def _arms_with_jobs(effect: RuleEffect) -> list[ArmRow]:
    """Return the arms that have retried jobs."""
    rows = []
    for arm in (Arm.ACTED, Arm.CONTROL, Arm.ACTED_AGAIN, Arm.AFTER_CONTROL):
        figures = effect.arm(arm)
        if figures.jobs:
            rows.append(ArmRow(arm, figures))
    return rows


@require_safe
def questions(request: AuthenticatedRequest) -> HttpResponse:
    """List what a rule leaves to a person, by stage."""
    waiting = list(grouped_questions(request.user))
    owner_questions = list(grouped_owner_questions(request.user))
    context = {
        "page": Paginator(waiting, PAGE_SIZE).get_page(request.GET.get("page")),
        "jobs": sum(question["jobs"] for question in waiting),
        "owner_questions": owner_questions[:PAGE_SIZE],
        "owner_questions_in_all": len(owner_questions),
        "owner_jobs": sum(question["jobs"] for question in owner_questions),
    }
    return render(request, "recovery/questions.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def answer(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Show a question with its jobs; POST retries them beyond the bound, or leaves them failed."""
    decision = get_object_or_404(
        Decision.objects.visible_to(request.user).select_related("job__cluster", "rule"), pk=pk
    )
    now = timezone.now()
    if not questions_for(request.user).filter(pk=pk).exists():
        messages.info(request, "This question is answered.")
        return redirect("recovery:questions")
    hold = hold_over(decision.job)
    form = AnswerForm(
        request.POST or None,
        initial=initial_answer(next_step(decision)),
        may_lift=hold is not None and may_lift(request.user, hold),
    )
    if request.method == "POST" and form.is_valid():
        with show_errors(request, form):
            said: dict[str, Any] = {
                "reason": form.cleaned_data["reason"],
                "with_hold": form.cleaned_data.get("lift_hold", False),
            }
            if request.POST.get("do") == "leave":
                left = leave_failed(decision=decision, by=request.user, at=now, **said)
                messages.success(request, f"{left:,} job{'s' * (left != 1)} stay failed.")
                return redirect("recovery:questions")
            batch = retry_beyond(
                decision=decision, changes=form.changes, by=request.user, at=now, **said
            )
            messages.success(request, "The jobs will be retried.")
            return redirect(batch)
    question = read_question(decision=decision, user=request.user, at=now)
    context = {
        "question": question,
        "hold": hold,
        "form": form,
        "shown": question.jobs[:SHOWN_JOBS],
    }
    status = 400 if form.errors else 200
    return render(request, "recovery/answer.html", context, status=status)


@require_safe
def week(request: AuthenticatedRequest, monday: date) -> HttpResponse:
    """List the jobs that failed at their first attempt in a week.

    `?recovery=`, `?experiment=` (a key, or `none`), `?verdict=`, `?category=`, `?page=`. Links of
    weekly reports have a category.
    """
    recovery = read_query_or_warn(
        request, "recovery", value_of(Recovery), expected=", ".join(Recovery.values)
    )
    category = read_query_or_warn(
        request, "category", value_of(Category), expected=", ".join(Category.values)
    )
    verdict = read_query_or_warn(
        request, "verdict", value_of(VerdictKind), expected=", ".join(VerdictKind.values)
    )
    experiments: dict[str, Experiment | None] = {NO_EXPERIMENT: None}
    for visible in visible_experiments(request.user).order_by("key"):
        experiments[visible.key] = visible
    experiment = request.GET.get("experiment", "")
    listed = failures_of(monday).visible_to(request.user)
    if recovery:
        listed = listed.filter(recovery=recovery)
    if experiment in experiments:
        listed = listed.filter(experiment=experiments[experiment])
    elif experiment:
        listed = listed.none()
    if category:
        listed = with_categories(listed, [category])
    if verdict:
        listed = with_categories(listed, categories_of(VerdictKind(verdict)))
    listed = listed.order_by("-failed_at", "-pk")
    pages = KeysCountedFirst if category or verdict else KeysFirst
    context = {
        "monday": monday,
        "page": page_of(listed, request, pages=pages),
        "breakdown": breakdown_for(request.user, monday=monday),
        "minutes_per_job": settings.RECOVERY_MINUTES_PER_JOB,
        "recoveries": Recovery.choices,
        "recovery": recovery or "",
        "verdicts": VerdictKind.choices,
        "verdict": verdict or "",
        "category": category or "",
        "experiments": experiments,
        "experiment": experiment,
    }
    return render(request, "recovery/week.html", context)


@require_safe
def explain_job(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Show which rules match a failed job, which decides, and why the others do not."""
    job = get_object_or_404(
        Job.objects.visible_to(request.user).select_related("cluster", "site"), pk=pk
    )
    verdict = get_object_or_404(Verdict.objects.select_related("experiment"), job=job)
    context = {
        "job": job,
        "verdict": verdict,
        "explanation": explain_decision(verdict, timezone.now()),
    }
    return render(request, "recovery/job.html", context)


@require_safe
def export(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """Return the rules of an experiment as YAML for its pack."""
    experiment = get_object_or_404(visible_experiments(request.user), key=key)
    headers = {"Content-Disposition": 'attachment; filename="recovery-rules.yaml"'}
    return HttpResponse(export_rules(experiment), content_type="application/yaml", headers=headers)


@require_http_methods(["GET", "HEAD", "POST"])
def new_rule(request: AuthenticatedRequest) -> HttpResponse:
    """Write a new rule. It is passive at first."""
    if not may_write_any_rule(request.user):
        raise NotAllowed("Only approvers, shifters and admins can write recovery rules.")
    form = RuleForm(request.POST or None, is_new=True, **_experiments_for(request.user))
    if request.method == "POST" and form.is_valid():
        values = form.cleaned_data
        try:
            written = create_rule(
                name=values["name"],
                experiment=values["experiment"],
                definition=form.definition,
                by=request.user,
                at=timezone.now(),
                reason=values["reason"],
            )
        except InvalidFields as error:
            form.add_problems(error.problems)
        else:
            messages.success(request, "Rule saved. It is passive: it stores what it would do.")
            return redirect(written)
    return _form_page(request, form, None)


@require_http_methods(["GET", "HEAD", "POST"])
def edit_rule(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Write the next version of a rule."""
    changed = get_object_or_404(visible_rules(request.user), pk=pk)
    if not may_write_rule(request.user, changed.experiment_id):
        raise NotAllowed("Only approvers, shifters and admins can write recovery rules.")
    initial = {**initial_of(changed.definition), "base": changed.version}
    form = RuleForm(
        request.POST or None, initial=initial, is_new=False, **_experiments_for(request.user)
    )
    if request.method == "POST" and form.is_valid():
        try:
            change_rule(
                rule=changed,
                definition=form.definition,
                by=request.user,
                at=timezone.now(),
                reason=form.cleaned_data["reason"],
                base=form.cleaned_data["base"] or 0,
            )
        except InvalidFields as error:
            form.add_problems(error.problems)
        except StaleState as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, "New version saved.")
            return redirect(changed)
    return _form_page(request, form, changed)


@require_POST
def switch_rule(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Switch a rule between off, passive and active."""
    switched = get_object_or_404(visible_rules(request.user), pk=pk)
    experiment = switched.experiment_id
    if not (
        may_write_rule(request.user, experiment) or may_activate_rule(request.user, experiment)
    ):
        raise NotAllowed("Only approvers, shifters and admins can switch recovery rules.")
    form = ModeForm(request.POST)
    with show_errors(request):
        if not form.is_valid():
            raise InvalidFields({"mode": ["Choose off, passive or active."]})
        mode = Mode(form.cleaned_data["mode"])
        set_mode(
            rule=switched,
            mode=mode,
            by=request.user,
            at=timezone.now(),
            reason=form.cleaned_data["reason"],
        )
        messages.success(request, f"“{switched}” is {mode.label.lower()} now.")
    return redirect(switched)


@require_POST
def move(request: AuthenticatedRequest, pk: int) -> HttpResponse:
    """Try a rule before the one of the primary key `before`, or last."""
    moved = get_object_or_404(visible_rules(request.user), pk=pk)
    number = number_in(request.POST, "before")
    before = None
    if number is not None:
        before = RecoveryRule.objects.filter(pk=number).first()
    with show_errors(request):
        move_rule(rule=moved, before=before, by=request.user)
        messages.success(request, "Order changed.")
    return redirect("recovery:rules")


def _experiments_for(user: User) -> dict[str, Any]:
    """Return the experiments that a user may write rules for, as arguments of the form."""
    scope = scope_of(user)
    roles = (Role.APPROVER, Role.SHIFTER, Role.ADMIN)
    if any(scope.has(role) for role in roles):
        return {"experiments": Experiment.objects.all(), "needs_experiment": False}
    mine = {pk for role, pk in scope.roles if role in roles and pk is not None}
    return {"experiments": Experiment.objects.filter(pk__in=mine), "needs_experiment": True}


def _form_page(
    request: AuthenticatedRequest, form: RuleForm, changed: RecoveryRule | None
) -> HttpResponse:
    context = {"form": form, "rule": changed}
    return render(request, "recovery/form.html", context, status=400 if form.errors else 200)
