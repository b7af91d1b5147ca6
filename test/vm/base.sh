#!/bin/bash
# Makes the virtual machine that the tests boot: Debian with systemd, an OCI
# runtime, a kernel, and a service that runs /payload/guest from the second disk.
# In /var/cache lies the package apparmor, which a test may install: the kernel has
# AppArmor switched on, as Debian's kernels have.
# It needs root and a Debian mirror.
#   base.sh DIR   prints the folder in DIR that has base.img, vmlinuz and
#                 initrd.img, and makes it unless one of this very script is there
set -euo pipefail
dir=$1/$(sha256sum "$0" | cut -c1-12)
mkdir -p "$dir"
exec 9>"$1/lock"
flock 9
if [ -e "$dir/complete" ]; then
	echo "$dir"
	exit
fi
find "$1" -mindepth 1 -maxdepth 1 -type d ! -path "$dir" -exec rm -rf {} + # of older scripts
root=$dir/rootfs log=$dir/log
rm -rf "$root"
trap 'rm -rf "$root"' EXIT

{
	debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,udev,crun,runc,iproute2,procps,kmod,linux-image-cloud-amd64,initramfs-tools,zstd bookworm "$root"
	# Only what a disk of this machine needs: booting under emulation is slow.
	sed -i 's/^MODULES=.*/MODULES=list/' "$root/etc/initramfs-tools/initramfs.conf"
	printf '%s\n' virtio_pci virtio_blk ext4 >>"$root/etc/initramfs-tools/modules"
	chroot "$root" update-initramfs -u
	for conf in /etc/apt/apt.conf.d/*; do # of a proxy, where there is one
		if grep -q Proxy "$conf"; then cp "$conf" "$root/etc/apt/apt.conf.d/"; fi
	done
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	chroot "$root" sh -ec 'cd /var/cache && apt-get -q update && apt-get -q download apparmor'
} >"$log" 2>&1 || { tail "$log" >&2; exit 1; }
cp "$root"/boot/vmlinuz-* "$dir/vmlinuz"
cp "$root"/boot/initrd.img-* "$dir/initrd.img"
rm -rf "$root"/boot/{vmlinuz,initrd,System}* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}
echo edge >"$root/etc/hostname"
echo '127.0.0.1 localhost edge' >"$root/etc/hosts"
: >"$root/etc/fstab"
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
cat >"$root/etc/systemd/system/payload.service" <<'END'
[Unit]
Description=what the test host asks for
[Service]
ExecStartPre=/bin/sh -c 'modprobe virtio_console; mkdir -p /payload; mountpoint -q /payload || mount -o ro /dev/vdb /payload'
ExecStart=/payload/guest
Restart=always
KillMode=process
[Install]
WantedBy=multi-user.target
END
chroot "$root" systemctl -q enable payload.service >>"$log" 2>&1
chroot "$root" systemctl -q mask getty@tty1.service serial-getty@ttyS0.service systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer \
	dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer modprobe@drm.service modprobe@efi_pstore.service modprobe@fuse.service \
	systemd-pstore.service >>"$log" 2>&1
mke2fs -q -t ext4 -d "$root" "$dir/base.img.new" 3G >>"$log" 2>&1
mv "$dir/base.img.new" "$dir/base.img"
touch "$dir/complete"
echo "$dir"
