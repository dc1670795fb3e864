"""Masking rules of the back office, and their dry runs."""

from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError
from django.urls import reverse

from apps.archive.domain import masking_trials
from apps.archive.domain.masking_trials import continue_lost_trials, continue_trial, start_trial
from apps.archive.models import Blob, MaskingTrial
from apps.core.domain.secrets.masking import MaskPattern
from apps.core.models import Event
from apps.jobs.domain.collection.masking_rules import current_rules, save_masking_rule
from apps.jobs.models import MaskingRule
from tests.archive.spool_writer import environment_bytes
from tests.factories.archive import START, captured_job, store

pytestmark = pytest.mark.django_db


def stored(*environments):
    jobs = [
        captured_job(i, environment=environment_bytes(found.items()))
        for i, found in enumerate(environments, start=1)
    ]
    store(*jobs)


def tried(applies_to, pattern):
    rule = MaskingRule.objects.create(applies_to=applies_to, pattern=pattern)
    trial = start_trial(rule=rule, by="ana", at=START)
    while trial.finished_at is None:
        before = trial.last_blob
        continue_trial(trial_id=trial.pk, at=START)
        trial.refresh_from_db()
        assert trial.finished_at or trial.last_blob > before
    return trial


def test_dry_run_counts_environments_jobs_and_names_over_many_steps(monkeypatch):
    monkeypatch.setattr(masking_trials, "STEP", 2)
    stored(
        {"PIN": "1"},
        {"PIN": "2", "MY_PIN": "3"},
        {"PIN": "<masked:0123456789abcdef>"},
        {"A": "b"},
        {"PIN": "1"},
    )

    trial = tried("name", "PIN$")

    assert (trial.environments, trial.found_environments, trial.found_jobs) == (4, 2, 3)
    assert trial.names == {"PIN": 2, "MY_PIN": 1}
    assert trial.progress == 1.0


def test_dry_run_looks_into_values_and_changes_nothing():
    stored({"OPTS": "a=b;key=Zm9v=="}, {"OPTS": "a=b"})
    before = list(Blob.objects.order_by("pk").values_list("sha256", "data"))

    trial = tried("value", r"key=\w+==")

    assert (trial.found_jobs, trial.names) == (1, {"OPTS": 1})
    assert list(Blob.objects.order_by("pk").values_list("sha256", "data")) == before


def test_dry_run_of_an_empty_archive_ends():
    assert tried("name", "PIN").found_jobs == 0


def test_only_rules_in_force_are_current():
    MaskingRule.objects.create(applies_to="value", pattern="b", enabled=False)
    MaskingRule.objects.create(applies_to="name", pattern="a")

    assert current_rules() == [MaskPattern("name", "a")]


def test_bad_pattern_is_refused_with_its_reason_and_nothing_is_written():
    with pytest.raises(ValidationError, match="matches an empty text"):
        save_masking_rule(rule=MaskingRule(applies_to="name", pattern="x*"), by="ana", at=START)

    assert not MaskingRule.objects.exists()
    assert not Event.objects.filter(kind="masking_rule.saved").exists()


def test_admin_makes_tries_and_deletes_a_rule_and_each_is_an_event(client, admin):
    client.force_login(admin)
    add = reverse("admin:jobs_maskingrule_add")
    refused = client.post(add, {"applies_to": "name", "pattern": "(x", "enabled": "on"})
    assert b"is not a regular expression" in refused.content

    client.post(add, {"applies_to": "name", "pattern": "^PIN$", "note": "door", "enabled": "on"})
    rule = MaskingRule.objects.get()
    listed = reverse("admin:jobs_maskingrule_changelist")
    client.post(listed, {"action": "try_on_the_archive", "_selected_action": [rule.pk]})
    assert MaskingTrial.objects.get().started_by == str(admin)
    assert b"^PIN$" in client.get(reverse("admin:archive_maskingtrial_changelist")).content
    client.post(reverse("admin:jobs_maskingrule_delete", args=[rule.pk]), {"post": "yes"})

    assert not MaskingRule.objects.exists()
    kinds = (
        Event.objects.filter(target_type="jobs.maskingrule")
        .order_by("pk")
        .values_list("kind", "actor")
    )
    assert list(kinds) == [("masking_rule.saved", str(admin)), ("masking_rule.deleted", str(admin))]


def test_dry_run_whose_message_was_lost_is_continued(django_capture_on_commit_callbacks):
    stored({"PIN": "1"})
    rule = MaskingRule.objects.create(applies_to="name", pattern="PIN$")
    trial = start_trial(rule=rule, by="ana", at=START)
    for minutes, messages in ((4, 0), (6, 1), (7, 0), (12, 1)):
        with django_capture_on_commit_callbacks() as sends:
            continue_lost_trials(at=START + timedelta(minutes=minutes))
        assert len(sends) == messages, minutes
    continue_trial(trial_id=trial.pk, at=START + timedelta(minutes=13))
    trial.refresh_from_db()
    assert (trial.environments, trial.attempts) == (1, 0)
    with django_capture_on_commit_callbacks() as sends:
        continue_lost_trials(at=START + timedelta(hours=1))
    assert sends == []
