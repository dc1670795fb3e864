"""The only module of the portal that reads the environment: every variable with type and default.

Each variable `NAME` may also be given as `NAME_FILE`, the path of a file that contains the value.
`python -m opsportal.env` writes `.env.example` and `docs/settings.md`.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
)

from apps.core.domain.masked_names import MASKED_NAMES
from opsportal.setting_values import (
    check_address,
    check_database,
    check_headers,
    check_job_archive,
    check_key,
    check_mail_address,
    check_mail_server,
    check_networks,
    check_redis,
    check_regex,
    check_store_key,
    check_zone,
    read_roles,
    split_blanks,
    split_commas,
)

#: Required by every process of the portal.
REQUIRED = ("SECRET_KEY", "DATABASE_URL", "REDIS_URL")


class BadEnvironment(Exception):
    """Variables are missing or invalid; the message lists all of them."""


Urls = Annotated[list[str], BeforeValidator(split_blanks)]
Words = Annotated[list[str], BeforeValidator(split_commas)]
Paths = Annotated[list[Path], BeforeValidator(split_commas)]
Key = Annotated[SecretStr, AfterValidator(check_key)]
StoreKey = Annotated[SecretStr | None, AfterValidator(check_store_key)]
Keys = Annotated[list[Key], BeforeValidator(split_commas)]


class Environment(BaseModel):
    """All settings, by the names of their environment variables."""

    model_config: ClassVar[ConfigDict] = ConfigDict(hide_input_in_errors=True, frozen=True)

    SECRET_KEY: Key | None = Field(
        default=None,
        description=(
            "Signs sessions and tokens. At least 50 random characters; changing it logs all users "
            "out, unless the former one is in `SECRET_KEY_FALLBACKS`."
        ),
    )
    SECRET_KEY_FALLBACKS: Keys = Field(
        default=[],
        description=(
            "Former values of `SECRET_KEY`, separated by commas: what they signed is still valid "
            "(docs/production.md)."
        ),
    )
    DATABASE_URL: Annotated[SecretStr, AfterValidator(check_database)] | None = Field(
        default=None,
        description=(
            "PostgreSQL 15 or later: `postgresql://USER:PASSWORD@HOST:5432/NAME`; for a socket "
            "directory add `?host=/DIR`. With several hosts, `…@HOST:5432,HOST2:5432/NAME`, the "
            "one that accepts changes is used; see docs/scale-out.md."
        ),
    )
    REDIS_URL: Annotated[SecretStr, AfterValidator(check_redis)] | None = Field(
        default=None,
        description=(
            "Redis or Valkey for queue and cache: `redis://HOST:6379/0`, `rediss://…` or "
            "`unix:///PATH?db=0`. With Sentinels, "
            "`sentinel://USER:PASSWORD@HOST:26379,HOST2:26379/0?service=NAME`, the primary of that "
            "service is used; user and password are its own, `&sentinel_password=…` is that of "
            "the Sentinels. By TLS, `rediss://…` and `sentinels://…`, with "
            "`ssl_ca_certs=/FILE` in the URL for an authority that the host does not know; see "
            "docs/production.md and docs/scale-out.md."
        ),
    )
    PORTAL_URL: Annotated[str, AfterValidator(check_address)] = Field(
        default="http://localhost:8000",
        pattern=r"^https?://[^/\s]+$",
        description=(
            "Public URL of the portal, without a final slash. With https, cookies are secure and "
            "HTTP is redirected."
        ),
    )
    ALLOWED_HOSTS: Words = Field(
        default=[],
        description="Additional host names besides that of PORTAL_URL, separated by commas.",
    )
    TRUST_PROXY: bool = Field(
        default=False,
        description=(
            "Trust `X-Forwarded-Proto` and `X-Forwarded-For`. Set it behind a proxy that "
            "overwrites them, and only there; see docs/production.md."
        ),
    )
    DEBUG: bool = Field(default=False, description="Django's debug pages. Never in production.")
    DEMO: bool = Field(
        default=False,
        description=(
            "Install the demo and let its accounts log in, whose passwords are public. Never in "
            "production."
        ),
    )
    VAR_DIR: Path = Field(
        default=Path("var"),
        description="Directory of the portal's own files: the capture journal, the demo.",
    )
    STATIC_DIR: Path = Field(
        default=Path("staticfiles"), description="Directory that `manage.py collectstatic` fills."
    )
    TIME_ZONE: Annotated[str, AfterValidator(check_zone)] = Field(
        default="UTC",
        description="Time zone of statistics, and of pages for users who have not chosen one.",
    )
    TIME_WINDOWS: str = Field(
        default="weekend=Sat-Sun 0-24; lunch=Mon-Fri 12-13; day=Mon-Fri 8-18; night=*",
        description="Time windows of the statistics in TIME_ZONE: the first that has an hour "
        "gets it.",
    )
    LOG_LEVEL: str = Field(
        default="INFO",
        pattern="^(DEBUG|INFO|WARNING|ERROR)$",
        description="Log level: DEBUG, INFO, WARNING or ERROR.",
    )
    LOG_FORMAT: str = Field(
        default="text",
        pattern="^(text|json)$",
        description="Lines of logs: text, or json for programs that collect logs.",
    )
    LOG_ROOTS: Paths = Field(
        default=[],
        description=(
            "Directories below which job logs can be read, separated by commas; see "
            "docs/security.md. None: no log is read."
        ),
    )
    LOG_SERVERS: Words = Field(
        default=[],
        description=(
            "Web servers that job logs may be fetched from, such as `https://logs.example.org`, "
            "separated by commas; see docs/security.md."
        ),
    )
    RECOVERY_MINUTES_PER_JOB: float = Field(
        5, ge=0, le=1000, description="Minutes of work that each job recovered by a rule saves."
    )
    HOST_EXCLUSION_HOURS: int = Field(
        default=24,
        ge=1,
        le=2_160,
        description="Hours after which the exclusion of a host from new jobs expires.",
    )
    HOST_EXCLUSION_PERCENT: float = Field(
        default=10,
        ge=0,
        le=50,
        description=(
            "Share of a cluster's hosts, in percent, that may be excluded when the portal excludes "
            "one. If more fail within an hour, it excludes none. 0: it never excludes a host."
        ),
    )
    HOST_PROBE_MINUTES: int = Field(
        default=5, ge=1, le=1_440, description="Minutes between probe jobs on an excluded host."
    )
    HOST_PROBE_HOURS: int = Field(
        default=24,
        ge=0,
        le=720,
        description="Hours between probe jobs on the other hosts. 0: excluded hosts alone.",
    )
    SCOUT_FALSE_STOP: float = Field(
        default=0.001,
        gt=0,
        le=0.1,
        description=(
            "Probability that the portal stops a stage whose jobs fail no more often than usual."
        ),
    )
    SCOUT_MISSED: float = Field(
        default=0.05,
        gt=0,
        le=0.5,
        description="Probability that the first jobs of a broken stage let the others start.",
    )
    LOG_EXCERPT_DAYS: int = Field(
        default=365,
        ge=0,
        description=(
            "Days after which the kept ends of job logs, and the evidence in them, are deleted; "
            "verdicts stay. 0: never."
        ),
    )
    READ_COMPLETED_LOGS: bool = Field(
        default=True,
        description=(
            "Whether the logs of completed jobs are read too, so that *Where else?* can tell "
            "which lines good jobs write."
        ),
    )
    JOB_RECORD_MONTHS: int = Field(
        default=0,
        ge=0,
        description=(
            "Whole months that job records are kept; then they are archived as Parquet and "
            "dropped, totals and statistics stay. 0: for ever."
        ),
    )
    JOB_ARCHIVE: Annotated[str, AfterValidator(check_job_archive)] = Field(
        default="",
        description=(
            "Archived months of job records: a directory, or an S3-compatible object store, "
            "`s3://BUCKET/PREFIX?endpoint=https://HOST&region=REGION`; see docs/jobs.md. Default: "
            "`VAR_DIR/job-months`."
        ),
    )
    JOB_ARCHIVE_ACCESS_KEY: StoreKey = Field(
        default=None,
        validate_default=True,
        description="Access key of that object store.",
    )
    JOB_ARCHIVE_SECRET_KEY: StoreKey = Field(
        default=None,
        validate_default=True,
        description="Secret key of that object store, preferably as `JOB_ARCHIVE_SECRET_KEY_FILE`.",
    )
    JOB_ARCHIVE_CA: Path | None = Field(
        default=None,
        description="PEM file of the CA of its certificate. Default: the system's CAs.",
    )
    JOB_ARCHIVE_CACHE_MAX_BYTES: int = Field(
        default=4 * 1024**3,
        ge=64 * 1024**2,
        description="Bytes that copies of its files may take in `VAR_DIR/job-month-cache`.",
    )
    BACKUP_DIR: Path | None = Field(
        default=None,
        description="Directory of the dumps of the database, whose age `manage.py doctor` checks.",
    )
    ENERGY_MODEL: Path | None = Field(
        default=None,
        description="JSON file with the power of cores and of sites; see docs/jobs.md. None: the "
        "energy of jobs is shown only where a scheduler measured it.",
    )
    DATASET_CATALOGUE: str = Field(
        default="",
        description=(
            "Catalogue of the datasets of requests: `portal` for those of the back office, "
            "`file:/PATH.json`, or a plugin's name and its address. Empty: datasets are not looked "
            "up."
        ),
    )
    CAPTURE_CLUSTER: str = Field(
        default="", description="Name of the cluster whose spool `manage.py capture` watches."
    )
    CAPTURE_SCHEDULER: str = Field(
        default="slurm",
        description="Scheduler of that cluster: slurm, torque, htcondor, or a plugin's name.",
    )
    CAPTURE_SPOOL: Path | None = Field(
        default=None,
        description="Spool directory of that cluster; for Slurm the StateSaveLocation.",
    )
    CAPTURE_WATCH: str = Field(
        default="auto",
        pattern="^(auto|inotify|polling)$",
        description=(
            "Source of file events in the spool: inotify, polling, or auto (inotify, plus polling "
            "on network file systems)."
        ),
    )
    CAPTURE_JOURNAL: Path | None = Field(
        default=None, description="Directory of the capture journal. Default: `VAR_DIR/journal`."
    )
    CAPTURE_PORTAL: str = Field(
        default="",
        description=(
            "URL of the portal that `manage.py capture` hands jobs over to, with "
            "`ARCHIVE_PORTAL_TOKEN`. Default: `PORTAL_URL`, if the environment has the portal's "
            "`DATABASE_URL`."
        ),
    )
    ARCHIVE_SINKS: Urls = Field(
        default=["store:"],
        description="Where workers archive captured jobs: URLs separated by blanks; see "
        "docs/archive.md.",
    )
    ARCHIVE_INTAKE_MAX_BYTES: int = Field(
        default=4 * 1024**3,
        ge=64 * 1024**2,
        description=(
            "Maximum bytes of captured jobs that wait in the database for their sinks. Above it, "
            "capture keeps them."
        ),
    )
    ARCHIVE_ELASTICSEARCH_API_KEY: SecretStr | None = Field(
        default=None,
        description=(
            "API key of the Elasticsearch sink and search, in the encoded form of Elasticsearch."
        ),
    )
    ARCHIVE_ELASTICSEARCH_USER: str = Field(
        default="", description="User of the Elasticsearch sink and search, instead of an API key."
    )
    ARCHIVE_ELASTICSEARCH_PASSWORD: SecretStr | None = Field(
        default=None,
        description="Password of that user, preferably as `ARCHIVE_ELASTICSEARCH_PASSWORD_FILE`.",
    )
    ARCHIVE_ELASTICSEARCH_CA: Path | None = Field(
        default=None,
        description="PEM file of the CA of Elasticsearch's certificate. Default: the system's CAs.",
    )
    SEARCH_URL: str = Field(
        default="",
        description=(
            "Elasticsearch for the index of logs, `elasticsearch://HOST:9200[,HOST2:9200]/PREFIX` "
            "or `elasticsearch+https://…`; see docs/search.md. Default: the index is in PostgreSQL."
        ),
    )
    ARCHIVE_KAFKA_SECURITY: str = Field(
        default="plaintext",
        pattern="^(plaintext|ssl|sasl_plaintext|sasl_ssl)$",
        description=(
            "Security protocol of the Kafka sink: plaintext, ssl, sasl_plaintext or sasl_ssl; see "
            "docs/kafka.md."
        ),
    )
    ARCHIVE_KAFKA_CA: Path | None = Field(
        default=None,
        description="PEM file of the CA of Kafka's certificate. Default: the system's CAs.",
    )
    ARCHIVE_KAFKA_CERT: Path | None = Field(
        default=None, description="PEM file of the Kafka sink's certificate, for mutual TLS."
    )
    ARCHIVE_KAFKA_KEY: Path | None = Field(
        default=None, description="PEM file of that certificate's private key."
    )
    ARCHIVE_KAFKA_KEY_PASSWORD: SecretStr | None = Field(
        default=None,
        description=(
            "Password of that key, if it has one, preferably as `ARCHIVE_KAFKA_KEY_PASSWORD_FILE`."
        ),
    )
    ARCHIVE_KAFKA_SASL_MECHANISM: str = Field(
        default="SCRAM-SHA-512",
        pattern="^(PLAIN|SCRAM-SHA-256|SCRAM-SHA-512)$",
        description="SASL mechanism of the Kafka sink: SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN.",
    )
    ARCHIVE_KAFKA_USER: str = Field(default="", description="SASL user of the Kafka sink.")
    ARCHIVE_KAFKA_PASSWORD: SecretStr | None = Field(
        default=None,
        description="Password of that user, preferably as `ARCHIVE_KAFKA_PASSWORD_FILE`.",
    )
    ARCHIVE_PORTAL_TOKEN: SecretStr | None = Field(
        default=None,
        description=(
            "Token of a capture host for `CAPTURE_PORTAL`, from `manage.py capture_host add`. "
            "Default: where the environment has `DATABASE_URL`, `manage.py capture` makes one."
        ),
    )
    CAPTURE_MASK_NAMES: Annotated[str, AfterValidator(check_regex)] = Field(
        default=MASKED_NAMES,
        description=(
            "Regular expression of names of environment variables whose values are masked before "
            "they are stored. Empty: none."
        ),
    )
    MASKING_KEY: SecretStr | None = Field(
        default=None,
        description="Key of the fingerprints of masked values. Default: derived from SECRET_KEY.",
    )
    EMAIL_URL: Annotated[SecretStr, AfterValidator(check_mail_server)] | None = Field(
        default=None,
        description=(
            "Mail server: `smtp://USER:PASSWORD@HOST:587?tls=start` (STARTTLS), `smtps://…` (TLS) "
            "or `smtp://HOST:25`. None: no mail."
        ),
    )
    EMAIL_FROM: Annotated[str, AfterValidator(check_mail_address)] = Field(
        default="opsportal@localhost", description="Sender address of mail."
    )
    SUPPORT_CONTACT: str = Field(
        default="",
        max_length=200,
        description=(
            "Whom to ask for help with a login, as the login pages show it: a mail address, a "
            "phone number or a few words."
        ),
    )
    SSO_ROLES: Annotated[dict[str, list[str]], BeforeValidator(read_roles)] = Field(
        default={},
        description=(
            'Roles by group, as JSON: `{"nova-liaisons": ["liaison:NOVA"], "opg": ["approver", '
            '"shifter"]}`; see docs/single-sign-on.md.'
        ),
    )
    SSO_CREATE_USERS: bool = Field(
        default=True,
        description="Create an account at the first login by single sign-on. Otherwise an admin "
        "has to create it before.",
    )
    OIDC_ISSUER: str = Field(
        default="",
        pattern=r"^(https?://[^\s?#]+)?$",
        description=(
            "Issuer of OpenID Connect, such as `https://sso.example.org/realms/lab`. Empty: no "
            "login by it."
        ),
    )
    OIDC_NAME: str = Field(
        default="single sign-on", description="Name of the provider, as the login page shows it."
    )
    OIDC_CLIENT_ID: str = Field(
        default="", description="Name under which the provider knows the portal."
    )
    OIDC_CLIENT_SECRET: SecretStr | None = Field(
        default=None,
        description="The portal's secret at the provider. Best as `OIDC_CLIENT_SECRET_FILE`.",
    )
    OIDC_SCOPES: str = Field(
        default="openid profile email",
        description=(
            "Scopes that the portal requests; add the one that brings the groups, if the provider "
            "has one."
        ),
    )
    OIDC_USERNAME_CLAIM: str = Field(
        default="preferred_username", description="Claim that holds the user name."
    )
    OIDC_GROUPS_CLAIM: str = Field(default="groups", description="Claim that holds the groups.")
    OIDC_SESSION_HOURS: int = Field(
        default=12,
        ge=1,
        le=336,
        description=(
            "How long a login by the provider lasts. The next one asks the provider for the "
            "user's groups again."
        ),
    )
    REMOTE_USER_HEADER: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9-]+)?$",
        description=(
            "Header in which a proxy names the user whom it has authenticated, such as "
            "`X-Remote-User`. Empty: no login by it."
        ),
    )
    REMOTE_USER_GROUPS_HEADER: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9-]+)?$",
        description=(
            "Header in which that proxy names the user's groups, separated by commas. Empty: none."
        ),
    )
    REMOTE_USER_PROXIES: Annotated[Words, AfterValidator(check_networks)] = Field(
        default=["127.0.0.1", "::1"],
        description=(
            "Addresses or networks of that proxy, separated by commas. Others have the headers "
            "removed; a Unix socket is trusted."
        ),
    )
    FEED_HOSTS: Words = Field(
        default=[],
        description=(
            "Hosts, or `HOST:PORT`, that monitoring sources may be fetched from, separated by "
            "commas."
        ),
    )
    FEED_NETRC: Path | None = Field(
        default=None,
        description=(
            "File in the format of netrc with credentials for `FEED_HOSTS`; the login `bearer` "
            "means a token."
        ),
    )
    WEBHOOK_HTTP: bool = Field(
        default=False,
        description="Allow webhooks without TLS: `http://`. Their content can be read in transit.",
    )
    WEBHOOK_NETWORKS: Annotated[Words, AfterValidator(check_networks)] = Field(
        default=[],
        description=(
            "Internal networks that webhooks can call, such as `10.1.0.0/16`, separated by commas."
        ),
    )
    WEBHOOK_GIVE_UP_DAYS: int = Field(
        default=3, ge=1, le=365, description="Days of failures after which a webhook is disabled."
    )
    IDEMPOTENCY_HOURS: int = Field(
        default=24,
        ge=1,
        le=720,
        description="Hours for which the `Idempotency-Key` of an API call is remembered.",
    )
    API_MAX_CALLS_PER_HOUR: int = Field(
        default=36_000,
        ge=100,
        description="Calls of the API with one token in an hour. Users may give a token less.",
    )
    API_MAX_CHANGES_PER_HOUR: int = Field(
        default=20_000,
        ge=100,
        description="Calls of the API by which a user may change something in an hour.",
    )
    API_MAX_BYTES_PER_HOUR: int = Field(
        default=512 * 1024**2,
        ge=10 * 1024**2,
        description="Bytes that a user may send in an hour with calls of the API that change "
        "something.",
    )
    MAX_PHASE_TOKENS_PER_HOUR: int = Field(
        default=5_000,
        ge=1,
        description=(
            "Tokens for phases that a user may create in an hour. Each counts for one job array, "
            "or one single job."
        ),
    )
    CAPTURE_HOST_MAX_BYTES_PER_DAY: int = Field(
        default=20 * 1024**3,
        ge=64 * 1024**2,
        description=(
            "Bytes of captured jobs, compressed, that a capture host may send in a day. Above it, "
            "capture keeps them."
        ),
    )
    METRICS_TOKEN: SecretStr | None = Field(
        default=None,
        description="Token for `/metrics`, as `Authorization: Bearer …`. None: only the OPG can "
        "read it.",
    )
    OTEL_EXPORTER_OTLP_ENDPOINT: str = Field(
        default="",
        pattern=r"^(https?://[^\s?#@]+)?$",
        description=(
            "Collector of OpenTelemetry that gets traces by OTLP over HTTP, such as "
            "`http://otel.example.org:4318`; see docs/production.md. Empty: no traces."
        ),
    )
    OTEL_EXPORTER_OTLP_HEADERS: Annotated[SecretStr, AfterValidator(check_headers)] | None = Field(
        default=None,
        description=(
            "Headers for that collector, such as `Authorization=Bearer%20TOKEN`, separated by "
            "commas, best as `OTEL_EXPORTER_OTLP_HEADERS_FILE`."
        ),
    )
    OTEL_EXPORTER_OTLP_CERTIFICATE: Path | None = Field(
        default=None,
        description="PEM file of the CA of that collector's certificate. Default: certifi's CAs.",
    )
    OTEL_TRACES_SAMPLER: str = Field(
        default="parentbased_traceidratio",
        pattern="^(parentbased_)?(always_on|always_off|traceidratio)$",
        description=(
            "Sampler of traces: `always_on`, `always_off` or `traceidratio`, which keep traces "
            "begun elsewhere as they were begun with `parentbased_` before it."
        ),
    )
    OTEL_TRACES_SAMPLER_ARG: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of traces that `traceidratio` keeps.",
    )
    PUBLIC_STATUS: bool = Field(
        default=False,
        description=(
            "Allow everybody to read the states of services: page, feeds, calendar and badge "
            "under `/services/status/`, and the IRI API."
        ),
    )

    @classmethod
    def read(cls) -> Self:
        """Read the environment of this process.

        Raises `BadEnvironment`, which lists all invalid variables at once.
        """
        bad: dict[str, str] = {}
        try:
            environment = cls.model_validate(_values(cls.model_fields))
        except ValidationError as error:
            bad = {str(e["loc"][0]): e["msg"].removeprefix("Value error, ") for e in error.errors()}
        missing = [name for name in REQUIRED if not (name in bad or _is_set(name))]
        if bad or missing:
            problems = [f"{name} is not set." for name in missing]
            problems += [f"{name}: {why}." for name, why in bad.items()]
            raise BadEnvironment("\n".join(problems))
        return environment


def _values(names: Iterable[str]) -> dict[str, str]:
    """Return the text of each setting from the environment or from the file that it names.

    The line end of a file is removed.
    """
    values: dict[str, str] = {}
    for name in names:
        path = os.environ.get(f"{name}_FILE")
        if path and name in os.environ:
            raise BadEnvironment(f"{name} and {name}_FILE are both set: give one of them.")
        if path:
            try:
                values[name] = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                raise BadEnvironment(f"{name}_FILE: {error}") from error
        elif name in os.environ:
            values[name] = os.environ[name]
    return values


def setting_files() -> dict[str, Path]:
    """Return the files that settings are read from, by variable such as `SECRET_KEY_FILE`."""
    files = {}
    for name in Environment.model_fields:
        if path := os.environ.get(f"{name}_FILE"):
            files[f"{name}_FILE"] = Path(path)
    return files


def _is_set(name: str) -> bool:
    return name in os.environ or bool(os.environ.get(f"{name}_FILE"))


if __name__ == "__main__":
    from opsportal.setting_docs import write_docs

    write_docs(Environment, REQUIRED)
