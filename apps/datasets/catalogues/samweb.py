"""SAM, by the HTTP calls of its web client.

The code of the server is not public: the calls and responses are those that its clients know.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Self
from urllib.parse import urlencode

from apps.datasets.catalogues import records
from apps.datasets.catalogues.base import (
    BadName,
    CatalogueConfiguration,
    CatalogueError,
    CatalogueFile,
    DatasetSummary,
    Incomplete,
    Location,
    Medium,
    Refused,
    SignInNeeded,
    Unclear,
)
from apps.datasets.catalogues.connection import (
    COMMON_OPTIONS,
    CatalogueConnection,
    FileToken,
    Reply,
    parse_json,
    path_of,
    records_of,
    unique,
)
from apps.datasets.catalogues.listing import check_count, check_same_files, chunks

#: Files in a request. Clients use from 50 to 1,000.
_CHUNK_FILES = 500
#: Names that are nothing but a name in a query.
_PLAIN_NAME = re.compile(r"[\w.+-]+", re.ASCII)
_MEDIA = {"disk": Medium.DISK, "tape": Medium.TAPE}


class SAMCatalogue:
    """A SAM instance, whose datasets are definitions. A definition grows: it is never frozen."""

    knows_locations = True

    def __init__(self, connection: CatalogueConnection, *, has_credential: bool, role: str) -> None:
        self._connection = connection
        self._has_credential = has_credential
        self._headers = {"Accept": "application/json", "From": "opsportal"}
        if role:
            self._headers["SAM-Role"] = role

    @classmethod
    def from_configuration(cls, configuration: CatalogueConfiguration) -> Self:
        configuration.check_options(
            *COMMON_OPTIONS, "token_header", "token_prefix", "role", "group", "user"
        )
        options = configuration.options
        if cls is SAMCatalogue and options.get("group"):
            return SAMThatDefines.from_configuration(configuration)  # type: ignore[return-value]
        sign_in = FileToken(
            configuration.credential_file,
            header=options.get("token_header", "Authorization"),
            prefix=options.get("token_prefix", "Bearer "),
        )
        return cls(
            CatalogueConnection(configuration, sign_in),
            has_credential=bool(configuration.credential_file),
            role=options.get("role", ""),
        )

    def describe(self, name: str) -> DatasetSummary:
        path = f"definitions/name/{path_of(name)}"
        # The count of a missing definition is an error, so only this call tells if it exists.
        reply = self._ask("GET", f"{path}/describe")
        if reply.status == 404 and _error_class(reply) == "DefinitionNotFound":
            return DatasetSummary(name, exists=False)
        definition = self._checked(reply).json_object()
        if records.text(definition, "defname").lower() != name.lower():
            raise Unclear(f"The response does not describe the definition {name}.")

        summary = self._checked(self._ask("GET", f"{path}/files/summary")).json_object()
        return DatasetSummary(
            name,
            exists=True,
            files=records.required_count(summary, "file_count"),
            size_bytes=records.count(summary, "total_file_size"),
            events=records.count(summary, "total_event_count"),
            frozen=False,
        )

    def files(self, name: str) -> Iterator[CatalogueFile]:
        if not self.describe(name).exists:
            raise Refused(f"The catalogue has no dataset {name}.")

        names = self._list_names(name)
        for chunk in chunks(names, _CHUNK_FILES):
            metadata = self._metadata(chunk, basic=False)
            for file_name in chunk:
                # The list may have been cut off within a name, which then has no metadata.
                if file_name not in metadata:
                    raise Incomplete(f"The catalogue lists {file_name}, but has no metadata of it.")
                yield _catalogue_file(metadata[file_name])

    def locations(self, names: Collection[str]) -> Mapping[str, list[Location]]:
        locations: dict[str, list[Location]] = {}
        for chunk in chunks(unique(names), _CHUNK_FILES):
            body = self._post("files/locations", _form(chunk)).json_object()
            for name in chunk:
                if name in body:
                    locations[name] = _locations(body[name])
        return locations

    def existing(self, names: Collection[str]) -> set[str]:
        existing: set[str] = set()
        for chunk in chunks(unique(names), _CHUNK_FILES):
            for name, record in self._metadata(chunk, basic=True).items():
                if not _is_retired(record):
                    existing.add(name)
        return existing

    def _list_names(self, dataset: str) -> list[str]:
        """Return the names of all files. Raises `Incomplete` if they are not as many as counted."""
        path = f"definitions/name/{path_of(dataset)}/files"
        count_text = self._checked(self._ask("GET", f"{path}/count")).text()
        expected = parse_json(count_text)
        expected_files = records.required_count({"count": expected}, "count")

        list_reply = self._ask("GET", f"{path}/list", query=[("format", "plain")])
        names = []
        for line in self._checked(list_reply).text().split("\n"):
            if line.strip():
                names.append(line.removesuffix("\r"))
        check_count(dataset=dataset, listed=len(names), expected=expected_files)
        if len(set(names)) != len(names):
            raise Incomplete(f"The list of {dataset} contains a file twice.")
        return names

    def _metadata(self, names: Sequence[str], *, basic: bool) -> dict[str, records.Record]:
        """Return the metadata of files by name; a file that is not declared is left out."""
        requested = set(names)
        fields = _form(names)
        if basic:
            fields.append(("basic", "1"))
        metadata: dict[str, records.Record] = {}
        for record in records_of(self._post("files/metadata", fields)):
            name = records.text(record, "file_name")
            if name not in requested:
                raise Unclear(f"The catalogue sends {name}, which was not requested.")
            metadata[name] = record
        return metadata

    def _post(self, path: str, fields: Sequence[tuple[str, str]]) -> Reply:
        content_type = {"Content-Type": "application/x-www-form-urlencoded"}
        body = urlencode(fields).encode()
        return self._checked(self._ask("POST", path, body=body, headers=content_type))

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Reply:
        all_headers = {**self._headers, **(headers or {})}
        return self._connection.ask(method, path, query=query, headers=all_headers, body=body)

    def _checked(self, reply: Reply) -> Reply:
        """Return a successful response. Raises the error of another one."""
        if reply.status == 200:
            return reply
        raise self._error_of(reply)

    def _error_of(self, reply: Reply) -> CatalogueError:
        if reply.status == 403 and not self._has_credential:
            summary = "The catalogue requires a credential"
            return SignInNeeded(self._connection.message_of(reply, summary))
        if b"query limit" in reply.body and not reply.is_html:
            summary = "The dataset is too large for the catalogue"
            return Refused(self._connection.message_of(reply, summary))
        return self._connection.error_of(reply)


class SAMThatDefines(SAMCatalogue):
    """A SAM instance in which the portal makes definitions, for a group and a user of SAM."""

    def __init__(self, connection: CatalogueConnection, *, has_credential: bool, role: str) -> None:
        super().__init__(connection, has_credential=has_credential, role=role)
        self._group = ""
        self._user = ""

    @classmethod
    def from_configuration(cls, configuration: CatalogueConfiguration) -> Self:
        catalogue = super().from_configuration(configuration)
        catalogue._group = configuration.options["group"]
        catalogue._user = configuration.options.get("user", "")
        if not catalogue._user:
            raise Refused("Definitions need a “user”, beside the “group”.")
        return catalogue

    def make_dataset(
        self, *, name: str, files: Sequence[str], source: str, description: str
    ) -> None:
        file_names = unique(files)
        for text in (name, *file_names):
            if not _PLAIN_NAME.fullmatch(text):
                raise BadName(f"{text} is not a name that a SAM query can have.")
        if not self.describe(name).exists:
            fields = [
                ("defname", name),
                ("dims", f"file_name {','.join(file_names)}"),
                ("group", self._group),
                ("user", self._user),
                ("description", description),
            ]
            self._post("definitions/create", fields)
        # Files that are not declared are left out of a definition without an error.
        check_same_files(dataset=name, present=self._list_names(name), expected=file_names)


def _form(names: Sequence[str]) -> list[tuple[str, str]]:
    return [("file_name", name) for name in names]


def _error_class(reply: Reply) -> str:
    """Return the class of an error, or an empty text for the error of a proxy."""
    try:
        error = reply.json_object().get("error")
    except Unclear:
        return ""
    return str(error)


def _is_retired(record: records.Record) -> bool:
    return records.flag(record, "retired") or bool(record.get("retired_date"))


def _catalogue_file(record: records.Record) -> CatalogueFile:
    return CatalogueFile(
        name=records.text(record, "file_name"),
        size_bytes=records.count(record, "file_size"),
        events=records.count(record, "event_count"),
        checksums=_checksums(record),
        runs=_runs(record),
        created_at=records.time_from_iso(record, "create_date"),
        parents=_parents(record),
        retired=_is_retired(record),
        catalogue_id=records.identifier(record, "file_id"),
    )


def _list(record: records.Record, key: str) -> list[Any]:
    """Return a list, which SAM leaves out if it is empty."""
    values = record.get(key) or []
    if not isinstance(values, list):
        raise Unclear(f"“{key}” of a record is not a list.")
    return values


def _checksums(record: records.Record) -> tuple[tuple[str, str], ...]:
    """Return the checksums from texts such as `adler32:839708db`."""
    values: dict[str, object] = {}
    for checksum in _list(record, "checksum"):
        algorithm, _, value = str(checksum).partition(":")
        if not value:
            raise Unclear("A checksum of a record has no algorithm.")
        values[algorithm] = value
    return records.checksums(values)


def _runs(record: records.Record) -> tuple[int, ...]:
    """Return each run once, from rows of run, subrun and type."""
    runs = []
    for row in _list(record, "runs"):
        if not isinstance(row, list) or not row or type(row[0]) is not int:
            raise Unclear("“runs” of a record is not a list of runs.")
        runs.append(row[0])
    return tuple(dict.fromkeys(runs))


def _parents(record: records.Record) -> tuple[str, ...]:
    names = []
    for parent in _list(record, "parents"):
        if not isinstance(parent, dict):
            raise Unclear("“parents” of a record is not a list of files.")
        names.append(records.text(parent, "file_name"))
    return tuple(names)


def _locations(rows: object) -> list[Location]:
    if not isinstance(rows, list):
        raise Unclear("The locations of a file are not a list.")
    locations = []
    for row in rows:
        if not isinstance(row, dict):
            raise Unclear("A location is not a JSON object.")
        full_path = records.text(row, "full_path")
        # A path is PREFIX:/path; the prefix names the storage.
        site = records.identifier(row, "system") or full_path.partition(":")[0]
        medium = _MEDIA.get(str(row.get("location_type")), Medium.UNKNOWN)
        locations.append(Location(site, full_path, medium))
    return locations
