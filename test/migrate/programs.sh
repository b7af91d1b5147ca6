#!/bin/sh
# Builds the programs of a node that kubeadm manages, from their Go modules, unchanged: the kubelet and crictl.
# It prints the folder they lie in. Nothing is built while the versions are those of the last time.
set -eu
cd "$(dirname "$0")/../.."
out=$(pwd)/.cache/migrate
mkdir -p "$out"
exec 9>"$out/lock"
flock 9 # several test programs may ask at once
crictl=v1.37.0
cd test/cluster/conformance/suite # its module has the kubelet
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
want="kubernetes $version, cri-tools $crictl, $(go env GOVERSION)"
if [ "$(cat "$out/versions" 2>/dev/null)" != "$want" ]; then
	echo "building a kubelet and crictl: $want (minutes without a build cache)" >&2
	rm -f "$out/versions"
	export CGO_ENABLED=0
	minor=${version#v1.} at=k8s.io/component-base/version
	stamp="-X $at.gitVersion=$version -X $at.gitMajor=1 -X $at.gitMinor=${minor%%.*}"
	nice go build -trimpath -tags grpcnotrace -gcflags=all=-dwarf=false -ldflags "-s -w $stamp" -o "$out/" k8s.io/kubernetes/cmd/kubelet >&2
	cd "$(go mod download -json "sigs.k8s.io/cri-tools@$crictl" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')"
	nice go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$out/" ./cmd/crictl >&2
	echo "$want" >"$out/versions"
fi
echo "$out"
