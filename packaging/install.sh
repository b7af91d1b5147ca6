#!/bin/sh
# Installs islet from an archive, or from the unpacked one that this script lies in,
# upgrades an installed one, or removes it. Running it again changes nothing more. Pods
# keep running over an upgrade. No network is needed.
#
#   ./install.sh                 install, start now and at boot (systemd, OpenRC)
#   ./install.sh [OPTIONS] islet-VERSION-linux-ARCH.tar.gz   from that archive, or a directory that it is unpacked in
#   ./install.sh --kubeadm       as the kubelet, for kubeadm: units kubelet.service and islet-cri.service
#   ./install.sh --demo          install, and start a first pod that serves a page, from the archive's image
#   ./install.sh --no-start      install only
#   ./install.sh --no-start --alone   install only, and not if a kubelet, k3s or another node agent runs
#   ./install.sh --config FILE   also make this machine a node with FILE, an islet.yaml: docs/zero-touch.md
#   ./install.sh --cmdline       also switch the memory cgroup on, on a Raspberry Pi; it is offered where it is off
#   ./install.sh uninstall       remove the program and its service; keep what pods wrote
#   ./install.sh uninstall --purge   and remove pods, images and the database
#
# DESTDIR=/some/root installs below a directory, such as the root of an image. Nothing is
# started; the service is enabled, so that it starts when that system boots (not with
# --no-start). --config puts FILE on its boot partition. An archive is unpacked in TMPDIR, else /var/tmp, for that time.
set -eu

umask 022

here=$(cd "$(dirname "$0")" && pwd)
root=${DESTDIR:-}
bin=/usr/local/bin
units=/etc/systemd/system
first_manifest=/etc/kubernetes/manifests/islet-demo-web.yaml

say() { echo "islet: $*"; }
fail() { echo "islet: $*" >&2; exit 1; }

has_systemd() { [ -z "$root" ] && [ -d /run/systemd/system ]; }
# reload_units: systemd does it with 16 MiB free in /run only, which has a tenth of the memory.
# Where it has more it is never made smaller, and what failed did so for another reason.
reload_units() {
	systemctl daemon-reload 2>/dev/null && return
	[ "$(df -Pk /run | awk 'NR == 2 { print $2 }')" -ge 32768 ] || mount -o remount,size=32M /run || true # if there is still no room, systemd says so
	systemctl daemon-reload || fail "systemd has not read the units anew: see what systemctl daemon-reload says, then run this again"
}
has_openrc() { [ -z "$root" ] && [ -x /sbin/openrc-run ] && ! has_systemd; }

# staged FILE: sets $new to the name under which the new file waits until it is on the disk. No
# directory of units or manifests is read for such a name.
staged() { new=$root${1%/*}/.${1##*/}.new; }

# stage MODE FROM TO: writes the new file beside TO. place TO: replaces TO by it in one step, as it may be in use.
stage() {
	mkdir -p "$root${3%/*}"
	staged "$3"
	if ! cp "$2" "$new" || ! chmod "$1" "$new"; then unwritten "$3"; fi
}
place() {
	staged "$1"
	mv -f "$new" "$root$1" || unwritten "$1"
}
unwritten() {
	rm -f "$new"
	fail "could not write $1; what was there is still there"
}

# put MODE FROM TO: replaces one file. After a power cut it has its old or its new content.
put() {
	stage "$@"
	sync
	place "$3"
}

# ours LINK: is a link to islet, so made by this script. vacant LINK: nothing else is there.
ours() { [ -L "$root$1" ] && [ "$(readlink "$root$1")" = "$bin/islet" ]; }
vacant() { ours "$1" || { [ ! -e "$root$1" ] && [ ! -L "$root$1" ]; }; }

# link LINK: makes it unless something else is there.
link() {
	mkdir -p "$root$(dirname "$1")"
	if vacant "$1"; then
		ln -sfn "$bin/islet" "$root$1"
	else
		say "kept $1, which is not islet's"
	fi
}

