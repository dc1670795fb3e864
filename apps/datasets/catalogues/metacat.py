"""MetaCat, by HTTP. It knows files and their parents, but not where they are."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

from apps.datasets.catalogues import records
from apps.datasets.catalogues.base import (
    BadName,
    CatalogueConfiguration,
    CatalogueFile,
    DatasetSummary,
    Incomplete,
    Location,
    Refused,
    SignInNeeded,
    Unclear,
)
from apps.datasets.catalogues.connection import (
    COMMON_OPTIONS,
    CatalogueConnection,
    LogIn,
    Reply,
    as_json,
    check_url,
    records_of,
    unique,
)
from apps.datasets.catalogues.credentials import Credentials, Token, token_with_expiry
from apps.datasets.catalogues.listing import (
    check_count,
    check_same_files,
    chunks,
    each_once,
    with_namespace,
)

#: Files in a page of a query, and in a request with names.
_PAGE_FILES = 1000
_TOKEN_HEADER = "X-Authentication-Token"  # noqa: S105
_TOKEN_LIFE = timedelta(hours=1)
#: Characters of namespaces and names. The server refuses all others.
_VALID_NAME = re.compile(r"[a-z0-9_./-]+:[a-z0-9_./-]+", re.IGNORECASE)
_RECORD_MARK = "\x1e"
_OPTIONS = (*COMMON_OPTIONS, "auth_url", "namespace", "events_key", "runs_key")


class MetaCatSignIn(LogIn):
    """A token of MetaCat for a bearer token, a password or a certificate."""

    def __init__(self, credential_file: str, *, auth_url: str) -> None:
        super().__init__(credential_file, header=_TOKEN_HEADER)
        self._auth_url = auth_url

    def log_in(
        self, connection: CatalogueConnection, credentials: Credentials, at: datetime
    ) -> Token:
        query = [("username", credentials.user)]
        if credentials.token:
            reply = connection.send_once(
                "POST",
                "auth/auth",
                base_url=self._auth_url,
                query=[("method", "token"), *query],
                headers={"Authorization": f"bearer {credentials.token}"},
            )
        elif credentials.password:
            # The password is in the body, because URLs are logged.
            reply = connection.send_once(
                "POST",
                "auth/auth",
                base_url=self._auth_url,
                query=[("method", "ldap"), *query],
                body=f"{credentials.user}:{credentials.password}".encode(),
            )
        else:
            reply = connection.send_once(
                "GET",
                "auth/auth",
                base_url=self._auth_url,
                query=[("method", "x509"), *query],
            )

        if reply.status in (401, 403):
            summary = "MetaCat does not accept the credential"
            raise SignInNeeded(connection.message_of(reply, summary))
        if reply.status != 200:
            raise connection.error_of(reply)
        value = reply.headers.get(_TOKEN_HEADER, "")
        if not value:
            raise Unclear("MetaCat accepted the credential, but sent no token.")
        return token_with_expiry(value, at=at, default_life=_TOKEN_LIFE)

    def is_rejected(self, connection: CatalogueConnection, reply: Reply) -> bool:
        if reply.status != 403:
            return reply.status == 401
        # 403 also means a frozen dataset or a namespace of others: ask if the token is valid.
        verification = connection.send_once(
            "GET", "auth/verify", base_url=self._auth_url, headers=self.headers(connection)
        )
        return verification.status in (401, 403)


class MetaCatCatalogue:
    """A MetaCat instance. Datasets and files are named `namespace:name`."""

    knows_locations = False

    def __init__(
        self, connection: CatalogueConnection, *, namespace: str, events_key: str, runs_key: str
    ) -> None:
        self._connection = connection
        self._namespace = namespace
        self._events_key = events_key
        self._runs_key = runs_key

    @classmethod
    def from_configuration(cls, configuration: CatalogueConfiguration) -> Self:
        configuration.check_options(*_OPTIONS)
        options = configuration.options
        auth_url = check_url(
            options.get("auth_url", configuration.base_url), configuration.credential_file
        )
        sign_in = MetaCatSignIn(configuration.credential_file, auth_url=auth_url)
        return cls(
            CatalogueConnection(configuration, sign_in),
            namespace=options.get("namespace", ""),
            events_key=options.get("events_key", "core.event_count"),
            runs_key=options.get("runs_key", "core.runs"),
        )

    def describe(self, name: str) -> DatasetSummary:
        full_name = self._full_name(name)
        query = [("dataset", full_name), ("exact_file_count", "yes")]
        reply = self._connection.ask("GET", "data/dataset", query=query)
        if reply.status == 404 and not reply.is_html and b"dataset not found" in reply.body.lower():
            return DatasetSummary(name, exists=False)
        if reply.status == 400 and not reply.is_html and not _VALID_NAME.fullmatch(full_name):
            raise BadName(f"“{name}” is not a name of MetaCat.")

        dataset = self._checked(reply).json_object()
        if _name_of(dataset).lower() != full_name.lower():
            raise Unclear(f"The response does not describe the dataset {full_name}.")
        _files, size_bytes = self._totals(full_name)
        return DatasetSummary(
            name,
            exists=True,
            files=records.required_count(dataset, "file_count"),
            size_bytes=size_bytes,
            frozen=records.flag(dataset, "frozen"),
        )

    def files(self, name: str) -> Iterator[CatalogueFile]:
        # A query for a dataset that does not exist may answer “no files”.
        if not self.describe(name).exists:
            raise Refused(f"The catalogue has no dataset {name}.")
        full_name = self._full_name(name)
        return each_once(name, self._walk(full_name))

    def locations(self, names: Collection[str]) -> Mapping[str, list[Location]]:
        raise Refused("MetaCat does not know where files are.")

    def existing(self, names: Collection[str]) -> set[str]:
        given_by_full_name: dict[str, list[str]] = {}
        odd_names = []
        for name in unique(names):
            full_name = with_namespace(name, self._namespace)
            if full_name is not None and _VALID_NAME.fullmatch(full_name):
                given_by_full_name.setdefault(full_name, []).append(name)
            else:
                odd_names.append(name)

        existing: set[str] = set()
        for chunk in chunks(list(given_by_full_name), _PAGE_FILES):
            specifications = [{"did": full_name} for full_name in chunk]
            for record in self._look_up(specifications):
                full_name = _name_of(record)
                if full_name not in given_by_full_name:
                    raise Unclear(f"The catalogue sends {full_name}, which was not requested.")
                if not records.flag(record, "retired"):
                    existing.update(given_by_full_name[full_name])
        for name in odd_names:
            if self._has_odd_file(name):
                existing.add(name)
        return existing

    def make_dataset(
        self, *, name: str, files: Sequence[str], source: str, description: str
    ) -> None:
        full_name = self._full_name(name)
        namespace, _, short_name = full_name.partition(":")
        file_names = [self._full_name(file) for file in unique(files)]
        dataset = {
            "namespace": namespace,
            "name": short_name,
            "frozen": False,
            "monotonic": False,
            "metadata": {},
            "description": description,
        }
        reply = self._send_json("data/create_dataset", dataset)
        present: set[str] = set()
        if reply.status == 409:
            present = self._resumable_files(full_name, description, file_names)
        else:
            self._checked(reply)

        missing = [file for file in file_names if file not in present]
        for chunk in chunks(missing, _PAGE_FILES):
            body = {"file_list": [{"did": file} for file in chunk]}
            query = [("dataset", full_name)]
            self._checked(self._send_json("data/add_files", body, query=query))

        # What is in the dataset now must be exactly the list before it is frozen.
        present = {file.name for file in self.files(full_name)}
        check_same_files(dataset=full_name, present=present, expected=file_names)
        if not self.describe(full_name).frozen:
            query = [("dataset", full_name)]
            self._checked(self._send_json("data/update_dataset", {"frozen": True}, query=query))

    def _resumable_files(
        self, full_name: str, description: str, expected: Sequence[str]
    ) -> set[str]:
        """Return the files of a dataset that exists.

        Raises `Refused` unless it has exactly the expected files, or was left unfinished by an
        earlier call: then it has a part of them, is open and has the same description.
        """
        present = {file.name for file in self.files(full_name)}
        if present != set(expected):
            reply = self._connection.ask("GET", "data/dataset", query=[("dataset", full_name)])
            dataset = self._checked(reply).json_object()
            is_ours = dataset.get("description") == description and not dataset.get("frozen")
            if not is_ours or not present <= set(expected):
                check_same_files(dataset=full_name, present=present, expected=expected)
        return present

    def _walk(self, full_name: str) -> Iterator[CatalogueFile]:
        """Yield the files page by page. Raises `Incomplete` if the dataset changes meanwhile."""
        expected, _size = self._totals(full_name)
        listed = 0
        while listed < expected:
            text = f"({_select(full_name)}) ordered skip {listed} limit {_PAGE_FILES}"
            query = [("with_meta", "yes"), ("with_provenance", "yes")]
            page = list(self._query(text, query).json_lines(prefix=_RECORD_MARK))
            page_files = min(_PAGE_FILES, expected - listed)
            check_count(dataset=full_name, listed=listed + len(page), expected=listed + page_files)
            listed += len(page)

            parent_names = self._parent_names(page)
            for record in page:
                yield self._catalogue_file(record, parent_names)

        # A file that was removed meanwhile moves the others, and one of them is skipped.
        files_now, _size = self._totals(full_name)
        check_count(dataset=full_name, listed=listed, expected=files_now)

    def _totals(self, full_name: str) -> tuple[int, int | None]:
        """Return number and total bytes of the files of a dataset that exists."""
        summary = self._query(_select(full_name), [("summary", "count")]).json_object()
        return records.required_count(summary, "count"), records.count(summary, "total_size")

    def _query(self, text: str, query: Sequence[tuple[str, str]]) -> Reply:
        """Return the response to a query of MetaCat's language."""
        body = text.encode()
        reply = self._connection.ask("POST", "data/query", query=query, body=body)
        if reply.status == 400:
            # Large queries fail with 400 now and then, although nothing is wrong with them.
            reply = self._connection.ask("POST", "data/query", query=query, body=body)
        return self._checked(reply)

    def _parent_names(self, page: Sequence[records.Record]) -> Mapping[str, str]:
        """Return the names of all parents of files, by id."""
        ids = []
        for record in page:
            ids.extend(_parent_ids(record))
        names: dict[str, str] = {}
        for chunk in chunks(unique(ids), _PAGE_FILES):
            specifications = [{"fid": parent_id} for parent_id in chunk]
            for parent in self._look_up(specifications):
                names[records.identifier(parent, "fid")] = _name_of(parent)
        return names

    def _look_up(self, specifications: Sequence[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
        """Yield the records of files; those that are not declared are left out."""
        return records_of(self._checked(self._send_json("data/files", specifications)))

    def _has_odd_file(self, name: str) -> bool:
        """Return whether a file is declared whose name would make the server refuse a list."""
        full_name = with_namespace(name, self._namespace)
        if full_name is None:
            return False
        reply = self._connection.ask("GET", "data/file", query=[("did", full_name)])
        if reply.status in (400, 404) and not reply.is_html:
            return False
        return not records.flag(self._checked(reply).json_object(), "retired")

    def _send_json(
        self, path: str, value: object, *, query: Sequence[tuple[str, str]] = ()
    ) -> Reply:
        headers = {"Content-Type": "application/json"}
        return self._connection.ask("POST", path, query=query, headers=headers, body=as_json(value))

    def _checked(self, reply: Reply) -> Reply:
        """Return a successful response. Raises the error of another one."""
        if reply.status == 200:
            return reply
        raise self._connection.error_of(reply)

    def _full_name(self, name: str) -> str:
        full_name = with_namespace(name, self._namespace)
        if full_name is None:
            raise BadName(f"“{name}” is not a name of MetaCat, such as namespace:name.")
        return full_name

    def _catalogue_file(
        self, record: records.Record, parent_names: Mapping[str, str]
    ) -> CatalogueFile:
        name = _name_of(record)
        metadata = _mapping(record, "metadata")
        parents = []
        for parent_id in _parent_ids(record):
            if parent_id not in parent_names:
                raise Incomplete(f"The catalogue does not name the parent {parent_id} of {name}.")
            parents.append(parent_names[parent_id])
        return CatalogueFile(
            name=name,
            size_bytes=records.count(record, "size"),
            events=records.count(metadata, self._events_key),
            checksums=records.checksums(_mapping(record, "checksums")),
            runs=records.numbers(metadata, self._runs_key),
            created_at=records.time_from_epoch(record, "created_timestamp"),
            parents=tuple(parents),
            retired=records.flag(record, "retired"),
            catalogue_id=records.identifier(record, "fid"),
        )


def _select(full_name: str) -> str:
    """Return the query for the files of a dataset. Raises `BadName` for an odd name."""
    if not _VALID_NAME.fullmatch(full_name):
        raise BadName(f"“{full_name}” is not a name of MetaCat.")
    return f"files from {full_name}"


def _name_of(record: records.Record) -> str:
    return f"{records.text(record, 'namespace')}:{records.text(record, 'name')}"


def _mapping(record: records.Record, key: str) -> Mapping[str, Any]:
    value = record.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Unclear(f"“{key}” of a record is not a JSON object.")
    return value


def _parent_ids(record: records.Record) -> list[str]:
    parents = record.get("parents") or []
    if not isinstance(parents, list):
        raise Unclear("“parents” of a record is not a list.")
    ids = []
    for parent in parents:
        if not isinstance(parent, dict) or not records.identifier(parent, "fid"):
            raise Unclear("A parent of a record has no id.")
        ids.append(records.identifier(parent, "fid"))
    return ids
