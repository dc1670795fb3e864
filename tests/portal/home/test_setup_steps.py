"""The steps from an empty portal to a working one."""

from apps.accounts.enums import Role
from apps.core.domain.health import beat_heart
from apps.portal.pages.setup_steps import setup_steps
from tests.factories import clusters, people, statusboard
from tests.pages import text_of


def test_empty_portal_leads_its_admin_to_the_first_steps(client, admin):
    client.force_login(admin)
    home = text_of(client.get("/"))
    assert "This portal is not set up yet." in home
    assert "No cluster is connected." in home
    assert "Nothing broke" not in home
    page = client.get("/admin/")
    assert "Set up the portal: 8 steps left" in text_of(page)
    for step in page.context["setup_steps"]:
        assert client.get(step.url).status_code == 200, step.title


def test_steps_are_done_one_by_one(db, at):
    def done() -> set[str]:
        return {step.title for step in setup_steps() if step.is_done}

    assert done() == set()
    beat_heart(name="beat", at=at)
    assert done() == {"Start the processes"}
    clusters.cluster()
    statusboard.service("dcache", at)
    people.person("lena", (Role.LIAISON, None))
    assert "Add people with roles" not in done()
    people.person("amara", (Role.APPROVER, None))
    assert done() == {
        "Start the processes",
        "Add people with roles",
        "Connect a cluster",
        "Add the services that jobs need",
    }


def test_note_ends_with_the_first_cluster(client, admin):
    client.force_login(admin)
    clusters.cluster()
    home = text_of(client.get("/"))
    assert "This portal is not set up yet." not in home
    assert "No cluster is connected." not in home
