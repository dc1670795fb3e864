"""Errors of the back office's forms name the field, and say what to do."""

import pytest

from tests.factories import clusters


@pytest.mark.parametrize(
    ("address", "values", "field", "message"),
    [
        ("clusters/cluster", {"name": ""}, "name", "“Name” is required: enter a value."),
        (
            "clusters/cluster",
            {"scheduler": ""},
            "scheduler",
            "“Scheduler” is required: choose a value.",
        ),
        (
            "clusters/cluster",
            {"name": "a" * 65},
            "name",
            "Shorten “Name” to 64 characters: it has 65.",
        ),
        ("clusters/cluster", {"name": "alps"}, "name", "Another cluster has this “Name”"),
        ("clusters/cluster", {"site": "999999"}, "site", "Choose again for “Site”"),
        (
            "clusters/cluster",
            {"name": "a\x00"},
            "name",
            "Remove the NUL characters from “Name”.",
        ),
        (
            "archive/capturehost",
            {"name": "of alps"},
            "name",
            "Use only letters, digits, hyphens and underscores in “Name”.",
        ),
        (
            "archive/capturehost",
            {"clusters": "a" * 65},
            "clusters",
            "Value 1: Shorten “Clusters” to 64 characters: it has 65.",
        ),
        (
            "statusboard/service",
            {"runbook": "nowhere"},
            "runbook",
            "Enter an address for “Runbook” that starts with https://.",
        ),
        (
            "statusboard/service",
            {"monitored_since_0": "soon", "monitored_since_1": "noon"},
            "monitored_since",
            "Enter a date such as 2026-11-30 for “Monitored since”.",
        ),
        (
            "production/experimentshare",
            {"weight": "-1"},
            "weight",
            "Enter 0 or more for “Weight”.",
        ),
        (
            "clusters/cluster",
            {"options": "{"},
            "options",
            "“Options”: Line 1, column 2: Expecting property name",
        ),
        (
            "archive/retentionrule",
            {"max_bytes": "much"},
            "max_bytes",
            "“Size that is kept”: ",
        ),
        (
            "archive/retentionrule",
            {},
            "max_age_days",
            "Enter “Days that jobs are kept”, “Size that is kept”, or both.",
        ),
        (
            "archive/retentionrule",
            {"max_age_days": "0"},
            "max_age_days",
            "Enter 1 or more for “Days that jobs are kept”.",
        ),
        ("clusters/cluster", {"name": "my alps"}, "name", "digits, “_”, “.” and “-” in “Name”"),
        ("datasets/catalogue", {}, "kind", "“Kind” is required: choose a value."),
        (
            "diagnosis/exitcodemeaning",
            {"scope": "program"},
            "name",
            "Enter the name of the program, or choose “Convention”.",
        ),
        ("accounts/user", {"username": "a b"}, "username", "Use only letters, digits and @"),
        ("accounts/user", {"email": "ann"}, "email", "Enter an address such as ann@example.org"),
    ],
)
def test_error_names_the_field_and_what_to_do(client, admin, address, values, field, message):
    clusters.cluster()
    client.force_login(admin)
    page = client.post(f"/admin/{address}/add/", values)
    errors = page.context["adminform"].form.errors
    assert message in " ".join(errors[field])


def test_empty_options_are_those_of_a_new_cluster(client, admin):
    client.force_login(admin)
    values = {"name": "alps", "scheduler": "slurm", "options": "", "submission": " "}
    assert client.post("/admin/clusters/cluster/add/", values).status_code == 302


def test_messages_are_sentences_with_the_name_of_the_record(client, admin, nova):
    client.force_login(admin)
    role = {"user": admin.pk, "role": "shifter", "experiment": nova.pk}
    page = client.post("/admin/accounts/membership/add/", role, follow=True)
    assert "Added the role “" in page.text
    assert "membership “" not in page.text

    site = client.post("/admin/clusters/site/add/", {"name": "ridge", "_continue": ""}, follow=True)
    assert "Added the site “" in site.text
    changed = client.post(site.request["PATH_INFO"], {"name": "valley"}, follow=True)
    assert "Saved the site “" in changed.text
    deletion = site.request["PATH_INFO"].replace("change", "delete")
    deleted = client.post(deletion, {"post": "yes"}, follow=True)
    assert "Deleted the site “valley”." in deleted.text
    assert deleted.request["PATH_INFO"] == "/admin/clusters/site/"


def test_another_one_of_the_same_role_is_added(client, admin, nova):
    client.force_login(admin)
    values = {"user": admin.pk, "role": "liaison", "experiment": nova.pk, "_addanother": ""}
    sent = client.post("/admin/accounts/membership/add/?role=liaison", values)
    assert sent.headers["Location"] == "/admin/accounts/membership/add/?role=liaison"
