"""Approval rules in the back office: one that asks for nothing, or a second one, is refused."""

import pytest
from django.urls import reverse

from apps.production.models import ApprovalRule
from tests.factories import approvals
from tests.pages import text_of

pytestmark = pytest.mark.django_db
ADD = "/admin/production/approvalrule/add/"


@pytest.fixture
def office(client, admin):
    client.force_login(admin)
    return client


@pytest.fixture
def conveners(nova):
    return approvals.group("conveners", experiment=nova)


def errors_of(answer) -> dict[str, list[str]]:
    return dict(answer.context["adminform"].form.errors)


def test_rule_that_asks_for_nothing_is_refused_at_its_groups(office, nova):
    data = {"experiment": nova.pk, "remind_after_days": 3, "enabled": "on"}
    answer = office.post(ADD, data)
    assert list(errors_of(answer)) == ["groups"]
    assert "Choose the groups that must sign." in text_of(answer)
    assert office.post(ADD, {**data, "remind_after_days": 7}).status_code == 302


def test_second_rule_for_the_same_requests_is_refused(office, nova, conveners):
    approvals.rule(conveners, experiment=nova)
    data = {"experiment": nova.pk, "groups": [conveners.pk], "remind_after_days": 3}
    answer = office.post(ADD, data)
    assert list(errors_of(answer)) == ["workflow"]
    assert "There is already a rule for every type of NOvA." in text_of(answer)
    data["experiment"] = ""
    assert office.post(ADD, data).status_code == 302
    assert ApprovalRule.objects.count() == 2


def test_rules_that_are_twice_already_can_be_changed(office, nova, conveners):
    first = approvals.rule(conveners, experiment=nova)
    approvals.rule(conveners, experiment=nova)
    address = reverse("admin:production_approvalrule_change", args=[first.pk])
    data = {"experiment": nova.pk, "groups": [conveners.pk], "remind_after_days": 5}
    assert office.post(address, data).status_code == 302
    first.refresh_from_db()
    assert first.remind_after_days == 5


def test_group_in_which_no_one_can_sign_is_refused(office):
    address = "/admin/production/approvalgroup/add/"
    answer = office.post(address, {"name": "conveners"})
    assert list(errors_of(answer)) == ["members"]
    assert "no one can sign" in text_of(answer)
    assert office.post(address, {"name": "conveners", "role": "approver"}).status_code == 302
