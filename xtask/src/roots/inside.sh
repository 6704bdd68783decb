# Runs a command in the copy of the checkout $1, after the part $2 of scripts/setup has installed its packages.
cd "/$1"
setup=$2
shift 2
if [ "$setup" != none ]; then scripts/setup "$setup"; fi
# Some tasks ask git for the list of files.
if command -v git >/dev/null; then
    git init -q .
    git add -A
    git -c user.name=root -c user.email=root@localhost commit -q -m 'A copy of the checkout' || true
fi
exec "$@"
