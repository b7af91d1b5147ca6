#!/bin/bash
# Makes archives and packages of this commit twice, in two clones, and compares every file byte for
# byte. What is not committed is not in it.
#   test/reproducible.sh GOARCH...
# The second clone has a longer path, a Go build cache of its own, and another umask, time zone and
# language. Each compiles the OCI runtime. The compilers and what is downloaded, which is checked by
# its sums, are the same for both.
set -euo pipefail
[ $# -gt 0 ] || { echo "reproducible: for which architectures? such as amd64 arm64" >&2; exit 2; }
top=$(cd "$(dirname "$0")/.." && pwd)
commit=$(git -C "$top" rev-parse HEAD)
sources=${ISLET_OCI_CACHE:-$top/.cache/oci-build}/source
unset ISLET_OCI_CACHE MAKEFLAGS MAKELEVEL MFLAGS VERSION
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
one=$dir/one two=$dir/a/place/with/a/longer/name

# made CLONE NAME makes all that is compared in a new clone.
made() {
	git clone -q --shared --no-checkout "$top" "$1"
	git -C "$1" checkout -q --detach "$commit"
	mkdir -p "$1/.cache/oci-build"
	[ ! -d "$sources" ] || cp -r "$sources" "$1/.cache/oci-build/source"
	for arch in "${archs[@]}"; do
		echo "reproducible: $arch, the $2 time" >&2
		nice make -C "$1" dist-one packages-one GOARCH="$arch" >"$dir/log" 2>&1 || { tail -n 40 "$dir/log" >&2; exit 1; }
	done
}
archs=("$@")
made "$one" first
umask 077
export GOCACHE=$dir/go TZ=Pacific/Auckland LC_ALL=C.UTF-8
made "$two" second

cd "$dir"
for arch in "${archs[@]}"; do
	ls "$one"/dist/islet-*-linux-"$arch".tar.gz >/dev/null
done
[ "$(find "$one/dist/packages" -type f | wc -l)" = $((6 * $#)) ] || { echo "reproducible: there are other packages: $(ls "$one/dist/packages")" >&2; exit 1; }
if ! diff -r --no-dereference --brief "$one/dist" "$two/dist"; then
	echo "reproducible: commit $commit gives other bytes the second time" >&2
	exit 1
fi
echo "ok: $(find "$one/dist" -type f | wc -l) files of $* are the same, twice made of commit $commit:"
cd "$one/dist"
sha256sum -- *.tar.gz packages/*
