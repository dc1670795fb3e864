"""Which parts of a line are secrets, by their form or by the name before them."""

import string

import pytest

from apps.core.domain.secrets.patterns import (
    CONTEXT_BYTES,
    SECRET_HINT,
    private_keys_in,
    secrets_in,
)
from tests.pumps import within
from tests.worst_inputs import SIZE

MIXED = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ"
# `§` stands before and after the secret of each line, which is all that is one.
SECRETS = """
password: §hunter2§
password=§x§
MYSQL_PWD=§x§ mysqldump
export X_TOKEN=§abc§ OTHER=fine
_authToken= §abc-123§
    db_password    : §geheim7§
mysql --password §x§ -h db.example
run.py --api-key '§two words§' --verbose
args: ['--token', '§x§']
{"token": "§x§", "expires_in": 3600}
{"body": "{\\"client_secret\\": \\"§x§\\"}"}
{"name": "API_TOKEN", "value": "§x§"}
Authorization: Bearer §x§
curl -H 'Authorization: Basic §dTpw§' https://door.example
X-Vault-Token: §x§
Set-Cookie: §sid=x; Path=/§
curl -s -u ana:§x§ https://door.example
sshpass -p §x§ ssh door.example
<password>§hunter2§</password>
config["secret_key"] = "§x y§"
db_password => '§x§'
passphrase := `§x y§`
setenv("API_KEY", "§x§", 1)
std::string secret("§x§");
SLURM_EXPORT_ENV=ALL,DB_PASSWORD=§x1§,A=1
https://ana@door.example/f?X-Amz-Signature=§0123abcd§&a=1
https://store.example/f?sv=1&sig=§aB3dE5gH7jK9mN1pQ3sT5vW7yZ%3D§&se=2
§postgresql://ana:geheim@§db.example/x
§eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSM§ was sent
used bearer §aB3dE5gH7jK9mN1pQ3sT5vW7yZ§ now
user's password: §hunter2§
log4j: token=§x§;next=1
{"jwt": "§x§"}
AWS_SECRET_ACCESS_KEY=§/aB3/xyz+Q§
DB_PASSWORD=§42§
SLURM_JWT=§x§
"""
FORMS = [
    f"ghp_{MIXED}",
    f"github_pat_{MIXED}",
    f"glpat-{MIXED}",
    f"gldt-{MIXED}",
    "xoxb-123456789012-abcdefghij",
    f"sk-proj-{MIXED}",
    f"sk_live_{MIXED}",
    f"hf_{MIXED}{MIXED}",
    "AKIA" + "ABCDEFGH23456777",
    f"AIza{MIXED}{MIXED}",
    f"hvs.{MIXED}",
    f"npm_{MIXED}{MIXED[:10]}",
    f"pypi-AgEIcHlwaS5vcmc{MIXED}{MIXED}",
    f"SG.{MIXED}.{MIXED}{MIXED}",
    f"dckr_pat_{MIXED}",
    f"glsa_{MIXED}{MIXED}",
    f"sha256~{MIXED}{MIXED}",
    f"MDAxY2xvY2F0aW9u{MIXED}{MIXED}",
    f"12345678:AA{MIXED}abcdefg",
]
HARMLESS = """
PATH=/usr/bin:/bin PWD=/home/ana
token: expired
Invalid token: signature verification failed
ana@door.example's password: Permission denied, please try again.
Enter password:
password: ****** accepted
BEARER_TOKEN_FILE=/run/user/1000/bt_u1000
token_type: Bearer, token_expires_in=3600
max_tokens=512, total tokens: 33
usage: run.py --password PASSWORD  the password
error: option --password is required
run.sh --token=${API_TOKEN} --password $PASSWORD
def login(user, password: str, token=None):
    token = os.environ["API_TOKEN"]
    password=get_password()
token::parse(x) and token->next
unexpected token '}' at line 3
Bearer token discovered in the environment
PROCESSING_PASS=2 pass: 3
SLURM_ACCESS_KEY_RANK=3 TOKENIZERS_PARALLELISM=false
<password></password>
{"secret": null, "password": ""}
https://door.example:8443/a@b
API_TOKEN=<masked:0123456789abcdef>
task-1234-abcdefgh sk-learn hf_hub
gir1.2-glib-2.0_1.74.0-3_amd64.deb glibc-2.34-60.el9.x86_64
npm_package_config_registry_of_the_project
2026-05-09 07:29:24 status installed python3-jwt:all 2.6.0-1
Using token: /run/user/1000/bt_u1000 from cvmfs
client_auth=munge, http_auth: 1
environment = "PHASE_TOKEN=$ENV(PHASE_TOKEN)"
a wrong token, `413` for a large body
"""


