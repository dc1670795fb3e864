"""What `deploy/` holds is accepted by the programs that read it, where they are installed,
and fits the portal.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(path.name for path in (DEPLOY / "systemd").iterdir())
PAGE = (ROOT / "docs/production.md").read_text()


def program(name: str) -> str:
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if path is None:
        pytest.skip(f"no {name} here")
    return path


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_systemd_takes_every_unit(tmp_path):
    analyze = program("systemd-analyze")
    for name in UNITS:
        text = (DEPLOY / "systemd" / name).read_text()
        commands = re.findall(r"^Exec\w+=(/opt/opsportal/\S+)", text, re.MULTILINE)
        for command in commands:
            text = text.replace(command, "/bin/true")
        (tmp_path / name).write_text(text.replace("=/opt/opsportal/current", "=/"))
    units = [str(tmp_path / name.replace("@.", "@default.")) for name in UNITS]
    assert run(analyze, "verify", "--man=no", *units).strip() == ""


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_unit_starts_a_program_of_the_lock_without_rights(name):
    text = (DEPLOY / "systemd" / name).read_text()
    assert re.search(
        r"^ExecStart=/opt/opsportal/current/\.venv/bin/(gunicorn|celery|python) ",
        text,
        re.MULTILINE,
    )
    assert re.search(r"^User=opsportal", text, re.MULTILINE)
    for line in (
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "Restart=always",
    ):
        assert line in text.splitlines()


#: What every service is denied. A unit that needs more says so here, and in docs/production.md.
SANDBOX = {
    "NoNewPrivileges": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectControlGroups": "yes",
    "ProtectClock": "yes",
    "ProtectHostname": "yes",
    "ProtectProc": "invisible",
    "RestrictSUIDSGID": "yes",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes",
    "SystemCallArchitectures": "native",
    "SystemCallFilter": "@system-service",
    "SystemCallErrorNumber": "EPERM",
}
FAMILIES = {
    "opsportal-web.service": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "opsportal-worker@.service": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "opsportal-beat.service": "AF_UNIX AF_INET AF_INET6",
    "opsportal-capture.service": "AF_UNIX AF_INET AF_INET6",
}
CAPABILITIES = {"opsportal-capture.service": "CAP_DAC_READ_SEARCH"}
#: `systemd-analyze security` goes from 0 to 10; without these lines, the units are at 4.9.
MOST_EXPOSED = 2.0


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_service_is_denied_all_that_it_does_not_need(name):
    text = (DEPLOY / "systemd" / name).read_text()
    options = dict(re.findall(r"^([A-Za-z]+)=(.*)$", text, re.MULTILINE))
    assert {key: options.get(key) for key in SANDBOX} == SANDBOX
    assert options["RestrictAddressFamilies"] == FAMILIES[name]
    assert options["CapabilityBoundingSet"] == CAPABILITIES.get(name, "")


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_systemd_finds_little_that_a_service_exposes(name):
    analyze = program("systemd-analyze")
    report = run(analyze, "security", "--offline=yes", "--no-pager", str(DEPLOY / "systemd" / name))
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", report)
    assert float(level[1]) <= MOST_EXPOSED


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_memory_of_a_service_is_limited(name):
    text = (DEPLOY / "systemd" / name).read_text()
    assert re.search(r"^MemoryMax=\d+[MG]$", text, re.MULTILINE)
    # Workers and web server replace a process that is killed.
    has_processes = name in {"opsportal-web.service", "opsportal-worker@.service"}
    assert ("OOMPolicy=continue" in text.splitlines()) == has_processes


def test_units_run_what_the_procfile_runs():
    procfile = (ROOT / "Procfile").read_text()
    units = "".join((DEPLOY / "systemd" / name).read_text() for name in UNITS)
    for option in re.findall(
        r"--(?!bind|workers|queues|concurrency|graceful|loglevel|log-level)[a-z-]+", procfile
    ):
        assert option in units
    queues = ("default", "harvest", "archive")
    assert {f"opsportal-worker@{queue}.service" for queue in queues} <= set(units.split())


def make_certificate(directory: Path) -> tuple[str, str]:
    """Return the paths of a new key and its certificate."""
    key, certificate = str(directory / "key"), str(directory / "pem")
    openssl = [
        program("openssl"),
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=x",
    ]
    run(*openssl, "-keyout", key, "-out", certificate)
    return key, certificate


@pytest.mark.haproxy
def test_haproxy_takes_the_file(tmp_path):
    haproxy = program("haproxy")
    key, certificate = make_certificate(tmp_path)
    both = tmp_path / "both.pem"
    both.write_text(Path(key).read_text() + Path(certificate).read_text())
    text = (DEPLOY / "haproxy.cfg").read_text()
    file = tmp_path / "haproxy.cfg"
    file.write_text(text.replace("/etc/haproxy/opsportal.example.org.pem", str(both)))
    # -dW: a warning is an error.
    run(haproxy, "-c", "-dW", "-f", str(file))


@pytest.mark.nginx
def test_nginx_takes_the_site(tmp_path):
    nginx = program("nginx")
    key, certificate = make_certificate(tmp_path)
    site = (DEPLOY / "nginx.conf").read_text()
    site = re.sub(r"ssl_certificate /\S+;", f"ssl_certificate {certificate};", site)
    site = re.sub(r"ssl_certificate_key /\S+;", f"ssl_certificate_key {key};", site)
    for port in ("80", "443"):
        site = re.sub(rf"listen (\[::\]:)?{port}\b", f"listen 127.0.0.1:{port}57", site, count=1)
        site = re.sub(rf"listen \[::\]:{port}\b.*;", "", site)
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\n{site}\n}}\n")
    run(
        nginx,
        "-t",
        "-p",
        str(tmp_path),
        "-e",
        str(tmp_path / "log"),
        "-c",
        str(tmp_path / "nginx.conf"),
    )


def test_nginx_sets_or_strips_every_header_that_the_portal_believes():
    site = (DEPLOY / "nginx.conf").read_text()
    headers = dict(re.findall(r"proxy_set_header (\S+) (\S+);", site))
    assert headers == {
        "Host": "$host",
        "X-Forwarded-For": "$remote_addr",
        "X-Forwarded-Proto": "$scheme",
        "X-Request-ID": "$request_id",
        "traceparent": '""',
        "X-Forwarded-Host": '""',
        "Forwarded": '""',
        "X-Remote-User": '""',
        "X-Remote-Groups": '""',
        "Connection": '""',
    }
    locations = re.findall(r"location [^{]*\{([^}]*)\}", site)
    assert len(locations) == 5
    # A header there would drop all of those above.
    assert not any("proxy_set_header" in location for location in locations)


@pytest.mark.parametrize("name", ["scrape.yml", "opsportal-alerts.yml"])
def test_prometheus_takes_the_files(tmp_path, name):
    promtool = program("promtool")
    for path in (DEPLOY / "prometheus").iterdir():
        text = path.read_text().replace(
            "/etc/prometheus/opsportal-metrics-token", str(tmp_path / "token")
        )
        (tmp_path / path.name).write_text(text)
    (tmp_path / "token").write_text("secret")
    run(promtool, "check", "config" if name == "scrape.yml" else "rules", str(tmp_path / name))


def test_alerts_ask_for_metrics_that_there_are():
    code = (ROOT / "apps/portal/pages/health/metrics.py").read_text()
    families = {"opsportal_check_ok", "opsportal_deliveries_failing"}
    families |= set(re.findall(r'"(opsportal_\w+)"', code))
    families |= {
        f"opsportal_capture_{name.removesuffix('_count')}"
        for name in re.findall(r'^    "(\w+)": \(', code, re.MULTILINE)
    }
    alerts = (DEPLOY / "prometheus/opsportal-alerts.yml").read_text()
    asked = {
        name
        for expr in re.findall(r"expr: (.*)", alerts)
        for name in re.findall(r"opsportal_\w+", expr)
    }
    assert {name.removesuffix("_total") for name in asked} <= {
        name.removesuffix("_total") for name in families
    }


ALERTS_THAT_FIRE = """
rule_files: [opsportal-alerts.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'opsportal_http_errors_total{status="500"}', values: '0x20 1x20'}
      - {series: 'opsportal_http_errors_total{status="503"}', values: '0x20 9x20'}
      - {series: 'opsportal_task_failures_total{task="jobs.collect_all"}', values: '0x20 4x20'}
      - {series: 'opsportal_task_failures_total{task="other"}', values: '0x20 1x20'}
      - {series: 'opsportal_capture_missed_total{cluster="alps",host="c"}', values: '0x20 2x20'}
      - {series: opsportal_backup_age_seconds, values: '90000x25 140000x20'}
    alert_rule_test:
      - {eval_time: 19m, alertname: OpsportalServerErrors, exp_alerts: []}
      - eval_time: 25m
        alertname: OpsportalServerErrors
        exp_alerts: [{exp_labels: {severity: warning, status: "500"}, exp_annotations: ANY}]
      - {eval_time: 24m, alertname: OpsportalBackupOld, exp_alerts: []}
