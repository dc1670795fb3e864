"""Options of a cluster that admins set: how to submit jobs, and who may own logs."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

#: Options of a cluster that adapters do not know: accounts whose logs any job may show, whether a
#: user's right to read a log is checked, and the URL of logs.
LOG_OWNERS, LOG_RIGHTS, LOG_URL = LOG_OPTIONS = ("log_owners", "check_log_rights", "log_url")
#: Fields of the URL of a job's log.
LOG_URL_FIELDS = ("job_id", "raw_id", "attempt", "user", "stream")
MAX_ARRAY = 100_000
MAX_TEST_EVENTS = 100

_OWNER = re.compile(r"[0-9]{1,20}|[A-Za-z_][A-Za-z0-9_.@-]{0,63}\$?")
_UIDS = 2**32 - 1
_LOG_URL = re.compile(
    rf"https?://[\w.:-]+/(?:[\w.~/?&=%+:@,-]|\{{(?:{'|'.join(LOG_URL_FIELDS)})\}}){{0,400}}",
    re.ASCII,
)
Word = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.,:@+-]{0,99})?$")]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"^(/[^\x00-\x1f]{0,300})?$")]
Limit = Annotated[int, Field(ge=0, le=10**7)]


class SubmissionOptions(BaseModel):
    """Options for submitting jobs to a cluster.

    `accounts` are by experiment and override `account`; empty texts and zeros are not requested.
    Requests of `experiments` start here automatically; empty means all. `in_flight` is by
    experiment and overrides `experiment_in_flight`; 0 means no limit. A test job that failed
    because of a service is repeated `retries` times; recovery rules retry jobs of production.
    At least the first `scouts` jobs of a large stage run before the others; 0 means none do.
    With `scouts_measure`, memory and wall time of the others follow from what these used.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    partition: Word = ""
    qos: Word = ""
    account: Word = ""
    accounts: Mapping[str, Word] = {}
    directory: AbsolutePath = ""
    output: AbsolutePath = ""
    array_size: int = Field(1000, ge=1, le=MAX_ARRAY)
    most_in_flight: int = Field(10_000, ge=1, le=10**7)
    most_at_once: Limit = 0
    automatic: bool = True
    experiments: Sequence[str] = ()
    experiment_in_flight: Limit = 0
    in_flight: Mapping[str, Limit] = {}
    test_events: int = Field(100, ge=0, le=MAX_TEST_EVENTS)
    retries: int = Field(2, ge=0, le=10)
    scouts: int = Field(10, ge=0, le=1000)
    scouts_measure: bool = True

    def limit_of(self, experiment: str) -> int:
        return min(
            self.in_flight.get(experiment, self.experiment_in_flight) or self.most_in_flight,
            self.most_in_flight,
        )

    def account_of(self, experiment: str) -> str:
        return self.accounts.get(experiment, self.account)


def read_options(values: Any) -> SubmissionOptions:
    """Parse the options for submission. Raises `ValueError` that lists all problems."""
    try:
        return SubmissionOptions.model_validate(values)
    except ValidationError as error:
        raise ValueError(" ".join(_problem(detail) for detail in error.errors())) from error


def check_log_options(options: Any) -> None:
    """Raise `ValueError` unless the options are as documented in docs/security.md."""
    if not isinstance(options, dict):
        # A wrong type is a `ValueError` too, so that callers handle one exception.
        raise ValueError("Write an object: names with values.")  # noqa: TRY004
    if not isinstance(options.get(LOG_RIGHTS, False), bool):
        raise ValueError(f"{LOG_RIGHTS}: write true or false.")  # noqa: TRY004
    url = options.get(LOG_URL, "")
    if url and not (
        isinstance(url, str)
        and _LOG_URL.fullmatch(url)
        and ("{job_id}" in url or "{raw_id}" in url)
    ):
        raise ValueError(
            f"{LOG_URL}: write a URL with {{job_id}} or {{raw_id}}; other fields are "
            f"{{attempt}}, {{user}}, {{stream}}."
        )
    value = options.get(LOG_OWNERS, "")
    form = "account names or uids separated by commas, for example “prodsvc, 4711”"
    if not isinstance(value, str):
        raise ValueError(f"log_owners: write text with {form}.")  # noqa: TRY004
    owners = [owner.strip() for owner in value.split(",") if owner.strip()]
    if wrong := [owner for owner in owners if not _OWNER.fullmatch(owner)]:
        raise ValueError(f"log_owners: “{wrong[0]}” is no account. Write {form}.")
    if too_large := [owner for owner in owners if owner.isdecimal() and int(owner) >= _UIDS]:
        raise ValueError(f"log_owners: {too_large[0]} is no uid: they are below {_UIDS}.")


def _problem(error: Any) -> str:
    name = ".".join(map(str, error["loc"]))
    match error["type"]:
        case "extra_forbidden":
            return f"{name!r} is not known; known are: {', '.join(SubmissionOptions.model_fields)}."
        case "string_pattern_mismatch" if name in ("directory", "output"):
            return f"{name}: an absolute path."
        case "string_pattern_mismatch":
            return f"{name}: letters, digits and _ . , : @ + - only."
    return f"{name or 'options'}: {error['msg']}."
