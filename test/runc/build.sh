#!/bin/sh
# Builds a current runc from its Go module, unchanged, and prints its path. Debian 12 has
# one without idmapped mounts, which pods with hostUsers: false need. Nothing is built
# while the version is that of the last time.
set -eu
version=v1.4.3
cd "$(dirname "$0")"
out=$(cd ../.. && pwd)/.cache/runc-$version
mkdir -p "$out"
exec 9>"$out/lock"
flock 9 # several test programs may ask at once
want="runc $version, $(go env GOVERSION)"
if [ "$(cat "$out/version" 2>/dev/null)" != "$want" ]; then
	echo "building runc: $want" >&2
	rm -f "$out/version"
	# Static, for the machine of test/vm has no libseccomp of its own.
	export CGO_ENABLED=1 GOFLAGS= GOWORK=off
	module=$(go mod download -json "github.com/opencontainers/runc@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	cd "$module"
	nice go build -trimpath -buildvcs=false -tags 'seccomp netgo osusergo' -ldflags "-s -w -extldflags -static -X main.version=${version#v}" -o "$out/runc" . >&2
	echo "$want" >"$out/version"
fi
echo "$out/runc"
