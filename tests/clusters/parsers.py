"""Everything of the adapters that reads what jobs, users or schedulers have written,
given one hostile text each.
"""

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from apps.clusters.schedulers.base import JobRecord, JobState, SpoolEntry
from apps.clusters.schedulers.environment import pack, variables_in
from apps.clusters.schedulers.htcondor import classads, description, environment, history, queue_log
from apps.clusters.schedulers.htcondor import queue as condor_queue
from apps.clusters.schedulers.htcondor import records as condor_records
from apps.clusters.schedulers.slurm import copies, log_paths, output_options, sacct
from apps.clusters.schedulers.slurm.spool import SlurmSpool
from apps.clusters.schedulers.torque import description as torque_description
from apps.clusters.schedulers.torque import logs as torque_logs
from apps.clusters.schedulers.torque import queue as torque_queue
from apps.clusters.schedulers.torque import records as torque_records
from apps.clusters.schedulers.torque.accounting import Accounting
from apps.clusters.schedulers.torque.spool import TorqueSpool

AT = datetime(2026, 11, 20, tzinfo=UTC)


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def record(**fields: object) -> JobRecord:
    values = {
        "job_id": "5",
        "raw_id": 5,
        "spool_id": "5",
        "attempt": 1,
        "state": JobState.FAILED,
        "exit_code": 1,
    }
    times = {"submitted_at": AT, "started_at": AT, "ended_at": AT}
    return JobRecord(**{**values, "signal": 0, **times, **fields})


def environment_form(text: str) -> object:
    return pack(variables_in(b"\1\0\0\0" + raw(text).replace(b"a", b"\0a=")))


def classad(text: str) -> object:
    ad = classads.read_ad(
        [b"A = " + raw(text), b'B = "' + raw(text) + b'"', *raw(text).split(b"\n")]
    )
    return [
        read(ad, name)
        for read in (classads.text_of, classads.number_of, classads.truth_of)
        for name in "AB"
    ]


def classad_record(text: str) -> object:
    lines = [b"ClusterId = 1", b"ProcId = 0", b"QDate = 1", b"CompletionDate = 2", b"JobStatus = 4"]
    free = [
        b'%s = "%s"' % (name, raw(text).replace(b'"', b""))
        for name in (b"RemoveReason", b"Out", b"LastRemoteHost")
    ]
    return condor_records.read_record(classads.read_ad(lines + free))


def condor_environment_v1(text: str) -> object:
    return environment.write_v1(environment.read_v1(raw(text), b";"), b";")


def condor_environment_v2(text: str) -> object:
    return environment.write_v2(environment.read_v2(raw(text)))


def condor_description(text: str) -> object:
    content = (
        b'Environment = "'
        + raw(text)
        + b'"\n# condor_submit.1.digest\nenvironment = "'
        + raw(text)
        + b'"\n'
    )
    return description.with_values(content, [(b"A", raw(text)[:100])], [(b"A", b"<masked>")])


def condor_queue_answer(text: str) -> object:
    return condor_queue.read_queue(
        [b'[{"ClusterId": 1, "AccountingGroup": "', raw(json.dumps(text)[1:]), b"}]", raw(text)]
    )


def condor_queue_log(text: str) -> object:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "job_queue.log")
        path.write_bytes(
            b"107 1 x\n105\n101 1.0 Job Machine\n103 1.0 A "
            + raw(text)
            + b"\n106\n"
            + raw(text)
            + b"\n"
        )
        log = queue_log.JobQueueLog(path)
        log.refresh()
        log.close()
        return log.clusters


def condor_history(text: str) -> object:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "history")
        path.write_bytes(raw(text) + b"\n*** Offset = " + raw(text) + b" CompletionDate = 5\n")
        return list(history.ads_in_history(path, since=datetime.fromtimestamp(0, UTC), until=AT))


def torque_jb(text: str) -> object:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    for body in (text, escaped):
        content = raw(f"<job><attributes><Variable_List>{body}</Variable_List></attributes></job>")
        torque_description.with_variables(content, [(b"A", raw(text))])
        torque_description.without_secrets_of_torque(content + raw(f"<cookie>{body}"))
        try:
            torque_description.read_description(content)
        except torque_description.BadDescription:
            continue
    return torque_description.split_variables(raw(text))


