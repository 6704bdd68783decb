# Makes $1 the root folder of this mount namespace, with the crates in $2, and runs the other arguments there. The root
# is a mount, like that of a machine; after chroot alone, no line of /proc/self/mountinfo would name the root.
root=$1
registry=$2
shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
home=$root/root
mkdir -p "$home/.cargo/registry"
if [ -d "$registry" ]; then mount --bind "$registry" "$home/.cargo/registry"; fi
# Leftovers of the last run are gone, as after a start of the machine.
rm -rf "$root/tmp" "$root/run"
mkdir -m 1777 "$root/tmp"
mkdir -p "$root/run/lock"
cd "$root"
/usr/sbin/pivot_root . .
umount -l .
exec "$@"