# table PART: the lines of the file "files" for a part, with this script's places. Where to
# install is a word of each line, so no path has a blank.
table() {
	sed -e '/^#/d' -e "s|{bin}|$bin|; s|{bin}|$bin|; s|{lib}|/usr/local/lib|; s|{share}|/usr/local/share|; s|{zsh}|/usr/local/share/zsh/site-functions|" \
		-e "s|{drop-in}|10-kubeadm|; s|{units}|$units|; s|{sysctl}|/etc/sysctl.d|; s|{init}|/etc/init.d|" "$here/files" | while read -r part type mode source path _; do
		[ "$part" = "$1" ] || continue
		case $type:$path in
		*'{presets}'*) continue ;; # the units are enabled here
		init:*) [ -n "$root" ] || has_openrc || continue ;;
		*"$units"*) [ -n "$root" ] || has_systemd || continue ;;
		esac
		case $path in
		*/) for f in "$here/"$source; do [ ! -f "$f" ] || echo "$type $mode ${f#"$here/"} $path${f##*/}"; done ;;
		*) echo "$type $mode $source $path" ;;
		esac
	done
}

# stays SETTING: is there, and not as an earlier version had it, which nobody has edited.
stays() {
	[ -e "$root$1" ] || return 1
	former=$(awk -v path="$1" '$2 == "config" && $5 == path { for (i = 6; i <= NF; i++) print $i }' "$here/files")
	for sum in $former; do
		[ -L "$root$1" ] || [ "$(sha256sum <"$root$1")" != "$sum  -" ] || return 1
	done
}

# stage_part PART: makes its directories and stages its files. Settings that stay are not staged.
stage_part() {
	table "$1" | while read -r type mode source path; do
		case $type in
		dir) mkdir -p "$root$path"; chmod "$mode" "$root$path" ;;
		link) ;;
		config) stays "$path" || stage "$mode" "$here/$source" "$path" ;;
		*) stage "$mode" "$here/$source" "$path" ;;
		esac
	done
}

# place_part PART: places all its files but the program, and makes its links.
place_part() {
	table "$1" | while read -r type mode source path; do
		case $type:$path in
		dir:* | *:"$bin/islet") ;;
		link:*) link "$path" ;;
		config:*) stays "$path" || place "$path" ;;
		*) place "$path" ;;
		esac
	done
}

# unstage removes the files that wait, also those of an earlier run that was cut off.
unstage() {
	for part in islet islet-cni islet-kubelet; do table "$part"; done | while read -r type mode source path; do
		staged "$path"
		[ ! -f "$new" ] || rm -f "$new" || true
	done
}

# remove_part PART: settings stay, unless all is to go. So do directories where something is in
# them, and one that is not there is no fault either: that is all for which rmdir fails.
remove_part() {
	table "$1" | while read -r type mode source path; do
		[ "$path" != "$bin/islet" ] || continue # the last that goes
		case $type in
		dir) [ "$purge" = no ] || rmdir "$root$path" 2>/dev/null || true ;;
		link) if ours "$path"; then rm -f "$root$path"; fi ;;
		config) [ "$purge" = no ] || rm -f "$root$path" ;;
		*) rm -f "$root$path"; rmdir "$(dirname "$root$path")" 2>/dev/null || true ;;
		esac
	done
}

# beside FILE: is in the archive.
beside() { [ -f "$here/$1" ] || fail "$1 is missing beside this script: unpack the archive anew, or name one: ./install.sh ARCHIVE"; }

