"""What the pages of a request do, over the API: discussion, clones, templates, versions, checks."""

import pytest

from apps.production.domain.lifecycle.moves import submit_request
from apps.production.domain.lineage.templates import save_template
from apps.production.domain.requests.drafts import save_draft
from apps.production.models import Comment, Request, RequestTemplate
from tests.factories.requests import AT, content, draft, request_in

JSON = "application/json"


@pytest.fixture
def obj(nova, liaison):
    return draft(liaison, nova)


@pytest.fixture
def as_liaison(client, liaison):
    client.force_login(liaison)
    return client


def post(client, address, **data):
    return client.post(f"/api/v1/{address}", data, content_type=JSON)


class TestComments:
    def test_a_thread_is_written_answered_resolved_and_opened_again(
        self, as_liaison, obj, approver
    ):
        at = f"requests/{obj.key}/comments/"
        first = post(as_liaison, at, text="Why so many?", field="stages.0.jobs")
        assert (first.status_code, first.json()["place"]) == (201, "Stage 1 generation › Jobs")
        number = first.json()["id"]
        as_liaison.force_login(approver)
        answer = post(as_liaison, at, text="Small files.", thread=number).json()
        assert (answer["thread"], answer["by"]) == (number, "opg-one")
        resolved = post(as_liaison, f"{at}{number}/resolve/").json()
        assert resolved["resolved_by"] == "opg-one"
        assert post(as_liaison, f"{at}{number}/resolve/").status_code == 409
        assert post(as_liaison, f"{at}{number}/reopen/").json()["resolved_at"] is None
        told = as_liaison.get(f"/api/v1/{at}").json()
        assert [(comment["id"], comment["text"]) for comment in told] == [
            (number, "Why so many?"),
            (answer["id"], "Small files."),
        ]

    def test_only_who_wrote_changes_and_withdraws(self, as_liaison, obj, approver):
        at = f"requests/{obj.key}/comments/"
        number = post(as_liaison, at, text="one").json()["id"]
        changed = as_liaison.patch(
            f"/api/v1/{at}{number}/", {"text": "two"}, content_type=JSON
        ).json()
        assert (changed["text"], changed["edited_at"] is None) == ("two", False)
        as_liaison.force_login(approver)
        assert post(as_liaison, f"{at}{number}/withdraw/").status_code == 403
        assert (
            as_liaison.patch(f"/api/v1/{at}{number}/", {"text": "x"}, content_type=JSON).status_code
            == 403
        )
        as_liaison.force_login(obj.created_by)
        assert post(as_liaison, f"{at}{number}/withdraw/").json()["text"] == ""
        assert Comment.objects.get().withdrawn_at

    def test_what_is_wrong_is_told(self, as_liaison, obj, dune, other_liaison):
        at = f"requests/{obj.key}/comments/"
        assert post(as_liaison, at, text="x", field="stages.9.jobs").json() == {
            "field": ["This request has no such field."]
        }
        assert post(as_liaison, at, text="x", thread=2**63 - 1).status_code == 400
        assert post(as_liaison, at, text=" ").status_code == 400
        as_liaison.force_login(other_liaison)
        assert post(as_liaison, at, text="x").status_code == 404
        assert not Comment.objects.exists()


class TestClones:
    def test_a_clone_and_its_new_names(self, as_liaison, obj):
        made = post(as_liaison, f"requests/{obj.key}/clone/")
        assert made.status_code == 201
        assert made.json()["notes"] == ["The deadline was not copied."]
        clone = made.json()["request"]
        named = post(as_liaison, f"requests/{clone['key']}/next-names/", version=1).json()
        assert [stage["output_dataset"] for stage in named["stages"]] == [
            "nova.mc.generation_v2",
            "nova.mc.simulation_v2",
        ]
        assert (
            post(as_liaison, f"requests/{clone['key']}/next-names/", version=1).status_code == 409
        )
        assert post(as_liaison, f"requests/{obj.key}/next-names/").status_code == 409

    def test_others_may_not(self, client, obj, approver):
        client.force_login(approver)
        assert post(client, f"requests/{obj.key}/clone/").status_code == 403
        assert Request.objects.count() == 1


