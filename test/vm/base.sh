#!/bin/bash
# Makes the virtual machine that the tests boot: Debian with systemd, an OCI
# runtime, a kernel, and a service that runs /payload/guest from the second disk. On
# amd64 there is OpenRC beside systemd, with Debian's scripts for its boot, which
# systemd passes over: the kernel's init=/sbin/openrc-init chooses it.
# In /var/cache lies the package apparmor, which a test may install: the kernel has
# AppArmor switched on, as Debian's kernels have.
# It needs root and a Debian mirror. Programs of another architecture run by emulation.
#   base.sh DIR [ARCH]   prints the folder in DIR that has base.img, vmlinuz and
#                 initrd.img, and makes it unless one of this very script is there.
#                 ARCH is amd64, arm64 or armhf
set -euo pipefail
# Mounts of its own: none that another process takes along keeps the root busy.
[ -n "${mounts_are_own:-}" ] || exec env mounts_are_own=1 unshare -m bash "$0" "$@"
arch=${2:-amd64} id=$(sha256sum "$0" | cut -c1-12)
elf='\x7fELF' zeros='\x00\x00\x00\x00\x00\x00\x00\x00'
case $arch in # which kernel, and how its emulator knows its programs: class, data, version and ABI, then type and machine
amd64) kernel=linux-image-cloud-amd64 more="crun runc openrc initscripts" magic= ;;
arm64) kernel=linux-image-cloud-arm64 more= emulator=qemu-aarch64-static magic="$elf\x02\x01\x01\x00$zeros\x02\x00\xb7\x00" ;;
armhf) kernel=linux-image-armmp more= emulator=qemu-arm-static magic="$elf\x01\x01\x01\x00$zeros\x02\x00\x28\x00" ;;
*) echo "base.sh: unknown architecture $arch" >&2; exit 2 ;;
esac
dir=$1/$id; [ "$arch" = amd64 ] || dir=$dir-$arch
mkdir -p "$dir"
exec 9>"$1/lock"
flock 9
if [ -e "$dir/complete" ]; then
	echo "$dir"
	exit
fi
find "$1" -mindepth 1 -maxdepth 1 -type d ! -name "$id*" -exec rm -rf --one-file-system {} + # of older scripts
root=$dir/rootfs log=$dir/log binfmt=$dir/binfmt
: >"$log"
rm -rf --one-file-system "$root"
# ended says what failed, and removes the root. What is still mounted below it stays as it is.
ended() {
	[ $? = 0 ] || tail "$log" >&2
	forget
	rm -rf --one-file-system "$root"
}
trap ended EXIT

# forget has the kernel start no programs by the emulator any more.
forget() {
	[ ! -e "$binfmt/islet-$arch" ] || echo -1 >"$binfmt/islet-$arch"
}

# foreign has the kernel start programs of this architecture by the emulator, which it opens
# now and so finds in every root.
foreign() {
	mkdir -p "$binfmt"
	mount -t binfmt_misc binfmt "$binfmt"
	forget # of a run that was killed: there cannot be two of a name
	printf '%s' ":islet-$arch:M::$magic:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$(command -v $emulator):F" >"$binfmt/register"
}

# Neither && nor || may follow this: what fails in it would be passed over.
(
	[ -z "$magic" ] || foreign
	debootstrap --foreign --arch="$arch" --variant=minbase --include="systemd,systemd-sysv,dbus,udev,iproute2,procps,kmod,$kernel,initramfs-tools,zstd,apparmor${more:+,${more// /,}}" bookworm "$root"
	# Only what a disk of this machine needs: booting under emulation is slow.
	mkdir -p "$root/etc/initramfs-tools/conf.d" "$root/usr/share/initramfs-tools/modules.d"
	echo MODULES=list >"$root/etc/initramfs-tools/conf.d/islet"
	printf '%s\n' virtio_pci virtio_blk ext4 >"$root/usr/share/initramfs-tools/modules.d/islet"
	if [[ $more == *openrc* ]]; then sed -i 's/\<sysv-rc\>//' "$root/debootstrap/base"; fi # initscripts want either
	chroot "$root" /debootstrap/debootstrap --second-stage
	mv "$root"/var/cache/apt/archives/apparmor_*.deb "$root/var/cache/"
	chroot "$root" dpkg --purge apparmor
) >"$log" 2>&1
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
if [[ $more == *openrc* ]]; then
	cat >"$root/etc/init.d/payload" <<'END'
#!/sbin/openrc-run
description="what the test host asks for"
command=/payload/guest
command_background=yes
pidfile=/run/payload.pid
start_pre() {
	modprobe virtio_console
	mkdir -p /payload
	mountpoint -q /payload || mount -o ro /dev/vdb /payload
}
END
	chmod 755 "$root/etc/init.d/payload"
	chroot "$root" rc-update -q add payload default >>"$log" 2>&1
fi
mke2fs -q -t ext4 -d "$root" "$dir/base.img.new" 3G >>"$log" 2>&1
mv "$dir/base.img.new" "$dir/base.img"
touch "$dir/complete"
echo "$dir"
