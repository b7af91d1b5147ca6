has() { command -v "$1" >/dev/null 2>&1; }
has_systemd() { [ -d /run/systemd/system ]; }
has_openrc() { has openrc-run && ! has_systemd; }

# put_openrc: OpenRC's script, where OpenRC is init. With systemd it must not be there: systemctl
# disable would hand it to update-rc.d, which fails for the want of a header that OpenRC's scripts do not have.
put_openrc() { install -D -m 0755 /usr/share/islet/openrc/islet /etc/init.d/islet; }

# is_kubelet: islet has the kubelet's place here, and its unit.
is_kubelet() { [ "$(readlink /usr/bin/kubelet 2>/dev/null)" = islet ]; }

# enable UNIT: at the first installation; an administrator's choice is kept later.
enable() {
	if has deb-systemd-helper; then
		if deb-systemd-helper --quiet was-enabled "$1"; then
			deb-systemd-helper enable "$1" >/dev/null || true
		else
			deb-systemd-helper update-state "$1" >/dev/null || true
		fi
	elif has systemctl; then
		systemctl --no-reload preset "$1" >/dev/null 2>&1 || true
	fi
}

# unit ACTION UNIT: where systemd runs, unless the administrator's policy forbids it or the unit
# is switched off. deb-systemd-invoke would do the same, but starts no unit that nothing enables.
unit() {
	has_systemd || return 0
	if has policy-rc.d; then
		code=0
		policy-rc.d "$2" "$1" >/dev/null 2>&1 || code=$?
		[ "$code" != 101 ] || return 0
	fi
	[ "$1" != start ] || systemctl --quiet is-enabled "$2" || return 0
	systemctl --quiet "$1" "$2" || echo "islet: systemctl $1 $2 failed: see journalctl -u $2, and islet doctor" >&2
}

active() { has_systemd && systemctl --quiet is-active "$1"; }

# reload: systemd does it with 16 MiB free in /run only, which has a tenth of the memory.
reload() {
	has_systemd || return 0
	systemctl daemon-reload 2>/dev/null || { mount -o remount,size=32M /run && systemctl daemon-reload; } || true
}

# end_pods: ends what runs, with the flags that the agent has, so that its directories and
# cgroups are found. What pods wrote, images and the database stay.
end_pods() {
	[ -d /var/lib/islet ] || return 0
	args=$(
		ISLET_ARGS='' KUBELET_KUBEADM_ARGS='' KUBELET_EXTRA_ARGS=''
		for f in /etc/default/islet /etc/conf.d/islet /var/lib/kubelet/kubeadm-flags.env /etc/default/kubelet; do
			# shellcheck disable=SC1090 # settings of this host
			[ ! -f "$f" ] || . "$f"
		done
		if is_kubelet; then
			[ ! -e /var/lib/kubelet/config.yaml ] || printf '%s ' --config=/var/lib/kubelet/config.yaml
			echo "$KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS"
		else
			echo "$ISLET_ARGS"
		fi
	)
	# shellcheck disable=SC2086 # a list of words
	islet cleanup $args >/dev/null || echo "islet: not everything of the pods could be removed; a reboot ends them" >&2
}
