"""Verdicts on real logs, where they are at hand."""

from pathlib import Path

import pytest

from apps.diagnosis.engine.base import Block, JobFacts
from apps.diagnosis.engine.diagnose import diagnose
from apps.diagnosis.engine.evidence.catalogue import built_in

SHARED = Path(__file__).parents[3].parent / "shared"
pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="the real logs are not here")

VERDICTS = {
    "logs/art/larexamples_exceptions.log": ("resource", "ART-BADALLOC"),
    "logs/cms/WMCore__test__python__WMCore_t__FwkJobReport_t__CMSSWFailReport.xml": (
        "code",
        "CMS-NORECORD",
    ),
    "logs/cms/WMCore__test__python__WMCore_t__test_condor.log": ("service", "GFAL-BROKEN-ENV"),
    "logs/condor/pegasus__process_wf_failure__00__00__ls_ID0000001.err.000": ("unknown", None),
    "logs/condor/pegasus__sample_wf_held__Drug-Combination-Therapy-0.dag.dagman.out": (
        "code",
        "CONDOR-XFER-OUT-MISSING",
    ),
    "logs/slurm/CommonFramework__job.err": ("code", "PY-TRACEBACK"),
    "logs/slurm/ModuleRefinement__experiments__slurm_scripts__slurm.err": (
        "service",
        "HTTP-CHUNKED",
    ),
    "logs/slurm/bris-inference__logs__slurm.err": ("code", "APPTAINER-NOEXE"),
    "samples/slurm/out/analysis-90.out": ("user", "SLURM-CANCELLED"),
    "samples/slurm/out/analysis-91.out": ("service", "SLURM-REQUEUE"),
    "samples/slurm/out/analysis-111.out": ("service", "SLURM-NODEFAIL-CANCEL"),
    "samples/slurm/out/merge-oom-84.out": ("resource", "SLURM-MEMLIMIT-NUM"),
}


@pytest.mark.parametrize(("path", "expected"), VERDICTS.items(), ids=VERDICTS.keys())
def test_verdict_on_a_real_log(path, expected):
    data = (SHARED / path).read_bytes()
    block = Block(data, 0, len(data), 1)
    verdict = diagnose(JobFacts(), [block], classifiers={"catalogue": built_in()}).verdict
    assert (verdict.verdict, verdict.cause and verdict.cause.pattern.id) == expected


def test_examples_name_no_real_host_or_user():
    text = "\n".join(pattern.example for pattern in built_in().patterns)
    assert not any(
        domain in text
        for domain in (".cern.ch", ".fnal.gov", ".wisc.edu", ".ucsd.edu", "novalocal")
    )