# whole: the archive is, and its program runs here.
whole() {
	beside files
	beside islet
	beside built
	case $(cat "$here/built") in "" | *[!0-9]*) fail "the file built does not say when islet was made: unpack the archive anew" ;; esac
	for part in islet islet-cni islet-kubelet; do
		table "$part" | while read -r type mode source path; do
			[ "$type" = dir ] || [ "$type" = link ] || [ -e "$here/$source" ] || fail "$source is missing beside this script: unpack the archive anew"
		done || exit 1
	done
	[ -z "$root" ] || return 0
	[ -x "$here/islet" ] || fail "$here/islet may not be run there (is the disk mounted noexec?): unpack the archive elsewhere, such as in /root"
	"$here/islet" --version >/dev/null 2>&1 || fail "the program does not run here: this archive is not for $(uname -m)"
}

# install_program: a run may be cut off at each step, also by the power. Every file is on the disk before
# one gets its name, so none is empty. The program gets its name last: if it has the new version,
# everything else is there. Ansible and first boots go by that. After an upgrade that was cut off, the
# former program runs with the new unit and OCI runtime until the next run, so a unit must work with the
# program of the version before.
install_program() {
	# Network plugins of others delegate to the links of islet-cni; islet itself needs none of them.
	parts='islet-cni islet'
	[ "$kubeadm" = no ] || parts="islet-kubelet $parts"
	trap unstage EXIT
	trap 'exit 1' HUP INT TERM
	for part in $parts; do stage_part "$part"; done
	# By the time of the program islet doctor knows a clock that is wrong.
	staged "$bin/islet"
	touch -d "@$(cat "$here/built")" "$new"
	sync
	for part in $parts; do place_part "$part"; done
	sync
	place "$bin/islet"
	sync
	# As the CIS benchmark for Kubernetes has them: who may write here runs pods as root.
	for f in "$root"/etc/kubernetes/manifests/*.yaml "$root"/etc/kubernetes/manifests/*.yml "$root"/etc/kubernetes/manifests/*.json \
		"$root"/etc/kubernetes/kubelet.conf "$root"/etc/kubernetes/bootstrap-kubelet.conf; do
		{ [ -L "$f" ] || [ ! -f "$f" ]; } || chmod 0600 "$f"
	done
}

install_kubelet() {
	stop_service islet # one agent at a time has the directories
	[ -z "$root" ] || disable_below islet
	rm -f "$root$units/islet.service"
}

# forward: kubeadm wants forwarding on before it starts the kubelet. islet-cri.service does it
# for IPv6, where it takes more, and later the agent for its pods.
forward() {
	f=/proc/sys/net/ipv4/ip_forward
	[ ! -w "$f" ] || echo 1 >"$f" || say "could not write $f: kubeadm will ask for it"
}

start_service() {
	unit=islet
	[ "$kubeadm" = no ] || { unit=kubelet; forward; }
	if has_systemd; then
		reload_units
		systemctl --quiet enable "$unit"
		# The kubelet cannot run before kubeadm has written its configuration.
		[ "$kubeadm" = no ] || [ -e /var/lib/kubelet/config.yaml ] || unit=islet-cri
		systemctl restart "$unit" || fail "it does not start: journalctl -u $unit, and $bin/islet doctor"
	elif has_openrc; then
		rc-update --quiet add islet default
		rc-service islet restart || fail "it does not start: /var/log/islet.log, and $bin/islet doctor"
	else
		say "no systemd or OpenRC here; start it by: $bin/islet --pod-manifest-path=/etc/kubernetes/manifests"
	fi
}

# below does for the system in DESTDIR what systemctl and rc-update do for one that runs. They need
# not be here, and the directory may be copied onto a system later.
wants=$root$units/multi-user.target.wants
runlevel=$root/etc/runlevels/default
enable_below() {
	mkdir -p "$wants"
	ln -sfn "$units/$1.service" "$wants/$1.service"
	[ "$1" = islet ] || return 0
	if [ -d "$root/etc/runlevels" ] || [ -x "$root/sbin/openrc-run" ]; then
		mkdir -p "$runlevel"
		ln -sfn /etc/init.d/islet "$runlevel/islet"
	fi
}
disable_below() {
	rm -f "$wants/$1.service"
	rmdir "$wants" 2>/dev/null || true
	[ "$1" != islet ] || rm -f "$runlevel/islet"
}
below() {
	if [ "$kubeadm" = yes ]; then unit=kubelet; else unit=islet; fi
	if [ "$start" = yes ]; then
		enable_below "$unit"
		say "installed below $root; $unit.service starts when that system boots"
	else
		say "installed below $root; what starts at boot stays as it was (--no-start)"
	fi
}

# set_up applies the file of --config, or puts it on the boot partition of the image.
set_up() {
	[ -n "$config" ] || return 0
	if [ -n "$root" ]; then
		boot=/boot/firmware
		[ -d "$root$boot" ] || boot=/boot
		put 0600 "$config" $boot/islet.yaml
		say "$boot/islet.yaml is used when that system boots"
		return
	fi
	"$bin/islet" setup "$config" || fail "islet is installed and was not started: correct $config, then run this again"
}

do_install() {
	[ -z "$config" ] || [ "$kubeadm" = no ] || fail "--config is for a node of its own: kubeadm writes the settings of its nodes"
	[ -z "$config" ] || [ -f "$config" ] || fail "$config is not a file"
	whole
	if [ "$kubeadm" = no ] && ours "$bin/kubelet"; then
		say "this is a node for kubeadm, and stays one: uninstall makes way for a node of its own"
		kubeadm=yes
	fi
	before
	install_program
	[ "$kubeadm" = no ] || install_kubelet
	set_up
	[ -z "$root" ] || { below; return; }
	if [ "$start" = yes ]; then start_service; elif has_systemd; then reload_units; fi
	say "installed $("$bin/islet" --version | head -n 1) in $bin/islet"
	"$bin/islet" doctor || say "doctor found errors: correct them, pods cannot run before"
	if [ "$kubeadm" = no ]; then
		say "put pod manifests into /etc/kubernetes/manifests; look with: islet status, islet pods"
		[ "$demo" = no ] || [ "$start" = no ] || first_pod
	elif [ ! -e /var/lib/kubelet/config.yaml ]; then
		say "now: kubeadm join ... --cri-socket unix:///run/islet/cri.sock"
	fi
}

# before: what a first look at the machine says, before anything is changed.
before() {
	[ "$kubeadm" = no ] || vacant "$bin/kubelet" || fail "$bin/kubelet is another program: remove it first"
	[ -z "$root" ] || return 0
	[ ! -e /usr/bin/islet ] || fail "islet is installed as a package, whose upgrades would have no effect beside this: upgrade that (apt, dpkg, dnf, rpm), or remove it first"
	[ "$start$lone" = nono ] || alone
	swaps=${ISLET_PROC:-/proc}/swaps # a kernel without swap has none
	if [ -e "$swaps" ] && [ "$(wc -l <"$swaps")" -gt 1 ]; then
		say "this machine has swap; pods may not use it, and Kubernetes wants it off: islet doctor says how"
	fi
	clock_set
	free=$(mib_free /var/lib)
	# An upgrade writes nothing there, and may be what frees it.
	[ "$free" -ge 200 ] || [ -e "$bin/islet" ] || fail "only $free MiB are free in /var/lib: islet and a first image need 200"
	[ "$free" -ge 1024 ] || say "only $free MiB are free in /var/lib: images need room"
	need=$(du -sk "$here/islet" "$here/lib" "$here/doc" "$here/man" | awk '{ sum += $1 } END { print int(sum / 1024) + 2 }')
	free=$(mib_free "$bin")
	[ "$free" -ge "$need" ] || fail "only $free MiB are free for $bin: islet needs $need, the old files stay until the new ones are there"
	memory_cgroup
}

# clock_set: a clock cannot be before islet was made, give or take a day.
clock_set() {
	[ "$(date +%s)" -lt $(($(cat "$here/built") - 86400)) ] || return 0
	say "the clock says $(date +%Y-%m-%d), before islet was made: set it, or wait for the network's time; certificates are not valid yet"
}

mib_free() {
	dir=$1
	while [ ! -d "$dir" ]; do dir=$(dirname "$dir"); done
	df -Pk "$dir" | awk 'NR == 2 { print int($4 / 1024) }'
}

# alone: two node agents that have the same static pods start each of them twice. For kubeadm,
# islet takes over the unit of a kubelet, which ends it.
alone() {
	[ "$kubeadm$start" != yesyes ] || has_systemd || fail "--kubeadm starts kubelet.service, and systemd does not run here: --no-start installs without that"
	others='k3s|k3s-agent|k3s-server|k0s|rke2|kubelite|edgecore'
	[ "$kubeadm" = yes ] || others="$others|kubelet"
	# shellcheck disable=SC2013 # a path has no blank
	for dir in $(grep -lxE "$others" /proc/[0-9]*/comm 2>/dev/null); do
		dir=${dir%/comm}
		# Neither islet by the kubelet's name, nor one in a container.
		case $(readlink "$dir/exe") in *islet*) continue ;; esac
		[ "$(readlink "$dir/ns/pid")" = "$(readlink /proc/self/ns/pid)" ] || continue
		hint='stop and disable it first'
		[ $lone = yes ] || hint="$hint, or install with --no-start"
		fail "$(cat "$dir/comm") (process ${dir#/proc/}) makes this machine a node already, and both would run the same pods: $hint"
	done
}

