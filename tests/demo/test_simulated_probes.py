"""Probe jobs on the simulated cluster report what is planted there."""

import time

import pytest

from apps.clusters.schedulers.base import BatchJob
from apps.clusters.schedulers.simulated import Simulated
from apps.demo.simulation.simulator import Config, Simulator
from apps.demo.simulation.world import HOSTS

MINUTE = 60


@pytest.fixture
def simulator(tmp_path):
    config = Config(directory=tmp_path, spool=tmp_path / "spool", days=0.01, jobs_per_day=24)
    simulator = Simulator(config, time.time())
    yield simulator
    simulator.close()


def advance(simulator, until):
    for _ in simulator.advance(until):
        pass


def send_probe(directory, host, name):
    job = BatchJob(
        name=name,
        script="#!/bin/sh\n",
        tasks=1,
        time_limit_seconds=60,
        memory_bytes=2**28,
        environment={
            "OPSPORTAL_PROBES": "cvmfs scratch",
            "OPSPORTAL_URL": "https://portal.example.org/",
            "OPSPORTAL_PHASE_TOKEN": "t0",
        },
        host=host,
    )
    return Simulated("sim", {"dir": str(directory)}).submit(job)


def exit_codes(report):
    return {phase["name"]: phase["exit_code"] for phase in report.body["phases"]}


def next_bad_host(trouble, since):
    moment = since
    while trouble.bad_host_at(moment) is None:
        moment += MINUTE
    return trouble.bad_host_at(moment)


def test_bad_host_is_bad_as_long_as_it_fails_jobs(simulator, tmp_path):
    bad = next_bad_host(simulator.trouble, simulator.origin + MINUTE)
    good_host = next(host for host in HOSTS if host != bad.host)
    advance(simulator, bad.started + MINUTE)
    for number, host in enumerate((bad.host, good_host)):
        send_probe(tmp_path, host.partition(".")[0], f"probe-{number}")
    advance(simulator, bad.started + 30 * MINUTE)
    reports = {report.body["host"]: report for report in simulator.take_reports()}
    assert set(reports) == {bad.host, good_host}
    assert exit_codes(reports[bad.host])["scratch"] == 1
    assert exit_codes(reports[good_host])["scratch"] == 0
    assert reports[good_host].url == "https://portal.example.org/api/v1/hosts/probe-results/"
    assert simulator.take_reports() == []

    advance(simulator, bad.ended + MINUTE)
    spool_id = send_probe(tmp_path, bad.host.partition(".")[0], "probe-2")
    advance(simulator, bad.ended + 30 * MINUTE)
    (report,) = simulator.take_reports()
    assert exit_codes(report)["scratch"] == 0
    logs = list(tmp_path.glob(f"logs/*/*/*{spool_id}_0.out"))
    assert "exit code 0" in logs[0].read_text()


def test_outage_of_a_service_is_found_on_any_host(simulator, tmp_path):
    outages = simulator.trouble.outages(simulator.origin, simulator.origin + 40 * 86_400)
    outage = next(
        outage
        for outage in outages
        if outage.service == "cvmfs" and not outage.minor and outage.started > simulator.origin
    )
    advance(simulator, outage.started + MINUTE)
    send_probe(tmp_path, HOSTS[0], "probe-1")
    advance(simulator, outage.ended - 1)
    (report,) = simulator.take_reports()
    assert exit_codes(report)["cvmfs"] == 1


def test_host_that_the_cluster_does_not_have_reports_nothing(simulator, tmp_path):
    send_probe(tmp_path, "vanished", "probe-1")
    advance(simulator, simulator.origin + 3600)
    assert simulator.take_reports() == []
