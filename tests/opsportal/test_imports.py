"""What each process loads at its start: every package takes CPU time and memory in all of them.

A package that is missing in `MAY_LOAD` costs a process time that it does not use. Import it in the
function that needs it, or let the process have it here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Prints which packages and parts of the portal a program has loaded, of those that Python does not
#: bring.
REPORT = """
import json, os, sys, sysconfig

SITES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})
PARTS = json.loads(os.environ["PARTS"])

def packages():
    files = {name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
    return {name.partition(".")[0] for name, file in files.items() if file.startswith(SITES)}

def report(*_):
    print(json.dumps(sorted(packages() - before | {part for part in PARTS if part in sys.modules})), flush=True)
    os._exit(0)

before = packages()
"""
STARTS = {
    "web": "import opsportal.wsgi",
    "worker": "from opsportal.celery import app; app.Worker(pool='prefork', concurrency=1)",
    "beat": "from opsportal.celery import app; app.Beat().init_loader()",
    "check": "import manage; sys.argv = ['manage.py', 'check']; manage.main()",
    "command": (
        "import manage; sys.argv = ['manage.py', 'showmigrations', '--help']; sys.exit = report; "
        "manage.main()"
    ),
    # It ends by giving its place to the program.
    "start of capture": (
        "import manage; sys.argv = ['manage.py', 'capture', '--portal', 'https://portal'];"
        "os.execve = report; manage.main()"
    ),
    "capture": "import capture.main",
}
#: Heavy parts of the portal and of Django: all pages, all of the admin, the domain behind tasks,
#: GeoDjango, its tests.
PARTS = (
    "opsportal.urls",
    "apps.jobs.admin",
    "apps.jobs.tasks",
    "apps.diagnosis.subscribers",
    "django.contrib.gis",
    "django.test",
)

#: Packages that come together, and parts.
GROUPS = {
    "settings": "annotated_types asgiref csp dj_database_url django pydantic pydantic_core sqlparse "
    "typing_extensions"
    " typing_inspection",
    "models": "axes django_filters django_guid django_htmx drf_spectacular drf_spectacular_sidecar knox packaging "
    "psycopg"
    " psycopg_binary re2 rest_framework zstandard",
    # Celery loads some of these only where they are installed, redis async_timeout only before
    # Python 3.11.3.
    "celery": "amqp async_timeout billiard celery cffi click colorama cryptography dateutil greenlet "
    "kombu msgpack"
    " psutil redis six"
    " tzlocal vine yaml",
    "domain": "dateutil hyperscan orjson six urllib3 yaml",
    "tasks": "apps.jobs.tasks",
    "subscribers": "apps.diagnosis.subscribers",
    # The REST framework and drf-spectacular load most of these; requests takes chardet where a
    # development tool has brought it.
    "pages": "certifi chardet charset_normalizer defusedxml idna inflection jinja2 markupsafe pygments "
    "requests uritemplate"
    " whitenoise opsportal.urls apps.jobs.admin django.test",
    "statistics": "numpy",
    # No process loads these, unless traces are switched on.
    "traces": "google opentelemetry wrapt",
    "capture": "re2 urllib3 watchdog zstandard",
}
MAY_LOAD = {
    "web": "settings models celery domain tasks subscribers pages statistics",
    "worker": "settings models celery domain tasks",
    "beat": "settings models celery",
    "check": "settings models domain pages",
    "command": "settings models",
    "start of capture": "",
    "capture": "capture",
}


@pytest.mark.parametrize("process", STARTS)
def test_process_loads_only_what_it_uses(process, tmp_path):
    code = f"{REPORT}\n{STARTS[process]}\nreport()"
    environment = os.environ | {
        "PARTS": json.dumps(PARTS),
        "VAR_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    allowed = {name for group in MAY_LOAD[process].split() for name in GROUPS[group].split()}
    # mypyc names the compiled part of a package by a hash.
    compiled = {name for name in loaded if name.endswith("__mypyc")}
    assert loaded - allowed - compiled == set()


def test_every_process_has_a_row():
    assert STARTS.keys() == MAY_LOAD.keys()
