#!/bin/bash
# Is process 1 of new namespaces, and becomes the init of a system:
#   boot.sh ROOT DIR CGROUP INIT ARGUMENT...
# ROOT is its file system, which it does not change; what it writes is below DIR (layer, work, var).
# If ROOT is a file, then it is the image of a file system, which the system uses and changes.
# CGROUP is the cgroup that it has below each hierarchy of this machine.
set -euo pipefail
root=$1 dir=$2 name=$3
shift 3
if [ "${ISLET_SYSTEM:-}" != inside ]; then
	top=/sys/fs/cgroup/cgroup.subtree_control # of version 2, where the machine's own init has switched on what it uses itself
	for c in cpu cpuset io memory pids; do
		[ ! -e $top ] || grep -qw $c $top || echo +$c >$top
	done
	for c in /sys/fs/cgroup /sys/fs/cgroup/*; do
		[ -e "$c/cgroup.procs" ] || continue
		if [ "$c" != /sys/fs/cgroup ] && [ -e /sys/fs/cgroup/cgroup.procs ]; then continue; fi # the only hierarchy is above
		mkdir -p "$c/$name"
		for f in cpuset.cpus cpuset.mems; do
			if [ -e "$c/$f" ]; then cat "$c/$f" >"$c/$name/$f"; fi # of version 1, where it begins empty
		done
		echo 0 >"$c/$name/cgroup.procs"
	done
	ISLET_SYSTEM=inside exec unshare --cgroup "$0" "$root" "$dir" "$name" "$@"
fi
mount --make-rprivate /
r=$dir/root
mkdir -p "$r"
if [ -f "$root" ]; then
	mount -o loop "$root" "$r"
else
	mkdir -p "$dir/layer" "$dir/work"
	[ -e "$dir/var" ] || cp -a "$root/var" "$dir/var"
	mount -t overlay overlay -o "lowerdir=$root,upperdir=$dir/layer,workdir=$dir/work" "$r"
	mount --bind "$dir/var" "$r/var" # not a layer: the agent makes layers there
fi
mount -t proc proc "$r/proc"
mount -t sysfs sysfs "$r/sys"
cgroups=$(awk '$9 ~ /^cgroup2?$/ || $10 ~ /^cgroup2?$/ { print $5 }' /proc/self/mountinfo)
if [ -e /sys/fs/cgroup/cgroup.procs ]; then
	mount -t cgroup2 cgroup2 "$r/sys/fs/cgroup"
else
	mount -t tmpfs cgroup "$r/sys/fs/cgroup" -o mode=755
	for c in $cgroups; do
		c=${c##*/}
		mkdir "$r/sys/fs/cgroup/$c"
		case $c in
		unified) mount -t cgroup2 cgroup2 "$r/sys/fs/cgroup/$c" ;;
		systemd) mount -t cgroup -o none,name=systemd cgroup "$r/sys/fs/cgroup/$c" ;;
		*) mount -t cgroup -o "$c" cgroup "$r/sys/fs/cgroup/$c" ;;
		esac
	done
fi
mount -t tmpfs dev "$r/dev" -o mode=755
for n in null zero full random urandom tty; do
	: >"$r/dev/$n"
	mount --bind "/dev/$n" "$r/dev/$n"
done
mkdir "$r/dev/pts" "$r/dev/shm"
mount -t devpts devpts "$r/dev/pts" -o newinstance,ptmxmode=666
ln -s pts/ptmx "$r/dev/ptmx"
ln -s /proc/self/fd "$r/dev/fd"
mount -t tmpfs run "$r/run" -o mode=755
hostname edge
mkdir -p "$dir/payload" "$r/payload"
mount --bind "$dir/payload" "$r/payload"
cd "$r"
mkdir -p old
pivot_root . old
umount -l /old
mount --make-rshared / # as systemd has it
exec env -i container=islet PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@" </dev/null