def marked(line: str) -> str:
    data, position, parts = line.encode(), 0, []
    for begin, end in secrets_in(data):
        parts += [data[position:begin], "§".encode(), data[begin:end], "§".encode()]
        position = end
    return b"".join((*parts, data[position:])).decode()


@pytest.mark.parametrize("line", SECRETS.strip("\n").split("\n"))
def test_secret_is_found_and_nothing_else(line):
    plain = line.replace("§", "")
    assert SECRET_HINT.search(plain.encode())
    assert marked(plain) == line


@pytest.mark.parametrize("secret", FORMS)
def test_secret_is_known_by_its_form(secret):
    assert SECRET_HINT.search(secret.encode())
    assert marked(f"sent {secret} along") == f"sent §{secret}§ along"
    assert marked(f"sent {secret[:9]} along") == f"sent {secret[:9]} along"


@pytest.mark.parametrize("line", HARMLESS.strip("\n").split("\n"))
def test_harmless_line_stays(line):
    assert marked(line) == line


BODY = "\n".join([string.ascii_letters, string.ascii_letters + "+/==", "aGk="])
KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{BODY}\n-----END OPENSSH PRIVATE KEY-----"
ENCRYPTED = KEY.replace("\nabc", "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123\n\nabc", 1)


def left_of(text: str) -> str:
    data, position, parts = text.encode(), 0, []
    for begin, end in private_keys_in(data):
        parts.append(data[position:begin])
        position = end
    return b"".join((*parts, data[position:])).decode()


@pytest.mark.parametrize(
    "key",
    [
        KEY,
        ENCRYPTED,
        KEY.replace("\n", "\r\n"),
        KEY.replace("\n", "\\n"),
        KEY.replace("\n", "\n2026-11-26 09:14:02 INFO "),
        KEY.replace("OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK").replace("aGk=", "aGk=\n=aB1d"),
        f"{KEY}{KEY}",
    ],
    ids=["plain", "encrypted", "CRLF", "escaped", "logged", "PGP", "two"],
)
def test_private_key_is_found_from_begin_to_end(key):
    assert left_of(f"before\n{key}\nafter the key\n") == "before\n\nafter the key\n"


@pytest.mark.parametrize("key", [KEY, ENCRYPTED], ids=["plain", "encrypted"])
def test_private_key_that_is_cut_off_is_found_too(key):
    begin, body, end = (
        key.partition("\n")[0],
        key.partition("\n")[2].rpartition("\n")[0],
        key.rpartition("\n")[2],
    )
    assert (
        left_of(f"before\n{begin}\n{body.removesuffix('aGk=')}after the key\n")
        == "before\nafter the key\n"
    )
    assert left_of(f"before the key\n{body}\n{end}\nafter\n") == "before the key\n\nafter\n"


def test_line_that_names_a_private_key_hides_no_other():
    text = (
        f"wrote {KEY.partition(chr(10))[0]}\nStep 1 failed\n" + "line of the job\n" * CONTEXT_BYTES
    )
    assert left_of(text + KEY.rpartition("\n")[2]).count("\n") == text.count("\n")
    assert "Step 1 failed" in left_of(text)


@pytest.mark.parametrize(
    "piece",
    [
        "password: ",
        "token: expired ",
        "token_",
        "token=x ",
        'token="',
        "--password ",
        "--a",
        "curl ",
        "curl -u ",
        "cookie: ",
        "bearer ",
        "authorization: basic ",
        "value=",
        '"name": "token", "value": ',
        "<password",
        "a://b:",
    ],
)
def test_time_is_linear(piece):
    with within():
        secrets_in((piece * (SIZE // len(piece))).encode())


@pytest.mark.parametrize(
    "piece",
    [
        "-----BEGIN PRIVATE KEY-----\n",
        "-----END PRIVATE KEY-----\n",
        "-----BEGIN ",
        "-----BEGIN A PRIVATE KEY",
        f"{string.ascii_letters}\n",
        "-----BEGIN PRIVATE KEY-----\nabcdefghijklmnopqrst\n",
        "abcdefghijklmnopqrst\n-----END PRIVATE KEY-----\n",
        "-",
        " ",
        "a",
    ],
)
def test_time_of_private_keys_is_linear(piece):
    filler = piece * (SIZE * 5 // len(piece))
    with within():
        private_keys_in(
            (
                f"{filler}!\n-----END PRIVATE KEY-----\n{filler}!-----BEGIN PRIVATE "
                f"KEY-----\n{filler}"
            ).encode()
        )
