#!/bin/sh
# Installs islet from the unpacked archive that this script lies in, upgrades an
# installed one, or removes it. Running it again changes nothing more. Pods keep
# running over an upgrade.
#
#   ./install.sh                 install, start now and at boot (systemd, OpenRC)
#   ./install.sh --kubeadm       as the kubelet, for kubeadm: units kubelet.service and islet-cri.service
#   ./install.sh --no-start      install only
#   ./install.sh uninstall       remove the program and its service; keep what pods wrote
#   ./install.sh uninstall --purge   and remove pods, images and the database
#
# DESTDIR=/some/root installs below a directory and starts nothing.
set -eu

umask 022

here=$(cd "$(dirname "$0")" && pwd)
root=${DESTDIR:-}
bin=/usr/local/bin
units=/etc/systemd/system
sysctls=/etc/sysctl.d/90-islet.conf
man=/usr/local/share/man/man1
completions="bash:/usr/local/share/bash-completion/completions/islet zsh:/usr/local/share/zsh/site-functions/_islet fish:/usr/local/share/fish/vendor_completions.d/islet.fish"
plugins="bridge host-local loopback portmap"

say() { echo "islet: $*"; }
fail() { echo "islet: $*" >&2; exit 1; }

has_systemd() { [ -z "$root" ] && [ -d /run/systemd/system ]; }
has_openrc() { [ -z "$root" ] && [ -x /sbin/openrc-run ]; }

# put MODE FROM TO: replaces the file in one step, as it may be in use.
put() {
	mkdir -p "$root$(dirname "$3")"
	cp "$2" "$root$3.new"
	chmod "$1" "$root$3.new"
	mv -f "$root$3.new" "$root$3"
}

# ours LINK: is a link to islet, so made by this script.
ours() { [ -L "$root$1" ] && [ "$(readlink "$root$1")" = "$bin/islet" ]; }

# link LINK: makes it unless something else is there.
link() {
	mkdir -p "$root$(dirname "$1")"
	if ours "$1" || { [ ! -e "$root$1" ] && [ ! -L "$root$1" ]; }; then
		ln -sfn "$bin/islet" "$root$1"
	else
		say "kept $1, which is not islet's"
	fi
}

install_program() {
	[ -f "$here/islet" ] || fail "no program beside this script: unpack the archive of make dist and run it there"
	"$here/islet" --version >/dev/null 2>&1 || [ -n "$root" ] || fail "the program does not run here: this archive is not for $(uname -m)"
	put 0755 "$here/islet" "$bin/islet"
	# Network plugins of others delegate to these; islet itself needs none of them.
	for p in $plugins; do link "/opt/cni/bin/$p"; done
	# As the CIS benchmark for Kubernetes has them: who may write here runs pods as root.
	mkdir -p "$root/etc/kubernetes/manifests" "$root/etc/islet"
	chmod 0755 "$root/etc/kubernetes" "$root/etc/kubernetes/manifests" "$root/etc/islet"
	for f in "$root"/etc/kubernetes/manifests/*.yaml "$root"/etc/kubernetes/manifests/*.yml "$root"/etc/kubernetes/manifests/*.json \
		"$root"/etc/kubernetes/kubelet.conf "$root"/etc/kubernetes/bootstrap-kubelet.conf; do
		{ [ -L "$f" ] || [ ! -f "$f" ]; } || chmod 0600 "$f"
	done
	install_pages
}

# install_pages: manual pages and shell completion, where the archive has them.
install_pages() {
	for f in "$here"/man/*.1; do
		[ ! -f "$f" ] || put 0644 "$f" "$man/${f##*/}"
	done
	for c in $completions; do
		[ ! -f "$here/completion/${c%%:*}" ] || put 0644 "$here/completion/${c%%:*}" "${c#*:}"
	done
}

remove_pages() {
	rm -f "$root$man/islet.1" "$root$man"/islet-*.1
	for c in $completions; do rm -f "$root${c#*:}"; done
}

install_service() {
	if [ "$kubeadm" = yes ]; then
		link "$bin/kubelet"
		ours "$bin/kubelet" || fail "$bin/kubelet is another program: remove it first"
		put 0644 "$here/kubeadm/kubelet.service" "$units/kubelet.service"
		put 0644 "$here/kubeadm/10-kubeadm.conf" "$units/kubelet.service.d/10-kubeadm.conf"
		put 0644 "$here/kubeadm/islet-cri.service" "$units/islet-cri.service"
		put 0644 "$here/kubeadm/islet-sysctl.conf" "$sysctls"
		stop_service islet # one agent at a time has the directories
		rm -f "$root$units/islet.service"
		return
	fi
	if [ -n "$root" ] || has_systemd; then
		put 0644 "$here/systemd/islet.service" "$units/islet.service"
		defaults=/etc/default/islet
	fi
	if [ -n "$root" ] || has_openrc; then
		put 0755 "$here/openrc/islet.initd" /etc/init.d/islet
		[ -n "$root" ] || has_systemd || defaults=/etc/conf.d/islet
	fi
	[ -z "${defaults:-}" ] || [ -e "$root$defaults" ] || {
		mkdir -p "$root$(dirname "$defaults")"
		printf '%s\n' "# Flags of islet: see islet --help-flags, docs/settings.md and docs/configuration.md." \
			"# ISLET_ARGS=\"--pod-manifest-path=/etc/kubernetes/manifests --edge-config=/etc/islet/edge.yaml\"" >"$root$defaults"
	}
}

