#!/bin/sh
# Installs islet at the first boot of a machine, from an archive of a release. It may run again.
#   first-boot.sh [--no-start | --reboot] ARCHIVE [SHA256]
# ARCHIVE is an https URL, a path, or the name of a file on the boot partition of a Raspberry Pi. A URL needs
# the SHA-256 of the archive, which is in SHA256SUMS of the release. If the kernel needs a reboot to count memory,
# /run/islet-reboot is there afterwards. With --reboot the machine then reboots, when cloud-init has ended, and an
# islet that is installed already is left as it is. With --no-start, islet starts at the next boot. The exit code is
# 3 if a repetition would cost much and help little: the archive is not the expected one, or the installation fails.
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
# else a run that was cut off has left is removed. The file "again" means that an archive was wrong once.
kept=/var/lib/islet-first-boot unit=islet-first-boot.service
forget() {
	[ ! -e "/etc/systemd/system/$unit" ] || systemctl --quiet disable "$unit"
	sync
	rm -rf "$kept"
}
if [ $reboot = yes ] && { [ -e /usr/bin/islet ] || { [ -e /usr/local/bin/islet ] && systemctl --quiet is-enabled islet.service; }; }; then
	echo "islet is installed already"
	forget
	exit 0
fi
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
		# Without options that repeat inside curl: it would begin again where this process began, and not where it is.
		(
			ulimit -f 262144 # 128 MiB
			if command -v curl >/dev/null; then
				exec curl -fsSL --proto '=https' --connect-timeout 30 --speed-limit 100 --speed-time 60 -C - -w '%{http_code}' \
					-o "$file" "$archive" >"$kept/answer"
			fi
			exec wget -q --timeout=60 --tries=1 -c -O "$file" "$archive"
		) || code=$?
		case $code in
		0) ;;
		33 | 36) # the server does not continue a file
			rm -f "$file"
			fail "could not continue the download of $archive (exit code $code)"
			;;
		1[3-9]?)
			rm -f "$file"
			refuse "$archive is larger than an archive of islet (exit code $code)"
			;;
		22) # 416: the file is complete, and the sum decides. Other answers, such as 503, may pass
			grep -qsx 416 "$kept/answer" || fail "could not download $archive (HTTP $(cat "$kept/answer"))"
			;;
		*) fail "could not download $archive (exit code $code)" ;;
		esac
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
	case $archive in https://*) rm -f "$file" ;; esac
	if [ $goes_on = yes ] && [ ! -e "$kept/again" ]; then # a power cut may have spoiled a part
		: >"$kept/again"
		fail "$archive, downloaded in several parts, does not have the SHA-256 $sum"
	fi
	refuse "$archive does not have the SHA-256 $sum"
fi
top=${file##*/}
top=${top%.tar.gz}
tar xzOf "$file" "$top/install.sh" >"$kept/install.sh" || refuse "$archive is not an archive of islet that is called $top"
export TMPDIR="$kept"
if [ $start = yes ]; then
	sh "$kept/install.sh" --cmdline "$file" || refuse "the installation failed"
else
	sh "$kept/install.sh" --no-start --alone "$file" || refuse "the installation failed"
	systemctl enable islet.service
fi
forget

word=cgroup_enable=memory # an earlier run may have written it
if grep -qsw $word /boot/firmware/cmdline.txt /boot/cmdline.txt && ! grep -qsw $word "${ISLET_PROC:-/proc}/cmdline"; then
	: >/run/islet-reboot
	if [ $reboot = yes ]; then
		timeout 3600 cloud-init status --wait >/dev/null 2>&1 || true # commands of the user-data that still run
		systemctl --no-block reboot || true
	fi
fi
