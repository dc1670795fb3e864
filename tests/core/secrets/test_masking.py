"""Which values are secrets, and what stands for them."""

import re
import time

import pytest

from apps.core.domain.secrets.masking import (
    Masker,
    MaskPattern,
    replace_secrets,
    secrets_of,
    value_of,
)
from opsportal.env import Environment

NAMES = Environment.model_fields["CAPTURE_MASK_NAMES"].default


@pytest.fixture
def masker():
    return Masker(names=NAMES, key=b"k" * 50)


def is_masked(masker, name, value):
    variables, names = masker.mask([(name.encode(), value.encode())])
    assert names == ((name,) if variables[0][1].startswith(b"<masked:") else ())
    text = f"{name}={value}".encode()
    assert masker.may_find(text, [text]) or not names
    return bool(names)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GITLAB_TOKEN", "abc"),
        ("PGPASSWORD", "a=b=c"),
        ("AWS_SECRET_ACCESS_KEY", "/aB3/xyz+Q"),
        ("openai_apikey", "sk-1"),
        ("DB_PASSWD", "two\nlines"),
        ("http_proxy", "http://ana:geheim@proxy.example:3128"),
        ("DATABASE_URL", "postgresql://:pw@db/x"),
        ("SLURM_JWT", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbmEifQ.c2lnbmF0dXJl"),
        ("SLURM_JWT", "short"),
        ("DB_PASS", "x"),
        ("RABBITMQ_DEFAULT_PASS", "x"),
        ("MYSQL_PWD", "x"),
        ("GITHUB_PAT", "x"),
        ("HTTP_AUTHORIZATION", "Basic eDp5"),
        ("SESSION_COOKIE", "x"),
        ("SIGNING_KEY", "x"),
        ("DEPLOY", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blb"),
        ("X", "ghp_0123456789abcdefghijABCDEFGHIJ012345"),
    ],
)
def test_secret_is_masked(masker, name, value):
    assert is_masked(masker, name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/bin:/bin"),
        ("PWD", "/home/ana"),
        ("OLDPWD", "/home/ana"),
        ("BUILD_PWD", "/home/ana"),
        ("PROCESSING_PASS", "2"),
        ("COMPASS_HOME", "/opt/compass"),
        ("HTTP_COOKIE_FILE", "/home/ana/cookies"),
        ("SSH_AUTH_SOCK", "/tmp/ssh-x/agent.1"),
        ("X509_USER_PROXY", "/tmp/x509up_u1000"),
        ("BEARER_TOKEN_FILE", "/run/user/1000/bt_u1000"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/ana/key.json"),
        ("KRB5CCNAME", "FILE:/tmp/krb5cc_1000"),
        ("SLURM_ACCESS_KEY_RANK", "3"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("EMPTY_TOKEN", ""),
        ("http_proxy", "http://proxy.example:3128"),
        ("OPSPORTAL_REQUEST", "NOVA-0231"),
        ("INPUT", "root://eos.example:1094//store/a.root"),
    ],
)
def test_harmless_value_stays(masker, name, value):
    assert not is_masked(masker, name, value)


def test_equal_secrets_have_equal_fingerprints_and_others_not(masker):
    assert masker.fingerprint(b"abc") == masker.fingerprint(b"abc")
    assert masker.fingerprint(b"abc") != masker.fingerprint(b"abd")
    assert masker.fingerprint(b"abc") != Masker(names=NAMES, key=b"other").fingerprint(b"abc")


def test_masking_keeps_order_and_every_other_variable(masker):
    variables = [(b"A", b"1"), (b"A_TOKEN", b"x"), (b"B\xff", b"\xfe"), (b"A_TOKEN", b"y")]

    masked, names = masker.mask(variables)

    assert names == ("A_TOKEN",)
    assert [name for name, _ in masked] == [name for name, _ in variables]
    assert (masked[0], masked[2]) == (variables[0], variables[2])
    assert b"x" not in dict(masked).values()


def test_empty_rule_masks_nothing():
    variables = [(b"A_TOKEN", b"x"), (b"U", b"http://a:b@c")]

    assert Masker(names="", key=b"k").mask(variables) == (tuple(variables), ())


def test_value_of_unknown_or_undecodable_variable():
    variables = [(b"A", b"caf\xe9")]

    assert value_of(variables, b"A") == "caf\\xe9"
    assert value_of(variables, b"B") == ""


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "sbatch --export=ALL,DB_PASSWORD=geheim,N=2 x.sh",
            "sbatch --export=ALL,DB_PASSWORD=<masked:…>,N=2 x.sh",
        ),
        ("sbatch --export=API_TOKEN=abc x.sh", "sbatch --export=API_TOKEN=<masked:…> x.sh"),
        (
            "sbatch --export=A=1,API_TOKEN=Zm9v==,N=2 x.sh",
            "sbatch --export=A=1,API_TOKEN=<masked:…>,N=2 x.sh",
        ),
        ("x.sh --password=a=b=", "x.sh --password=<masked:…>"),
        (
            "x.sh DB_PASSWORD='two words, a=b' API_TOKEN=\"x y",
            "x.sh DB_PASSWORD=<masked:…> API_TOKEN=<masked:…> y",
        ),
        ("x.sh API_TOKEN='' N= y",) * 2,
        ("x.sh API_TOKEN= y", "x.sh API_TOKEN= <masked:…>"),
        ("run.py --password x --n 2", "run.py --password <masked:…> --n 2"),
        ("run.py --api-key 'x y' a.root", "run.py --api-key '<masked:…>' a.root"),
        ('run.py \'{"token": "x", "n": 2}\'', 'run.py \'{"token": "<masked:…>", "n": 2}\''),
        (
            "curl -H 'Authorization: Bearer x' -d @f",
            "curl -H 'Authorization: Bearer <masked:…>' -d @f",
        ),
        ("curl -u ana:x https://door", "curl -u ana:<masked:…> https://door"),
        ("run.py --password=$PASSWORD --token-file /run/token",) * 2,
        ("sbatch x.sh https://ana:geheim@db/x", "sbatch x.sh <masked:…>db/x"),
        ("sbatch --mem=4G --comment=campaign=mc26a;task=reco x.sh",) * 2,
        ("sbatch --export=TOKEN_FILE=/run/token é\ud800",) * 2,
        ("",) * 2,
    ],
)
def test_secrets_in_a_command_line_are_masked_and_nothing_else(masker, line, shown):
    assert re.sub("<masked:[0-9a-f]{16}>", "<masked:…>", masker.mask_text(line)) == shown


