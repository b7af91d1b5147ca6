has() { command -v "$1" >/dev/null 2>&1; }
has_systemd() { [ -d /run/systemd/system ]; }
has_openrc() { has openrc-run && ! has_systemd; }
openrc_runs() { [ -e /run/openrc/softlevel ]; } # the directory is made by rc-update, too

# put_openrc: OpenRC's script, where OpenRC is init. With systemd it must not be there: systemctl
# disable would hand it to update-rc.d, which fails for the want of a header that OpenRC's scripts do not have.
put_openrc() { install -D -m 0755 /usr/share/islet/openrc/islet /etc/init.d/islet; }

# is_kubelet: islet has the kubelet's place here, and its unit.
is_kubelet() { [ "$(readlink /usr/bin/kubelet 2>/dev/null)" = islet ]; }

# settings_there: settings that are not there are put there, at an installation only. They are no
# conffiles, about which dpkg asks, and fails where nobody answers: another one's may be there
# before. $settings has a line for each: the file, the SHA-256 of what is shipped, and those of earlier versions.
settings_there() {
	echo "$settings" | while read -r f _; do
		[ -z "$f" ] || [ -e "$f" ] || [ -L "$f" ] || put_setting "$f"
	done
}
put_setting() { install -D -m 0644 "/usr/share/islet$1" "$1"; }

# settings_renewed: those of an earlier version that nobody changed are replaced, and printed.
settings_renewed() {
	echo "$settings" | while read -r f _ former; do
		if has_sum "$f" "$former"; then put_setting "$f" && echo "$f"; fi
	done
}

# settings_gone: those that nobody changed go.
settings_gone() {
	echo "$settings" | while read -r f sums; do
		if has_sum "$f" "$sums"; then rm -f "$f"; fi
	done
}

# has_sum FILE SUMS: is a file with one of the SHA-256.
has_sum() {
	if [ ! -f "$1" ] || [ -L "$1" ]; then return 1; fi
	for sum in $2; do
		[ "$(sha256sum <"$1")" != "$sum  -" ] || return 0
	done
	return 1
}

# empty DIR: removes it with what is on its file system; the directory stays where another one is
# mounted on it. Where something is mounted below it nothing is removed: that may be a directory
# of the host, on the same file system.
empty() {
	[ -d "$1" ] || return 0
	# It may be a link to another disk, and mounts are listed by where they really are.
	if grep -qF " $(readlink -f "$1" | sed 's/ /\\040/g')/" /proc/self/mountinfo; then
		echo "islet: $1 stays: something is mounted below it. Reboot, then: rm -r $1" >&2
		return
	fi
	find "$1/" -xdev -mindepth 1 -delete 2>/dev/null || echo "islet: not everything in $1 could be removed" >&2
	rmdir "$1" 2>/dev/null || true # stays: a disk is mounted on it, it is a link to one, or find has said what is in it
}

# look: prints what keeps pods from running on many boards, and what to do about it. A package
# does not change how the machine boots, and its installation neither fails nor hangs by that. Where no
# init runs an image is being made, for another machine.
look() {
	has_systemd || openrc_runs || return 0
	found=$(timeout 30 islet doctor 2>/dev/null | sed -n '/^error *cgroup/{N;p;}; /^warning *clock /{N;p;}') || true
	[ -z "$found" ] || printf 'islet: this machine needs a change (islet doctor says more):\n%s\n' "$found" >&2
}

# other_node: prints the name and process of a kubelet or k3s that makes this machine a node. Two
# agents that have the same static pods start each of them twice.
other_node() {
	# shellcheck disable=SC2013 # a path has no blank
	for dir in $(grep -lxE 'kubelet|k3s|k3s-agent|k3s-server|k0s|rke2|kubelite|edgecore' /proc/[0-9]*/comm 2>/dev/null); do
		dir=${dir%/comm}
		# Neither islet by the kubelet's name, nor one in a container.
		case $(readlink "$dir/exe") in *islet*) continue ;; esac
		[ "$(readlink "$dir/ns/pid")" = "$(readlink /proc/self/ns/pid)" ] || continue
		echo "$(cat "$dir/comm") (process ${dir#/proc/})"
		return
	done
}

# enable UNIT: at the first installation; an administrator's choice is kept later. deb-systemd-helper knows what that was. Presets do not.
enable() {
	if has deb-systemd-helper; then
		if deb-systemd-helper --quiet was-enabled "$1"; then
			deb-systemd-helper enable "$1" >/dev/null || true
		else
			deb-systemd-helper update-state "$1" >/dev/null || true
		fi
	elif [ "$moment" = install ] && has systemctl; then
		systemctl --no-reload preset "$1" >/dev/null 2>&1 || true
	fi
}

# allowed ACTION SERVICE: by the administrator's policy.
allowed() {
	has policy-rc.d || return 0
	code=0
	policy-rc.d "$2" "$1" >/dev/null 2>&1 || code=$?
	[ "$code" != 101 ]
}

# unit ACTION UNIT: where systemd runs, unless the administrator's policy forbids it or the unit
# is switched off. deb-systemd-invoke would do the same, but starts no unit that nothing enables.
unit() {
	if ! has_systemd || ! allowed "$1" "$2"; then return 0; fi
	[ "$1" != start ] || systemctl --quiet is-enabled "$2" || return 0
	systemctl --quiet "$1" "$2" || echo "islet: systemctl $1 $2 failed: see journalctl -u $2, and islet doctor" >&2
}

# rc ACTION [OPTION]: the same for OpenRC's service. Where that is there and does not run, an image is
# being made, and the next boot starts what is in the runlevel.
rc() {
	if ! openrc_runs || ! allowed "$1" islet; then return 0; fi
	rc-service ${2:+"$2"} islet "$1" || true
}

active() { has_systemd && systemctl --quiet is-active "$1"; }

# reload: systemd does it with 16 MiB free in /run only, which has a tenth of the memory.
# Where it has more it is never made smaller, and what failed did so for another reason.
reload() {
	has_systemd || return 0
	! systemctl daemon-reload 2>/dev/null || return 0
	[ "$(df -Pk /run | awk 'NR == 2 { print $2 }')" -ge 32768 ] || mount -o remount,size=32M /run || true # if there is still no room, systemd says so
	systemctl daemon-reload || echo "islet: systemd has not read the units anew: run systemctl daemon-reload, then start the service" >&2
}

# end_pods: ends what runs. islet cleanup reads the flags of the service, as its manager does, so that
# its directories and cgroups are found. What pods wrote, images and the database stay.
end_pods() {
	[ -d /var/lib/islet ] || return 0
	islet cleanup >/dev/null || echo "islet: not everything of the pods could be removed; a reboot ends them" >&2
}
