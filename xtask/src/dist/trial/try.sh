# Runs as root in a fresh Debian, with what was built in /trial. The first command that fails ends it.
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

apt-get update -qq
apt ruby ruby-rails ruby-sqlite3 curl man-db strace
ls thruway-*.gem | sed -n 's/^\(thruway\)-\([0-9.]*\)\.gem$/\1 \2/p' >version
files >/tmp/before

say "Debian packages"
start=$(date +%s)
apt ./thruway_*.deb ./ruby-thruway_*.deb
thruway serve rails_app -b tcp://127.0.0.1:19292 >/tmp/server 2>&1 &
server=$!
page http://127.0.0.1:19292/
say "from apt install to a page of Rails: $(($(date +%s) - start)) s"
kill "$server"
wait "$server" || true
rm -rf rails_app/tmp rails_app/log
works "the packages"
boots "the packages"
gem list thruway | grep -q '^thruway (' || fail "RubyGems does not know it"
apt ./thruway-doc_*.deb
man -w thruway-serve >/dev/null
test -L /sbin/mount.thruway
apt-get purge -qq thruway ruby-thruway thruway-doc >/tmp/apt 2>&1 || { cat /tmp/apt; exit 1; }
nothing_is_left "the packages"

say "the gem with programs"
start=$(date +%s)
gem install --silent --local --no-document ./thruway-*-x86_64-linux.gem
say "installed: $(($(date +%s) - start)) s"
hash -r
works "the gem"
boots "the gem"
thruway serve rails_app -b tcp://127.0.0.1:19292 >/tmp/server 2>&1 &
server=$!
page http://127.0.0.1:19292/
kill "$server"
wait "$server" || true
gem uninstall --silent --all --executables thruway
rm -rf rails_app/tmp rails_app/log
nothing_is_left "the gem"

say "the archive"
mkdir /opt/thruway
tar -xzf thruway-*-x86_64-linux.tar.gz -C /opt/thruway --strip-components=1
PATH="/opt/thruway/bin:$PATH" works "the archive"
calls=$(strace -f -o /tmp/calls /opt/thruway/bin/thruway --version >/dev/null && grep -c '(' /tmp/calls)
[ "$calls" -le 40 ] || fail "thruway --version makes $calls calls"
say "the archive: thruway --version makes $calls calls"
rm -r /opt/thruway
nothing_is_left "the archive"
