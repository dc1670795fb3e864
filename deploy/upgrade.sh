#!/bin/sh
# Upgrade the portal of this host, installed as docs/production.md describes.
#
#   upgrade.sh [OPTION…] SOURCE                       to the release in SOURCE: a checkout, or the
#                                                     directory of a package
#   upgrade.sh --back [--rolling | --restore DUMP]    to the release before
#
# --check ends before anything is stopped, and says whether --rolling is possible; --yes asks nothing.
# --rolling upgrades while the portal runs. --joining is for the second and each further host: the
# database was dumped and migrated by the first. --restore replaces the database by a dump; without
# it the database stays as it is.
set -eu
# Also from a shell with `umask 077`: the portal's user reads what is installed.
umask 022

root=${OPSPORTAL_ROOT:-/opt/opsportal}
units=${OPSPORTAL_UNITS:-/etc/systemd/system}
backups=${OPSPORTAL_BACKUPS:-/var/backups/opsportal}
socket=${OPSPORTAL_SOCKET:-/run/opsportal/web.sock}
stop_seconds=${OPSPORTAL_STOP_SECONDS:-700}
ready_seconds=${OPSPORTAL_READY_SECONDS:-120}
lock_seconds=5
most_tries=5
needed_kb=1500000
here=$(dirname "$(readlink -f "$0")")

say() {
    echo "upgrade: $*"
}

refuse() {
    echo "error: $*" >&2
    exit 1
}

usage() {
    sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

# ---- Services: nothing else in this file knows what starts and stops the portal.

# The portal's units that are not inactive. Capture is not one of them: it goes on meanwhile.
list_running() {
    systemctl list-units --all --plain --no-legend 'opsportal-web*' 'opsportal-worker@*' \
        opsportal-beat.service | awk '$3 != "inactive" && $3 != "failed" { print $1 }'
}

stop_portal() {
    say "stopping; running tasks are finished first"
    systemctl stop opsportal.target 'opsportal-web*' 'opsportal-worker@*' opsportal-beat.service
    waited=0
    while [ -n "$(list_running)" ]; do
        if [ "$waited" -ge "$stop_seconds" ]; then
            refuse "still running: $(list_running | tr '\n' ' ')"
        fi
        sleep 1
        waited=$((waited + 1))
    done
}

# The units in $1, and whatever the target starts besides.
start_portal() {
    say "starting"
    systemctl daemon-reload
    # shellcheck disable=SC2086  # names without spaces
    systemctl start opsportal.target $1
}

# Let the units in $1 run the release that `current` is now, one after the other, by the kinds that
# follow. The socket of the web server takes connections meanwhile.
restart_one_by_one() {
    units_running=$1
    shift
    systemctl daemon-reload
    for kind in "$@"; do
        for unit in $units_running; do
            case $unit in
            "opsportal-$kind"*.service)
                say "restarting $unit; what it does is finished first"
                systemctl restart "$unit" || refuse "$unit did not start: see journalctl -u $unit"
                ;;
            esac
        done
    done
}

# ---- Releases

read_version() {
    if [ -f "$1/pyproject.toml" ]; then
        sed -n 's/^version = "\(.*\)"$/\1/p' "$1/pyproject.toml" | head -n 1
    else
        find "$1" -maxdepth 1 -name 'opsportal-*-py3-none-any.whl' |
            sed -n 's/.*opsportal-\([^-]*\)-py3-none-any.whl$/\1/p' | head -n 1
    fi
}

# The version of the release that is installed in directory $1.
installed_version() {
    if [ -f "$1/pyproject.toml" ]; then
        read_version "$1"
    else
        "$1/.venv/bin/opsportal" version | awk '{ print $2 }'
    fi
}

