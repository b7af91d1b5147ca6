#!/bin/sh
# Starts and stops the node of `make run`. It has directories of its own, so
# that it disturbs neither an installed islet nor a kubelet.
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
islet=$top/bin/islet
state=${ISLET_DEMO_STATE:-/var/lib/islet-demo}
run=${ISLET_DEMO_RUN:-/run/islet-demo}
export ISLET_SOCKET="$run/islet.sock"

fail() { echo "islet demo: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "must be root: sudo make run"

running() {
	[ -s "$state/agent.pid" ] || return 1
	case "$(readlink "/proc/$(cat "$state/agent.pid")/exe" 2>/dev/null || true)" in
	"$islet" | "$islet (deleted)") ;; # built anew since it was started
	*) return 1 ;;
	esac
}

# gone_within SECONDS: whether the agent ends in that time.
gone_within() {
	until_late=$(($(date +%s) + $1))
	while running; do
		[ "$(date +%s)" -lt $until_late ] || return 1
		sleep 0.1
	done
}

# lock makes one make run or make stop work at a time, also of several checkouts.
lock() {
	[ -z "${ISLET_DEMO_LOCKED:-}" ] || return 0
	mkdir -p "$(dirname "$run")"
	exec 8>"$run.lock"
	flock -n 8 || { echo "islet demo: another make run or make stop is at work: waiting for it"; flock 8; }
}

idle() { ! running || fail "already runs (make stop ends it)"; }

start() {
	idle
	mkdir -p "$state/manifests" "$state/state/images" "$state/cni" "$run"
	cp "$top/.cache/demo/islet-demo.tar" "$state/state/images/.islet-demo.tar"
	mv "$state/state/images/.islet-demo.tar" "$state/state/images/islet-demo.tar"
	cat >"$state/kubelet.yaml" <<-END
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		cgroupRoot: /islet-demo
		failSwapOn: false
		podLogsDir: $state/logs
	END
	cat >"$state/edge.yaml" <<-END
		apiVersion: islet.dev/v1beta1
		kind: EdgeConfiguration
		cniConfDir: $state/cni
		bridgeName: islet-demo0
		statusPagePort: ${ISLET_DEMO_PAGE:-10247}
	END
	[ ! -x "$top/.cache/oci/crun" ] || echo "ociRuntime: $top/.cache/oci/crun" >>"$state/edge.yaml"
	setsid "$islet" --root-dir="$state/kubelet" --state-dir="$state/state" --run-dir="$run" --config="$state/kubelet.yaml" \
		--edge-config="$state/edge.yaml" --pod-manifest-path="$state/manifests" >>"$state/agent.log" 2>&1 </dev/null 8>&- &
	echo $! >"$state/agent.pid"
	for f in "$top"/packaging/demo/manifests/*.yaml; do
		cp "$f" "$state/manifests/.new" && mv "$state/manifests/.new" "$state/manifests/$(basename "$f")"
	done
	node=$(hostname | tr '[:upper:]' '[:lower:]')
	tries=0
	# A pod runs a moment before its program listens: the page is served once it says so.
	# The user may have added other pods before a second start.
	until "$islet" pods 2>/dev/null | grep -c "^\(log\|web\)-$node .* Running " | grep -qx 2 && "$islet" logs "web-$node" 2>/dev/null | grep -q '^serving'; do
		tries=$((tries + 1))
		if [ $tries -lt 300 ] && running; then sleep 0.1; continue; fi
		tail -20 "$state/agent.log" >&2
		fail "the pods do not run; see $state/agent.log and $islet doctor"
	done
	"$islet" pods -o wide
	cat <<-END

		The node runs. Try, as root (sudo -s):
		  export ISLET_SOCKET=$ISLET_SOCKET
		  curl http://localhost:8080/            # the page of pod web
		  http://localhost:${ISLET_DEMO_PAGE:-10247}/    # the status of the node, for a browser
		  $islet status
		  $islet logs -f log-$node
		  $islet describe web-$node
		  $islet top
		  mv $state/manifests/log.yaml /tmp      # the pod ends; move the file back, and the pod returns
		Its manifests are in $state/manifests, its log is $state/agent.log.
		To stop the node and remove its files:  sudo make stop
	END
}

stop() {
	[ -d "$state" ] || { echo "nothing to stop"; return; }
	[ -x "$islet" ] || fail "$islet is missing, which removes what the node has left: make build, then sudo make stop"
	config=--config= edge=--edge-config= # a start that was interrupted has not written them
	[ ! -e "$state/kubelet.yaml" ] || config=--config=$state/kubelet.yaml
	[ ! -e "$state/edge.yaml" ] || edge=--edge-config=$state/edge.yaml
	if running; then
		# Ending the agent does not end its pods, so take their manifests first. An
		# agent that hangs is not waited for: the clean-up ends its pods.
		rm -f "$state"/manifests/*
		until_late=$(($(date +%s) + 30))
		while pods=$(timeout 5 "$islet" pods -A -o name 2>/dev/null) && [ -n "$pods" ] && [ "$(date +%s)" -lt $until_late ]; do
			sleep 0.1
		done
		kill "$(cat "$state/agent.pid")"
		gone_within 15 || {
			echo "islet demo: the agent does not end, so it is killed" >&2
			kill -9 "$(cat "$state/agent.pid")"
			gone_within 15 || fail "the agent (process $(cat "$state/agent.pid")) cannot be killed: it waits for the kernel; see $state/agent.log"
		}
	fi
	# What is left has no process any more: mounts, cgroups, the bridge, the table, the shims.
	timeout 120 "$islet" cleanup --root-dir="$state/kubelet" --state-dir="$state/state" --run-dir="$run" "$config" "$edge" 8>&- ||
		fail "not everything could be removed; $state and $run are still there. Try again: sudo make stop"
	rm -rf --one-file-system "$state" "$run" # the lock stays: another may wait for it
	echo "stopped, and removed $state and $run"
}

case "${1:-}" in
start) lock; start ;;
stop) lock; stop ;;
idle) idle ;;
*) fail "say start or stop" ;;
esac