def torque_qstat(text: str) -> object:
    return torque_queue.read_queue(
        [raw(f"<Data><Job><Job_Id>{text}"), raw(text), b"</Job_Id></Job></Data>"]
    )


def torque_facts(text: str) -> object:
    facts = torque_records.read_facts(text) | torque_records.read_facts(
        f"user=a jobname={text} exec_host={text}"
    )
    event = torque_records.TorqueEvent(
        AT, "E", "5.server", facts | {"Resource_List.walltime": text, "exec_host": text}
    )
    return list(torque_records.attempts_of([event], settled_before=AT))


def torque_accounting(text: str) -> object:
    with tempfile.TemporaryDirectory() as directory:
        line = f"11/20/2026 00:00:00;E;5.server;user=a jobname={text} end=5"
        Path(directory, "20261120").write_bytes(raw(f"{text}\n{line}\n"))
        return list(
            Accounting(Path(directory), UTC).finished_jobs(
                since=AT, until=AT.replace(hour=1), settled_before=AT
            )
        )


def torque_directives(text: str) -> object:
    torque_logs.directives(raw(f"#PBS -o {text[:1900]}\n") * (1 + len(text) // 1900))
    return torque_logs.directives(raw(f"#PBS -o {text}\n" + text))


def torque_paths(text: str) -> object:
    job = record(job_id="5.server", name=text, user=text)
    return torque_logs.derived_paths(
        job, script=raw(f"#PBS -o {text}"), environment={"PBS_O_WORKDIR": text}
    )


def torque_spool(text: str) -> object:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "5.server.SC").write_bytes(raw(text))
        Path(directory, "5.server.JB").write_bytes(
            raw(f"<job><attributes><Variable_List>{text}</Variable_List></attributes></job>")
        )
        spool = TorqueSpool(Path(directory))
        spool.entry_at(Path(directory, text))
        return [spool.read(entry) for entry in spool.scan()]


def slurm_submit_line(text: str) -> object:
    output_options.output_of_command("sbatch " + text)
    return output_options.arguments_of_submission("sbatch " + text, name=text[:20])


def slurm_script(text: str) -> object:
    output_options.output_of_script(raw("#SBATCH " + text))
    return output_options.output_of_script(raw(text[:15_000].replace("a", "#SBATCH -o a\n")))


def slurm_patterns(text: str) -> object:
    job = record(work_dir="/exp", submit_line="sbatch " + text, host=text, name=text)
    log_paths.work_out_paths(job, script=b"", environment={"SBATCH_OUTPUT": text})
    return log_paths.fill_in("%" + text, job)


def slurm_scontrol(text: str) -> object:
    return log_paths.paths_shown(
        f"JobId=5 {text}\n   StdOut={text}\n   SubmitTime={text}", record()
    )


def slurm_values(text: str) -> object:
    list(sacct.split_rows(text, text[1:2], 3))
    sacct.read_duration(text), sacct.read_size(text), sacct.read_time(text), sacct.read_number(text)
    return sacct.read_task_ids(text)


def slurm_copies(text: str) -> object:
    return copies._variables(raw(text)), list(copies._HEADING.finditer(raw(text)))


def slurm_spool(text: str) -> object:
    with tempfile.TemporaryDirectory() as directory:
        job = Path(directory, "hash.5", "job.5")
        job.mkdir(parents=True)
        (job / "script").write_bytes(raw(text) + b"\0")
        (job / "environment").write_bytes(b"\1\0\0\0" + raw(text) + b"\0")
        spool = SlurmSpool(Path(directory))
        spool.entry_at(Path(f"{directory}/hash.5/{text}"))
        spooled = spool.read(SpoolEntry("5", job))
        return spool.with_environment(spooled, spooled.variables)


PARSERS = [
    value
    for value in list(globals().values())
    if getattr(value, "__module__", "") == __name__ and callable(value)
]
PARSERS = [parser for parser in PARSERS if parser not in (raw, record)]
