"""Rucio, by HTTP: datasets and their replicas, staging by rules. It knows no parents of files."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Self

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
    StageProgress,
    Unclear,
)
from apps.datasets.catalogues.connection import (
    COMMON_OPTIONS,
    CatalogueConnection,
    LogIn,
    Reply,
    as_json,
    check_url,
    path_of,
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

#: Maximum names in a request to Rucio.
_CHUNK_FILES = 1000
_TOKEN_HEADER = "X-Rucio-Auth-Token"  # noqa: S105
_TOKEN_LIFE = timedelta(hours=1)
_STREAM = {"Accept": "application/x-json-stream"}
_MEDIA = {"DISK": Medium.DISK, "TAPE": Medium.TAPE}
_OPTIONS = (*COMMON_OPTIONS, "auth_url", "account", "scope", "activity")


class RucioSignIn(LogIn):
    """A token of Rucio for a password or a certificate, or a token that Rucio accepts."""

    def __init__(self, credential_file: str, *, auth_url: str, account: str) -> None:
        super().__init__(credential_file, header=_TOKEN_HEADER)
        self._auth_url = auth_url
        self._account = account

    def headers(self, connection: CatalogueConnection) -> Mapping[str, str]:
        # Another program renews a token that is in the file, so it is read each time.
        token = self.credentials().token
        if token:
            return {_TOKEN_HEADER: token}
        return super().headers(connection)

    def log_in(
        self, connection: CatalogueConnection, credentials: Credentials, at: datetime
    ) -> Token:
        headers = {"X-Rucio-Account": self._account, "X-Rucio-AppID": "opsportal"}
        if credentials.password:
            path = "auth/userpass"
            headers["X-Rucio-Username"] = credentials.user
            headers["X-Rucio-Password"] = credentials.password
        else:
            path = "auth/x509"
        reply = connection.send_once("GET", path, base_url=self._auth_url, headers=headers)

        if reply.status == 206:
            raise Refused("The identity has several accounts in Rucio. Set the option “account”.")
        if reply.status == 401:
            summary = "Rucio does not accept the credential"
            raise SignInNeeded(connection.message_of(reply, summary))
        if reply.status != 200:
            raise connection.error_of(reply)
        value = reply.headers.get(_TOKEN_HEADER, "")
        if not value:
            raise Unclear("Rucio accepted the credential, but sent no token.")

        expires_at = records.time_from_http(reply.headers, "X-Rucio-Auth-Token-Expires")
        if expires_at is None:
            return token_with_expiry(value, at=at, default_life=_TOKEN_LIFE)
        return Token(value, issued_at=at, expires_at=expires_at)

    def is_rejected(self, connection: CatalogueConnection, reply: Reply) -> bool:
        # 401 also means a right that is missing: a new token does not help then.
        return reply.status == 401 and _exception_class(reply) != "AccessDenied"


class RucioCatalogue:
    """A Rucio instance. Datasets and files are named `scope:name`."""

    knows_locations = True

    def __init__(
        self, connection: CatalogueConnection, *, account: str, scope: str, activity: str
    ) -> None:
        self._connection = connection
        self._account = account
        self._scope = scope
        self._activity = activity

    @classmethod
    def from_configuration(cls, configuration: CatalogueConfiguration) -> Self:
        configuration.check_options(*_OPTIONS)
        options = configuration.options
        account = options.get("account", "")
        auth_url = check_url(
            options.get("auth_url", configuration.base_url), configuration.credential_file
        )
        sign_in = RucioSignIn(configuration.credential_file, auth_url=auth_url, account=account)
        return cls(
            CatalogueConnection(configuration, sign_in),
            account=account,
            scope=options.get("scope", ""),
            activity=options.get("activity", "Staging"),
        )

    def describe(self, name: str) -> DatasetSummary:
        identifier = self._identifier(name)
        record = self._read_identifier(identifier)
        if record is None:
            return DatasetSummary(name, exists=False)
        if record.get("type") not in ("DATASET", "CONTAINER"):
            raise Refused(f"{name} is not a dataset, but a file.")
        return DatasetSummary(
            name,
            exists=True,
            files=records.count(record, "length"),
            size_bytes=records.count(record, "bytes"),
            frozen=not records.flag(record, "open"),
        )

    def files(self, name: str) -> Iterator[CatalogueFile]:
        identifier = self._identifier(name)
        dataset = self._read_identifier(identifier)
        if dataset is None:
            raise Refused(f"The catalogue has no dataset {name}.")
        expected = records.required_count(dataset, "length")

        reply = self._connection.ask("GET", f"dids/{_path(identifier)}/files", headers=_STREAM)
        self._checked(reply)
        # The list is parsed twice, because its records take far more memory than its text.
        listed = 0
        for _record in reply.json_lines():
            listed += 1
        check_count(dataset=name, listed=listed, expected=expected)

        listed_files: Iterator[records.Record] = reply.json_lines()
        if dataset.get("type") == "CONTAINER":
            listed_files = _without_duplicates(listed_files)
        return each_once(name, self._with_metadata(listed_files))

    def locations(self, names: Collection[str]) -> Mapping[str, list[Location]]:
        # One file that is not declared makes Rucio refuse the whole list of replicas.
        declared = self._declared(names)
        locations: dict[str, list[Location]] = {}
        for chunk in chunks(list(declared), _CHUNK_FILES):
            identifiers = [self._identifier(full_name) for full_name in chunk]
            body = {"dids": identifiers, "all_states": True}
            reply = self._send_json("POST", "replicas/list", body, headers=_STREAM)
            replicas_by_name = {}
            for record in self._checked(reply).json_lines():
                replicas_by_name[_name_of(record)] = _locations(record)
            check_count(dataset="replicas", listed=len(replicas_by_name), expected=len(chunk))
            for full_name in chunk:
                if full_name not in replicas_by_name:
                    raise Unclear(f"The catalogue leaves out the replicas of {full_name}.")
                for given_name in declared[full_name]:
                    locations[given_name] = replicas_by_name[full_name]
        return locations

    def existing(self, names: Collection[str]) -> set[str]:
        existing: set[str] = set()
        for given_names in self._declared(names).values():
            existing.update(given_names)
        return existing

    def request_on_disk(
        self, *, dataset: str, storage: str, lifetime_seconds: int, comment: str
    ) -> str:
        if lifetime_seconds <= 0:
            raise Refused("The lifetime of a request must be positive.")
        identifier = self._identifier(dataset)
        rule = {
            "dids": [identifier],
            "account": self._required_account(),
            "copies": 1,
            "rse_expression": storage,
            "lifetime": lifetime_seconds,
            "grouping": "DATASET",
            "activity": self._activity,
            "comment": comment,
        }
        reply = self._send_json("POST", "rules/", rule)
        if reply.status == 409 and _exception_class(reply) == "DuplicateRule":
            return self._existing_rule(identifier, storage)

        ids = self._checked(reply).json()
        if not isinstance(ids, list) or len(ids) != 1 or not isinstance(ids[0], str):
            raise Unclear("Rucio did not send the id of the rule.")
        return ids[0]

    def stage_progress(self, request_id: str) -> StageProgress:
        reply = self._connection.ask("GET", f"rules/{path_of(request_id)}")
        rule = self._checked(reply).json_object()
        if rule.get("id") != request_id:
            raise Unclear(f"The response does not describe the rule {request_id}.")
        return StageProgress(
            request_id,
            files_on_disk=records.required_count(rule, "locks_ok_cnt"),
            files_waiting=records.required_count(rule, "locks_replicating_cnt"),
            files_stuck=records.required_count(rule, "locks_stuck_cnt"),
            state=records.text(rule, "state"),
            error=records.identifier(rule, "error"),
            expires_at=records.time_from_http(rule, "expires_at"),
        )

    def make_dataset(
        self, *, name: str, files: Sequence[str], source: str, description: str
    ) -> None:
        identifier = self._identifier(name)
        file_names = []
        for file in unique(files):
            file_names.append(_full_name(self._identifier(file)))

        dataset = {**identifier, "type": "DATASET", "account": self._required_account()}
        reply = self._send_json("POST", "dids/", [dataset])
        present: set[str] = set()
        if reply.status == 409 and _exception_class(reply) == "DataIdentifierAlreadyExists":
            present = self._resumable_files(identifier, file_names)
        else:
            self._checked(reply)

        missing = [file for file in file_names if file not in present]
        for chunk in chunks(missing, _CHUNK_FILES):
            attachment = {"dids": [self._identifier(file) for file in chunk]}
            path = f"dids/{_path(identifier)}/dids"
            self._checked(self._send_json("POST", path, attachment))

        # What is in the dataset now must be exactly the list before it is closed.
        present = {file.name for file in self.files(name)}
        check_same_files(dataset=name, present=present, expected=file_names)
        if not self.describe(name).frozen:
            path = f"dids/{_path(identifier)}/status"
            self._checked(self._send_json("PUT", path, {"open": False}))

    def _resumable_files(self, identifier: Mapping[str, str], expected: Sequence[str]) -> set[str]:
        """Return the files of a dataset that exists.

        Raises `Refused` unless it has exactly the expected files, or was left unfinished by an
        earlier call: then it has a part of them, is open and belongs to the portal's account.
        """
        name = _full_name(identifier)
        dataset = self._read_identifier(identifier)
        if dataset is None or dataset.get("type") != "DATASET":
            raise Refused(f"{name} exists, but is not a dataset.")
        present = {file.name for file in self.files(name)}
        is_ours = dataset.get("account") == self._account and records.flag(dataset, "open")
        if not is_ours or not present <= set(expected):
            check_same_files(dataset=name, present=present, expected=expected)
        return present

    def _existing_rule(self, identifier: Mapping[str, str], storage: str) -> str:
        """Return the id of the portal's rule that already requests a dataset on a storage."""
        path = f"dids/{_path(identifier)}/rules"
        reply = self._checked(self._connection.ask("GET", path, headers=_STREAM))
        for rule in reply.json_lines():
            is_ours = rule.get("account") == self._account
            if is_ours and rule.get("rse_expression") == storage and rule.get("copies") == 1:
                return records.text(rule, "id")
        raise Unclear("Rucio reports a duplicate rule, but does not list it.")

    def _read_identifier(self, identifier: Mapping[str, str]) -> dict[str, Any] | None:
        """Return type and totals of a dataset or file; None if there is none."""
        # Without the depth, an open container has no totals.
        query = [("dynamic_depth", "FILE")]
        reply = self._connection.ask("GET", f"dids/{_path(identifier)}", query=query)
        if reply.status == 404 and _exception_class(reply) == "DataIdentifierNotFound":
            return None
        record = self._checked(reply).json_object()
        if _name_of(record) != _full_name(identifier):
            raise Unclear(f"The response does not describe {_full_name(identifier)}.")
        return record

    def _with_metadata(self, listed_files: Iterator[records.Record]) -> Iterator[CatalogueFile]:
        """Yield files with run and time, which only their metadata has."""
        while chunk := list(islice(listed_files, _CHUNK_FILES)):
            metadata = self._metadata([_name_of(record) for record in chunk])
            for record in chunk:
                yield _catalogue_file(record, metadata.get(_name_of(record), {}))

    def _metadata(self, full_names: Sequence[str]) -> dict[str, records.Record]:
        """Return the metadata of up to 1,000 names; one that is not declared is left out."""
        identifiers = [self._identifier(full_name) for full_name in full_names]
        body = {"dids": identifiers, "plugin": "DID_COLUMN"}
        reply = self._send_json("POST", "dids/bulkmeta", body, headers=_STREAM)
        metadata: dict[str, records.Record] = {}
        for record in self._checked(reply).json_lines():
            metadata[_name_of(record)] = record
        return metadata

    def _declared(self, names: Collection[str]) -> dict[str, list[str]]:
        """Return the names as they were given, by the full names of files that are declared."""
        given_by_full_name: dict[str, list[str]] = {}
        for name in unique(names):
            full_name = with_namespace(name, self._scope)
            if full_name is not None:
                given_by_full_name.setdefault(full_name, []).append(name)

        declared: dict[str, list[str]] = {}
        for chunk in chunks(list(given_by_full_name), _CHUNK_FILES):
            metadata = self._metadata(chunk)
            # A stream has no end mark: ask again for what it leaves out.
            missing = [full_name for full_name in chunk if full_name not in metadata]
            if missing and self._metadata(missing):
                raise Incomplete("The catalogue sent only a part of the metadata.")
            for full_name in chunk:
                if metadata.get(full_name, {}).get("did_type") == "FILE":
                    declared[full_name] = given_by_full_name[full_name]
        return declared

    def _send_json(
        self, method: str, path: str, value: object, *, headers: Mapping[str, str] | None = None
    ) -> Reply:
        all_headers = {"Content-Type": "application/json", **(headers or {})}
        return self._connection.ask(method, path, headers=all_headers, body=as_json(value))

    def _checked(self, reply: Reply) -> Reply:
        """Return a successful response. Raises the error of another one."""
        if reply.status in (200, 201):
            return reply
        raise self._error_of(reply)

    def _error_of(self, reply: Reply) -> CatalogueError:
        exception_class = _exception_class(reply)
        if exception_class == "AccessDenied":
            summary = "The account lacks the right"
            return Refused(self._connection.message_of(reply, summary))
        if reply.status == 400 and exception_class == "ValueError" and b"Token" in reply.body:
            return SignInNeeded(self._connection.message_of(reply, "Rucio requires a credential"))
        return self._connection.error_of(reply)

    def _required_account(self) -> str:
        if not self._account:
            raise Refused("Set the option “account” of the catalogue.")
        return self._account

    def _identifier(self, name: str) -> dict[str, str]:
        full_name = with_namespace(name, self._scope)
        if full_name is None:
            raise BadName(f"“{name}” is not a name of Rucio, such as scope:name.")
        scope, _, short_name = full_name.partition(":")
        return {"scope": scope, "name": short_name}


