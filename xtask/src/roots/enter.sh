# Makes $1 the root folder of this mount namespace, with the crates in $2, and runs the rest there. It is a mount, as
# the root folder of a machine is; below chroot alone, nothing in /proc/self/mountinfo would name it.
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
# What the last run left there is gone, as after a start of a machine.
rm -rf "$root/tmp" "$root/run"
mkdir -m 1777 "$root/tmp"
mkdir -p "$root/run/lock"
cd "$root"
/usr/sbin/pivot_root . .
umount -l .
exec "$@"
