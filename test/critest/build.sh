#!/bin/sh
# Builds the CRI validation suite and crictl from their Go module, unchanged, and
# prints the folder they lie in. Nothing is built while the version is that of the
# last time.
set -eu
version=v1.37.0
cd "$(dirname "$0")"
out=$(cd ../.. && pwd)/.cache/critest
mkdir -p "$out"
exec 9>"$out/lock"
flock 9 # several test programs may ask at once
want="cri-tools $version, $(go env GOVERSION)"
if [ "$(cat "$out/versions" 2>/dev/null)" != "$want" ]; then
	echo "building the CRI validation suite: $want" >&2
	rm -f "$out/versions"
	export CGO_ENABLED=0
	module=$(go mod download -json "sigs.k8s.io/cri-tools@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	cd "$module"
	nice go test -c -trimpath -buildvcs=false -o "$out/critest" ./cmd/critest >&2
	nice go build -trimpath -buildvcs=false -o "$out/crictl" ./cmd/crictl >&2
	echo "$want" >"$out/versions"
fi
echo "$out"
