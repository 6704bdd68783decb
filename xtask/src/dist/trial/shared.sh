# Functions that trials share. Each trial runs as root in a fresh Debian, with the built packages in /trial; the first
# failing command ends the trial.
cd /trial

say() { echo "trial: $*"; }
fail() { say "FAILED: $*"; exit 1; }
apt() { apt-get install -qq --no-install-recommends "$@" >/tmp/apt 2>&1 || { cat /tmp/apt; exit 1; }; }
# Every file except the data of apt and other programs, and RubyGems' empty folders.
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
# Whether a package was built.
built() { ls "$@" >/dev/null 2>&1; }
# Waits for a page of the most recently started server.
page() {
    tries=0
    until curl -fsS "$1" >/tmp/page 2>/tmp/error; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || { cat /tmp/error /tmp/server; fail "no page at $1"; }
        sleep 0.1
    done
}
# Whether the command works, however it was installed, and Ruby boots with it.
works() {
    [ "$(thruway --version)" = "$(cat /trial/version)" ] || fail "$1: thruway --version"
    thruway run --pack /tmp/pack -- ruby -e 'require "json"; puts JSON.generate([1])' >/tmp/said 2>/tmp/error
    [ "$(cat /tmp/said)" = "[1]" ] || fail "$1: thruway run"
    [ ! -s /tmp/error ] || { cat /tmp/error; fail "$1: thruway run says something"; }
    thruway doctor | grep -Eq '^ok +boot ' || { thruway doctor; fail "$1: doctor"; }
    rm -f /tmp/pack
}
# A user without a home and without rights on the system's folders.
homeless() { env HOME=/nonexistent GEM_SPEC_CACHE=/tmp/specs setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
# Whether a user without a home can boot; there is no pack, since it would have no place.
works_without_home() {
    homeless thruway run -- ruby -e 'require "json"; puts JSON.generate([3])' >/tmp/said 2>/tmp/error
    [ "$(cat /tmp/said)" = "[3]" ] || { cat /tmp/error; fail "$1: thruway run without a home"; }
}
# Installs a gem of the version $2 beside the installed one: RubyGems finds each by its version.
two_versions() {
    rm -rf /tmp/next
    gem unpack "$1" --target /tmp/next >/dev/null
    folder=$(echo /tmp/next/*)
    gem specification --ruby "$1" | sed "s/^  s\.version = .*/  s.version = \"$2\"/" >"$folder/thruway.gemspec"
    sed -i "s/VERSION = \"[0-9.]*\"/VERSION = \"$2\"/" "$folder/gem/lib/thruway/version.rb"
    (cd "$folder" && gem build --silent thruway.gemspec -o ../next.gem)
    gem install --silent --local --no-document /tmp/next/next.gem
    own=$(cut -d ' ' -f 2 version)
    for wanted in "$own" "$2"; do
        said=$(ruby -e "gem 'thruway', '$wanted'; require 'thruway/version'; print Thruway::VERSION")
        [ "$said" = "$wanted" ] || fail "version $wanted beside another: $said"
        thruway "_${wanted}_" --version >/dev/null || fail "the command of version $wanted"
    done
    gem uninstall --silent --version "$2" thruway
    [ "$(thruway --version)" = "$(cat version)" ] || fail "one of two versions was removed, and the other is gone"
}
# Whether `require` boots Thruway.
boots() {
    THRUWAY_PACK=/tmp/own ruby -e 'require "thruway/boot"; exit Thruway::Boot.running?' || fail "$1: thruway/boot"
    rm -f /tmp/own
}
