#!/bin/sh
# Gets the container runtimes that tests run nodes with, and prints the folder that each
# has a folder of its own in:
#   current  containerd of the version in go.mod, from its Go module, unchanged
#   debian   containerd of the distribution's package, unpacked and not installed, so that
#            no service of it starts on this machine (only where there is apt)
# Nothing is built or fetched while the versions are those of the last time.
set -eu
cd "$(dirname "$0")/../.."
out=$(pwd)/.cache/containerd
mkdir -p "$out"
exec 9>"$out/lock"
flock 9 # several test programs may ask at once

debian() {
	want=$(apt-cache show --no-all-versions containerd 2>/dev/null | sed -n 's/^Version: //p')
	[ -n "$want" ] || { apt-get update -qq >&2; want=$(apt-cache show --no-all-versions containerd | sed -n 's/^Version: //p'); }
	[ "$(cat "$out/debian/version" 2>/dev/null)" != "$want" ] || return 0
	rm -rf "$out/debian" "$out/package"
	mkdir -p "$out/debian" "$out/package"
	(cd "$out/package" && apt-get download -qq "containerd=$want" 2>/dev/null >&2 && dpkg -x ./*.deb . && cp usr/bin/containerd usr/bin/containerd-shim-runc-v2 usr/bin/ctr ../debian/)
	rm -rf "$out/package"
	echo "$want" >"$out/debian/version"
}

current() {
	version=$(go list -m -f '{{.Version}}' github.com/containerd/containerd/v2)
	want="containerd $version, $(go env GOVERSION)"
	[ "$(cat "$out/current/version" 2>/dev/null)" != "$want" ] || return 0
	echo "building a container runtime: $want" >&2
	rm -rf "$out/current"
	mkdir -p "$out/current"
	module=$(go mod download -json "github.com/containerd/containerd/v2@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	(cd "$module" && for program in containerd containerd-shim-runc-v2 ctr; do
		CGO_ENABLED=0 nice go build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=$version" \
			-tags "no_btrfs no_devmapper no_zfs no_aufs no_tracing" -o "$out/current/$program" "./cmd/$program" >&2
	done)
	echo "$want" >"$out/current/version"
}

if command -v apt-get >/dev/null 2>&1; then debian; fi
current
echo "$out"
