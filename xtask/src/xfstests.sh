# Runs tests of xfstests on a mount, in a mount namespace of its own, whose mounts are invisible outside.
#
# xfstests.sh THRUWAY XFSTESTS FOLDER RESULTS SECONDS OPTIONS TEST…
# Prints a line for each test: its name, `passed`, `failed`, `too-long` or `left-out`, and the reason if left out.
set -eu
thruway=$1 xfstests=$2 folder=$3 results=$4 seconds=$5 options=$6
shift 6

end() {
    umount "$folder/test" "$folder/scratch" 2>/dev/null || true
    # The daemons end, and then the sources are free.
    for source in test scratch; do
        for _ in 1 2 3 4 5 6 7 8 9 10; do umount "$folder/sources/$source" 2>/dev/null && break; sleep 0.2; done
    done
}
trap end EXIT

mkdir -p "$folder/helpers" "$folder/programs" "$folder/test" "$folder/scratch"
for source in test scratch; do
    mkdir -p "$folder/sources/$source"
    truncate --size 8G "$folder/$source.ext4"
    mkfs.ext4 -q "$folder/$source.ext4"
    mount -o loop,discard "$folder/$source.ext4" "$folder/sources/$source"
    mkdir "$folder/sources/$source/shown"
done

# xfstests mounts with mount(8), which looks for its helpers in /sbin.
ln -s "$thruway" "$folder/helpers/mount.fuse.thruway"
mount -t overlay -o "lowerdir=$folder/helpers:$(realpath /sbin)" overlay "$(realpath /sbin)"

# xfstests knows the type `fuse` alone, and unmounts by the name of a device, which is a folder here.
cat >"$folder/programs/df" <<'END'
#!/bin/sh
/bin/df "$@" | sed 's/ fuse\.thruway/ fuse/'
END
cat >"$folder/programs/umount" <<'END'
#!/bin/sh
for last; do :; done
target=$(awk -v source="$last" '$1 == source { found = $2 } END { print found }' /proc/self/mounts)
if [ $# = 1 ] && [ "$target" ]; then exec /bin/umount "$target"; fi
exec /bin/umount "$@"
END
chmod +x "$folder/programs/df" "$folder/programs/umount"
export PATH="$folder/programs:$PATH"

# The users that xfstests expects.
cp /etc/passwd /etc/group "$folder"
number=7001
for user in fsgqa fsgqa2 123456-fsgqa; do
    echo "$user:*:$number:$number::/tmp:/bin/bash" >>"$folder/passwd"
    echo "$user:*:$number:" >>"$folder/group"
    number=$((number + 1))
done
mount --bind "$folder/passwd" /etc/passwd
mount --bind "$folder/group" /etc/group

cat >"$folder/config" <<END
export FSTYP=fuse FUSE_SUBTYP=.thruway RESULT_BASE=$results
export TEST_DEV=$folder/sources/test/shown TEST_DIR=$folder/test
export SCRATCH_DEV=$folder/sources/scratch/shown SCRATCH_MNT=$folder/scratch
export MOUNT_OPTIONS="-o allow_other${options:+,$options}"
export TEST_FS_MOUNT_OPTS="-o allow_other${options:+,$options}"
END
export HOST_OPTIONS="$folder/config"

cd "$xfstests"
for test; do
    said=$results/$(basename "$test").said
    status=0
    timeout --kill-after 5 "$seconds" ./check -fuse "$test" >"$said" 2>&1 </dev/null || status=$?
    why=$(sed -n 's/.*\[not run\] *//p' "$said" | head -n 1)
    if [ "$why" ]; then
        echo "$test left-out $why"
    elif [ "$status" = 0 ]; then
        echo "$test passed"
    elif [ "$status" = 124 ] || [ "$status" = 137 ]; then
        echo "$test too-long"
        # Remaining processes of the test lose the mounts.
        umount --lazy "$folder/test" "$folder/scratch" 2>/dev/null || true
    else
        echo "$test failed"
    fi
done
