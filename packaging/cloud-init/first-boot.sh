#!/bin/sh
# Installs islet at the first boot of a machine, from an archive of a release. It may run again.
#   first-boot.sh [--no-start | --reboot] ARCHIVE [SHA256]
# ARCHIVE is an https URL, a path, or the name of a file on the boot partition of a Raspberry Pi. A URL needs
# the SHA-256 of the archive, which is in SHA256SUMS of the release. If the kernel needs a reboot to count memory,
# /run/islet-reboot is there afterwards. With --reboot the machine then reboots, when cloud-init has ended. With
# --no-start, islet starts at the next boot. The exit code is 3 if the archive is not the expected one.
set -eu

start=yes reboot=no
case ${1:-} in
--no-start) start=no && shift ;;
--reboot) reboot=yes && shift ;;
esac
archive=${1:?usage: first-boot.sh [--no-start | --reboot] ARCHIVE [SHA256]} sum=${2:-}
fail() { echo "islet: $*" >&2; exit 1; }
refuse() { echo "islet: $*" >&2; exit 3; }
matches() { echo "$sum  $1" | sha256sum --check --status 2>/dev/null; }

# A download goes on where the last one broke off, and an installation that fails does not cost another one. What
# else a run that was cut off has left is removed.
kept=/var/lib/islet-first-boot
mkdir -p "$kept"
rm -rf "$kept"/islet.*
goes_on=no
case $archive in
https://*)
	[ -n "$sum" ] || refuse "the SHA-256 of $archive is missing"
	file=$kept/${archive##*/}
	if ! matches "$file"; then
		[ ! -e "$file" ] || goes_on=yes
		code=0
		(
			ulimit -f 1048576 # 512 MiB
			if command -v curl >/dev/null; then
				exec curl -fsSL --proto '=https' --connect-timeout 30 --speed-limit 100 --speed-time 60 --retry 10 --retry-delay 5 \
					--retry-all-errors -C - -o "$file" "$archive"
			fi
			exec wget -q --timeout=60 --tries=10 --waitretry=5 --retry-connrefused -c -O "$file" "$archive"
		) || code=$?
		if [ $code != 0 ]; then
			# 22, 33 and 36 of curl: the server does not go on there. More than 128: the file is too large.
			case $code in 22 | 33 | 36 | 1[3-9]?) rm -f "$file" ;; esac
			fail "could not download $archive (exit code $code)"
		fi
	fi
	;;
*://*) refuse "$archive: only https is supported" ;;
*)
	file=$archive
	for boot in /boot/firmware /boot; do
		if [ ! -e "$file" ] && [ -e "$boot/$archive" ]; then file=$boot/$archive; fi
	done
	[ -e "$file" ] || fail "$archive is not there, nor in /boot/firmware or /boot"
	;;
esac
if [ -n "$sum" ] && ! matches "$file"; then
	rm -rf "$kept"
	[ $goes_on = no ] || fail "$archive, downloaded in several parts, does not have the SHA-256 $sum" # a power cut may have spoiled one
	refuse "$archive does not have the SHA-256 $sum"
fi
top=${file##*/}
top=${top%.tar.gz}
tar xzOf "$file" "$top/install.sh" >"$kept/install.sh" || refuse "$archive is no archive of islet that is called $top"
export TMPDIR="$kept"
if [ $start = yes ]; then
	sh "$kept/install.sh" --cmdline "$file"
else
	sh "$kept/install.sh" --no-start --alone "$file"
	systemctl enable islet.service
fi
rm -rf "$kept"
unit=islet-first-boot.service
[ ! -e "/etc/systemd/system/$unit" ] || systemctl --quiet disable "$unit"
sync

word=cgroup_enable=memory # an earlier run may have written it
if grep -qsw $word /boot/firmware/cmdline.txt /boot/cmdline.txt && ! grep -qsw $word "${ISLET_PROC:-/proc}/cmdline"; then
	: >/run/islet-reboot
	if [ $reboot = yes ]; then
		timeout 3600 cloud-init status --wait >/dev/null 2>&1 || true # commands of the user-data that still run
		systemctl --no-block reboot
	fi
fi
