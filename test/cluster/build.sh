#!/bin/sh
# Builds the control plane that the end-to-end tests run against, from the Go
# modules that go.mod here names, and prints the folder it lies in. Nothing is
# built while the versions are those of the last time. CONTROL_PLANE=1.36 builds
# the one of control-plane-1.36.mod, in a folder of its own.
set -eu
cd "$(dirname "$0")"
old=${CONTROL_PLANE:+-$CONTROL_PLANE}
out=$(cd ../.. && pwd)/.cache/controlplane$old
if [ -n "$old" ]; then
	[ -f "control-plane$old.mod" ] || { echo "CONTROL_PLANE=$CONTROL_PLANE: there is no test/cluster/control-plane$old.mod" >&2; exit 2; }
	GOFLAGS="$(go env GOFLAGS) -modfile=$PWD/control-plane$old.mod"
	export GOFLAGS
fi
mkdir -p "$out"
exec 9>"$out/lock"
flock 9 # several test programs may ask at once
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
want="kubernetes $version, $(go list -m go.etcd.io/etcd/server/v3), $(go env GOVERSION)"
if [ "$(cat "$out/versions" 2>/dev/null)" != "$want" ]; then
	echo "building the control plane: $want" >&2
	rm -f "$out/versions"
	export CGO_ENABLED=0
	minor=${version#v1.}
	stamp=k8s.io/component-base/version
	cmd=k8s.io/kubernetes/cmd
	flags="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*}"
	echo "six programs, which takes minutes without a build cache" >&2
	# One command compiles a program while it links another. GOGC saves a tenth of the compilers' CPU time. The flags name nothing in etcd.
	GOGC=300 nice go build -trimpath -tags grpcnotrace -gcflags=all=-dwarf=false -ldflags "$flags" -o "$out/" \
		$cmd/kube-apiserver $cmd/kube-controller-manager $cmd/kube-scheduler $cmd/kubeadm $cmd/kubectl go.etcd.io/etcd/server/v3 >&2
	mv "$out/server" "$out/etcd"
	echo "$want" >"$out/versions"
fi
echo "$out"
