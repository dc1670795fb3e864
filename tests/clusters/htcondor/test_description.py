"""Whatever an environment holds, no masked value stays in what is archived beside it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from apps.clusters.schedulers.htcondor.classads import line_of, quoted
from apps.clusters.schedulers.htcondor.description import describe, with_values
from apps.clusters.schedulers.htcondor.environment import write_v1, write_v2
from apps.clusters.schedulers.htcondor.queue_log import JobCluster

# Short ones are made of what is in no other text here.
SECRETS = st.text(st.sampled_from("§ '\"=\\|"), min_size=3).map(lambda text: f"§{text}§".encode())
OTHERS = st.text(st.sampled_from("ab '\"=\\")).map(str.encode)


@settings(deadline=None)
@given(secret=SECRETS, other=OTHERS, is_new=st.booleans(), in_quotes=st.booleans())
def test_no_masked_value_stays(secret, other, is_new, in_quotes):
    variables = [(b"A", other), (b"TOKEN", secret)]
    new, old = write_v2(variables), write_v1(variables, b";")
    ad = (
        {b"environment": line_of(b"Environment", quoted(new))}
        if is_new
        else {b"env": line_of(b"Env", quoted(old))}
    )
    command = b'environment="' + new.replace(b'"', b'""') + b'"' if in_quotes else b"env = " + old
    description = describe(
        JobCluster(7, common=ad), {"condor_submit.7.digest": command + b"\nQueue 1\n"}
    )

    masked = with_values(description, variables, [(b"A", other), (b"TOKEN", b"<masked:1>")])

    assert "§".encode() not in masked
    assert masked.count(b"<masked:1>") == 2
    assert masked.endswith(b"\nQueue 1\n")
    assert with_values(description, variables, variables) == description
