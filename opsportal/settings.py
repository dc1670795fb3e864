"""Django's settings. Everything an operator may change comes from `opsportal.env`."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from csp.constants import NONE, SELF
from django.urls import reverse
from pydantic import SecretStr

from apps.core.http.bucket_url import is_object_store
from opsportal.checkout import FILES
from opsportal.env import BadEnvironment, Environment
from opsportal.servers import broker_options, broker_tls, broker_url, database_settings
from opsportal.setting_values import split_headers
from opsportal.version import VERSION

BASE_DIR = FILES

try:
    ENV = Environment.read()
except BadEnvironment as error:
    sys.exit(f"The environment is not valid (docs/settings.md lists all settings):\n{error}")


def _secret(value: SecretStr | None) -> str:
    return value.get_secret_value() if value else ""


SECRET_KEY = _secret(ENV.SECRET_KEY)
SECRET_KEY_FALLBACKS = [key.get_secret_value() for key in ENV.SECRET_KEY_FALLBACKS]
DEBUG = ENV.DEBUG
DEMO = ENV.DEMO
PORTAL_VERSION = VERSION
PORTAL_URL = ENV.PORTAL_URL
VAR_DIR = ENV.VAR_DIR.absolute()
LOG_ROOTS = [root.absolute() for root in ENV.LOG_ROOTS]
LOG_SERVERS = ENV.LOG_SERVERS
LOG_EXCERPT_DAYS = ENV.LOG_EXCERPT_DAYS
READ_COMPLETED_LOGS = ENV.READ_COMPLETED_LOGS
RECOVERY_MINUTES_PER_JOB = ENV.RECOVERY_MINUTES_PER_JOB
HOST_EXCLUSION_HOURS = ENV.HOST_EXCLUSION_HOURS
HOST_EXCLUSION_PERCENT = ENV.HOST_EXCLUSION_PERCENT
HOST_PROBE_MINUTES = ENV.HOST_PROBE_MINUTES
HOST_PROBE_HOURS = ENV.HOST_PROBE_HOURS
SCOUT_FALSE_STOP = ENV.SCOUT_FALSE_STOP
SCOUT_MISSED = ENV.SCOUT_MISSED
DATASET_CATALOGUE = ENV.DATASET_CATALOGUE
CAPTURE_CLUSTER = ENV.CAPTURE_CLUSTER
JOB_RECORD_MONTHS = ENV.JOB_RECORD_MONTHS
BACKUP_DIR = ENV.BACKUP_DIR
ENERGY_MODEL = ENV.ENERGY_MODEL
JOB_ARCHIVE: str | Path = ENV.JOB_ARCHIVE
if not is_object_store(JOB_ARCHIVE):
    JOB_ARCHIVE = Path(JOB_ARCHIVE or VAR_DIR / "job-months").absolute()
JOB_ARCHIVE_ACCESS_KEY = _secret(ENV.JOB_ARCHIVE_ACCESS_KEY)
JOB_ARCHIVE_SECRET_KEY = _secret(ENV.JOB_ARCHIVE_SECRET_KEY)
JOB_ARCHIVE_CA = ENV.JOB_ARCHIVE_CA
JOB_ARCHIVE_CACHE_MAX_BYTES = ENV.JOB_ARCHIVE_CACHE_MAX_BYTES
ARCHIVE_SINKS = ENV.ARCHIVE_SINKS
SEARCH_URL = ENV.SEARCH_URL
ARCHIVE_INTAKE_MAX_BYTES = ENV.ARCHIVE_INTAKE_MAX_BYTES
ARCHIVE_ELASTICSEARCH_API_KEY = _secret(ENV.ARCHIVE_ELASTICSEARCH_API_KEY)
ARCHIVE_ELASTICSEARCH_USER = ENV.ARCHIVE_ELASTICSEARCH_USER
ARCHIVE_ELASTICSEARCH_PASSWORD = _secret(ENV.ARCHIVE_ELASTICSEARCH_PASSWORD)
ARCHIVE_ELASTICSEARCH_CA = ENV.ARCHIVE_ELASTICSEARCH_CA
ARCHIVE_KAFKA_SECURITY = ENV.ARCHIVE_KAFKA_SECURITY
ARCHIVE_KAFKA_CA = ENV.ARCHIVE_KAFKA_CA
ARCHIVE_KAFKA_CERT = ENV.ARCHIVE_KAFKA_CERT
ARCHIVE_KAFKA_KEY = ENV.ARCHIVE_KAFKA_KEY
ARCHIVE_KAFKA_KEY_PASSWORD = _secret(ENV.ARCHIVE_KAFKA_KEY_PASSWORD)
ARCHIVE_KAFKA_SASL_MECHANISM = ENV.ARCHIVE_KAFKA_SASL_MECHANISM
ARCHIVE_KAFKA_USER = ENV.ARCHIVE_KAFKA_USER
ARCHIVE_KAFKA_PASSWORD = _secret(ENV.ARCHIVE_KAFKA_PASSWORD)
CAPTURE_MASK_NAMES = ENV.CAPTURE_MASK_NAMES
MASKING_KEY = _secret(ENV.MASKING_KEY) or SECRET_KEY
IDEMPOTENCY_HOURS = ENV.IDEMPOTENCY_HOURS
API_MAX_CALLS_PER_HOUR = ENV.API_MAX_CALLS_PER_HOUR
API_MAX_CHANGES_PER_HOUR = ENV.API_MAX_CHANGES_PER_HOUR
API_MAX_BYTES_PER_HOUR = ENV.API_MAX_BYTES_PER_HOUR
MAX_PHASE_TOKENS_PER_HOUR = ENV.MAX_PHASE_TOKENS_PER_HOUR
CAPTURE_HOST_MAX_BYTES_PER_DAY = ENV.CAPTURE_HOST_MAX_BYTES_PER_DAY
METRICS_TOKEN = _secret(ENV.METRICS_TOKEN)
PUBLIC_STATUS = ENV.PUBLIC_STATUS
OTEL_EXPORTER_OTLP_ENDPOINT = ENV.OTEL_EXPORTER_OTLP_ENDPOINT
OTEL_EXPORTER_OTLP_HEADERS = split_headers(_secret(ENV.OTEL_EXPORTER_OTLP_HEADERS))
OTEL_EXPORTER_OTLP_CERTIFICATE = ENV.OTEL_EXPORTER_OTLP_CERTIFICATE
OTEL_TRACES_SAMPLER = ENV.OTEL_TRACES_SAMPLER
OTEL_TRACES_SAMPLER_ARG = ENV.OTEL_TRACES_SAMPLER_ARG
FEED_HOSTS = ENV.FEED_HOSTS
FEED_NETRC = ENV.FEED_NETRC
WEBHOOK_HTTP = ENV.WEBHOOK_HTTP
WEBHOOK_NETWORKS = ENV.WEBHOOK_NETWORKS
WEBHOOK_GIVE_UP_DAYS = ENV.WEBHOOK_GIVE_UP_DAYS

_mail = urlsplit(_secret(ENV.EMAIL_URL))
EMAIL_HOST = _mail.hostname or ""  # empty: no mail
EMAIL_USE_SSL = _mail.scheme == "smtps"
EMAIL_USE_TLS = _mail.query == "tls=start"
EMAIL_PORT = _mail.port or (465 if EMAIL_USE_SSL else 587 if EMAIL_USE_TLS else 25)
EMAIL_HOST_USER = unquote(_mail.username or "")
EMAIL_HOST_PASSWORD = unquote(_mail.password or "")
EMAIL_TIMEOUT = 20
DEFAULT_FROM_EMAIL = SERVER_EMAIL = ENV.EMAIL_FROM

_portal = urlsplit(PORTAL_URL)
HTTPS = _portal.scheme == "https"
ALLOWED_HOSTS = [str(_portal.hostname), *ENV.ALLOWED_HOSTS]
CSRF_TRUSTED_ORIGINS = [PORTAL_URL]
CSRF_FAILURE_VIEW = "apps.accounts.web.kept_input.keep_input"

INSTALLED_APPS = [
    "opsportal.admin_site.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "axes",
    "csp",
    "django_filters",
    "django_guid",
    "django_htmx",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "knox",
    "rest_framework",
    "apps.core",
    "apps.accounts",
    "apps.statusboard",
    "apps.clusters",
    "apps.production",
    "apps.jobs",
    "apps.datasets",
    "apps.archive",
    "apps.search",
    "apps.diagnosis",
    "apps.hosts",
    "apps.submission",
    "apps.recovery",
    "apps.progress",
    "apps.quality",
    "apps.notifications",
    "apps.portal",
    "apps.api",
    *(["apps.demo"] if DEMO else []),
]

# Plugins that may refuse to close a request: `opsportal.closing_checks`, by name and dotted path.
CLOSING_CHECKS = {"quality": "apps.quality.domain.data_quality:refusal_to_close"}
# Plugins that say that a started request has jobs, which keeps it from returning to the queue:
# `opsportal.job_checks`, by name and dotted path.
JOB_CHECKS = {"submission": "apps.submission.domain.dispatch.returns:refusal_to_return"}

# Plugins that take again what a rejected request gave back, before it is reopened:
# `opsportal.reopening_steps`, by name and dotted path.
REOPENING_STEPS = {"recovery": "apps.submission.domain.files.recovery:take_files_again"}

# Plugins that discard the planned jobs of a started request that returns to the queue:
# `opsportal.withdrawal_steps`, by name and dotted path.
WITHDRAWAL_STEPS = {"submission": "apps.submission.domain.dispatch.returns:withdraw_planned"}

# Parts of experiment packs that other apps read: `opsportal.pack_parts`, by name and dotted path.
PACK_PARTS = {"recovery_rules": "apps.recovery.domain.rules.packs:RULES_OF_PACKS"}

# Columns that other apps add to the job list: `opsportal.job_columns`, by title and dotted path.
JOB_COLUMNS = {"verdict": "apps.diagnosis.domain.verdicts.job_diagnosis:marks_of"}

# Dimensions of statistics that other apps add: `opsportal.job_facts`, by name and dotted path.
JOB_FACTS = {"diagnosis": "apps.diagnosis.domain.verdicts.job_diagnosis:facts_of"}

# Texts for statistics values: `opsportal.statistics_words`, by name and dotted path.
STATISTICS_WORDS = {"diagnosis": "apps.diagnosis.domain.known_errors.exit_codes:words_of"}

# Readers of the kept ends of logs, for the search: `opsportal.log_texts`.
LOG_TEXTS = {"diagnosis": "apps.diagnosis.domain.reading.kept_logs:EXCERPTS"}

# Those who retry failed jobs without a person: `opsportal.planned_retries`.
PLANNED_RETRIES = {"recovery": "apps.recovery.domain.decisions.explanations:planned_retries_among"}

# Those who know what follows a failed job: `opsportal.follow_ups`.
FOLLOW_UPS = {"submission": "apps.submission.domain.retries.follow_ups:follow_ups_of"}

# Those who store the output files that logs name: `opsportal.logged_outputs`.
LOGGED_OUTPUTS = {"submission": "apps.submission.domain.arrays.logged_outputs:LOGGED_OUTPUTS"}
TIME_WINDOWS = ENV.TIME_WINDOWS

MIDDLEWARE = [
    "django_guid.middleware.guid_middleware",
    "apps.core.web.middleware.CountErrorsMiddleware",
    "apps.core.web.lost_connections.RetryMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    *(
        ["apps.accounts.web.remote_user.StripRemoteUserMiddleware"]
        if ENV.REMOTE_USER_HEADER
        else []
    ),
    f"apps.core.web.middleware.{'Trusted' if ENV.TRUST_PROXY else 'Untrusted'}ProxyMiddleware",
    "apps.core.web.middleware.CleanRequestMiddleware",
    "apps.statusboard.api.middleware.FeedMiddleware",
    "apps.core.web.middleware.BodyLimitMiddleware",
    "apps.core.web.middleware.NoStoreMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    *(["apps.accounts.web.remote_user.RemoteUserMiddleware"] if ENV.REMOTE_USER_HEADER else []),
    "apps.accounts.web.middleware.LoginMiddleware",
    # After the login check: CSRF parses forms to find its token, which is not done for strangers.
    "django.middleware.csrf.CsrfViewMiddleware",
    "apps.accounts.web.middleware.TimeZoneMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
    "apps.api.middleware.ETagMiddleware",
    "apps.api.middleware.IdempotencyMiddleware",
    "apps.core.web.middleware.FormAddressMiddleware",
    "apps.core.web.middleware.HiddenCharactersMiddleware",
]

ROOT_URLCONF = "opsportal.urls"
WSGI_APPLICATION = "opsportal.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "apps.accounts.web.passwords.login_help",
                "apps.portal.web.context.frame",
            ],
            "builtins": ["apps.core.web.templatetags.formatting"],
            "libraries": {
                "back_office": "apps.core.web.templatetags.back_office",
                "day_marks": "apps.statusboard.web.templatetags.day_marks",
                "discussion": "apps.production.web.templatetags.discussion",
                "estimates": "apps.production.web.templatetags.estimates",
                "progress": "apps.progress.web.templatetags.progress",
                "quality": "apps.quality.web.templatetags.quality",
                "queue": "apps.production.web.templatetags.queue",
                "requests": "apps.production.web.templatetags.requests",
                "scripts": "apps.archive.web.templatetags.scripts",
                "sent_jobs": "apps.submission.web.templatetags.sent_jobs",
            },
        },
    }
]
#: The pages of jobs, services, incidents and requests use many apps and belong to `portal`. Apps
#: below it link to them with these functions.
ABSOLUTE_URL_OVERRIDES = {
    "jobs.job": lambda job: reverse("portal:job", args=[job.pk]),
    "statusboard.service": lambda service: reverse("portal:service", args=[service.slug]),
    "statusboard.incident": lambda incident: reverse("portal:incident", args=[incident.pk]),
    "production.request": lambda request: reverse("portal:request", args=[request.key]),
}
FORM_RENDERER = "apps.core.web.rendering.FieldRenderer"

DATABASES: dict[str, Any] = {"default": database_settings(_secret(ENV.DATABASE_URL))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = _secret(ENV.REDIS_URL)
CACHES = {
    "default": {
        "BACKEND": "opsportal.cache.RedisCache",
        "LOCATION": [REDIS_URL],  # Django splits a text at commas
        "OPTIONS": {"socket_connect_timeout": 2, "socket_timeout": 5},
    }
}

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
    *(["apps.accounts.web.openid.OpenIDBackend"] if ENV.OIDC_ISSUER else []),
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "accounts:login"
LOGIN_REDIRECT_URL = "portal:home"
LOGOUT_REDIRECT_URL = "accounts:login"
PASSWORD_RESET_TIMEOUT = 3_600
SUPPORT_CONTACT = ENV.SUPPORT_CONTACT
SSO_ROLES = ENV.SSO_ROLES
SSO_CREATE_USERS = ENV.SSO_CREATE_USERS
OIDC_ISSUER = ENV.OIDC_ISSUER
OIDC_NAME = ENV.OIDC_NAME
OIDC_RP_CLIENT_ID = ENV.OIDC_CLIENT_ID
OIDC_RP_CLIENT_SECRET = _secret(ENV.OIDC_CLIENT_SECRET)
OIDC_RP_SCOPES = ENV.OIDC_SCOPES
OIDC_RP_SIGN_ALGO = "RS256"
OIDC_AUTHENTICATION_CALLBACK_URL = "accounts:openid-callback"
OIDC_USE_PKCE = True
# Maximum seconds of one call to the provider.
OIDC_TIMEOUT = 10
OIDC_USERNAME_CLAIM = ENV.OIDC_USERNAME_CLAIM
OIDC_GROUPS_CLAIM = ENV.OIDC_GROUPS_CLAIM
OIDC_SESSION_HOURS = ENV.OIDC_SESSION_HOURS
REMOTE_USER_HEADER = ENV.REMOTE_USER_HEADER
REMOTE_USER_GROUPS_HEADER = ENV.REMOTE_USER_GROUPS_HEADER
REMOTE_USER_PROXIES = ENV.REMOTE_USER_PROXIES

# Five wrong passwords for an account from one address lock that pair for ten minutes.
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=10)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_HANDLER = "apps.accounts.web.login_guard.LoginGuard"
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_CALLABLE = "apps.accounts.web.passwords.locked"
AXES_ENABLE_ACCESS_FAILURE_LOG = False
AXES_DISABLE_ACCESS_LOG = True
AXES_VERBOSE = False
AXES_USERNAME_CALLABLE = "apps.accounts.web.login_guard.typed_username"

LANGUAGE_CODE = "en"
USE_I18N = False
FORMAT_MODULE_PATH = "opsportal.formats"
USE_TZ = True
TIME_ZONE = ENV.TIME_ZONE

STATIC_URL = "static/"
STATIC_ROOT = ENV.STATIC_DIR.absolute()
STATICFILES_DIRS = [BASE_DIR / "static", ("clients", BASE_DIR / "clients/ops-phase")]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
# What is compressed already, and source maps: half of all bytes, for developers' tools alone.
WHITENOISE_SKIP_COMPRESS_EXTENSIONS = ("png", "gif", "woff", "woff2", "map")

SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
# A site that wants to be preloaded by browsers cannot take that back for months.
SECURE_HSTS_PRELOAD = False
SILENCED_SYSTEM_CHECKS = ["security.W021"]
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if ENV.TRUST_PROXY else None
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "form-action": [SELF],
    }
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 2_621_440
# A request of 100 stages, each with its services, is one form.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "apps.accounts.web.tokens.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_THROTTLE_CLASSES": [
        "apps.accounts.web.call_quota.CallsThrottle",
        "apps.core.api.throttles.ChangesThrottle",
    ],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["apps.core.api.input.JSONParser"],
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "apps.core.api.pagination.NewestFirst",
    "DEFAULT_SCHEMA_CLASS": "apps.api.schema.Schema",
    "EXCEPTION_HANDLER": "apps.core.api.errors.handle_error",
}
KNOX_TOKEN_MODEL = "accounts.ApiToken"  # noqa: S105 - a model
# Knox's own model is replaced.
MIGRATION_MODULES = {"knox": None}
REST_KNOX = {"TOKEN_TTL": timedelta(days=365), "TOKEN_LIMIT_PER_USER": 20, "AUTO_REFRESH": False}
SPECTACULAR_SETTINGS = {
    "TITLE": "opsportal",
    "DESCRIPTION": "Production requests, jobs, archive, verdicts and services.",
    "VERSION": "1",  # of the API, as in its addresses
    "EXTENSIONS_INFO": {"x-portal-version": PORTAL_VERSION},
    "SERVE_INCLUDE_SCHEMA": False,
    # A portal's schema is that of its release, whose tests allow no warning: to write it once more
    # is a third of the time of `check --deploy`, which setup and upgrades wait for.
    "ENABLE_DJANGO_DEPLOY_CHECK": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_NAME_OVERRIDES": {
        "AttentionKindEnum": "apps.production.enums.AttentionKind.choices",
        "KindEnum": [(kind, kind) for kind in ("equal", "changed", "removed", "added")],
        "JobStateEnum": "apps.jobs.enums.STATE_CHOICES",
        "PriorityClassEnum": "apps.production.enums.RequestedPriority.choices",
        "OutcomeEnum": "apps.quality.enums.Outcome.choices",
        "ExternalOutcomeEnum": "apps.quality.enums.External.choices",
        "RequestStateEnum": "apps.production.enums.RequestState.choices",
        "SubmissionStateEnum": "apps.submission.enums.SubmissionState.choices",
        "ServiceStateEnum": "apps.statusboard.enums.State.choices",
        "IncidentStateEnum": [("down", "Down"), ("degraded", "Degraded")],
        "ChangeStateEnum": "apps.diagnosis.enums.ChangeState.choices",
        "VerdictEnum": "apps.diagnosis.enums.VerdictKind.choices",
        "ErrorRoleEnum": "apps.diagnosis.enums.Role.choices",
        "CategoryEnum": "apps.diagnosis.enums.Category.choices",
        "RecoveryOutcomeEnum": "apps.recovery.enums.RecoveryOutcome.choices",
        "RecoveryActionEnum": "apps.recovery.enums.ActionKind.choices",
        "RecoveryModeEnum": "apps.recovery.enums.Mode.choices",
        "AdviceEnum": "apps.diagnosis.enums.JobAdvice.choices",
        "KnownErrorAdviceEnum": "apps.diagnosis.models.known_errors.ADVICES",
    },
}

# A task is acknowledged when it is done, so that another worker repeats the task of a killed one.
CELERY_BROKER_URL = broker_url(REDIS_URL)
CELERY_BROKER_USE_SSL = broker_tls(REDIS_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 900,
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    "socket_connect_timeout": 5,
    # Without a broker, sending fails at once instead of after 6 s; beat repeats what was not sent.
    "max_retries": 0,
    **broker_options(REDIS_URL),
}
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_TIME_LIMIT = 600
CELERY_TASK_SOFT_TIME_LIMIT = 540
# Reading logs and writing to sinks take long, so each has its own queue and delays nothing else.
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_ROUTES = {
    "archive.archive_batches": {"queue": "archive"},
    "diagnosis.harvest_log": {"queue": "harvest"},
    "diagnosis.harvest_logs": {"queue": "harvest"},
    "diagnosis.read_completed_logs": {"queue": "harvest"},
    "diagnosis.reclassify_batch": {"queue": "harvest"},
    "diagnosis.survey_log": {"queue": "harvest"},
}
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "opsportal.beat:Scheduler"
CELERY_BEAT_SCHEDULE_FILENAME = str(VAR_DIR / "beat-schedule")
# Periods of the scheduled tasks in seconds. A message that waits longer than its period is dropped
# rather than run twice in a row.
_EVERY_SECONDS = {
    "core.beat_heart": 10,
    "core.deliver_waiting": 10,
    "core.drop_old_deliveries": 86_400,
    "core.forget_retired": 86_400,
    "core.measure_tables": 86_400,
    "api.drop_old_calls": 3_600,
    "accounts.forget_expired": 86_400,
    "archive.archive_batches": 5,
    "archive.index_words": 5,
    "archive.continue_lost_masking_trials": 300,
    "archive.describe_captured": 60,
    "archive.delete_expired": 86_400,
    "search.index_new_logs": 10,
    "search.recount_lines": 60,
    "search.announce_new_lines": 300,
    "search.index_kept_logs": 60,
    "diagnosis.requeue_overdue_harvests": 30,
    "diagnosis.delete_expired_excerpts": 3_600,
    "diagnosis.recount_causes": 15,
    "diagnosis.requeue_lost_analyses": 60,
    "diagnosis.disable_expired_known_errors": 300,
    "diagnosis.sample_successes": 300,
    "diagnosis.read_completed_logs": 15,
    "diagnosis.continue_lost_reclassifications": 60,
    "diagnosis.recount_impacts": 15,
    "diagnosis.verify_impacts": 86_400,
    "statusboard.parse_waiting": 30,
    "statusboard.mark_stale": 30,
    "statusboard.pull_all": 60,
    "statusboard.delete_old_payloads": 86_400,
    "production.check_waiting": 30,
    "production.count_reports": 5,
    "production.define_waiting": 30,
    "production.remind_of_waiting": 600,
    "production.rescore_all": 60,
    "jobs.collect_all": 15,
    "jobs.read_all_hosts": 900,
    "submission.send_all": 15,
    "submission.release_retries": 15,
    "submission.check_files": 60,
    "submission.look_after_restore": 300,
    "datasets.look_up": 10,
    "datasets.stage": 15,
    "datasets.make": 15,
    "datasets.forget_unneeded": 86_400,
    "hosts.follow": 60,
    "hosts.follow_states": 60,
    "hosts.probe": 30,
    "hosts.drop_old_probe_jobs": 86_400,
    "hosts.drop_old_history": 86_400,
    "recovery.run": 15,
    "recovery.count_weeks": 60,
    "quality.check_all": 15,
    "jobs.recompute_totals": 5,
    "jobs.sum_months": 3_600,
    "jobs.recount_phase_totals": 15,
    "jobs.find_stuck": 60,
    "jobs.forget_flagged_jobs": 86_400,
    "jobs.drop_old_months": 3_600,
    "progress.count_stage_history": 300,
    "progress.count_share_use": 300,
    "notifications.send_mail": 10,
    "notifications.call_webhooks": 10,
    "notifications.drop_old_messages": 86_400,
    "progress.follow_requests": 30,
    "progress.freeze_weekly_reports": 600,
    "progress.keep_forecasts": 120,
    "archive.read_queues": 60,
}
CELERY_BEAT_SCHEDULE = {
    task: {"task": task, "schedule": float(seconds), "options": {"expires": max(30, 2 * seconds)}}
    for task, seconds in _EVERY_SECONDS.items()
}

TRACES = bool(OTEL_EXPORTER_OTLP_ENDPOINT)
if not TRACES:
    # Otherwise the clients of Redis and Elasticsearch load it wherever it is installed, in 60 ms.
    sys.modules.setdefault("opentelemetry", None)  # type: ignore[arg-type]

#: Each request has an ID. Its log lines, the log lines of its tasks, and its response have it.
#: The ID that a proxy or client sends is taken if it is a UUID, so that it says nothing else.
DJANGO_GUID = {"GUID_HEADER_NAME": "X-Request-ID", "EXPOSE_HEADER": False}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "apps.core.domain.secrets.log_formats.formatter",
            "log_format": ENV.LOG_FORMAT,
        }
    },
    "filters": {
        "outage": {"()": "opsportal.logs.OutageFilter"},
        "request_id": {
            "()": "django_guid.log_filters.CorrelationId",
            "correlation_id_field": "request_id",
        },
        "refusal": {"()": "opsportal.logs.RefusalFilter"},
        "trace": {"()": "opsportal.tracing.log_ids.TraceFilter"},
    },
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": "line",
            "filters": ["outage", "refusal", "request_id", *(["trace"] if TRACES else [])],
        }
    },
    "root": {"handlers": ["console"], "level": ENV.LOG_LEVEL},
    "loggers": {
        "django": {"handlers": [], "level": ENV.LOG_LEVEL, "propagate": True},
        "django.server": {"handlers": [], "propagate": True},
        "celery": {"level": "WARNING" if ENV.LOG_LEVEL == "INFO" else ENV.LOG_LEVEL},
        "django_guid": {"level": "WARNING"},
        "axes": {"level": "ERROR"},  # Failed logins are logged with name and address by `accounts`.
        "elastic_transport": {"level": "ERROR"},  # The sink itself reports errors.
        # It logs warnings about odd headers with the URL, which may be a secret.
        "urllib3.connection": {"level": "ERROR"},
    },
}
