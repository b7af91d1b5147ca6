package vm

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/islet-edge/islet/test/machine"
)

// claims is a pod that appends records to a file on its claim, and logs each record that is on the disk.
var claims = fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: journal}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: p4}
spec:
  terminationGracePeriodSeconds: 2
  volumes: [{name: data, persistentVolumeClaim: {claimName: journal}}]
  containers:
  - {name: c, image: %q, imagePullPolicy: Never, args: [journal, /data/records, 20ms], volumeMounts: [{name: data, mountPath: /data}], resources: {limits: {memory: 64Mi, cpu: 300m}}}
`, machine.Image)

// lastRecord returns the last record that the pod has reported outside the machine, or -1.
func lastRecord(v *VM) int {
	v.t.Helper()
	told := v.ToldData()
	told = told[:bytes.LastIndexByte(told, '\n')+1]
	_, last, found := strings.Cut(string(told[max(0, bytes.LastIndex(told, []byte("kept "))):]), "kept ")
	if !found {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(last))
	if err != nil {
		v.t.Fatal(err)
	}
	return n
}

// journals forwards the pod's log to the host from now on. It returns when a new record has been reported.
func journals(v *VM) {
	v.t.Helper()
	before := lastRecord(v)
	v.Run("systemd-run -q --collect sh -c 'exec tail -q -n +1 -F $(ls -t /var/log/pods/default_p4-edge_*/c/*.log | head -1) >/dev/virtio-ports/told'")
	for lastRecord(v) <= before {
		v.Run("sleep 0.2")
	}
}

// nothingLost checks the claim after a power cut. The claim must contain all reported records, and the pod must have found them intact. No
// volume without a pod may be mounted or stored.
func nothingLost(v *VM, told int) {
	v.t.Helper()
	// The test counts processes, because the status of pods may be that of the previous boot for a moment.
	v.Await("[ $(pgrep -x podtool | wc -l) = 5 ]")
	out := v.Await("grep -m1 -o 'from [0-9]*' $(ls -t /var/log/pods/default_p4-edge_*/c/*.log | head -1)")
	from, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(out, "from ")))
	if err != nil || from <= told {
		v.t.Errorf("record %d was reported, and after a power cut the next one is %q (%v)", told, out, err)
	}
	owners := v.Run(`islet pods -o json | awk -F '"' '$2=="uid" {print $4}' | sort`)
	mounted := v.Run("cut -d ' ' -f 5 /proc/self/mountinfo | grep -o '/pods/[0-9a-f-]*/volumes/.*' | sort")
	if n := strings.Count(mounted, "/kubernetes.io~local-volume/"); n != 1 {
		v.t.Errorf("the claim is mounted %d times:\n%s", n, mounted)
	}
	for line := range strings.Lines(mounted) {
		if uid := strings.Split(line, "/")[2]; !strings.Contains(owners, uid) {
			v.t.Errorf("a volume without a pod is mounted: %s", line)
		}
	}
}