@pytest.mark.parametrize(
    "rules", [[], [MaskPattern("name", "^PIN$"), MaskPattern("value", "geheim")]]
)
def test_command_line_masked_twice_is_as_masked_once(rules):
    """As by who collects and by who ties it to the archive:
    it stays equal to what is in the environment.
    """
    masker = Masker(names=NAMES, key=b"k", rules=rules)
    once = masker.mask_text("sbatch --export=PIN=1=2,API_TOKEN=x x.sh https://ana:geheim@db/x")

    assert masker.mask_text(once) == once
    assert masker.fingerprint(b"x").decode() in once


@pytest.mark.parametrize("piece", ["a=", "API_TOKEN=", "API_TOKEN='", "API_TOKEN=/a=", "a='\""])
def test_hostile_command_lines_take_no_time(masker, piece):
    began = time.process_time()
    masker.mask_text(piece * 20_000)

    assert time.process_time() - began < 5, "linear takes 0.1 s"


def test_rules_mask_more_names_and_values_whatever_the_setting_spares():
    rules = [
        MaskPattern("name", "^MY_(?i:pin)$"),
        MaskPattern("name", "FILE$"),
        MaskPattern("value", "^acct=.*=="),
        MaskPattern("value", "\\bs3cr3t"),
    ]
    variables = [
        (b"MY_pin", b"1234"),
        (b"MY_PINS", b"1234"),
        (b"KEY_FILE", b"/home/ana/key"),
        (b"OPTIONS", b"acct=ana;k=Zm9v=="),
        (b"NOTE", b"caf\xe9 s3cr3t"),
        (b"MY_PIN", b""),
    ]
    for names in ("", NAMES):
        masked, found = Masker(names=names, key=b"k", rules=rules).mask(variables)

        assert found == ("MY_pin", "KEY_FILE", "OPTIONS", "NOTE")
        assert (masked[1], masked[5]) == (variables[1], variables[5])


