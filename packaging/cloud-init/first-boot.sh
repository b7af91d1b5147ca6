#!/bin/sh
# Installs islet at the first boot of a machine, from an archive of a release. It may run again.
#   first-boot.sh [--no-start] ARCHIVE [SHA256]
# ARCHIVE is an https URL, a path, or the name of a file on the boot partition of a Raspberry Pi. A URL needs
# the SHA-256 of the archive, which is in SHA256SUMS of the release. If the memory cgroup has to be switched on,
# /run/islet-reboot is there afterwards. With --no-start, islet starts at the next boot.
set -eu

start=yes
[ "${1:-}" != --no-start ] || { start=no; shift; }
archive=${1:?usage: first-boot.sh [--no-start] ARCHIVE [SHA256]} sum=${2:-}
fail() { echo "islet: $*" >&2; exit 1; }

dir=$(mktemp -d /var/tmp/islet-first-boot.XXXXXX)
trap 'rm -rf "$dir"' EXIT
case $archive in
https://*)
	[ -n "$sum" ] || fail "the SHA-256 of $archive is missing"
	file=$dir/${archive##*/}
	if command -v curl >/dev/null; then
		curl -fsSL --proto '=https' --retry 10 --retry-delay 5 --retry-all-errors -o "$file" "$archive"
	else
		wget -q --tries=10 --waitretry=5 --retry-connrefused -O "$file" "$archive"
	fi
	;;
*://*) fail "$archive: only https is supported" ;;
*)
	file=$archive
	for boot in /boot/firmware /boot; do
		if [ ! -e "$file" ] && [ -e "$boot/$archive" ]; then file=$boot/$archive; fi
	done
	[ -e "$file" ] || fail "$archive is not there, nor in /boot/firmware or /boot"
	;;
esac
if [ -n "$sum" ]; then
	echo "$sum  $file" | sha256sum --check --status || fail "$archive does not have the SHA-256 $sum"
fi
top=${file##*/}
top=${top%.tar.gz}
tar xzOf "$file" "$top/install.sh" >"$dir/install.sh" || fail "$archive is no archive of islet that is called $top"
lines() { cat /boot/firmware/cmdline.txt /boot/cmdline.txt 2>/dev/null || true; }
before=$(lines)
if [ $start = yes ]; then
	sh "$dir/install.sh" --cmdline "$file"
else
	sh "$dir/install.sh" --no-start "$file"
	systemctl enable islet.service
fi
[ "$(lines)" = "$before" ] || : >/run/islet-reboot
