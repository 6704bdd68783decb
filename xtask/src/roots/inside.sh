# Runs a command in the copy of the checkout $1, after what $2 of scripts/setup installs.
cd "/$1"
setup=$2
shift 2
if [ "$setup" != none ]; then scripts/setup "$setup"; fi
# Some tasks ask git which files there are.
if command -v git >/dev/null; then
    git init -q .
    git add -A
    git -c user.name=root -c user.email=root@localhost commit -q -m 'A copy of the checkout' || true
fi
exec "$@"