"""


def test_alerts_fire_at_what_they_name_and_not_before(tmp_path):
    promtool = program("promtool")
    rules = (DEPLOY / "prometheus/opsportal-alerts.yml").read_text()
    # Only which alerts fire is compared here: their texts may change.
    rules = re.sub(r"^ +annotations:\n(?: {10}.*\n?)+", "", rules, flags=re.MULTILINE)
    (tmp_path / "opsportal-alerts.yml").write_text(rules)
    fired = ALERTS_THAT_FIRE.replace(", exp_annotations: ANY", "")
    for name, minute, labels in (
        ("OpsportalTasksFail", 25, "severity: warning, task: jobs.collect_all"),
        ("OpsportalCaptureMissesJobs", 25, "severity: warning, cluster: alps, host: c"),
        ("OpsportalBackupOld", 38, "severity: critical"),
    ):
        fired += f"      - eval_time: {minute}m\n        alertname: {name}\n"
        fired += f"        exp_alerts: [{{exp_labels: {{{labels}}}}}]\n"
    (tmp_path / "tests.yml").write_text(fired)
    run(promtool, "test", "rules", str(tmp_path / "tests.yml"))


@pytest.mark.parametrize(
    "before", ["2026-11-22T09:14:05+0100 ", "web1 gunicorn[812]: 2026-11-22T09:14:05+0100 ", ""]
)
def test_fail2ban_finds_the_address_and_no_forged_one(before):
    file = (DEPLOY / "fail2ban/filter.d/opsportal.conf").read_text()
    failregex = re.search("^failregex = (.*)$", file, re.MULTILINE)[1]
    pattern = re.compile(failregex.replace("<ADDR>", r"(\S+)"))
    line = before + "WARNING opsportal.login: Login failed: address=192.0.2.7 user="
    forged = r'"x WARNING opsportal.login: Login failed: address=10.0.0.1 user=\""'
    for name in ('"ann"', forged):
        assert pattern.match(line + name)[1] == "192.0.2.7"
    assert not pattern.match(f"{before}INFO other: said {forged.replace('WARNING ', '')}")


def test_page_names_every_file_and_no_home_as_a_log_root():
    for path in DEPLOY.rglob("*.*"):
        name = path.relative_to(ROOT)
        assert str(name) in PAGE or f"{name.parent}/" in PAGE, name
    for page in (ROOT / "docs").glob("*.md"):
        assert not re.search(r"LOG_ROOTS=\S*/home", page.read_text()), page.name
