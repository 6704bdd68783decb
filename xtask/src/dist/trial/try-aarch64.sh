# Each way to install, on aarch64 under QEMU. Verbs that need ptrace or FUSE cannot be tried there.
. /trial/shared.sh

# Waits until a server answers.
answers() {
    tries=0
    until thruway load "$1" -n 1 -c 1 >/tmp/loaded 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 120 ] || { cat /tmp/loaded /tmp/server; fail "no page at $1"; }
        sleep 0.5
    done
}
# Whether a server has this page, by Ruby's own client.
has_page() { ruby -rnet/http -e 'exit Net::HTTP.get(URI(ARGV[0])).include?(ARGV[1])' "$1" "$2" || fail "$1 lacks $2"; }
# Whether $2 is served: the page $3 has the text $4.
serves() {
    thruway serve "$2" -b tcp://127.0.0.1:19393 >/tmp/server 2>&1 &
    server=$!
    answers "http://127.0.0.1:19393/$3"
    has_page "http://127.0.0.1:19393/$3" "$4"
    thruway load "http://127.0.0.1:19393/$3" -n 200 -c 4 >/tmp/loaded 2>&1 || { cat /tmp/loaded; fail "$1: load"; }
    grep -q '2xx 200$' /tmp/loaded || { cat /tmp/loaded; fail "$1: load counts other responses"; }
    kill "$server"
    wait "$server" || true
}
# Tries the verbs that need no extension.
commands() {
    [ "$(thruway which sh)" = "$(command -v sh)" ] || fail "$1: thruway which"
    [ "$(thruway expand --base /srv/app ../a)" = /srv/a ] || fail "$1: thruway expand"
    mkdir -p /tmp/site/sub
    echo "a file" >/tmp/site/sub/file
    ln -sf sub/file /tmp/site/inside
    serves "$1" /tmp/site inside "a file"
    rm -r /tmp/site
}
# Tries the verbs that need the extension.
applications() {
    thruway pack build -o /tmp/built ruby -e 'require "json"' >/tmp/said 2>&1 || { cat /tmp/said; fail "$1: pack"; }
    thruway pack verify /tmp/built >/tmp/said || { cat /tmp/said; fail "$1: pack verify"; }
    thruway run --digest --pack /tmp/built -- ruby -e 'require "json"; puts JSON.generate([2])' >/tmp/said
    [ "$(cat /tmp/said)" = "[2]" ] || fail "$1: thruway run --digest"
    rm -f /tmp/built
    serves "$1" rack_hello "" "Decide once, at open"
    rm -rf rack_hello/tmp
}

[ "$(uname -m)" = aarch64 ]
files >/tmp/before

if built thruway_*_arm64.deb; then
    say "Debian packages"
    dpkg -i ./thruway_*_arm64.deb ./ruby-thruway_*_arm64.deb >/tmp/dpkg 2>&1 || { cat /tmp/dpkg; fail "dpkg"; }
    works "the packages"
    boots "the packages"
    commands "the packages"
    applications "the packages"
    dpkg -P thruway ruby-thruway >/tmp/dpkg 2>&1 || { cat /tmp/dpkg; fail "dpkg"; }
    nothing_is_left "the packages"
fi

if built thruway-*-aarch64-linux.gem; then
    say "the gem with programs"
    gem install --silent --local --no-document ./thruway-*-aarch64-linux.gem
    hash -r
    works "the gem"
    boots "the gem"
    gem uninstall --silent --all --executables thruway
    nothing_is_left "the gem"
fi

if built thruway-*-aarch64-linux.tar.gz; then
    say "the archive"
    mkdir /opt/thruway
    tar -xzf thruway-*-aarch64-linux.tar.gz -C /opt/thruway --strip-components=1
    PATH="/opt/thruway/bin:$PATH"
    works "the archive"
    commands "the archive"
    applications "the archive"
    rm -r /opt/thruway
    nothing_is_left "the archive"
fi