# forward: kubeadm wants forwarding on before it starts the kubelet.
forward() {
	for f in /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding; do
		[ ! -w "$f" ] || echo 1 >"$f" || say "could not write $f: kubeadm will ask for it"
	done
}

start_service() {
	unit=islet
	[ "$kubeadm" = no ] || { unit=kubelet; forward; }
	if has_systemd; then
		systemctl daemon-reload
		systemctl --quiet enable "$unit"
		# The kubelet cannot run before kubeadm has written its configuration.
		[ "$kubeadm" = no ] || [ -e /var/lib/kubelet/config.yaml ] || unit=islet-cri
		systemctl restart "$unit" || fail "it does not start: journalctl -u $unit, and $bin/islet doctor"
	elif has_openrc && [ "$kubeadm" = no ]; then
		rc-update --quiet add islet default
		rc-service islet restart || fail "it does not start: /var/log/islet.log, and $bin/islet doctor"
	else
		say "no systemd or OpenRC here; start it by: $bin/islet --pod-manifest-path=/etc/kubernetes/manifests"
	fi
}

do_install() {
	install_program
	install_service
	[ -z "$root" ] || { say "installed below $root"; return; }
	if [ "$start" = yes ]; then start_service; elif has_systemd; then systemctl daemon-reload; fi
	say "installed $("$bin/islet" --version | head -n 1) in $bin/islet"
	"$bin/islet" doctor || say "doctor found errors: correct them, pods cannot run before"
	if [ "$kubeadm" = no ]; then
		say "put pod manifests into /etc/kubernetes/manifests; look with: islet status, islet pods"
	elif [ ! -e /var/lib/kubelet/config.yaml ]; then
		say "now: kubeadm join ... --cri-socket unix:///run/islet/cri.sock"
	fi
}

stop_service() { # stop_service UNIT
	if has_systemd && [ -e "$units/$1.service" ]; then
		systemctl --quiet disable --now "$1" || true
	elif has_openrc && [ -e "/etc/init.d/$1" ]; then
		rc-service "$1" stop || true
		rc-update --quiet del "$1" || true
	fi
}

# agent_args: the flags that the service gives, so that a clean-up finds its
# directories and cgroups.
agent_args() {
	for f in /etc/default/islet /etc/conf.d/islet /var/lib/kubelet/kubeadm-flags.env /etc/default/kubelet; do
		# shellcheck disable=SC1090 # settings of this host
		[ ! -f "$f" ] || . "$f"
	done
	if [ "$kubeadm" = yes ]; then
		[ ! -e /var/lib/kubelet/config.yaml ] || printf '%s ' --config=/var/lib/kubelet/config.yaml
		echo "${KUBELET_KUBEADM_ARGS:-} ${KUBELET_EXTRA_ARGS:-}"
	else
		echo "${ISLET_ARGS:-}"
	fi
}

do_uninstall() {
	stop_service islet
	if ours "$bin/kubelet"; then
		kubeadm=yes
		stop_service islet-cri
		stop_service kubelet
		rm -f "$root$units/kubelet.service" "$root$units/kubelet.service.d/10-kubeadm.conf" "$root$units/islet-cri.service" "$root$sysctls" "$root$bin/kubelet"
		rmdir "$root$units/kubelet.service.d" 2>/dev/null || true
	fi
	if [ -z "$root" ] && [ -x "$bin/islet" ] && [ "$purge" = yes ]; then
		# shellcheck disable=SC2046 # a list of words
		"$bin/islet" cleanup $(agent_args) || fail "pods could not be ended; the program and /var/lib/islet are still there"
		rm -rf /var/lib/islet /run/islet
		say "ended the pods, removed /var/lib/islet; directories that you chose by flags, /var/lib/kubelet and /var/log/pods are still there"
	elif [ "$purge" = no ]; then
		say "kept /var/lib/islet and /var/lib/kubelet; pods that run go on until the next boot (--purge ends them)"
	fi
	rm -f "$root$units/islet.service" "$root/etc/init.d/islet"
	for p in $plugins; do
		if ours "/opt/cni/bin/$p"; then rm -f "$root/opt/cni/bin/$p"; fi
	done
	[ "$purge" = no ] || rm -f "$root/etc/default/islet" "$root/etc/conf.d/islet"
	remove_pages
	rm -f "$root$bin/islet"
	if has_systemd; then systemctl daemon-reload; fi
	say "removed"
}

usage() { sed -n '2,/^set -eu/{/^#/s/^# \{0,1\}//p;}' "$0"; }

action=install kubeadm=no start=yes purge=no
for arg in "$@"; do
	case $arg in
	install | uninstall) action=$arg ;;
	--kubeadm) kubeadm=yes ;;
	--no-start) start=no ;;
	--purge) purge=yes ;;
	-h | --help | help) usage; exit 0 ;;
	*) usage >&2; fail "unknown argument $arg" ;;
	esac
done
[ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "must be root"
"do_$action"
