#!/bin/sh
# Builds islet and starts the node of `make run`. What it needs is checked first, and everything
# that is missing is named at once. It installs nothing.
#   run.sh GOARCH          build and start
#   run.sh GOARCH check    check only
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
cache=$top/.cache
arch=$1

say() { echo "islet demo: $*"; }
problems=
problem() {
	problems=yes
	echo "islet demo: $*" >&2
}
mib_free() { # mib_free DIR: in the nearest directory that exists
	dir=$1
	while [ ! -d "$dir" ]; do dir=$(dirname "$dir"); done
	df -Pk "$dir" | awk 'NR == 2 { print int($4 / 1024) }'
}
room() { # room DIR MIB WHAT
	free=$(mib_free "$1")
	[ "$free" -ge "$2" ] || problem "only $free MiB are free in $1: $3 needs about $2"
}

# can_compile: whether the OCI runtime that islet ships, one static program in C, can be built. patch
# or git applies islet's changes to its source.
can_compile() {
	command -v make >/dev/null && command -v gcc >/dev/null || return 1
	command -v patch >/dev/null || command -v git >/dev/null || return 1
	work=$(mktemp -d)
	printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' >"$work/c.c"
	code=0
	gcc -static -o "$work/c" "$work/c.c" >/dev/null 2>&1 || code=1
	rm -rf "$work"
	return $code
}

packages=". ./runtime/shim/cmd ./runtime/shim/pack ./packaging/demo ./packaging/mkimage"
listed() {
	# shellcheck disable=SC2086 # a list of packages
	(cd "$top" && { go list -deps $packages >/dev/null; } 2>&1)
}

check() {
	[ "$(id -u)" = 0 ] || problem "must be root, to start containers: sudo make run"
	command -v go >/dev/null || problem "Go is not in the PATH: https://go.dev/doc/install; with sudo: sudo env \"PATH=\$PATH\" make run"
	command -v flock >/dev/null || problem "flock is missing: it is in the package util-linux"
	oci=built
	if "$top/packaging/oci/build.sh" "$arch" cached >/dev/null 2>&1; then
		:
	elif can_compile; then
		oci=build
	elif host=$(command -v crun || command -v runc); then
		oci=host
		say "gcc, make, git or the headers of libc are missing, so $host of this machine starts the containers (for islet's own: apt-get install gcc make git libc6-dev)"
	else
		problem "there is no OCI runtime, and none can be built: install gcc, make, git and libc6-dev (Debian's names), or crun"
	fi
	room /var/lib 300 "the node"
	if command -v go >/dev/null; then
		cold=no
		[ -x "$top/bin/islet" ] || cold=yes
		if [ $cold = yes ]; then need=2500; else need=500; fi
		for dir in "$top" "$(go env GOCACHE)" "$(go env GOMODCACHE)"; do room "$dir" $need "the build"; done
		offline=yes
		GOPROXY=off listed >/dev/null || offline=no
	fi
	[ -z "$problems" ] || exit 1
	[ "$offline" = yes ] || modules
}

# modules downloads what the build needs, as a check of the network before minutes of compiling.
modules() {
	say "downloading Go modules, about 300 MB (a minute with a fast network)"
	said=$(listed) && return 0
	echo "$said" | tail -n 3 >&2
	problem "Go modules are missing here, and could not be downloaded (see above): connect this machine to the network, or set GOPROXY to a mirror that it can reach"
	exit 1
}

# step TEXT COMMAND...: says what is done, and every 20 s that it is still done.
step() {
	what=$1
	shift
	say "$what"
	(
		began=$(date +%s)
		# The signal may come at any moment, also before the first sleep.
		trap 'kill $(jobs -p) 2>/dev/null; exit 0' TERM
		while :; do
			sleep 20 >/dev/null 2>&1 &
			wait $!
			say "still at it, $(($(date +%s) - began)) s so far"
		done
	) 8>&- &
	ticker=$!
	trap 'kill $ticker 2>/dev/null || true' EXIT
	"$@" 8>&- || { say "failed: $what" >&2; exit 1; }
	kill $ticker
	wait $ticker 2>/dev/null || true
	trap - EXIT
}

check
[ "${2:-}" != check ] || exit 0
run=${ISLET_DEMO_RUN:-/run/islet-demo}
mkdir -p "$(dirname "$run")"
exec 8>"$run.lock"
flock -n 8 || { say "another make run or make stop is at work: waiting for it"; flock 8; }
export ISLET_DEMO_LOCKED=yes
"$top/packaging/demo/node.sh" idle 8>&-

say "builds islet in $top and starts a node with two pods. It installs nothing; sudo make stop removes it."
if [ "$cold" = yes ]; then long="the first time about 5 minutes with 2 cores"; else long="seconds, or minutes after many changes"; fi
step "[1/3] compiling islet and the program of the demo: $long" make -s --no-print-directory -C "$top" build demo-image GOARCH="$arch"
case $oci in
build) long="fetching sources from Debian and compiling: half a minute" ;;
*) long="a moment" ;;
esac
step "[2/3] the OCI runtime: $long" "$top/packaging/oci/for-run.sh" "$cache/oci" "$arch"
step "[3/3] starting the node: a few seconds" "$top/packaging/demo/node.sh" start
