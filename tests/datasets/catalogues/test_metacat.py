"""MetaCat keeps the contract of every catalogue of files, with a server as its code writes it."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.datasets.catalogues.base import (
    BadName,
    CatalogueConfiguration,
    CatalogueFile,
    Incomplete,
    MakesDatasets,
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

RECORD = json.loads(
    answer("metacat/query_page1_skip0_limit5.json-seq").partition(b"\n")[0].lstrip(b"\x1e")
)
FILES = {file.name: file for files in TRUTH.values() for file in files}
IDS = {f"fid{file.number}": file for file in FILES.values()}
VALID = re.compile(r"[a-z0-9_./-]+", re.IGNORECASE)


class FakeMetaCat(FakeCatalogue):
    """Its answers are the samples, with the values of `TRUTH` in the namespace `exa-raw`."""

    def __init__(self) -> None:
        super().__init__()
        self.datasets = {name: list(files) for name, files in TRUTH.items()}
        self.properties: dict[str, dict] = {}
        self.extra_count = 0
        self.token_is_valid = True

    def is_sign_in(self, request: Request) -> bool:
        return "auth" in request.segments

    def answer(self, request: Request) -> Response:
        assert request.segments[:2] == ["exa", "app"]
        match request.segments[2:]:
            case ["auth", *_]:
                return self.sign_in(request)
            case ["data", "dataset"]:
                return self.dataset(request.query["dataset"])
            case ["data", "query"]:
                return self.query(request)
            case ["data", "files"]:
                return self.files(request.json())
            case ["data", "file"]:
                return self.file(short_name(request.query["did"]))
            case ["data", "create_dataset"]:
                return self.create(request.json())
            case ["data", "add_files"]:
                return self.add(request.query["dataset"], request.json()["file_list"])
            case ["data", "update_dataset"]:
                self.properties[short_name(request.query["dataset"])] |= request.json()
                return as_json({})
        return Response(404, b"<html>no such page</html>", "text/html")

    def sign_in(self, request: Request) -> Response:
        if request.segments[-1] == "verify":
            return Response(200 if self.token_is_valid else 401, b"OK")
        method = request.query["method"]
        identities = {
            "token": request.headers.get("Authorization") == f"bearer {SECRET}",
            "ldap": request.body == f"exapro:{SECRET}".encode(),
            "x509": True,
        }
        if not identities[method]:
            return Response(401, b"Authentication failed")
        self.token_is_valid = True
        return Response(headers={"X-Authentication-Token": self.token})

    def dataset(self, full_name: str) -> Response:
        name = short_name(full_name)
        if not VALID.fullmatch(name):
            return as_json({"message": "Invalid character in name"}, 400)
        if name not in self.datasets:
            return Response(404, answer("metacat/dataset_missing_404.txt"))
        dataset = json_answer("metacat/dataset.json") | self.properties.get(name, {})
        return as_json(dataset | {"name": name, "file_count": self.count(name)})

    def count(self, name: str) -> int:
        return len(self.datasets[name]) + self.extra_count

    def query(self, request: Request) -> Response:
        text = request.body.decode()
        dataset = re.search(r"files from exa-raw:([\w./-]+)", text)
        if not dataset:
            return Response(400, answer("metacat/query_syntax_400.txt"))
        files = self.datasets[dataset[1]]
        if request.query.get("summary") == "count":
            total_size = sum(file.size for file in files)
            return as_json({"count": self.count(dataset[1]), "total_size": total_size})
        page = re.fullmatch(r"\(.*\) ordered skip (\d+) limit (\d+)", text)
        start, length = int(page[1]), int(page[2])
        lines = [f"\x1e{json.dumps(record(file))}\n" for file in files[start : start + length]]
        return Response(body="".join(lines).encode(), content_type="application/json-seq")

    def file(self, name: str) -> Response:
        if not VALID.fullmatch(name):
            return Response(400, b"Invalid character in name")
        return Response(404, b"File not found")

    def files(self, specifications: list[dict[str, str]]) -> Response:
        records = []
        for specification in specifications:
            if "fid" in specification:
                records.append(record(IDS[specification["fid"]]))
                continue
            name = short_name(specification["did"])
            if not VALID.fullmatch(name):
                return as_json({"message": "Invalid character in name"}, 400)
            if name in FILES:
                records.append(record(FILES[name]))
        return as_json(records)

    def create(self, dataset: dict) -> Response:
        if dataset["name"] in self.datasets:
            return Response(409, answer("metacat/create_dataset_exists_409.txt"))
        self.datasets[dataset["name"]] = []
        self.properties[dataset["name"]] = {"description": dataset["description"]}
        return as_json(json_answer("metacat/create_dataset_response.json"))

    def add(self, full_name: str, file_list: list[dict[str, str]]) -> Response:
        name = short_name(full_name)
        if self.properties[name].get("frozen"):
            return Response(403, answer("metacat/add_files_frozen_403.txt"))
        for specification in file_list:
            self.datasets[name].append(FILES[short_name(specification["did"])])
        return as_json({"files_added": len(file_list)})


def short_name(full_name: str) -> str:
    return full_name.partition(":")[2]


def record(file: TrueFile) -> dict:
    values = copy.deepcopy(RECORD)
    values |= {
        "fid": f"fid{file.number}",
        "name": file.name,
        "size": file.size,
        "created_timestamp": file.created_at.timestamp(),
        "checksums": {"adler32": file.adler32},
        "parents": [{"fid": f"fid{FILES[name].number}"} for name in file.parents],
    }
    values["metadata"] |= {"core.event_count": file.events, "core.runs": [file.run]}
    return values


class MetaCatHarness(Harness):
    has_odd_names = False
    server: FakeMetaCat

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.server = FakeMetaCat()
        (directory / "credential").write_text(SECRET)

    def catalogue(self, *, base_url: str = "", **options: str):
        configuration = CatalogueConfiguration(
            base_url or f"{self.server.url}/exa/app", str(self.directory / "credential"), options
        )
        return open_catalogue("metacat", configuration)

    def full_name(self, name: str) -> str:
        return f"exa-raw:{name}"

    def expected(self, file: TrueFile) -> CatalogueFile:
        return CatalogueFile(
            self.full_name(file.name),
            size_bytes=file.size,
            events=file.events,
            checksums=(("adler32", file.adler32),),
            runs=(file.run,),
            created_at=file.created_at,
            parents=tuple(self.full_name(name) for name in file.parents),
            catalogue_id=f"fid{file.number}",
        )

    def miscount(self) -> None:
        self.server.extra_count = 1

    def is_list(self, request: Request) -> bool:
        return request.segments[-1] == "query" and "summary" not in request.query


@pytest.fixture
def harness(tmp_path) -> Iterator[MetaCatHarness]:
    harness = MetaCatHarness(tmp_path)
    yield harness
    harness.server.close()


class TestMetaCat(RemoteCatalogueContract):
    pass


def recovery(catalogue, files=RAW[:3], description="submission 314") -> None:
    catalogue.make_dataset(
        name="exa-raw:recovery_314",
        files=[f"exa-raw:{file.name}" for file in files],
        source="exa-raw:run4711",
        description=description,
    )


def sign_ins(harness) -> list[Request]:
    return [request for request in harness.server.requests if request.segments[-1] == "auth"]


def test_it_signs_in_once_for_many_requests(harness):
    catalogue = harness.catalogue()
    for _ in range(3):
        catalogue.describe("exa-raw:run4711")
    assert len(sign_ins(harness)) == 1
    assert harness.server.requests[-1].headers["X-Authentication-Token"] == harness.server.token


@pytest.mark.parametrize(
    "credential",
    [SECRET, json.dumps({"user": "exapro", "password": SECRET}), json.dumps({"user": "exapro"})],
)
def test_every_credential_signs_in(harness, credential):
    (harness.directory / "credential").write_text(credential)
    assert harness.catalogue().describe("exa-raw:run4711").exists
    assert SECRET not in sign_ins(harness)[0].target


def test_a_wrong_password_is_reported_without_it(harness):
    content = json.dumps({"user": "exapro", "password": "hunter2"})
    (harness.directory / "credential").write_text(content)
    with pytest.raises(SignInNeeded) as refusal:
        harness.catalogue().describe("exa-raw:run4711")
    assert "hunter2" not in str(refusal.value)
    assert len(sign_ins(harness)) == 1


def test_without_a_credential_it_reads_without_signing_in(harness):
    configuration = CatalogueConfiguration(f"{harness.server.url}/exa/app")
    assert open_catalogue("metacat", configuration).describe("exa-raw:run4711").exists
    assert sign_ins(harness) == []


def test_the_403_of_an_expired_token_signs_in_again(harness):
    catalogue = harness.catalogue()
    catalogue.describe("exa-raw:run4711")
    harness.server.token_is_valid = False
    expired = Response(403, answer("metacat/token_expired_on_add_files_403.txt"))

    def reject(request):
        is_call = request.segments[2] == "data"
        return expired if is_call and not harness.server.token_is_valid else None

    harness.server.fault = reject
    assert catalogue.describe("exa-raw:run4711").exists
    assert len(sign_ins(harness)) == 2


def test_the_403_of_a_right_that_is_missing_is_refused(harness):
    denied = Response(403, b"Permission denied")
    harness.server.fault = lambda r: denied if r.segments[-1] == "create_dataset" else None
    catalogue = harness.catalogue()
    with pytest.raises(Refused, match="Permission denied"):
        recovery(catalogue)
    assert len(sign_ins(harness)) == 1


def test_a_query_that_fails_once_with_400_is_repeated(harness):
    failures = [Response(400, answer("metacat/query_syntax_400.txt"))]
    harness.server.fault = lambda request: (
        failures.pop() if failures and request.segments[-1] == "query" else None
    )
    assert len(list(harness.catalogue().files("exa-raw:run4711"))) == 12


def test_the_sample_that_was_cut_off_is_incomplete(harness):
    cut = Response(body=answer("metacat/query_cut_off_mid_record.json-seq"))
    harness.server.fault = lambda request: cut if harness.is_list(request) else None
    with pytest.raises(Incomplete, match="cut off"):
        list(harness.catalogue().files("exa-raw:run4711"))


def test_records_without_their_mark_are_unclear(harness):
    body = f"{json.dumps(record(RAW[0]))}\n".encode()
    harness.server.fault = lambda r: Response(body=body) if harness.is_list(r) else None
    with pytest.raises(Unclear, match="mark"):
        list(harness.catalogue().files("exa-raw:run4711"))


def test_a_file_that_vanishes_while_pages_are_read_is_noticed(harness):
    def remove_one(request, response):
        if harness.is_list(request):
            harness.server.datasets["run4711"] = RAW[1:]
        return response

    harness.server.change = remove_one
    with pytest.raises(Incomplete):
        list(harness.catalogue().files("exa-raw:run4711"))


def test_a_parent_without_a_name_is_incomplete(harness):
    harness.server.fault = lambda r: as_json([]) if r.segments[-1] == "files" else None
    with pytest.raises(Incomplete, match="parent"):
        list(harness.catalogue().files("exa-raw:reco"))


@pytest.mark.parametrize("name", ["run4711", ":", "exa-raw:", ":x", ""])
def test_a_name_without_a_namespace_is_refused(harness, name):
    with pytest.raises(BadName, match="namespace:name"):
        harness.catalogue().describe(name)


def test_a_name_that_the_server_refuses_is_a_bad_name(harness):
    with pytest.raises(BadName):
        harness.catalogue().describe("exa-raw:ü")
    harness.server.fault = lambda r: Response(400, b"broken") if r.segments[2] == "data" else None
    with pytest.raises(Refused, match="broken") as refusal:
        harness.catalogue().describe("exa-raw:run4711")
    assert not isinstance(refusal.value, BadName)


def test_the_option_namespace_completes_names(harness):
    catalogue = harness.catalogue(namespace="exa-raw")
    assert catalogue.describe("run4711").exists
    assert catalogue.existing([RAW[0].name, "no_such"]) == {RAW[0].name}


def test_keys_of_metadata_are_configurable(harness):
    catalogue = harness.catalogue(events_key="core.first_event_number", runs_key="no.key")
    file = next(catalogue.files("exa-raw:run4711"))
    assert (file.events, file.runs) == (1, None)


def test_a_name_cannot_change_a_query(harness):
    name = "run4711 - (files from exa-raw:many)"
    dataset = json_answer("metacat/dataset.json") | {"name": name}
    # Even if the server had a dataset of this name.
    harness.server.fault = lambda r: as_json(dataset) if r.segments[-1] == "dataset" else None
    with pytest.raises(Refused):
        list(harness.catalogue().files(f"exa-raw:{name}"))
    assert not any(request.segments[-1] == "query" for request in harness.server.requests)


def test_another_404_does_not_mean_that_a_dataset_is_missing(harness):
    harness.server.fault = lambda r: Response(404, b"No route") if r.segments[2] == "data" else None
    with pytest.raises(Refused, match="No route"):
        harness.catalogue().describe("exa-raw:run4711")


def test_makes_a_frozen_dataset_once(harness):
    catalogue = harness.catalogue()
    assert isinstance(catalogue, MakesDatasets)
    assert not isinstance(catalogue, Stages)
    for _ in range(2):
        recovery(catalogue)
    assert harness.server.datasets["recovery_314"] == RAW[:3]
    assert catalogue.describe("exa-raw:recovery_314").frozen
    with pytest.raises(Refused, match="differ"):
        recovery(catalogue, RAW[:2])
    assert harness.server.datasets["recovery_314"] == RAW[:3]


def test_completes_a_dataset_of_its_own_that_was_left_unfinished(harness):
    harness.server.datasets["recovery_314"] = RAW[:1]
    harness.server.properties["recovery_314"] = {"description": "submission 314"}
    recovery(harness.catalogue())
    assert harness.server.datasets["recovery_314"] == RAW[:3]
    assert harness.server.properties["recovery_314"]["frozen"]


def test_leaves_an_open_dataset_of_others_as_it_is(harness):
    harness.server.datasets["recovery_314"] = RAW[:1]
    harness.server.properties["recovery_314"] = {"description": "of somebody else"}
    with pytest.raises(Refused, match="differ"):
        recovery(harness.catalogue())
    assert harness.server.datasets["recovery_314"] == RAW[:1]
    assert "frozen" not in harness.server.properties["recovery_314"]


def test_files_that_were_not_requested_are_unclear(harness):
    harness.server.fault = lambda r: (
        as_json([record(RAW[1])]) if r.segments[-1] == "files" else None
    )
    with pytest.raises(Unclear, match="not requested"):
        harness.catalogue().existing([f"exa-raw:{RAW[0].name}"])


def test_a_retired_file_does_not_exist(harness):
    retired = {**record(RAW[0]), "retired": True}
    harness.server.fault = lambda r: as_json([retired]) if r.segments[-1] == "files" else None
    assert harness.catalogue().existing([f"exa-raw:{RAW[0].name}"]) == set()


def test_a_dataset_that_lacks_a_file_is_not_frozen(harness):
    ignored = as_json({"files_added": 0})
    harness.server.fault = lambda r: ignored if r.segments[-1] == "add_files" else None
    with pytest.raises(Refused, match="differ"):
        recovery(harness.catalogue())
    assert "frozen" not in harness.server.properties["recovery_314"]
