#!/bin/sh
# Builds Kubernetes' end-to-end suite, unchanged, with what it needs (its runner, the
# program of its images, kube-proxy, CoreDNS), and prints the folder they lie in. Nothing is built
# while the versions are those of the last time.
set -eu
cd "$(dirname "$0")/suite"
out=$(cd ../../../.. && pwd)/.cache/conformance
mkdir -p "$out"
exec 9>"$out/lock"
flock 9 # several test programs may ask at once
packages="k8s.io/kubernetes/test/images/agnhost k8s.io/sample-apiserver k8s.io/kubernetes/cmd/kube-proxy github.com/onsi/ginkgo/v2/ginkgo"
suites="k8s.io/kubernetes/test/e2e k8s.io/kubernetes/test/e2e_node"
want="$suites $packages: kubernetes $(go list -m -f '{{.Version}}' k8s.io/kubernetes), coredns $(cd ../dns && go list -m -f '{{.Version}}' github.com/coredns/coredns), $(go env GOVERSION)"
if [ "$(cat "$out/versions" 2>/dev/null)" != "$want" ]; then
	echo "building the end-to-end suite: $want (minutes without a build cache)" >&2
	rm -f "$out/versions"
	export CGO_ENABLED=0
	for package in $suites; do
		nice go test -c -trimpath -ldflags '-s -w' -o "$out/${package##*/}.test" "$package" >&2
	done
	for package in $packages; do
		nice go build -trimpath -ldflags '-s -w' -o "$out/${package##*/}" "$package" >&2
	done
	(cd ../dns && nice go build -trimpath -ldflags '-s -w' -o "$out/coredns" github.com/coredns/coredns >&2)
	porter=$(go list -f '{{.Dir}}' k8s.io/kubernetes/test/images/agnhost/porter)
	install -m 644 "$porter/localhost.crt" "$porter/localhost.key" "$out/"
	echo "$want" >"$out/versions"
fi
echo "$out"
