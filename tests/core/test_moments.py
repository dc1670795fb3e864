"""Times with zones that Python knows and PostgreSQL does not."""

import pytest

FAR = "1296-07-24T08:22:28-23:32"


@pytest.mark.parametrize(
    "address",
    [
        "/api/v1/incidents/?started_after=",
        "/api/v1/verdicts/?start=",
        "/api/v1/jobs/?ended_from=",
        "/jobs/?ended_to=",
        "/jobs/?started_from=",
    ],
)
@pytest.mark.parametrize("when", [FAR, "9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00"])
def test_a_filter_takes_or_refuses_any_time(client, admin, address, when):
    client.force_login(admin)
    assert client.get(address + when.replace("+", "%2B")).status_code in {200, 400}


def test_what_leads_nowhere_below_the_api_is_told_in_json(client, admin):
    client.force_login(admin)
    for address, status in {"/api/v1/nothing/": 404, "/api/v1/requests/?a=%00": 400}.items():
        response = client.get(address)
        assert (response.status_code, list(response.json())) == (status, ["detail"])
