#!/bin/sh
# Installs what a use of this checkout needs and the machine lacks.
#   deps.sh run        the distribution's OCI runtimes, crun and runc, with which the tests run nodes too
#   deps.sh oci        what the OCI runtime that islet ships is built with; oci-cross: for other architectures
#   deps.sh packages   what packages, repositories and releases are made and checked with
#   deps.sh test       what the tests need besides
#   deps.sh critest    what the CRI validation suite needs besides
#   deps.sh conformance  what Kubernetes' end-to-end suite needs besides
#   deps.sh page       a browser, for the test of the status page
#   deps.sh system     what the tests with an init need besides
#   deps.sh skopeo     the libraries of skopeo, for the test that copies bundles with it
#   deps.sh vm         what the virtual machine tests need besides; vm-arm: those of boards
# Only Debian and its relatives are installed by themselves; elsewhere it names what is missing.
set -eu

missing=
need() { # need COMMAND PACKAGE
	command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || missing="$missing $2"
}
for use in "$@"; do
	case $use in
	run) command -v crun >/dev/null 2>&1 || need crun crun; need runc runc ;;
	test) need git git; need mke2fs e2fsprogs; need ip iproute2; need nft nftables; need sysctl procps; need gcc gcc; need dbus-daemon dbus-daemon; [ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
		[ -e /usr/include/seccomp.h ] || missing="$missing libseccomp-dev"; need pkg-config pkg-config # to build runc, see test/runc
		need shellcheck shellcheck; need swtpm swtpm ;;
	oci) need gcc gcc; need x86_64-linux-gnu-gcc gcc; need make make; need patch patch; need xz xz-utils; need pkg-config pkg-config; need dpkg-deb dpkg; need gperf gperf; need meson meson; need ninja ninja-build
		[ -e /usr/lib/python3/dist-packages/jinja2 ] || missing="$missing python3-jinja2"; [ -e /usr/include/stdio.h ] || missing="$missing libc6-dev" ;;
	oci-cross) need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu; need arm-linux-gnueabihf-gcc gcc-arm-linux-gnueabihf; need riscv64-linux-gnu-gcc gcc-riscv64-linux-gnu
		need gawk gawk; need bison bison ;; # for the C library of riscv64
	packages) need lintian lintian; need rpm rpm; need rpmlint rpmlint; need gpg gpg; need gpg-agent gpg-agent; need gpgv gpgv; need createrepo_c createrepo-c; need dnf dnf; need dpkg-scanpackages dpkg-dev ;;
	critest) need busybox busybox-static; need ipcmk util-linux ;;
	conformance) need busybox busybox-static; need curl curl; need dig bind9-dnsutils; need nc netcat-openbsd; need ipcs util-linux ;;
	page) command -v chromium >/dev/null 2>&1 || need chromium-headless-shell chromium-headless-shell ;;
	system) need debootstrap debootstrap ;;
	skopeo) for l in libgpgme11:libgpgme.so.11 libdevmapper1.02.1:libdevmapper.so.1.02.1; do
			/sbin/ldconfig -p | grep -q "${l#*:}" || missing="$missing ${l%:*}"
		done ;;
	vm) need qemu-system-x86_64 qemu-system-x86; need debootstrap debootstrap; need mke2fs e2fsprogs ;;
	vm-arm) need qemu-system-aarch64 qemu-system-arm; need qemu-aarch64-static qemu-user-static ;;
	*) echo "deps.sh: unknown use '$use' (run, oci, oci-cross, packages, test, critest, conformance, page, system, skopeo, vm, vm-arm)" >&2; exit 2 ;;
	esac
done
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
	echo "please install:$missing" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	echo "missing:$missing; run as root (sudo make ...) or: apt-get install$missing" >&2
	exit 1
fi
echo "installing:$missing"
echo "which takes minutes where much is missing, such as a browser or compilers"
tries=60 # of 10 s: a new machine's own updates hold a lock for which update does not wait
until lists=$(apt-get update -qq 2>&1); do
	tries=$((tries - 1))
	case $lists in
	*"Could not get lock"*) [ $tries = 0 ] || { echo "apt is in use by another; waiting"; sleep 10; continue; } ;;
	esac
	echo "apt-get update: $lists" >&2
	exit 1
done
# shellcheck disable=SC2086 # a list of words
DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends $missing >/dev/null
