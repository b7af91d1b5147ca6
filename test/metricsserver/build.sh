#!/bin/sh
# Builds metrics-server from its Go module, unchanged, packs it into an image archive, and
# prints the folder they lie in, with its manifests. Nothing is built while the version is
# that of the last time.
set -eu
cd "$(dirname "$0")"
top=$(cd ../.. && pwd)
out=$top/.cache/metricsserver
mkdir -p "$out"
exec 9>"$out/lock"
flock 9 # several test programs may ask at once
module=sigs.k8s.io/metrics-server
want="metrics-server $(go list -m -f '{{.Version}}' $module), $(go env GOVERSION)"
if [ "$(cat "$out/versions" 2>/dev/null)" != "$want" ]; then
	echo "building $want (minutes without a build cache)" >&2
	rm -f "$out/versions"
	export CGO_ENABLED=0
	nice go build -trimpath -ldflags '-s -w' -o "$out/metrics-server" $module/cmd/metrics-server >&2
	(cd "$top" && go run ./packaging/mkimage -ref localhost/metrics-server:test -entrypoint /metrics-server -o "$out/metrics-server.tar" "$out/metrics-server")
	rm -rf "$out/manifests"
	cp -r --no-preserve=mode "$(go list -m -f '{{.Dir}}' $module)/manifests/base" "$out/manifests"
	echo "$want" >"$out/versions"
fi
echo "$out"
