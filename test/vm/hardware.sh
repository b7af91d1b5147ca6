#!/bin/bash
# Makes the machine of base.sh with Debian's kernel for all hardware, which has drivers for
# devices that need none: dummy_hcd and g_serial (USB), vivid (cameras), i2c-stub.
# It needs root, loop devices and a Debian mirror.
#   hardware.sh DIR   prints the folder in DIR that has base.img, vmlinuz and initrd.img
set -euo pipefail
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
trap 'umount -R "$root" 2>/dev/null; rmdir "$root"' EXIT
{
	cp --sparse=always "$base/base.img" "$dir/base.img"
	mount -o loop "$dir/base.img" "$root"
	mount -t proc proc "$root/proc"
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	for conf in /etc/apt/apt.conf.d/*; do # of a proxy, where there is one
		if grep -q Proxy "$conf"; then cp "$conf" "$root/etc/apt/apt.conf.d/"; fi
	done
	chroot "$root" apt-get -q update
	chroot "$root" apt-get -q install -y --no-install-recommends linux-image-amd64
	kernel=$(cd "$root/boot" && ls -d vmlinuz-*-amd64 | grep -v cloud)
	cp "$root/boot/$kernel" "$dir/vmlinuz"
	cp "$root/boot/initrd.img-${kernel#vmlinuz-}" "$dir/initrd.img"
	rm -rf "$root"/boot/* "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
	umount -R "$root"
} >"$log" 2>&1 || { tail "$log" >&2; exit 1; }
touch "$dir/complete"
echo "$dir"
