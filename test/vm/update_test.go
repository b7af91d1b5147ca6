package vm

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
	"github.com/islet-edge/islet/test/system"
)

// TestUpdateWrites records all writes to the disk during an update of islet, from the start of the command to the end of the trial. It
// boots the disks that power cuts at these writes leave. The node has the old or the new version, with its pods, and the update can be made
// again.
func TestUpdateWrites(t *testing.T) {
	distribution(t)
	r := machine.NewReleaser(t)
	next := filepath.Join(t.TempDir(), "next.tar.gz")
	r.Release(next, nextVersion, r.BuildVersion(nextVersion))
	v := bootUnpacked(t, map[string]string{"next.tar.gz": next, "next.tar.gz.release": next + ".release"})
	v.Write("/etc/islet/edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1beta1\nkind: EdgeConfiguration\n"+
		"configuration: {healthyFor: 2s, deadline: 2m}\nupdate: {keys: [%q]}\n", r.Public))
	v.Run("cp /payload/next.tar.gz* /root/")
	v.Run("echo ISLET_ARGS=--edge-config=/etc/islet/edge.yaml >/etc/default/islet; /root/islet/install.sh")
	v.Run("islet images import /payload/podtool.tar")
	v.Run("islet apply --wait -f - <<'END'\n" + manifest("p1", "count", "100ms") + "END")
	const update = "islet update -q --older /root/next.tar.gz"
	old := readVersion(v)
	prepareNamespaces(v)
	end := v.Record()
	v.Run(update + " && sync")
	record := end()
	if got := readVersion(v); got != nextVersion || old == nextVersion {
		t.Fatalf("the node was updated from %q to %q", old, got)
	}
	v.PowerCut()
	t.Logf("an update takes %d writes", record.Writes())
	bootStates(t, record, func(t *testing.T, s *system.System, writes int) {
		// An interrupted trial starts again.
		s.Await(`islet config show -o json | awk '/"trying": true|"assigned":/ {busy=1} END {exit busy || NR < 5}'`)
		waitForPods(s, 1)
		version := readVersion(s)
		t.Logf("power cut after %d writes: version %s", writes, version)
		if version != old && version != nextVersion {
			t.Errorf("the node has version %q, want %q or %q", version, old, nextVersion)
		}
		s.Run(update)
		waitForPods(s, 1)
		if got := readVersion(s); got != nextVersion {
			t.Errorf("after another update the node has version %q, want %q", got, nextVersion)
		}
	})
}

// readVersion returns the version of the agent.
func readVersion(v shell) string {
	fields := strings.Fields(v.Run("islet status | grep '^Agent:'"))
	if len(fields) < 3 {
		return ""
	}
	return strings.TrimSuffix(fields[2], ",")
}