# memory_cgroup: Raspberry Pi OS boots without it. Nothing is changed unasked.
memory_cgroup() {
	! cgroup_has_memory || return 0
	for line in "${ISLET_BOOT:-/boot}/firmware/cmdline.txt" "${ISLET_BOOT:-/boot}/cmdline.txt"; do
		if [ ! -f "$line" ] || [ -L "$line" ]; then continue; fi
		if grep -q 'cgroup_enable=memory' "$line"; then
			say "the kernel counts no memory yet: reboot, $line has cgroup_enable=memory"
			return
		fi
		say "the kernel counts no memory (Raspberry Pi OS leaves that off), so no pod can start"
		answer=$cmdline
		if [ "$answer" = ask ] && [ -t 0 ]; then
			printf 'islet: append "cgroup_enable=memory cgroup_memory=1" to %s? [y/N] ' "$line"
			read -r answer
		fi
		case $answer in
		y* | Y*)
			# Each step is on the card before the next: a board that loses its power here boots.
			cp "$line" "$line.before-islet"
			sed '1s/[[:space:]]*$/ cgroup_enable=memory cgroup_memory=1/' "$line" >"$line.new"
			sync
			mv -f "$line.new" "$line"
			sync
			say "done; the line of before is $line.before-islet. Reboot after this"
			;;
		*) say "append cgroup_enable=memory cgroup_memory=1 to the one line of $line and reboot, or: ./install.sh --cmdline" ;;
		esac
		return
	done
	say "the kernel counts no memory: add cgroup_enable=memory to its command line and reboot"
}