class TestTemplates:
    def test_kept_read_renamed_used_deleted(self, as_liaison, obj):
        made = post(as_liaison, "templates/", request=obj.key, name="Rock").json()
        at = f"templates/{made['id']}/"
        told = as_liaison.get(f"/api/v1/{at}")
        assert (told.json()["content"]["stages"][0]["name"], told.json()["notes"]) == (
            "generation",
            [],
        )
        headers = {"If-Match": told["ETag"]}
        renamed = as_liaison.patch(
            f"/api/v1/{at}", {"name": "Muons"}, content_type=JSON, headers=headers
        )
        assert (renamed.status_code, renamed.json()["name"]) == (200, "Muons")
        again = as_liaison.patch(f"/api/v1/{at}", {"name": "X"}, content_type=JSON, headers=headers)
        assert again.status_code == 412
        drafted = post(as_liaison, f"{at}make-draft/").json()["request"]
        assert (drafted["state"], drafted["title"], drafted["deadline"]) == (
            "draft",
            obj.title,
            None,
        )
        assert as_liaison.delete(f"/api/v1/{at}").status_code == 204
        assert not RequestTemplate.objects.exists()

    def test_one_whose_version_is_gone_still_makes_a_draft_and_says_what_changed(
        self, as_liaison, obj, liaison
    ):
        template = save_template(request=obj, name="Old", by=liaison, at=AT)
        RequestTemplate.objects.update(workflow_key="gone", workflow_number=7)
        made = post(as_liaison, f"templates/{template.pk}/make-draft/").json()
        assert made["request"]["workflow"] == "general"
        assert "is no longer available" in made["notes"][0]
        assert [stage["name"] for stage in made["request"]["stages"]] == [
            "generation",
            "simulation",
        ]

    def test_others_see_and_change_nothing(self, as_liaison, obj, liaison, other_liaison, shifter):
        template = save_template(request=obj, name="Rock", by=liaison, at=AT)
        as_liaison.force_login(other_liaison)
        assert as_liaison.get("/api/v1/templates/").json()["results"] == []
        assert as_liaison.delete(f"/api/v1/templates/{template.pk}/").status_code == 404
        assert post(as_liaison, "templates/", request=obj.key, name="x").status_code == 400
        as_liaison.force_login(shifter)  # the OPG keeps templates, but writes no requests
        assert post(as_liaison, f"templates/{template.pk}/make-draft/").status_code == 403


class TestHistory:
    def test_versions_and_what_differs(self, as_liaison, obj, liaison):
        submit_request(request=obj, by=liaison, at=AT)
        Request.objects.filter(pk=obj.pk).update(state="changes_requested")
        obj.refresh_from_db()
        save_draft(
            request=obj, content=content(title="anew"), version=obj.version, by=liaison, at=AT
        )
        at = f"/api/v1/requests/{obj.key}/"
        kept = as_liaison.get(f"{at}revisions/").json()
        assert [one["is_submitted"] for one in kept] == [False, True, False]
        assert (
            as_liaison.get(f"{at}revisions/{kept[-1]['id']}/").json()["content"]["title"]
            == content().title
        )
        found = as_liaison.get(f"{at}changes/").json()
        assert (found["old"]["id"], found["new"]) == (kept[1]["id"], None)
        assert found["changes"] == [{"path": "title", "old": content().title, "new": "anew"}]
        both = as_liaison.get(f"{at}changes/", {"old": kept[2]["id"], "new": kept[1]["id"]}).json()
        assert both["changes"] == []
        assert as_liaison.get(f"{at}changes/", {"old": "9" * 30}).status_code == 404

    def test_what_happened_to_it(self, as_liaison, nova, liaison, approver):
        obj = request_in("queued", by=liaison, experiment=nova, approver=approver)
        kinds = [
            one["kind"] for one in as_liaison.get(f"/api/v1/requests/{obj.key}/events/").json()
        ]
        assert kinds[-2:] == ["request.submit", "request.created"]
        assert "request.approve" in kinds

    def test_a_saved_request_is_checked_as_it_is_or_would_be(self, as_liaison, obj):
        def rules(**data):
            return {
                one["rule"]
                for one in post(as_liaison, f"requests/{obj.key}/check/", **data).json()["findings"]
            }

        assert "title_given" not in rules()
        assert rules(title="") - rules() != set()
        obj.refresh_from_db()
        assert obj.version == 1

    def test_the_rules_are_told(self, as_liaison):
        told = as_liaison.get("/api/v1/checks/").json()
        assert len(told) > 50
        assert told[0]["severity"] == "invalid"


class TestBeside:
    def test_an_open_incident_is_changed_and_what_is_not_sent_stays(
        self, client, world, shifter, liaison
    ):
        client.force_login(shifter)
        at = f"/api/v1/incidents/{world.incident.pk}/"
        changed = client.patch(
            at, {"state": "degraded", "reason": "half of it is back"}, content_type=JSON
        ).json()
        assert (changed["state"], changed["title"]) == ("degraded", "503")
        assert (
            client.patch(at, {"state": "up", "reason": "x"}, content_type=JSON).status_code == 400
        )
        client.force_login(liaison)
        assert client.patch(at, {"title": "x", "reason": "x"}, content_type=JSON).status_code == 403

    def test_a_verdict_is_corrected_with_a_reason(self, client, world, liaison, other_liaison):
        client.force_login(liaison)
        at = f"verdicts/{world.job.pk}/correct/"
        assert post(client, at, verdict="code").status_code == 400
        assert post(client, at, verdict="code", reason="our bug").json()["verdict"] == "code"
        client.force_login(other_liaison)
        assert post(client, at, verdict="user", reason="theirs").status_code == 404
