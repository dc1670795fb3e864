"""SAM keeps the contract of every catalogue of files, with a server as its clients know it."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

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

METADATA = json_answer("samweb/metadata_multiple_with_locations.json")[0]
FILES = {file.name: file for files in TRUTH.values() for file in files}


class FakeSAM(FakeCatalogue):
    """Its answers are the samples, with the values of `TRUTH`."""

    #: There are no sessions.
    token = SECRET

    def __init__(self) -> None:
        super().__init__()
        self.extra_count = 0
        #: Definitions that the portal made, and the fields of each call.
        self.made: dict[str, list[TrueFile]] = {}
        self.calls: list[dict[str, list[str]]] = []

    def answer(self, request: Request) -> Response:
        match request.segments:
            case ["sam", "exa", "api", "definitions", "name", dataset, *call]:
                return self.definition(dataset, "/".join(call))
            case ["sam", "exa", "api", "definitions", "create"]:
                return self.create(request)
            case ["sam", "exa", "api", "files", "metadata"]:
                names = request.form.get("file_name", [])
                return as_json([metadata(FILES[name]) for name in names if name in FILES])
            case ["sam", "exa", "api", "files", "locations"]:
                names = request.form.get("file_name", [])
                return as_json({name: locations(FILES[name]) for name in names if name in FILES})
        return Response(404, b"<html>no such page</html>", "text/html")

    def create(self, request: Request) -> Response:
        self.calls.append(request.form)
        [name] = request.form["defname"]
        [dims] = request.form["dims"]
        names = dims.removeprefix("file_name ").split(",")
        self.made[name] = [FILES[file] for file in names if file in FILES]
        return as_json({"defname": name})

    def definition(self, dataset: str, call: str) -> Response:
        if dataset not in TRUTH and dataset not in self.made:
            if call == "describe":
                return as_json(json_answer("samweb/definition_missing_404.json"), 404)
            return as_json(json_answer("samweb/files_count_missing_definition_400.json"), 400)
        files = TRUTH[dataset] if dataset in TRUTH else self.made[dataset]
        count = len(files) + self.extra_count
        if call == "describe":
            return as_json({**json_answer("samweb/definition_describe.json"), "defname": dataset})
        if call == "files/summary":
            total_size = sum(file.size for file in files)
            total_events = sum(file.events for file in files)
            summary = json_answer("samweb/files_summary.json")
            values = [count, total_size, total_events]
            return as_json(dict(zip(summary, values, strict=True)))
        if call == "files/count":
            return Response(body=f"{count}\n".encode())
        return Response(body="".join(f"{file.name}\n" for file in files).encode())


def metadata(file: TrueFile) -> dict:
    record = copy.deepcopy(METADATA)
    record |= {
        "file_name": file.name,
        "file_id": file.number,
        "create_date": file.created_at.isoformat(),
        "file_size": file.size,
        "event_count": file.events,
        "checksum": ["enstore:2205944026", f"adler32:{file.adler32}"],
        "runs": [[file.run, 1, "physics"], [file.run, 2, "physics"]],
    }
    if file.parents:
        record["parents"] = [{"file_name": name, "file_id": 1} for name in file.parents]
    return record


def locations(file: TrueFile) -> list[dict]:
    tape, disk = METADATA["locations"]
    return [tape if replica.medium is Medium.TAPE else disk for replica in file.replicas]


class SAMHarness(Harness):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.server = FakeSAM()
        (directory / "credential").write_text(SECRET)

    def catalogue(self, *, base_url: str = "", **options: str):
        configuration = CatalogueConfiguration(
            base_url or f"{self.server.url}/sam/exa/api",
            str(self.directory / "credential"),
            options,
        )
        return open_catalogue("sam", configuration)

    def expected(self, file: TrueFile) -> CatalogueFile:
        return CatalogueFile(
            file.name,
            size_bytes=file.size,
            events=file.events,
            checksums=(("adler32", file.adler32), ("enstore", "2205944026")),
            runs=(file.run,),
            created_at=file.created_at,
            parents=file.parents,
            catalogue_id=str(file.number),
        )

    def miscount(self) -> None:
        self.server.extra_count = 1

    def is_list(self, request: Request) -> bool:
        return request.segments[-1] == "list"


@pytest.fixture
def harness(tmp_path) -> Iterator[SAMHarness]:
    harness = SAMHarness(tmp_path)
    yield harness
    harness.server.close()


class TestSAM(RemoteCatalogueContract):
    pass


def test_locations_name_storage_path_and_medium(harness):
    harness.server.fault = lambda request: as_json(json_answer("samweb/locations_many.json"))
    names = ["exa_raw_run004711_0001.root", "exa_raw_run004711_0003.root", "no_such"]
    assert harness.catalogue().locations(names) == {
        names[0]: [Location("enstore", "enstore:/pnfs/example/raw/00/47/11", Medium.TAPE)],
        names[1]: [],
    }


def test_a_list_cut_within_a_name_is_incomplete_although_its_count_is_right(harness):
    names = [file.name for file in TRUTH["run4711"]]

    def cut(request, response):
        if harness.is_list(request):
            return Response(body="\n".join(names).encode()[:-3])
        return response

    harness.server.change = cut
    with pytest.raises(Incomplete, match="no metadata"):
        list(harness.catalogue().files("run4711"))


def test_a_file_that_is_listed_twice_is_incomplete(harness):
    def twice(request, response):
        if harness.is_list(request):
            lines = response.body.splitlines(keepends=True)
            return Response(body=b"".join([*lines[:-1], lines[0]]))
        return response

    harness.server.change = twice
    with pytest.raises(Incomplete, match="twice"):
        list(harness.catalogue().files("run4711"))


def test_another_404_does_not_mean_that_a_dataset_is_missing(harness):
    harness.server.fault = lambda request: Response(404, b"no such service")
    with pytest.raises(Refused, match="no such service"):
        harness.catalogue().describe("run4711")


def test_forbidden_without_a_credential_one_is_needed(harness, tmp_path):
    forbidden = as_json(json_answer("samweb/forbidden_403.json"), 403)
    harness.server.fault = lambda request: forbidden
    with pytest.raises(Refused, match="not authorised"):
        harness.catalogue().describe("run4711")
    anonymous = open_catalogue("sam", CatalogueConfiguration(f"{harness.server.url}/sam/exa/api"))
    with pytest.raises(SignInNeeded):
        anonymous.describe("run4711")
    assert "Authorization" not in harness.server.requests[-1].headers


def test_too_large_a_query_is_refused(harness):
    limit = Response(400, answer("samweb/query_limit_400.txt"))
    harness.server.fault = lambda request: limit
    with pytest.raises(Refused, match="too large"):
        harness.catalogue().describe("run4711")


def test_headers_are_configurable(harness):
    catalogue = harness.catalogue(token_header="Authentication", token_prefix="", role="*")
    catalogue.describe("run4711")
    headers = harness.server.requests[-1].headers
    assert headers["Authentication"] == SECRET
    assert headers["SAM-Role"] == "*"
    assert headers["Accept"] == "application/json"


def test_a_token_that_was_renewed_in_its_file_is_used(harness):
    catalogue = harness.catalogue()
    catalogue.describe("run4711")
    (harness.directory / "credential").write_text("renewed")
    catalogue.describe("run4711")
    assert harness.server.requests[-1].headers["Authorization"] == "Bearer renewed"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("file_size", -1),
        ("file_size", "12"),
        ("event_count", True),
        ("create_date", "yesterday"),
        ("checksum", ["839708db"]),
        ("runs", [["x"]]),
        ("runs", 4711),
        ("parents", ["a"]),
        ("file_id", [1]),
    ],
)
def test_a_bad_value_is_unclear(harness, key, value):
    def spoil(request, response):
        if request.segments[-1] == "metadata":
            return as_json([{**metadata(TRUTH["reco"][0]), key: value}])
        return response

    harness.server.change = spoil
    with pytest.raises(Unclear):
        list(harness.catalogue().files("reco"))


def test_a_retired_file_does_not_exist(harness):
    name = TRUTH["reco"][0].name
    retired = {**metadata(TRUTH["reco"][0]), "retired": True}
    harness.server.fault = lambda request: as_json([retired])
    assert harness.catalogue().existing([name]) == set()


def test_a_list_may_end_its_lines_like_windows_does(harness):
    def with_returns(request, response):
        if harness.is_list(request):
            return Response(body=response.body.replace(b"\n", b"\r\n"))
        return response

    harness.server.change = with_returns
    assert len(list(harness.catalogue().files("run4711"))) == 12


def test_metadata_that_was_not_requested_is_unclear(harness):
    harness.server.fault = lambda request: as_json([metadata(TRUTH["run4711"][0])])
    with pytest.raises(Unclear, match="not requested"):
        harness.catalogue().existing([TRUTH["reco"][0].name])


def make(catalogue, files=RAW[:3], name="mine") -> None:
    names = [file.name for file in files]
    catalogue.make_dataset(name=name, files=names, source="whole", description="3 files")


def test_makes_a_definition_once(harness):
    catalogue = harness.catalogue(group="exa", user="exapro")
    assert isinstance(catalogue, MakesDatasets)
    for _ in range(2):
        make(catalogue)
    [fields] = harness.server.calls
    assert fields["dims"] == [f"file_name {','.join(file.name for file in RAW[:3])}"]
    assert (fields["group"], fields["user"]) == (["exa"], ["exapro"])
    assert [file.name for file in catalogue.files("mine")] == [file.name for file in RAW[:3]]
    with pytest.raises(Refused, match="differ"):
        make(catalogue, RAW[:2])
    assert len(harness.server.calls) == 1


def test_files_that_are_not_declared_are_missing_in_a_definition(harness):
    catalogue = harness.catalogue(group="exa", user="exapro")
    with pytest.raises(Refused, match="differ"):
        catalogue.make_dataset(
            name="mine", files=[RAW[0].name, "none.root"], source="", description=""
        )


@pytest.mark.parametrize("name", ["a) or (b", "a,b", "a b", "", "ü"])
def test_names_that_a_query_cannot_have_are_never_sent(harness, name):
    catalogue = harness.catalogue(group="exa", user="exapro")
    with pytest.raises(BadName):
        catalogue.make_dataset(name="mine", files=[name], source="", description="")
    with pytest.raises(BadName):
        make(catalogue, name=name)
    assert harness.server.requests == []


def test_definitions_need_a_group_and_a_user(harness):
    assert not isinstance(harness.catalogue(), MakesDatasets)
    with pytest.raises(Refused, match="user"):
        harness.catalogue(group="exa")