cgroup_has_memory() {
	if [ -f "${ISLET_CGROUP:-/sys/fs/cgroup}/cgroup.controllers" ]; then
		grep -qw memory "${ISLET_CGROUP:-/sys/fs/cgroup}/cgroup.controllers"
	else
		awk '$1 == "memory" && $4 == 1 { found = 1 } END { exit !found }' "${ISLET_PROC:-/proc}/cgroups"
	fi
}

# first_pod: a page that a pod serves, from the image beside this script, if one is there.
first_pod() {
	[ -f "$here/demo/islet-demo.tar" ] || return 0
	mkdir -p /var/lib/islet/images
	put 0600 "$here/demo/islet-demo.tar" /var/lib/islet/images/islet-demo.tar
	put 0600 "$here/demo/web.yaml" "$first_manifest"
	address=$(ip -4 route get 192.0.2.1 2>/dev/null | sed -n 's/.* src \([0-9.]*\).*/\1/p')
	page="http://${address:-localhost}:8080/   (rm $first_manifest ends it)"
	if ! cgroup_has_memory; then
		say "the first pod starts after the reboot that the memory cgroup needs. It serves a page then: $page"
		return 0
	fi
	node=$(hostname | tr '[:upper:]' '[:lower:]')
	tries=0
	until "$bin/islet" logs "web-$node" 2>/dev/null | grep -q '^serving'; do
		tries=$((tries + 1))
		[ $tries -lt 300 ] || { say "the first pod does not run yet: islet describe web-$node, and islet doctor"; return 0; }
		sleep 0.1
	done
	say "the first pod serves a page: $page"
}

