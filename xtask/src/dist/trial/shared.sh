# What trials share. Each runs as root in a fresh Debian, with what was built in /trial; the first command that fails
# ends it.
cd /trial

say() { echo "trial: $*"; }
fail() { say "FAILED: $*"; exit 1; }
apt() { apt-get install -qq --no-install-recommends "$@" >/tmp/apt 2>&1 || { cat /tmp/apt; exit 1; }; }
# Every file but what apt and other programs keep for themselves, and RubyGems' empty folders.
files() {
    find / -xdev \( -path /trial -o -path /proc -o -path /dev -o -path /tmp -o -path /var/cache -o -path /var/lib/apt \
        -o -path /var/lib/dpkg -o -path /var/log -o -path /run -o -path /etc/ld.so.cache \) -prune \
        -o ! \( -type d -path '/var/lib/gems*' \) -print | sort
}
nothing_is_left() {
    files >/tmp/after
    diff /tmp/before /tmp/after >/tmp/left || { cat /tmp/left; fail "$1 leaves files behind"; }
    say "$1: removed, and nothing is left"
}
# Waits for a page of the server that was started last.
page() {
    tries=0
    until curl -fsS "$1" >/tmp/page 2>/tmp/error; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || { cat /tmp/error /tmp/server; fail "no page at $1"; }
        sleep 0.1
    done
}
# Whether the command works, however it came, and Ruby boots with it.
works() {
    [ "$(thruway --version)" = "$(cat /trial/version)" ] || fail "$1: thruway --version"
    thruway run --pack /tmp/pack -- ruby -e 'require "json"; puts JSON.generate([1])' >/tmp/said 2>/tmp/error
    [ "$(cat /tmp/said)" = "[1]" ] || fail "$1: thruway run"
    [ ! -s /tmp/error ] || { cat /tmp/error; fail "$1: thruway run says something"; }
    thruway doctor | grep -Eq '^ok +boot ' || { thruway doctor; fail "$1: doctor"; }
    rm -f /tmp/pack
}
# Whether the gem can be required.
boots() {
    THRUWAY_PACK=/tmp/own ruby -e 'require "thruway/boot"; exit Thruway::Boot.running?' || fail "$1: thruway/boot"
    rm -f /tmp/own
}

