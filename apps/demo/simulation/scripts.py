"""The script and the environment of a simulated submission, in the bytes in which Slurm spools them."""

import struct
from pathlib import Path
from random import Random

from apps.clusters.schedulers.simulated import PARTITION
from apps.demo.simulation.workload import Submission
from apps.demo.simulation.world import DOMAIN, STAGES

_SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --account={account}
#SBATCH --partition={partition}
#SBATCH --ntasks=1 --cpus-per-task=1 --mem={memory}M --time={limit}
{array}#SBATCH --output={output}
#SBATCH --comment="{comment}"
#
# {experiment} {stage}, release {release}. Made by the production scripts; do not edit, edit the template.

set -o pipefail
export EXPERIMENT={lower} STAGE={stage} RELEASE={release} CONFIG={config}
export EVENTS={events}
TASK=${{SLURM_ARRAY_TASK_ID:-0}}
SCRATCH=/scratch/slurm/$SLURM_JOB_ID
log() {{ echo "==> $(date -u '+%F %T') $*"; }}
finish() {{
  status=$?
  echo "$(date -u '+%F %T') cleaning up scratch"; rm -rf "$SCRATCH"
  echo "job script exit status $status"
}}
trap finish EXIT
mkdir -p "$SCRATCH" && cd "$SCRATCH" || exit 64

log "phase 1: setup"
source "/cvmfs/$EXPERIMENT.example.org/setup.sh" -r "$RELEASE" || exit 65
setup ifdhc v2_7_2
setup samweb_client v3_4
EXE=$EXPERIMENT
{fetch}
log "phase: {kind}"
$EXE -c $CONFIG -n $EVENTS -o out.root || exit $?

log "phase: store output"
ifdh cp ./out.root "https://dcache.{domain}:2880/pnfs/$EXPERIMENT/$STAGE/$(new_name)" || exit 65

log "phase: declare output"
samweb -e "$EXPERIMENT" declare-file out.root.json || exit 65
"""
_FETCH = """
log "phase 2: fetch input"
PROJECT={lower}_{stage}_$SLURM_JOB_ID
samweb -e "$EXPERIMENT" start-project --defname={lower}_{stage}_input "$PROJECT" || exit 65
INPUT=$(ifdh getNextFile "$PROJECT" "$TASK") || exit 65
ifdh fetchInput "$INPUT" || exit 65
"""


def job_name(submission: Submission) -> str:
    """Return the name under which the job is in the queue."""
    return submission.name or submission.campaign.name


def comment_of(submission: Submission) -> str:
    """Return the comment of the job, which production scripts fill."""
    campaign = submission.campaign
    if submission.comment:
        return submission.comment
    return f"campaign={campaign.request};stage={campaign.stage}" if campaign.request else "analysis"


def script_of(submission: Submission, output: Path) -> bytes:
    """Return the submitted script. `output` is where its log goes, with Slurm's patterns in the name."""
    campaign = submission.campaign
    values = {
        "name": job_name(submission),
        "account": campaign.experiment.lower(),
        "partition": PARTITION,
        "memory": campaign.memory_mb,
        "limit": f"{campaign.limit_seconds // 3600:02d}:{campaign.limit_seconds % 3600 // 60:02d}:00",
        "array": f"#SBATCH --array=0-{submission.tasks - 1}\n" if submission.is_array else "",
        "output": output,
        "comment": comment_of(submission),
        "experiment": campaign.experiment,
        "lower": campaign.experiment.lower(),
        "stage": campaign.stage,
        "release": campaign.release,
        "config": campaign.config,
        "kind": campaign.kind,
        "domain": DOMAIN,
        "events": 2500,
    }
    fetches = any(phase.name == "fetch input" for phase in STAGES[campaign.kind])
    return _SCRIPT.format(**values, fetch=_FETCH.format(**values) if fetches else "").encode()


def variables_of(submission: Submission, random: Random) -> list[str]:
    """Return the environment of the submission, `NAME=value` each, in the order in which sbatch sends it."""
    campaign = submission.campaign
    lower = campaign.experiment.lower()
    request = [f"OPSPORTAL_REQUEST={campaign.request}", f"OPSPORTAL_STAGE={campaign.stage}"] if campaign.request else []
    return [
        f"USER={campaign.user}",
        f"LOGNAME={campaign.user}",
        f"HOME=/home/{campaign.user}",
        "SHELL=/bin/bash",
        "LANG=en_US.UTF-8",
        "TERM=xterm-256color",
        f"PATH=/cvmfs/{lower}.example.org/bin:/usr/local/bin:/usr/bin:/bin",
        f"PWD=/home/{campaign.user}/production/{campaign.stage}",
        *request,
        f"EXPERIMENT={lower}",
        f"SAM_WEB_HOST=samweb.{DOMAIN}",
        f"IFDH_BASE_URI=https://samweb.{DOMAIN}:8483/sam/{lower}/api",
        f"FRONTIER_SERVER=(serverurl=http://conditions.{DOMAIN}:8000/{lower})(proxyurl=http://squid.{DOMAIN}:3128)",
        f"X509_USER_PROXY=/tmp/x509up_u{20_000 + sum(map(ord, campaign.user)) % 500}",
        f"BEARER_TOKEN=demo-{random.getrandbits(96):024x}",
        "EMPTYVAR=",
        "OPTS=--trace --nskip=0 --override=services.message.level=INFO",
        f"NOTE={campaign.experiment} {campaign.stage}\nrelease {campaign.release}",
        "BASH_FUNC_module%%=() {  eval `/usr/bin/modulecmd bash $*`\n}",
        f"SLURM_JOB_NAME={job_name(submission)}",
        "SLURM_RLIMIT_CPU=18446744073709551615",
        "SLURM_RLIMIT_STACK=8388608",
        "SLURM_RLIMIT_CORE=0",
        "SLURM_RLIMIT_NOFILE=1024",
        "SLURM_PRIO_PROCESS=0",
        f"SLURM_SUBMIT_DIR=/home/{campaign.user}/production/{campaign.stage}",
        f"SLURM_SUBMIT_HOST=submit-{1 + sum(map(ord, campaign.user)) % 3}.{DOMAIN}",
        "SLURM_UMASK=0022",
        "SLURM_NPROCS=1",
        "SLURM_NTASKS=1",
        "SLURM_CPUS_PER_TASK=1",
        f"SLURM_MEM_PER_NODE={campaign.memory_mb}",
    ]


def spooled_environment(variables: list[str]) -> list[bytes]:
    """Return the chunks in which slurmctld writes the environment: the count, then each variable with its NUL."""
    return [struct.pack("=I", len(variables)), *(variable.encode() + b"\0" for variable in variables)]