def _exception_class(reply: Reply) -> str:
    """Return Rucio's class of an error, or an empty text for the error of a proxy."""
    return reply.headers.get("ExceptionClass", "")


def _full_name(identifier: Mapping[str, str]) -> str:
    return f"{identifier['scope']}:{identifier['name']}"


def _path(identifier: Mapping[str, str]) -> str:
    return path_of(identifier["scope"], identifier["name"])


def _name_of(record: records.Record) -> str:
    return f"{records.text(record, 'scope')}:{records.text(record, 'name')}"


def _without_duplicates(listed_files: Iterator[records.Record]) -> Iterator[records.Record]:
    """Yield each file once: one in two datasets of a container is listed, and counted, twice."""
    names = set()
    for record in listed_files:
        name = _name_of(record)
        if name not in names:
            names.add(name)
            yield record


def _catalogue_file(record: records.Record, metadata: records.Record) -> CatalogueFile:
    events = records.count(record, "events")
    if events is None:
        events = records.count(metadata, "events")
    checksums = {"adler32": record.get("adler32"), "md5": metadata.get("md5")}
    return CatalogueFile(
        name=_name_of(record),
        size_bytes=records.count(record, "bytes"),
        events=events,
        checksums=records.checksums(checksums),
        runs=records.numbers(metadata, "run_number"),
        created_at=records.time_from_http(metadata, "created_at"),
        catalogue_id=records.identifier(record, "guid"),
    )


def _locations(record: records.Record) -> list[Location]:
    """Return the replicas of a file. A file without replicas has no states."""
    states = record.get("states") or {}
    paths = record.get("pfns") or {}
    if not isinstance(states, dict) or not isinstance(paths, dict):
        raise Unclear("The replicas of a file are not JSON objects.")

    locations = []
    sites_with_path = set()
    for path, replica in paths.items():
        if not isinstance(replica, dict):
            raise Unclear("A replica is not a JSON object.")
        site = records.text(replica, "rse")
        sites_with_path.add(site)
        medium = _MEDIA.get(str(replica.get("type")), Medium.UNKNOWN)
        locations.append(Location(site, path, medium, available=_is_available(states, site)))
    for site in states:
        # A storage without a protocol for reading has a replica without a path.
        if site not in sites_with_path:
            available = _is_available(states, site)
            locations.append(Location(site, "", Medium.UNKNOWN, available=available))
    return locations


def _is_available(states: Mapping[str, object], site: str) -> bool:
    return states.get(site) == "AVAILABLE"
