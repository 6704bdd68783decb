# Each way to install, on x86-64.
. /trial/shared.sh

apt-get update -qq
apt ruby ruby-rails ruby-sqlite3 curl man-db strace
files >/tmp/before

if built thruway_*_amd64.deb; then
    say "Debian packages"
    start=$(date +%s)
    apt ./thruway_*_amd64.deb ./ruby-thruway_*_amd64.deb
    thruway serve rails_app -b tcp://127.0.0.1:19292 >/tmp/server 2>&1 &
    server=$!
    page http://127.0.0.1:19292/
    say "from apt install to a page of Rails: $(($(date +%s) - start)) s"
    kill "$server"
    wait "$server" || true
    rm -rf rails_app/tmp rails_app/log
    works "the packages"
    works_without_home "the packages"
    boots "the packages"
    gem list thruway | grep -q '^thruway (' || fail "RubyGems does not know it"
    apt ./thruway-doc_*.deb
    man -w thruway-serve >/dev/null
    test -L /sbin/mount.thruway
    apt-get purge -qq thruway ruby-thruway thruway-doc >/tmp/apt 2>&1 || { cat /tmp/apt; exit 1; }
    nothing_is_left "the packages"
fi

if built thruway-*-x86_64-linux.gem; then
    say "the gem with programs"
    start=$(date +%s)
    gem install --silent --local --no-document ./thruway-*-x86_64-linux.gem
    say "installed: $(($(date +%s) - start)) s"
    hash -r
    works "the gem"
    boots "the gem"
    works_without_home "the gem"
    two_versions thruway-*-x86_64-linux.gem 99.0.0
    # Without rights on the system's folder of gems, a user's own folder works, too.
    mkdir -m 777 /tmp/gems
    own() { homeless gem install --silent --local --no-document --install-dir "$1" thruway-*-x86_64-linux.gem; }
    if own /var/lib/gems 2>/tmp/error; then fail "a gem is installed without rights"; fi
    own /tmp/gems
    said=$(GEM_HOME=/tmp/gems homeless /tmp/gems/bin/thruway --version)
    [ "$said" = "$(cat version)" ] || fail "the gem in a folder of its own: $said"
    rm -r /tmp/gems
    thruway serve rails_app -b tcp://127.0.0.1:19292 >/tmp/server 2>&1 &
    server=$!
    page http://127.0.0.1:19292/
    kill "$server"
    wait "$server" || true
    gem uninstall --silent --all --executables thruway
    rm -rf rails_app/tmp rails_app/log
    nothing_is_left "the gem"
fi

if built thruway-*-x86_64-linux.tar.gz; then
    say "the archive"
    mkdir /opt/thruway
    tar -xzf thruway-*-x86_64-linux.tar.gz -C /opt/thruway --strip-components=1
    PATH="/opt/thruway/bin:$PATH" works "the archive"
    calls=$(strace -f -o /tmp/calls /opt/thruway/bin/thruway --version >/dev/null && grep -c '(' /tmp/calls)
    [ "$calls" -le 40 ] || fail "thruway --version makes $calls calls"
    say "the archive: thruway --version makes $calls calls"
    rm -r /opt/thruway
    nothing_is_left "the archive"
fi
