"""What every catalogue of files must do.

Derive a test class from `FileCatalogueContract` and give it a fixture `harness`. The catalogue
has the datasets of `TRUTH` and nothing else.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.datasets.catalogues.base import (
    Catalogue,
    CatalogueFile,
    Incomplete,
    Medium,
    Refused,
    SignInNeeded,
    TryLater,
    Unclear,
)
from tests.datasets.catalogues.server import FakeCatalogue, Request, Response

SECRET = "s3cret-of-the-portal"
FIRST = datetime(2026, 11, 1, 22, 5, 41, tzinfo=UTC)
#: Names that break URLs, forms, query languages and plain lists.
ODD_NAMES = [
    "ü",
    "a b",
    "x/y",
    "'; --",
    "%41",
    "a+b&c=d#e?f",
    "x" * 300,
    "a\nb",
    '"',
    "a:b:c",
    "名前",
]


@dataclass(frozen=True)
class TrueReplica:
    """A replica as the fake server has it."""

    site: str
    medium: Medium


@dataclass(frozen=True)
class TrueFile:
    """A file as the fake server has it."""

    name: str
    number: int
    size: int
    events: int
    run: int
    adler32: str
    created_at: datetime
    parents: tuple[str, ...] = ()
    replicas: tuple[TrueReplica, ...] = ()


DISK = TrueReplica("EXA_DISK", Medium.DISK)
TAPE = TrueReplica("EXA_TAPE", Medium.TAPE)


def true_files(prefix: str, count: int, first_number: int) -> list[TrueFile]:
    """Return files whose replicas are on tape, on both, and nowhere, in turn."""
    replicas = [(TAPE,), (DISK, TAPE), ()]
    files = []
    for index in range(count):
        files.append(
            TrueFile(
                name=f"{prefix}_{index:04}.root",
                number=first_number + index,
                size=2_147_483_648 - index,
                events=120 + index % 3,
                run=4711 + index // 1000,
                adler32=f"{0x839708DB + index:08x}",
                created_at=FIRST + timedelta(minutes=index),
                replicas=replicas[index % 3],
            )
        )
    return files


RAW = true_files("exa_raw_run004711", 12, 7_000_101)
MANY = true_files("many", 3000, 8_000_000)
CHILD = TrueFile(
    "exa_reco.root",
    7_000_950,
    524_288_000,
    120,
    4711,
    "3f330d05",
    FIRST + timedelta(days=2, microseconds=750_000),
    parents=(RAW[0].name, RAW[1].name),
)
ODD = TrueFile("odd ü+&=%41 name#1.root", 7_000_960, 1, 0, 4711, "00000001", FIRST)
ODD_DATASET = "odd ü/1 %41"
TRUTH: dict[str, list[TrueFile]] = {
    "run4711": RAW,
    "reco": [CHILD],
    "many": MANY,
    "empty": [],
    ODD_DATASET: [ODD],
}


class Harness:
    """A catalogue with the datasets of `TRUTH`."""

    has_odd_names = True
    server: FakeCatalogue

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def catalogue(self, **options: str) -> Catalogue:
        """Return the catalogue, with the credential."""
        raise NotImplementedError

    def full_name(self, name: str) -> str:
        """Return how the catalogue names a dataset or a file."""
        return name

    def expected(self, file: TrueFile) -> CatalogueFile:
        """Return what the catalogue knows of a file."""
        raise NotImplementedError

    def miscount(self) -> None:
        """Let the catalogue count one file more in each dataset than it lists."""
        raise NotImplementedError

    def is_list(self, request: Request) -> bool:
        """Return whether a request asks for the files of a dataset."""
        raise NotImplementedError


def names_of(harness: Harness, files: Sequence[TrueFile]) -> list[str]:
    return [harness.full_name(file.name) for file in files]


class FileCatalogueContract:
    """What every catalogue of files keeps."""

    def test_describes_a_dataset(self, harness: Harness):
        name = harness.full_name("run4711")
        summary = harness.catalogue().describe(name)
        assert (summary.name, summary.exists, summary.files) == (name, True, 12)
        assert summary.size_bytes in (None, sum(file.size for file in RAW))
        assert summary.events in (None, sum(file.events for file in RAW))
        assert summary.frozen in (None, False)

    def test_a_missing_dataset_does_not_exist(self, harness: Harness):
        name = harness.full_name("run9999")
        summary = harness.catalogue().describe(name)
        assert (summary.exists, summary.files) == (False, None)

    def test_the_files_of_a_missing_dataset_are_not_empty(self, harness: Harness):
        with pytest.raises(Refused, match="no dataset"):
            list(harness.catalogue().files(harness.full_name("run9999")))

    def test_an_empty_dataset_is_empty(self, harness: Harness):
        name = harness.full_name("empty")
        assert harness.catalogue().describe(name).files == 0
        assert list(harness.catalogue().files(name)) == []

    @pytest.mark.parametrize("dataset", ["run4711", "reco", "many"])
    def test_files_equal_the_truth(self, harness: Harness, dataset: str):
        files = list(harness.catalogue().files(harness.full_name(dataset)))
        expected = [harness.expected(file) for file in TRUTH[dataset]]
        assert sorted(files, key=lambda file: file.name) == expected
        assert all(file.created_at is None or file.created_at.tzinfo is UTC for file in files)
        assert all(isinstance(file.catalogue_id, str) for file in files)

    def test_a_wrong_count_raises(self, harness: Harness):
        harness.miscount()
        with pytest.raises(Incomplete):
            list(harness.catalogue().files(harness.full_name("run4711")))

    def test_odd_names(self, harness: Harness):
        catalogue = harness.catalogue()
        for name in ODD_NAMES:
            try:
                assert not catalogue.describe(harness.full_name(name)).exists
            except Refused:
                assert not harness.has_odd_names
        for name in ("", ".", ".."):
            with suppress(Refused):
                assert not catalogue.describe(name).exists
        if harness.has_odd_names:
            files = list(catalogue.files(harness.full_name(ODD_DATASET)))
            assert files == [harness.expected(ODD)]

    def test_finds_which_files_exist(self, harness: Harness):
        catalogue = harness.catalogue()
        present = names_of(harness, [*MANY, CHILD])
        missing = [harness.full_name(f"no_such_{number}.root") for number in range(1500)]
        odd = [harness.full_name(name) for name in ODD_NAMES]
        assert catalogue.existing([*missing, *present, *odd]) == set(present)
        assert catalogue.existing(missing) == set()
        assert catalogue.existing([]) == set()

    def test_locations_on_disk_and_tape(self, harness: Harness):
        catalogue = harness.catalogue()
        names = names_of(harness, [*RAW, *MANY])
        if not catalogue.knows_locations:
            with pytest.raises(Refused):
                catalogue.locations(names)
            return

        locations = catalogue.locations([*names, harness.full_name("no_such.root")])
        assert set(locations) == set(names)
        for file in [*RAW, *MANY]:
            replicas = locations[harness.full_name(file.name)]
            media = sorted(replica.medium for replica in replicas)
            assert media == sorted(replica.medium for replica in file.replicas)
            assert all(replica.path and replica.site for replica in replicas)
        assert catalogue.locations([]) == {}

    def test_unknown_options_are_refused(self, harness: Harness):
        with pytest.raises(Refused, match="no_such_option"):
            harness.catalogue(no_such_option="1")


class RemoteCatalogueContract(FileCatalogueContract):
    """What a catalogue that is asked by HTTP keeps beyond that."""

    @pytest.fixture
    def remote(self, harness: Harness) -> Harness:
        return harness

    def test_many_files_are_asked_in_chunks(self, remote: Harness):
        list(remote.catalogue().files(remote.full_name("many")))
        remote.catalogue().existing(names_of(remote, MANY))
        assert all(request.names_in_body() <= 1000 for request in remote.server.requests)
        assert len(remote.server.requests) < 40

    @pytest.mark.parametrize("length", [0.6, "lines"])
    @pytest.mark.parametrize("announced", [True, False])
    def test_a_cut_stream_raises(self, remote: Harness, length, announced: bool):
        def cut(request: Request, response: Response) -> Response:
            if not remote.is_list(request):
                return response
            if length == "lines":
                body = b"".join(response.body.splitlines(keepends=True)[:7])
            else:
                body = response.body[: int(len(response.body) * length)]
            return response.with_body(body, announced=len(response.body) if announced else None)

        remote.server.change = cut
        with pytest.raises(Incomplete):
            list(remote.catalogue().files(remote.full_name("run4711")))

    def test_rejected_once_it_signs_in_again(self, remote: Harness):
        catalogue = remote.catalogue()
        assert catalogue.describe(remote.full_name("run4711")).exists
        remote.server.reject(times=1)
        assert catalogue.describe(remote.full_name("run4711")).files == 12
        remote.server.reject(times=1)
        assert len(list(catalogue.files(remote.full_name("run4711")))) == 12

    def test_rejected_forever_a_credential_is_needed(self, remote: Harness):
        catalogue = remote.catalogue()
        remote.server.reject(times=10_000)
        for call in calls(remote, catalogue):
            before = len(remote.server.requests)
            with pytest.raises(SignInNeeded):
                call()
            assert len(remote.server.requests) - before <= 6

    def test_a_missing_credential_file_is_named(self, remote: Harness):
        catalogue = remote.catalogue()
        (remote.directory / "credential").unlink()
        for call in calls(remote, catalogue):
            with pytest.raises(SignInNeeded, match="credential"):
                call()

    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
    def test_a_server_in_trouble_is_asked_later(self, remote: Harness, status: int):
        remote.server.fault = lambda request: Response(status, b"too many requests")
        for call in calls(remote, remote.catalogue()):
            with pytest.raises(TryLater):
                call()

    def test_a_slow_or_absent_server_is_asked_later(self, remote: Harness):
        remote.server.delay_seconds = 2
        catalogue = remote.catalogue(timeout_seconds="0.2")
        with pytest.raises(TryLater):
            catalogue.describe(remote.full_name("run4711"))
        remote.server.delay_seconds = 0
        remote.server.close()
        for call in calls(remote, catalogue):
            with pytest.raises(TryLater, match=r"cannot be reached: Connection refused\.$"):
                call()

    @pytest.mark.parametrize("status", [200, 302, 404])
    def test_garbage_is_unclear(self, remote: Harness, status: int):
        page = b"<!DOCTYPE html><title>Sign in</title>"
        for content_type in ("text/html", "application/json"):
            remote.server.fault = garbage(remote, Response(status, page, content_type))
            for call in calls(remote, remote.catalogue()):
                with pytest.raises(Unclear):
                    call()

    @pytest.mark.parametrize("body", [b"", b"null", b"[1]", b'{"a": ', b"\xff\xfe", b"-1\n"])
    def test_other_garbage_is_never_an_answer(self, remote: Harness, body: bytes):
        remote.server.fault = garbage(remote, Response(200, body, "application/json"))
        catalogue = remote.catalogue()
        with pytest.raises(Unclear):
            catalogue.describe(remote.full_name("run4711"))
        with pytest.raises(Unclear):
            list(catalogue.files(remote.full_name("run4711")))

    def test_no_secret_is_in_a_url_or_a_message(self, remote: Harness):
        catalogue = remote.catalogue()
        for call in calls(remote, catalogue):
            call()
        assert any(
            SECRET in str(request.headers) or SECRET.encode() in request.body
            for request in remote.server.requests
        )
        echo = Response(400, f"bad request with {SECRET}, {remote.server.token}".encode())
        remote.server.fault = garbage(remote, echo)
        with pytest.raises(Refused) as refusal:
            catalogue.describe(remote.full_name("run4711"))
        for text in [str(refusal.value), *(request.target for request in remote.server.requests)]:
            assert SECRET not in text
            assert remote.server.token not in text

    def test_secrets_in_the_url_are_refused(self, remote: Harness):
        for url in (
            "https://user:pw@example.org/api",
            "https://example.org/api?token=x",
            "ftp://example.org",
            "http://example.org/api",
            "https://example.org:99999/",
        ):
            with pytest.raises(Refused):
                remote.catalogue(base_url=url)


def garbage(harness: Harness, response: Response) -> Callable[[Request], Response | None]:
    """Return a fault that affects all requests but those that sign in."""
    return lambda request: None if harness.server.is_sign_in(request) else response


def calls(harness: Harness, catalogue: Catalogue) -> list[Callable[[], object]]:
    """Return a call of each method that sends requests."""
    name = harness.full_name("run4711")
    files = names_of(harness, RAW)
    methods: list[Callable[[], object]] = [
        lambda: catalogue.describe(name),
        lambda: list(catalogue.files(name)),
        lambda: catalogue.existing(files),
    ]
    if catalogue.knows_locations:
        methods.append(lambda: catalogue.locations(files))
    return methods
