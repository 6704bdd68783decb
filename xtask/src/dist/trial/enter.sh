# Enters the root $1 below an overlay in $2: what is written stays in $2.
mkdir -p "$2/upper" "$2/overlay" "$2/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/overlay" "$2/root"
mount -t proc proc "$2/root/proc"
mount --rbind /dev "$2/root/dev"
mount -t tmpfs tmpfs "$2/root/tmp"
cp /etc/resolv.conf "$2/root/etc/resolv.conf"
exec chroot "$2/root" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    DEBIAN_FRONTEND=noninteractive sh -eu /trial/try.sh
