#!/bin/sh
# Builds Kubernetes' end-to-end suite, unchanged, with what it needs (its runner, the
# program of its images, kube-proxy, CoreDNS), and prints the folder they lie in; with the
# argument drivers also what runs beside CSI drivers (see ../sidecars/go.mod). Nothing is built
# while the versions are those of the last time.
set -eu
cd "$(dirname "$0")/suite"
out=$(cd ../../../.. && pwd)/.cache/conformance
mkdir -p "$out"
exec 9>"$out/lock"
flock 9 # several test programs may ask at once
packages="k8s.io/kubernetes/test/images/agnhost k8s.io/kubernetes/test/images/sample-device-plugin k8s.io/sample-apiserver k8s.io/kubernetes/cmd/kube-proxy github.com/onsi/ginkgo/v2/ginkgo"
suites="k8s.io/kubernetes/test/e2e k8s.io/kubernetes/test/e2e_node"
want="$suites $packages: stamped kubernetes $(go list -m -f '{{.Version}}' k8s.io/kubernetes), coredns $(cd ../dns && go list -m -f '{{.Version}}' github.com/coredns/coredns), $(go env GOVERSION)"
if [ "$(cat "$out/versions" 2>/dev/null)" != "$want" ]; then
	echo "building the end-to-end suite: $want (minutes without a build cache)" >&2
	rm -f "$out/versions"
	export CGO_ENABLED=0
	# Some specs use the suite's own version, which Kubernetes' build sets.
	version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes) # such as v1.37.2
	minor=${version#v1.} at=k8s.io/component-base/version
	stamp="-X $at.gitVersion=$version -X $at.gitMajor=1 -X $at.gitMinor=${minor%%.*}"
	for package in $suites; do
		nice go test -c -vet=off -trimpath -ldflags "-s -w $stamp" -o "$out/${package##*/}.test" "$package" >&2
	done
	for package in $packages; do
		nice go build -trimpath -ldflags '-s -w' -o "$out/${package##*/}" "$package" >&2
	done
	(cd ../dns && nice go build -trimpath -ldflags '-s -w' -o "$out/coredns" github.com/coredns/coredns >&2)
	porter=$(go list -f '{{.Dir}}' k8s.io/kubernetes/test/images/agnhost/porter)
	install -m 644 "$porter/localhost.crt" "$porter/localhost.key" "$out/"
	echo "$want" >"$out/versions"
fi
if [ "${1:-}" = drivers ]; then
	cd ../sidecars
	csi=github.com/kubernetes-csi
	sidecars="$csi/external-attacher/v4/cmd/csi-attacher $csi/external-provisioner/v6/cmd/csi-provisioner $csi/external-resizer/v2/cmd/csi-resizer"
	want="$(go list -m $csi/external-attacher/v4 $csi/external-provisioner/v6 $csi/external-resizer/v2 | tr '\n' ',') $(go env GOVERSION)"
	export CGO_ENABLED=0
	if [ "$(cat "$out/versions.drivers" 2>/dev/null)" != "$want" ]; then
		echo "building what runs beside CSI drivers: $want" >&2
		rm -f "$out/versions.drivers"
		for package in $sidecars; do
			nice go build -trimpath -ldflags '-s -w' -o "$out/${package##*/}" "$package" >&2
		done
		echo "$want" >"$out/versions.drivers"
	fi
	cd ../../../csidriver # our own, which is quick
	go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$out/" ./hostpathplugin ./registrar >&2
fi
echo "$out"