stop_service() { # stop_service UNIT
	if has_systemd && [ -e "$units/$1.service" ]; then
		systemctl --quiet disable --now "$1" || true
	elif has_openrc && [ -e "/etc/init.d/$1" ]; then
		rc-service "$1" stop || true
		rc-update --quiet del "$1" || true
	fi
}

# empty DIR: removes it with what is on its file system; the directory stays where another one is
# mounted on it. Where something is mounted below it nothing is removed: that may be a directory
# of the host, on the same file system.
empty() {
	[ -d "$1" ] || return 0
	# It may be a link to another disk, and mounts are listed by where they really are.
	if grep -qF " $(readlink -f "$1" | sed 's/ /\\040/g')/" /proc/self/mountinfo; then
		say "$1 stays: something is mounted below it. Reboot, then: rm -r $1"
		return
	fi
	find "$1/" -xdev -mindepth 1 -delete 2>/dev/null || say "could not remove everything in $1; a reboot ends what holds it"
	rmdir "$1" 2>/dev/null || true # stays: a disk is mounted on it, it is a link to one, or find has said what is in it
}

do_uninstall() {
	beside files
	stop_service islet
	if ours "$bin/kubelet"; then
		kubeadm=yes
		stop_service islet-cri
		stop_service kubelet
	fi
	[ -z "$root" ] || for unit in islet kubelet; do disable_below $unit; done
	if [ -z "$root" ] && [ -x "$bin/islet" ] && [ "$purge" = yes ]; then
		"$bin/islet" cleanup || fail "pods could not be ended; the program and /var/lib/islet are still there"
		# OpenRC's own cgroup for the service: at the stop shims were in it still.
		! has_openrc || rmdir /sys/fs/cgroup/islet /sys/fs/cgroup/openrc.islet /sys/fs/cgroup/unified/islet /sys/fs/cgroup/unified/openrc.islet 2>/dev/null || true
		empty /var/lib/islet
		empty /run/islet
		say "ended the pods, removed /var/lib/islet; directories that you chose by flags, /var/lib/kubelet and /var/log/pods are still there"
	elif [ "$purge" = no ]; then
		say "kept /var/lib/islet and /var/lib/kubelet; pods that run go on until the next boot (--purge ends them)"
	fi
	unstage # before remove_part, which removes only empty directories
	[ "$kubeadm" = no ] || remove_part islet-kubelet
	remove_part islet-cni
	[ "$purge" = no ] || rm -f "$root/etc/conf.d/islet" "$root$first_manifest"
	# What islet setup has made, with the credentials.
	if [ "$purge" = yes ] && grep -qs 'by islet setup' "$root/etc/islet/flags"; then
		for f in flags ca.crt kubeconfig bootstrap.kubeconfig; do rm -f "$root/etc/islet/$f"; done
	fi
	remove_part islet
	rm -f "$root$bin"/islet-*.previous # which islet update keeps
	f=$root/etc/systemd/logind.conf.d/99-islet.conf # which lets logind wait for the pods
	if grep -qs '^# Made by islet:' "$f"; then rm -f "$f"; fi
	if has_systemd; then reload_units; fi
	# As long as the program is there, so is something to remove.
	rm -f "$root$bin/islet"
	rmdir "$root$bin" 2>/dev/null || true
	say "removed"
}

