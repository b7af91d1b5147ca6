#!/bin/bash
# Makes the machine of base.sh with Debian's kernel for all hardware, which has drivers for
# devices that need none, such as vivid (cameras) and i2c-stub, and with servers and clients
# of NFS and iSCSI and the tools of xfs, FAT, exFAT and ISO 9660, none of which starts at boot.
# It needs root, loop devices and a Debian mirror.
#   hardware.sh DIR   prints the folder in DIR that has base.img, vmlinuz and initrd.img
set -euo pipefail
# Mounts of its own: none that another process takes along keeps the image busy.
[ -n "${mounts_are_own:-}" ] || exec env mounts_are_own=1 unshare -m bash "$0" "$@"
base=$("$(dirname "$0")/base.sh" "$1")
dir=$base/hardware-$(sha256sum "$0" | cut -c1-12) log=$base/hardware.log
mkdir -p "$dir"
exec 9>"$1/lock"
flock 9
if [ -e "$dir/complete" ]; then
	echo "$dir"
	exit
fi
root=$base/mnt
mkdir -p "$root"
trap '[ $? = 0 ] || tail "$log" >&2; umount -R "$root" 2>/dev/null || true; rmdir "$root"' EXIT
# Neither && nor || may follow this: what fails in it would be passed over.
(
	cp --sparse=always "$base/base.img" "$dir/base.img"
	mount -o loop "$dir/base.img" "$root"
	mount -t proc proc "$root/proc"
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	for conf in /etc/apt/apt.conf.d/*; do # of a proxy, where there is one
		if grep -q Proxy "$conf"; then cp "$conf" "$root/etc/apt/apt.conf.d/"; fi
	done
	chroot "$root" apt-get -q update
	chroot "$root" apt-get -q install -y --no-install-recommends linux-image-amd64 nfs-kernel-server nfs-common open-iscsi tgt xfsprogs \
		dosfstools exfatprogs xorriso
	chroot "$root" systemctl -q mask nfs-server.service nfs-client.target rpcbind.service rpcbind.socket nfs-blkmap.service nfs-idmapd.service nfs-mountd.service \
		nfsdcld.service rpc-statd.service rpc-statd-notify.service tgt.service open-iscsi.service
	kernel=$(cd "$root/boot" && ls -d vmlinuz-*-amd64 | grep -v cloud)
	cp "$root/boot/$kernel" "$dir/vmlinuz"
	cp "$root/boot/initrd.img-${kernel#vmlinuz-}" "$dir/initrd.img"
	rm -rf "$root"/boot/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
	umount -R "$root"
) >"$log" 2>&1
touch "$dir/complete"
echo "$dir"
