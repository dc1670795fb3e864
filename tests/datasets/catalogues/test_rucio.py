"""Rucio keeps the contract of every catalogue of files, with a server as its code writes it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.datasets.catalogues import connection
from apps.datasets.catalogues.base import (
    BadName,
    CatalogueConfiguration,
    CatalogueFile,
    Incomplete,
    Location,
    MakesDatasets,
    Medium,
    Refused,
    SignInNeeded,
    Stages,
    Unclear,
)
from apps.datasets.catalogues.registry import open_catalogue
from tests.contracts.file_catalogue import (
    RAW,
    SECRET,
    TRUTH,
    Harness,
    RemoteCatalogueContract,
    TrueFile,
)
from tests.datasets.catalogues.server import (
    FakeCatalogue,
    Request,
    Response,
    answer,
    as_json,
    json_answer,
)

LISTED = json.loads(answer("rucio/files.ndjson").splitlines()[0])
REPLICAS = [json.loads(line) for line in answer("rucio/replicas_list.ndjson").splitlines()]
FILES = {file.name: file for files in TRUTH.values() for file in files}
RULE_ID = "fe20ee904eb67235c101cea9e6bc59e4"


def sample(name: str) -> Response:
    """Return the response in a sample that shows status and headers too."""
    values = json_answer(f"rucio/{name}.json")
    body = json.dumps(values["body"]).encode()
    return Response(
        values["status"],
        body,
        values["headers"].pop("Content-Type", "text/plain"),
        values["headers"],
    )


def ndjson(records: list[dict]) -> Response:
    body = "".join(f"{json.dumps(record)}\n" for record in records).encode()
    return Response(body=body, content_type="application/x-json-stream")


class FakeRucio(FakeCatalogue):
    """Its answers are the samples, with the values of `TRUTH` in the scope `exa-raw`."""

    def __init__(self) -> None:
        super().__init__()
        self.datasets = {name: list(files) for name, files in TRUTH.items()}
        self.properties: dict[str, dict] = {}
        self.rules: list[dict] = []
        self.extra_count = 0
        self.expires = "Wed, 04 Nov 2099 10:00:00 UTC"

    def is_sign_in(self, request: Request) -> bool:
        return request.segments[0] == "auth"

    def rejection(self, request: Request) -> Response:
        return sample("token_expired_401")

    def answer(self, request: Request) -> Response:
        match (request.method, *request.segments):
            case ("GET", "auth", method):
                return self.sign_in(request, method)
            case ("POST", "dids", "bulkmeta"):
                names = [did["name"] for did in request.json()["dids"]]
                return ndjson([metadata(FILES[name]) for name in names if name in FILES])
            case ("POST", "dids", ""):
                return self.create(request.json()[0])
            case (_, "dids", "exa-raw", name, *call):
                return self.dataset(request, name, "/".join(call))
            case ("POST", "replicas", "list"):
                names = [did["name"] for did in request.json()["dids"]]
                if len(names) > 1000:
                    return sample("replicas_list_too_many_dids_400")
                return ndjson([replicas(FILES[name]) for name in names])
            case (_, "rules", *_):
                return self.rule(request)
        return sample("did_missing_404")

    def sign_in(self, request: Request, method: str) -> Response:
        if method == "userpass" and request.headers["X-Rucio-Password"] != SECRET:
            return sample("auth_failed_401")
        if not request.headers["X-Rucio-Account"]:
            return sample("auth_several_accounts_206")
        headers = json_answer("rucio/auth_userpass_response.json")["headers"]
        headers["X-Rucio-Auth-Token"] = self.token
        headers["X-Rucio-Auth-Token-Expires"] = self.expires
        return Response(headers=headers)

    def dataset(self, request: Request, name: str, call: str) -> Response:
        if name not in self.datasets:
            return sample("did_missing_404")
        files = self.datasets[name]
        if call == "files":
            return ndjson([listed(file) for file in files])
        if call == "rules":
            return ndjson(self.rules)
        if call == "dids":
            self.datasets[name] += [FILES[did["name"]] for did in request.json()["dids"]]
            return Response(201, b"Created")
        if call == "status":
            self.properties[name] |= request.json()
            return Response()
        assert request.query == {"dynamic_depth": "FILE"}
        totals = {"length": len(files) + self.extra_count, "bytes": sum(f.size for f in files)}
        dataset = json_answer("rucio/did_dataset.json") | self.properties.get(name, {})
        return as_json(dataset | {"name": name} | totals)

    def create(self, dataset: dict) -> Response:
        if dataset["name"] in self.datasets:
            return sample("did_exists_409")
        self.datasets[dataset["name"]] = []
        self.properties[dataset["name"]] = {"account": dataset["account"]}
        return Response(201, b"Created")

    def rule(self, request: Request) -> Response:
        if request.method == "GET":
            return sample("rule_missing_404")
        rule = request.json()
        for other in self.rules:
            if other["rse_expression"] == rule["rse_expression"]:
                return sample("rule_duplicate_409")
        self.rules.append({**json_answer("rucio/rule_replicating.json"), **rule})
        return Response(201, answer("rucio/rule_create_201.json"))


def listed(file: TrueFile) -> dict:
    return LISTED | {
        "name": file.name,
        "bytes": file.size,
        "adler32": file.adler32,
        "guid": None,
        "events": file.events if file.number % 2 else None,
    }


def metadata(file: TrueFile) -> dict:
    return json_answer("rucio/meta_file.json") | {
        "name": file.name,
        "events": file.events,
        "run_number": file.run,
        "created_at": file.created_at.strftime("%a, %d %b %Y %H:%M:%S UTC"),
    }


def replicas(file: TrueFile) -> dict:
    """Return what `/replicas/list` sends: without replicas, there are no states."""
    template = REPLICAS[0] if file.replicas else REPLICAS[2]
    record = {**template, "name": file.name}
    if file.replicas:
        sites = [replica.site for replica in file.replicas]
        pfns = template["pfns"].items()
        record["pfns"] = {path: replica for path, replica in pfns if replica["rse"] in sites}
        record["states"] = dict.fromkeys(sites, "AVAILABLE")
    return record


class RucioHarness(Harness):
    server: FakeRucio

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.server = FakeRucio()
        self.write_credential({"user": "exapro", "password": SECRET})

    def write_credential(self, values: dict[str, str]) -> None:
        (self.directory / "credential").write_text(json.dumps(values))

    def catalogue(self, *, base_url: str = "", **options: str):
        configuration = CatalogueConfiguration(
            base_url or self.server.url,
            str(self.directory / "credential"),
            {"account": "exaprod", **options},
        )
        return open_catalogue("rucio", configuration)

    def full_name(self, name: str) -> str:
        return f"exa-raw:{name}"

    def expected(self, file: TrueFile) -> CatalogueFile:
        return CatalogueFile(
            self.full_name(file.name),
            size_bytes=file.size,
            events=file.events,
            checksums=(("adler32", file.adler32),),
            runs=(file.run,),
            created_at=file.created_at.replace(microsecond=0),
        )

    def miscount(self) -> None:
        self.server.extra_count = 1

    def is_list(self, request: Request) -> bool:
        return request.segments[-1] == "files"


@pytest.fixture
def harness(tmp_path) -> Iterator[RucioHarness]:
    harness = RucioHarness(tmp_path)
    yield harness
    harness.server.close()


class TestRucio(RemoteCatalogueContract):
    pass


def sign_ins(harness) -> list[Request]:
    return [request for request in harness.server.requests if request.segments[0] == "auth"]


def last_answer(harness, call: str, response: Response) -> None:
    """Answer the requests whose path ends so with a response."""
    harness.server.fault = lambda request: response if request.target.endswith(call) else None


def test_a_token_is_renewed_at_80_percent_of_its_life(harness, monkeypatch):
    now = datetime(2026, 11, 4, 9, 0, tzinfo=UTC)
    harness.server.expires = "Wed, 04 Nov 2026 10:00:00 UTC"
    times = [now]
    monkeypatch.setattr(connection, "utc_now", lambda: times[-1])
    catalogue = harness.catalogue()
    catalogue.describe("exa-raw:run4711")
    times.append(now + timedelta(minutes=47))
    catalogue.describe("exa-raw:run4711")
    assert len(sign_ins(harness)) == 1
    times.append(now + timedelta(minutes=48))
    catalogue.describe("exa-raw:run4711")
    assert len(sign_ins(harness)) == 2


def test_a_right_that_is_missing_does_not_sign_in_again(harness):
    last_answer(harness, "rules/", sample("access_denied_401"))
    with pytest.raises(Refused, match="can not add replication rule"):
        stage(harness.catalogue())
    assert len(sign_ins(harness)) == 1


def test_a_token_in_the_file_is_sent_as_it_is(harness):
    harness.write_credential({"token": SECRET})
    harness.catalogue().describe("exa-raw:run4711")
    assert sign_ins(harness) == []
    assert harness.server.requests[-1].headers["X-Rucio-Auth-Token"] == SECRET


def test_wrong_passwords_and_missing_accounts_are_reported(harness):
    with pytest.raises(Refused, match="account"):
        harness.catalogue(account="").describe("exa-raw:run4711")
    harness.write_credential({"user": "exapro", "password": "hunter2"})
    with pytest.raises(SignInNeeded, match="Cannot authenticate") as refusal:
        harness.catalogue().describe("exa-raw:run4711")
    assert "hunter2" not in str(refusal.value)


def test_without_a_credential_one_is_needed(harness):
    harness.server.fault = lambda request: sample("token_missing_400")
    catalogue = open_catalogue("rucio", CatalogueConfiguration(harness.server.url))
    with pytest.raises(SignInNeeded):
        catalogue.describe("exa-raw:run4711")


def test_signing_in_may_have_another_url(harness):
    other = FakeRucio()
    try:
        harness.catalogue(auth_url=other.url).describe("exa-raw:run4711")
    finally:
        other.close()
    assert len(sign_ins(harness)) == 0
    assert [request.target for request in other.requests] == ["/auth/userpass"]


def test_the_sample_that_was_cut_off_is_incomplete(harness):
    last_answer(harness, "/files", Response(body=answer("rucio/files_cut_off_mid_record.ndjson")))
    with pytest.raises(Incomplete, match="cut off"):
        list(harness.catalogue().files("exa-raw:run4711"))


def test_metadata_that_was_cut_off_does_not_hide_a_file(harness):
    def cut(request, response):
        if request.segments[-1] != "bulkmeta":
            return response
        return Response(body=b"".join(response.body.splitlines(keepends=True)[:7]))

    harness.server.change = cut
    names = [f"exa-raw:{file.name}" for file in RAW]
    with pytest.raises(Incomplete):
        harness.catalogue().existing(names)


def test_too_large_a_request_is_refused(harness):
    page = Response(413, answer("rucio/payload_too_large_413.html"), "text/html")
    last_answer(harness, "bulkmeta", page)
    with pytest.raises(Refused, match="too large"):
        harness.catalogue().existing(["exa-raw:x"])


def test_a_dataset_without_a_count_is_unclear(harness):
    container = json_answer("rucio/did_open_container_without_totals.json")
    harness.server.fault = lambda r: as_json(container) if "autumn26?" in r.target else None
    assert harness.catalogue().describe("exa-raw:autumn26").files is None
    with pytest.raises(Unclear, match="length"):
        list(harness.catalogue().files("exa-raw:autumn26"))


def test_a_file_in_two_datasets_of_a_container_is_listed_once(harness):
    harness.server.datasets["autumn26"] = [*RAW, RAW[0]]
    with pytest.raises(Incomplete, match="twice"):
        list(harness.catalogue().files("exa-raw:autumn26"))
    harness.server.properties["autumn26"] = {"type": "CONTAINER"}
    assert len(list(harness.catalogue().files("exa-raw:autumn26"))) == 12


def test_a_file_is_not_a_dataset(harness):
    harness.server.properties["run4711"] = {"type": "FILE"}
    with pytest.raises(Refused, match="not a dataset"):
        harness.catalogue().describe("exa-raw:run4711")


def test_locations_name_state_site_and_medium(harness):
    file = "exa_raw_run004711_0001.root"
    states = {"EXA_DISK": "COPYING", "EXA_TAPE": "AVAILABLE", "EXA_OTHER": "AVAILABLE"}
    last_answer(harness, "replicas/list", ndjson([{**REPLICAS[0], "states": states}]))
    path = f"root://disk.example.org:1094//exa/raw/00/47/11/{file}"
    assert harness.catalogue().locations([f"exa-raw:{file}"])[f"exa-raw:{file}"] == [
        Location("EXA_DISK", path, Medium.DISK, available=False),
        Location("EXA_TAPE", path.replace("disk", "tape"), Medium.TAPE, available=True),
        Location("EXA_OTHER", "", Medium.UNKNOWN, available=True),
    ]


def test_replicas_that_are_left_out_are_incomplete(harness):
    last_answer(harness, "replicas/list", ndjson([replicas(RAW[0])]))
    names = [f"exa-raw:{file.name}" for file in RAW[:2]]
    with pytest.raises(Incomplete):
        harness.catalogue().locations(names)


def test_the_option_scope_completes_names(harness):
    catalogue = harness.catalogue(scope="exa-raw")
    assert catalogue.existing([RAW[0].name, "no_such", "", ":"]) == {RAW[0].name}
    with pytest.raises(BadName, match="scope:name"):
        harness.catalogue().describe("run4711")


def stage(catalogue, storage="EXA_DISK", lifetime_seconds=1_209_600) -> str:
    return catalogue.request_on_disk(
        dataset="exa-raw:run4711",
        storage=storage,
        lifetime_seconds=lifetime_seconds,
        comment="submission 314",
    )


def test_requests_a_dataset_on_disk_once(harness):
    catalogue = harness.catalogue()
    assert isinstance(catalogue, Stages)
    assert stage(catalogue) == RULE_ID
    assert stage(catalogue) == RULE_ID
    assert len(harness.server.rules) == 1
    rule = harness.server.rules[0]
    assert rule["dids"] == [{"scope": "exa-raw", "name": "run4711"}]
    assert (rule["rse_expression"], rule["lifetime"], rule["copies"]) == ("EXA_DISK", 1209600, 1)


def test_a_duplicate_rule_that_is_not_the_portals_is_unclear(harness):
    catalogue = harness.catalogue()
    stage(catalogue)
    harness.server.rules[0]["account"] = "somebody"
    with pytest.raises(Unclear, match="duplicate"):
        stage(catalogue)


def test_requests_that_cannot_be_granted_are_refused(harness):
    catalogue = harness.catalogue()
    with pytest.raises(Refused, match="positive"):
        stage(catalogue, lifetime_seconds=0)
    last_answer(harness, "rules/", sample("rule_quota_409"))
    with pytest.raises(Refused, match="quota"):
        stage(catalogue)
    (harness.directory / "credential").write_text(SECRET)
    with pytest.raises(Refused, match="account"):
        stage(harness.catalogue(account=""))


@pytest.mark.parametrize(
    ("name", "state", "counts", "complete"),
    [
        ("rule_replicating", "REPLICATING", (7, 5, 0), False),
        ("rule_ok", "OK", (12, 0, 0), True),
        ("rule_suspended_all_locks_ok", "SUSPENDED", (12, 0, 0), True),
        ("rule_stuck_no_sources", "STUCK", (11, 0, 1), False),
        ("rule_stuck_no_timestamp", "STUCK", (10, 0, 2), False),
    ],
)
def test_progress_is_that_of_the_counts(harness, name, state, counts, complete):
    rule = json_answer(f"rucio/{name}.json")
    last_answer(harness, rule["id"], as_json(rule))
    progress = harness.catalogue().stage_progress(rule["id"])
    assert progress.state == state
    assert (progress.files_on_disk, progress.files_waiting, progress.files_stuck) == counts
    assert progress.is_complete is complete
    assert progress.error == (rule["error"] or "")
    assert progress.expires_at == datetime(2026, 11, 18, 9, 0, tzinfo=UTC)


def test_a_rule_that_is_gone_is_refused(harness):
    with pytest.raises(Refused, match="No rule"):
        harness.catalogue().stage_progress(RULE_ID)


def recovery(catalogue, files=RAW[:3]) -> None:
    catalogue.make_dataset(
        name="exa-raw:recovery_314",
        files=[f"exa-raw:{file.name}" for file in files],
        source="exa-raw:run4711",
        description="submission 314",
    )


def test_makes_a_closed_dataset_once(harness):
    catalogue = harness.catalogue()
    assert isinstance(catalogue, MakesDatasets)
    for _ in range(2):
        recovery(catalogue)
    assert harness.server.datasets["recovery_314"] == RAW[:3]
    assert catalogue.describe("exa-raw:recovery_314").frozen
    with pytest.raises(Refused, match="differ"):
        recovery(catalogue, RAW[:2])
    with pytest.raises(Refused, match="differ"):
        recovery(catalogue, RAW[:4])
    assert harness.server.datasets["recovery_314"] == RAW[:3]


@pytest.mark.parametrize("account", ["exaprod", "somebody"])
def test_completes_only_a_dataset_of_its_own(harness, account):
    harness.server.datasets["recovery_314"] = RAW[:1]
    harness.server.properties["recovery_314"] = {"account": account}
    if account == "exaprod":
        recovery(harness.catalogue())
        assert harness.server.datasets["recovery_314"] == RAW[:3]
        assert harness.server.properties["recovery_314"]["open"] is False
    else:
        with pytest.raises(Refused, match="differ"):
            recovery(harness.catalogue())
        assert harness.server.datasets["recovery_314"] == RAW[:1]


def test_large_datasets_are_made_in_chunks(harness):
    recovery(harness.catalogue(), TRUTH["many"])
    assert harness.server.datasets["recovery_314"] == TRUTH["many"]
    assert all(request.names_in_body() <= 1000 for request in harness.server.requests)


def test_a_dataset_that_lacks_a_file_is_not_closed(harness):
    last_answer(harness, "recovery_314/dids", Response(201, b"Created"))
    with pytest.raises(Refused, match="differ"):
        recovery(harness.catalogue())
    assert "open" not in harness.server.properties["recovery_314"]


def test_a_dataset_is_not_a_file_that_exists(harness):
    dataset = {**metadata(RAW[0]), "name": "run4711", "did_type": "DATASET"}
    last_answer(harness, "bulkmeta", ndjson([dataset]))
    assert harness.catalogue().existing(["exa-raw:run4711"]) == set()