# Whether version $1 is older than version $2.
is_older() {
    [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

# A management command of the release in directory $1, as the units run it.
manage() {
    OPSPORTAL_RELEASE=$1
    export OPSPORTAL_RELEASE
    shift
    "$here/opsportal-manage" "$@"
}

# The same as whoever runs this script.
manage_as_root() {
    portal_user=${OPSPORTAL_USER:-opsportal}
    OPSPORTAL_USER=$(id -un)
    export OPSPORTAL_USER
    status=0
    manage "$@" || status=$?
    OPSPORTAL_USER=$portal_user
    return "$status"
}

# Program $2 of PostgreSQL on the portal's database, with the rest as its arguments, by release $1.
# The password is in no command line.
postgres() {
    by=$1
    shift
    manage "$by" --python -c '
import os, sys
import django
django.setup()
from django.db import connection
names = "host port user password sslmode sslrootcert sslcert sslkey passfile service".split()
variables = {"dbname": "PGDATABASE"} | {name: "PG" + name.upper() for name in names}
for name, value in connection.get_connection_params().items():
    if name in variables and value:
        os.environ[variables[name]] = str(value)
os.execvp(sys.argv[1], sys.argv[1:])
' "$@"
}

# Migrations of the release in directory $1 that version $2 does not survive, with the reason: those
# that are not applied, or with `applied` as $3, those that are.
list_breaking_migrations() {
    manage "$1" --python -c '
import sys
import django
django.setup()
from apps.core.breaking_migrations import list_breaking_migrations
for migration in list_breaking_migrations(
    database="default", version=sys.argv[1], are_applied="applied" in sys.argv[2:]
):
    print("-", migration)
' "$2" ${3:+"$3"}
}

# Make the release in SOURCE that of directory $1, with an environment of its own. What was made
# halfway is made again.
install_release() {
    if [ -e "$1/.complete" ]; then
        return
    fi
    say "installing into $1"
    rm -rf "$1"
    mkdir -p "$1"
    if [ -f "$source/pyproject.toml" ]; then
        tar -C "$source" --exclude=./.git --exclude=./.venv --exclude=./var -cf - . |
            tar -C "$1" --no-same-owner -xf -
        lock=$1/requirements.lock
    else
        (cd "$source" && sha256sum --check --quiet SHA256SUMS) || refuse "the package is damaged"
        lock=$source/opsportal-$new_version.requirements.lock
    fi
    # A checkout made under `umask 077` has files of mode 0600.
    chmod -R u+rwX,go+rX,go-w "$1"
    python3 -m venv "$1/.venv"
    offline=
    if [ -d "$source/wheels" ]; then
        offline="--no-index --find-links $source/wheels"
    fi
    # shellcheck disable=SC2086  # options
    "$1/.venv/bin/pip" install --quiet $offline --require-hashes -r "$lock"
    if [ ! -f "$1/pyproject.toml" ]; then
        "$1/.venv/bin/pip" install --quiet --no-deps "$source"/opsportal-*-py3-none-any.whl
        files=$("$1/.venv/bin/opsportal" files)
        ln -s "$files/deploy" "$files/gunicorn.conf.py" "$files/CHANGELOG.md" "$1/"
    fi
    touch "$1/.complete"
}

# What each version after the one in use says to do by hand: the part *Upgrade* of its section in
# the changelog.
print_notes() {
    [ -f "$1/CHANGELOG.md" ] || return 0
    awk -v old="$old_version" '
        /^## / { version = $2; wanted = 0; if (version == old) exit }
        /^### / { wanted = ($2 == "Upgrade"); if (wanted) print "Version " version ":"; next }
        wanted && NF { print }
    ' "$1/CHANGELOG.md"
}

# Files that nginx serves belong to root. Their names hold their contents, so those of the release in
# use stay beside them.
collect_static() {
    manage_as_root "$new" collectstatic --noinput --verbosity 0
}

# Let `current` be the release in directory $1: at no moment is there none.
switch_to() {
    ln -sfn "$1" "$root/current.new"
    mv -T "$root/current.new" "$root/current"
    cp "$1"/deploy/systemd/* "$units/"
}

free_kb() {
    df -Pk "$1" | awk 'NR == 2 { print $4 }'
}

wait_until_ready() {
    say "waiting for /readyz"
    waited=0
    # Only nginx and root may connect to the socket.
    until answer=$(manage_as_root "$root/current" --python - "$socket" 2>&1 <<'PYTHON'
import http.client, os, socket, sys
from urllib.parse import urlsplit

connection = http.client.HTTPConnection(urlsplit(os.environ["PORTAL_URL"]).netloc, timeout=10)
connection.sock = socket.socket(socket.AF_UNIX)
try:
    connection.sock.connect(sys.argv[1])
    connection.request("GET", "/readyz", headers={"X-Forwarded-Proto": "https"})
    answer = connection.getresponse()
    print(answer.status, answer.read().decode(errors="replace")[:500])
    sys.exit(answer.status != 200)
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error}")
PYTHON
    ); do
        if [ "$waited" -ge "$ready_seconds" ]; then
            say "not ready: $answer"
            return 1
        fi
        sleep 1
        waited=$((waited + 1))
    done
    say "ready: $answer"
}

# ---- What is asked of us

read_options() {
    source='' is_back='' dump='' is_check='' is_sure='' is_joining='' is_rolling=''
    while [ $# -gt 0 ]; do
        case $1 in
        --back) is_back=yes ;;
        --restore)
            [ $# -ge 2 ] || usage
            dump=$2
            shift
            ;;
        --check) is_check=yes ;;
        --yes) is_sure=yes ;;
        --joining) is_joining=yes ;;
        --rolling) is_rolling=yes ;;
        -*) usage ;;
        *)
            [ -z "$source" ] || usage
            source=$(readlink -f "$1")
            ;;
        esac
        shift
    done
    if [ -n "$is_back" ]; then
        [ -z "$source" ] || usage
        [ -z "$dump" ] || [ -z "$is_rolling" ] || usage
    else
        [ -n "$source" ] || usage
        [ -z "$dump" ] || usage
    fi
}

# The release in use, which an installation without releases has in the directory of all.
find_current() {
    if [ -L "$root/current" ]; then
        old=$(readlink -f "$root/current")
    elif [ -x "$root/.venv/bin/python" ]; then
        old=$root
    else
        refuse "no portal in $root: install it by docs/production.md"
    fi
    old_version=$(installed_version "$old")
}

check_versions() {
    new_version=$(read_version "$source")
    [ -n "$new_version" ] || refuse "$source holds no release"
    [ "$new_version" != "$old_version" ] || refuse "$old_version is installed already"
    if is_older "$new_version" "$old_version"; then
        refuse "$new_version is older than $old_version: the way back is upgrade.sh --back"
    fi
}

# Versions between the two that must not be skipped.
check_path() {
    oldest=$(cat "$1/deploy/upgrade-from")
    if is_older "$old_version" "$oldest"; then
        refuse "$new_version takes the database of $oldest and later: upgrade to $oldest first"
    fi
}

check_space() {
    mkdir -p "$root/releases" "$backups"
    chmod 700 "$backups"
    [ "$(free_kb "$root/releases")" -ge "$needed_kb" ] ||
        refuse "less than $needed_kb kB are free in $root/releases"
    [ -z "$is_joining" ] || return 0
    size_kb=$(postgres "$old" psql -XAtc \
        'SELECT pg_database_size(current_database()) / 1024') || refuse "the database does not answer"
    [ "$(free_kb "$backups")" -ge "$size_kb" ] ||
        refuse "less than $size_kb kB, the size of the database, are free in $backups"
}

make_dump() {
    dump=$backups/$old_version-$(date -u +%Y%m%dT%H%M%SZ).dump
    say "dumping the database to $dump"
    (umask 077 && postgres "$old" pg_dump --format=custom >"$dump.part") || refuse "no dump, no upgrade"
    mv "$dump.part" "$dump"
}

confirm() {
    [ -z "$is_sure" ] || return 0
    question='Stop the portal and upgrade'
    [ -z "$is_rolling" ] || question='Upgrade the running portal from'
    printf '%s %s to %s? [y/N] ' "$question" "$old_version" "$new_version"
    read -r answer || answer=
    case $answer in
    y | Y | yes) ;;
    *) refuse "nothing was changed" ;;
    esac
}

# Say whether the portal can run meanwhile. Refuse if it cannot but shall.
check_rolling() {
    breaking=$(list_breaking_migrations "$new" "$old_version") || refuse "the database does not answer"
    if [ -z "$breaking" ]; then
        say "rolling: yes, $old_version runs on the schema of $new_version"
        return
    fi
    say "rolling: no, $old_version does not survive these migrations:"
    echo "$breaking"
    [ -z "$is_rolling" ] || refuse "upgrade without --rolling; nothing was changed"
}

# Apply the migrations of the new release. $1 says what else is to be known if they fail.
migrate_database() {
    [ -z "$is_joining" ] || return 0
    tries=0
    # The checks have been run.
    until manage "$new" migrate --skip-checks --verbosity 1; do
        tries=$((tries + 1))
        [ -n "$is_rolling" ] && [ "$tries" -lt "$most_tries" ] || refuse "the migration failed and $1"
        say "migrating again: beside a running portal, a lock may not be had at once"
        sleep 2
    done
    manage "$new" check --tag database --database default || refuse "the schema does not fit and $1"
}

# The release in use works until its unit is restarted. A statement that waits for a lock makes all
# others wait behind it, so none waits for long; what is done stays done when it is tried again.
roll() {
    [ -n "$is_joining" ] || make_dump
    PGOPTIONS="-c lock_timeout=${lock_seconds}s"
    export PGOPTIONS
    migrate_database "nothing was stopped: $old_version runs on. Repeat this, or upgrade without --rolling"
    unset PGOPTIONS
    ln -sfn "$old" "$root/previous"
    switch_to "$new"
    # Workers get messages of both releases, so they are first.
    restart_one_by_one "$running" worker beat web
    finish "$running" "$new_version runs; way back: upgrade.sh --back"
}

upgrade() {
    check_versions
    check_space
    new=$root/releases/$new_version
    install_release "$new"
    check_path "$new"
    say "$old_version is in use, $new_version is installed beside it"
    print_notes "$new"
    manage "$new" check --deploy --fail-level ERROR
    check_rolling
    if [ -n "$is_check" ]; then
        say "nothing was stopped: this was a check"
        return
    fi
    confirm
    collect_static
    running=$(list_running | tr '\n' ' ')
    if [ -n "$is_rolling" ]; then
        roll
        return
    fi
    stop_portal
    way_back="way back: upgrade.sh --back"
    if [ -z "$is_joining" ]; then
        make_dump
        way_back="$way_back --restore $dump"
    fi
    ln -sfn "$old" "$root/previous"
    switch_to "$new"
    migrate_database "the portal is stopped; $way_back"
    start_portal "$running"
    finish "$running" "$new_version runs; $way_back"
}

# Wait for the web server, if this host had one running, which $1 says; then say $2.
finish() {
    case " $1 " in
    *opsportal-web.service*)
        wait_until_ready || refuse "not ready after $ready_seconds s; $2"
        ;;
    esac
    say "$2"
}

# Replace the database by the dump, in one transaction: a restore that fails changes nothing.
restore_dump() {
    say "restoring $dump"
    {
        echo 'DROP SCHEMA public CASCADE; CREATE SCHEMA public;'
        echo 'ALTER SCHEMA public OWNER TO pg_database_owner; GRANT USAGE ON SCHEMA public TO PUBLIC;'
        pg_restore --no-owner --no-privileges --file=- "$dump" || echo 'SELECT 1 / 0;'
    } | postgres "$old" psql -Xq --single-transaction -v ON_ERROR_STOP=1 -o /dev/null -f -
}

# What was submitted since the dump must not be submitted again. 0.2.0 has no such command.
hold_production() {
    if manage "$1" help after_restore >/dev/null 2>&1; then
        manage "$1" after_restore || refuse "production is not on hold, and the portal is stopped"
    else
        say "put all production on hold: jobs submitted since the dump are not known"
    fi
}

go_back() {
    [ -L "$root/previous" ] || refuse "no release before $old_version is known"
    before=$(readlink -f "$root/previous")
    before_version=$(installed_version "$before")
    if [ -n "$dump" ]; then
        pg_restore --list "$dump" >/dev/null || refuse "$dump is no dump"
    else
        breaking=$(list_breaking_migrations "$old" "$before_version" applied) ||
            refuse "the database does not answer"
        [ -z "$breaking" ] ||
            refuse "$before_version does not survive these migrations; give --restore DUMP
$breaking"
    fi
    running=$(list_running | tr '\n' ' ')
    [ -n "$is_rolling" ] || stop_portal
    if [ -n "$dump" ]; then
        restore_dump || refuse "the dump was not restored; the database is as it was"
    fi
    # A second --back would otherwise lead forward again.
    rm "$root/previous"
    switch_to "$before"
    [ -z "$dump" ] || hold_production "$before"
    if [ -n "$is_rolling" ]; then
        restart_one_by_one "$running" web beat worker
    else
        start_portal "$running"
    fi
    finish "$running" "$before_version runs again"
}

read_options "$@"
[ "$(id -u)" = 0 ] || [ "$(id -un)" = "${OPSPORTAL_USER:-}" ] || refuse "run this as root"
find_current
if [ -n "$is_back" ]; then
    go_back
else
    upgrade
fi