def test_rules_mask_command_lines():
    masker = Masker(
        names="", key=b"k", rules=[MaskPattern("name", "^PIN$"), MaskPattern("value", "s3cr3t\\w*")]
    )

    masked = masker.mask_text("sbatch --export=PIN=1234,N=2 x.sh s3cr3t99")

    assert (
        re.sub("<masked:[0-9a-f]{16}>", "<masked:…>", masked)
        == "sbatch --export=PIN=<masked:…>,N=2 x.sh <masked:…>"
    )


@pytest.mark.parametrize("pattern", ["", "(a", "a*", "x|", "(?=a)", "a)|(b"])
def test_rule_that_is_no_pattern_or_finds_everything_is_refused(pattern):
    with pytest.raises(ValueError, match=r"regular expression|everything"):
        MaskPattern("value", pattern)


SIZE = 200 * 1024
PUMPED = {
    "scheme": "a" * SIZE,
    "scheme with dots": "a." * (SIZE // 2),
    "URLs without a host": "x://" * (SIZE // 4),
    "password without an @": "a://" + "b:" * (SIZE // 2),
    "web tokens": "eyJaaaaaaaaa." * (SIZE // 13),
    "private key": "-----BEGIN " + "A " * (SIZE // 2) + "PRIVATE KEY",
    "GitHub tokens": "ghp_" * (SIZE // 4),
    "names": "a=" * (SIZE // 2),
    "quotes that do not close": "A_TOKEN='B_TOKEN=\"" * (SIZE // 18),
    "a long secret name": "TOKEN" * (SIZE // 5) + "=x",
}


@pytest.mark.parametrize("value", PUMPED.values(), ids=PUMPED)
def test_time_is_linear_in_what_a_job_wrote(masker, value):
    variables = [(f"V{number}".encode(), value.encode()) for number in range(4)]
    texts = [b"=".join(pair) for pair in variables]
    began = time.process_time()

    masker.may_find(b"\0".join(texts), texts)
    masker.mask(variables)
    masker.mask([(value.encode(), b"x")])
    masker.mask_text(f"sbatch --export=A={value}")

    assert time.process_time() - began < 0.5 * len(variables)


def test_masked_value_is_masked_wherever_it_stands(masker):
    """As Slurm repeats what `--export=NAME=value` gives."""
    variables = [
        (b"SLURM_EXPORT_ENV", b"ALL,DB_PASSWORD=s3cr3t-99,A=1"),
        (b"DB_PASSWORD", b"s3cr3t-99"),
        (b"SBATCH_EXPORT", b"DB_PASSWORD=s3cr3t-99"),
        (b"PLAIN", b"s3cr3t"),
    ]
    masked, names = masker.mask(variables)
    fingerprint = masker.fingerprint(b"s3cr3t-99")

    assert dict(masked) == {
        b"SLURM_EXPORT_ENV": b"ALL,DB_PASSWORD=" + fingerprint + b",A=1",
        b"DB_PASSWORD": fingerprint,
        b"SBATCH_EXPORT": b"DB_PASSWORD=" + fingerprint,
        b"PLAIN": b"s3cr3t",
    }
    assert names == ("SLURM_EXPORT_ENV", "DB_PASSWORD", "SBATCH_EXPORT")
    secrets = secrets_of(variables, masked)
    assert (
        replace_secrets(b"mysql -p's3cr3t-99' x\n", secrets)
        == b"mysql -p'" + fingerprint + b"' x\n"
    )


@pytest.mark.parametrize("value", ["short-1", "disabled", "20261120", "letters"])
def test_value_that_may_mean_something_else_stays_elsewhere(masker, value):
    variables = [(b"API_TOKEN", value.encode()), (b"NOTE", b"it is " + value.encode())]
    assert masker.mask(variables)[0][1] == variables[1]


@pytest.mark.parametrize(
    "key",
    [
        "sk-proj-Ab3dEfGhIjKlMnOpQrStUvWx_yz-0123456789",
        "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWx",
        "sk-" + "a1B2" * 12,
        "hf_" + "aB1c" * 9,
    ],
)
def test_key_of_a_known_form_is_masked_under_any_name(masker, key):
    assert masker.mask([(b"LLM", key.encode())])[1] == ("LLM",)
    assert key not in masker.mask_text(f"run.sh --with {key}")
    assert masker.mask([(b"LLM", b"task-" + key[3:10].encode())])[1] == ()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("ALL,DB_PASSWORD=x1,N=2", "ALL,DB_PASSWORD=<masked:…>,N=2"),
        ("--user ana --password x", "--user ana --password <masked:…>"),
        ('{"token": "x", "n": 2}', '{"token": "<masked:…>", "n": 2}'),
        ("Authorization: Bearer x", "Authorization: Bearer <masked:…>"),
        ("password: hunter2", "password: <masked:…>"),
        ("ALL,TOKEN_FILE=/run/token,N=2",) * 2,
        (
            "() {  local token=$1; password=${2:-}; echo }",
            "() {  local token=$1; password=${2:-}; echo }",
        ),
    ],
)
def test_secret_inside_a_value_is_masked_and_the_rest_of_it_stays(masker, value, shown):
    before = [(b"A", b"1"), (b"OPTIONS", value.encode())]
    assert (
        masker.may_find(b"A=1\0OPTIONS=" + value.encode(), [b"=".join(pair) for pair in before])
        or value == shown
    )

    masked, names = masker.mask(before)

    assert re.sub("<masked:[0-9a-f]{16}>", "<masked:…>", masked[1][1].decode()) == shown
    assert names == (("OPTIONS",) if value != shown else ())
    assert masker.mask(masked) == (masked, ())
    assert replace_secrets(value.encode(), secrets_of(before, masked)) == masked[1][1]


def test_secret_has_one_fingerprint_as_a_variable_and_inside_of_another(masker):
    masked, _ = masker.mask([(b"SLURM_EXPORT_ENV", b"ALL,PIN_TOKEN=x1"), (b"PIN_TOKEN", b"x1")])
    assert masked[0][1] == b"ALL,PIN_TOKEN=" + masked[1][1]


def test_name_of_a_rule_is_masked_inside_of_other_values():
    masker = Masker(names="", key=b"k", rules=[MaskPattern("name", "^PIN$")])
    masked, names = masker.mask([(b"SLURM_EXPORT_ENV", b"ALL,PIN=1234,N=2"), (b"PIN", b"1234")])
    assert masked[0][1] == b"ALL,PIN=" + masker.fingerprint(b"1234") + b",N=2"
    assert names == ("SLURM_EXPORT_ENV", "PIN")


def test_many_secrets_take_no_time(masker):
    variables = [(b"TOKEN_%d" % n, b"s%06d" % n + b"a" * 100) for n in range(5_000)]
    variables += [(b"NOTE", b"sa" * 50_000)]
    began = time.process_time()
    masked, _ = masker.mask(variables)
    replace_secrets(b"sa" * 2_000_000, secrets_of(variables, masked))
    assert time.process_time() - began < 0.5