# from_archive ARCHIVE ARGUMENT...: does the same as the script that lies in the archive.
from_archive() {
	archive=$1
	shift
	[ -f "$archive" ] || fail "$archive is neither a file nor a directory"
	list=$(tar tzf "$archive" 2>/dev/null) || fail "$archive is not a complete .tar.gz file: bring it here anew"
	top=${list%%/*}
	case $top in islet-*) ;; *) fail "$archive is not an archive of islet" ;; esac
	for f in install.sh files islet built; do
		echo "$list" | grep -qxF "$top/$f" || fail "$archive is not an archive of islet, or not all of one: it has no $top/$f"
	done
	other=$(echo "$list" | awk -v top="$top/" 'index($0, top) != 1' | head -n 1)
	[ -z "$other" ] || fail "$archive is not an archive of islet: it has $other"
	other=$(echo "$list" | grep -E '(^|/)\.\.(/|$)' | head -n 1)
	[ -z "$other" ] || fail "$archive is not an archive of islet: $other leads out of it"
	list=$(tar tvzf "$archive")
	other=$(echo "$list" | grep -v '^[-d]' | head -n 1)
	[ -z "$other" ] || fail "$archive is not an archive of islet: it has a link or a device: $other"
	tmp=${TMPDIR:-/var/tmp}
	need=$(echo "$list" | awk '{ blocks += int($3 / 4096) + 1 } END { print int(blocks / 256) + 1 }') # after the mode and the owner comes the size
	free=$(mib_free "$tmp")
	[ "$free" -ge "$need" ] || fail "only $free MiB are free in $tmp: $archive needs $need to be unpacked; TMPDIR=/another/directory has it done elsewhere"
	unpacked=$(mktemp -d "$tmp/islet.XXXXXX")
	trap 'rm -rf "$unpacked"' EXIT
	trap 'exit 1' HUP INT TERM
	tar xzof "$archive" -C "$unpacked" || fail "$archive could not be unpacked in $unpacked; TMPDIR=/another/directory has it done elsewhere"
	sh "$unpacked/$top/install.sh" "$@"
}

usage() { sed -n '2,/^set -eu/{/^#/s/^# \{0,1\}//p;}' "$0"; }

action=install kubeadm=no start=yes lone=no purge=no demo=no cmdline=ask from='' config='' value=no
for arg in "$@"; do
	shift
	if [ $value = yes ]; then
		config=$arg value=no
		set -- "$@" "$arg"
		continue
	fi
	case $arg in
	install | uninstall) action=$arg ;;
	--kubeadm) kubeadm=yes ;;
	--no-start) start=no ;;
	--alone) lone=yes ;;
	--demo) demo=yes ;;
	--cmdline) cmdline=yes ;;
	--config) value=yes ;;
	--config=*) config=${arg#--config=} ;;
	--purge) purge=yes ;;
	-h | --help | help) usage; exit 0 ;;
	-*) usage >&2; fail "unknown argument $arg" ;;
	*)
		case $arg in
		*/* | *.tar.gz) [ -e "$arg" ] || fail "$arg is not there" ;;
		*) [ -e "$arg" ] || { usage >&2; fail "unknown argument $arg"; } ;;
		esac
		[ -z "$from" ] || fail "$from and $arg: one archive is installed at a time"
		from=$arg
		continue
		;;
	esac
	set -- "$@" "$arg"
done
[ $value = no ] || fail "--config needs a file"
[ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "must be root"
if [ -z "$from" ]; then
	"do_$action"
elif [ -d "$from" ]; then
	[ -f "$from/install.sh" ] || fail "$from has no install.sh: it is not an unpacked archive of islet"
	exec sh "$from/install.sh" "$@"
else
	from_archive "$from" "$@"
fi
