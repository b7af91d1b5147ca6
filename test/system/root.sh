#!/bin/bash
# Makes the file system of the systems that the tests boot: Debian with systemd, and OpenRC beside
# it. It needs root and a Debian mirror.
#   root.sh DIR [RELEASE [PACKAGE...]]   prints the folder in DIR, and makes it unless one of this very script with the same
#                                        arguments is there. RELEASE is bookworm by default. The packages are added
set -euo pipefail
release=${2:-bookworm}
more=$(printf ',%s' "${@:3}")
[ "$release" != bookworm ] || more=,openrc,rpm${more%,} # in later releases openrc replaces systemd
root=$1/$({ cat "$0"; echo "$release$more"; } | sha256sum | cut -c1-12)
mkdir -p "$1"
exec 9>"$1/lock"
flock 9
if [ -e "$root" ]; then
	echo "$root"
	exit
fi
find "$1" -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} + # of older scripts, or half made
echo "making the file system of the tests with an init, some minutes; log: $1/log" >&2
trap '[ $? = 0 ] || tail "$1/log" >&2' EXIT
# Neither && nor || may follow this: what fails in it would be passed over.
(
	debootstrap --variant=minbase --include="systemd,systemd-sysv,dbus,iproute2,procps,kmod,nftables${more%,}" "$release" "$root.new"
	rm -rf "$root.new"/var/cache/apt/* "$root.new"/var/lib/apt/lists/* "$root.new"/usr/share/{doc,man,locale}
	echo edge >"$root.new/etc/hostname"
	echo '127.0.0.1 localhost edge' >"$root.new/etc/hosts"
	: >"$root.new/etc/fstab"
	echo 0123456789abcdef0123456789abcdef >"$root.new/etc/machine-id"
	# Not this system's: what a whole machine has a kernel of its own for, and what would only cost time.
	chroot "$root.new" systemctl -q mask systemd-sysctl.service systemd-modules-load.service systemd-remount-fs.service systemd-timesyncd.service apt-daily.timer \
		apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer sys-kernel-debug.mount sys-kernel-tracing.mount \
		sys-fs-fuse-connections.mount dev-hugepages.mount dev-mqueue.mount
) >"$1/log" 2>&1
mv "$root.new" "$root"
echo "$root"
