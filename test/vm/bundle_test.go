package vm

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/system"
)

// TestBundleCuts cuts the power at many points of the application of a bundle: at the n-th write to the disk, from the first write to those
// after the end of the trial. After each boot the node has either the old or the new bundle, with exactly its pods and folders. The bundle
// can then be applied again. TestBundleWrites makes many more cuts in less time.
func TestBundleCuts(t *testing.T) {
	cuts := countCuts(t, 4)
	v := bundleNode(t)
	v.Run(apply(1))
	if n := checkBundle(t, v); n != 1 {
		t.Fatalf("bundle %d is in use", n)
	}
	writes := 0 // of an application that begins as those with a power cut
	for range 2 {
		goBack(v)
		before := v.Writes()
		v.Run(apply(2) + " && sync")
		writes = v.Writes() - before
		t.Logf("an application of the bundle takes %d writes", writes)
		if n := checkBundle(t, v); n != 2 || writes < 20 {
			t.Fatalf("bundle %d is in use, %d writes", n, writes)
		}
	}
	results := map[int]int{}
	for i := range cuts {
		goBack(v)
		at := (2*i + 1) * writes / (2 * cuts)
		wait := v.PowerCutAt(max(at, 1))
		v.Run("(" + apply(2) + "; sync) >/dev/null 2>&1 &")
		came := wait(5 * time.Minute)
		v.Boot()
		n := checkBundle(t, v)
		results[n]++
		if out := v.Run("dmesg | grep -i 'EXT4-fs.*error' | cat"); out != "" {
			t.Errorf("damage after a power cut:\n%s", out)
		}
		t.Logf("power cut %d at write %d (%v): bundle %d is in use", i+1, at, came, n)
	}
	t.Logf("bundles in use after power cuts: %v", results)
	if results[1] == 0 || results[1] == cuts && cuts > 10 {
		t.Errorf("the cuts were not spread over the application: %v", results)
	}
}

// TestBundleWrites records all writes to the disk during one application of a bundle. It boots the disks that power cuts at these writes
// leave, each in seconds (bootStates). The node has either the old or the new bundle, as in TestBundleCuts, and the application then
// succeeds.
func TestBundleWrites(t *testing.T) {
	v := bundleNode(t)
	v.Run(apply(1) + " && " + apply(2))
	goBack(v) // now all caches are filled
	prepareNamespaces(v)
	end := v.Record()
	v.Run(apply(2) + " && sync")
	record := end()
	writes := record.Writes()
	t.Logf("an application of the bundle takes %d writes", writes)
	if n := checkBundle(t, v); n != 2 || writes < 20 {
		t.Fatalf("bundle %d is in use, %d writes", n, writes)
	}
	v.PowerCut()
	var mu sync.Mutex
	results := map[int]int{}
	bootStates(t, record, func(t *testing.T, s *system.System, writes int) {
		n := checkBundle(t, s)
		t.Logf("power cut after %d writes: bundle %d is in use", writes, n)
		mu.Lock()
		results[n]++
		mu.Unlock()
		s.Run(apply(2))
		if n := checkBundle(t, s); n != 2 {
			t.Errorf("after another application bundle %d is in use", n)
		}
	})
	t.Logf("bundles in use after power cuts: %v", results)
	if results[1] == 0 || results[2] == 0 {
		t.Errorf("the cuts were not spread over the application: %v", results)
	}
}

func apply(number int) string {
	return fmt.Sprintf("islet bundle apply -q --wait /root/kiosk-%d.tar", number)
}

// goBack reverts the node to bundle 1, if necessary.
func goBack(v *VM) {
	v.t.Helper()
	v.Run("islet bundle status | grep -q 'in use     kiosk number 1,' || islet bundle revert")
	v.Await("islet images prune -q >/dev/null 2>&1; islet bundle status | grep 'in use     kiosk number 1,'")
	waitForPods(v, 1)
	v.Run("sync")
}

// bundleNode returns a machine whose node accepts the bundles kiosk-1.tar and kiosk-2.tar in /root. The second one has one more pod and one
// more image.
func bundleNode(t *testing.T) *VM {
	t.Helper()
	distribution(t)
	dir := t.TempDir()
	writeBulk(t, dir)
	v := bootUnpacked(t, map[string]string{"bulk.tar": filepath.Join(dir, "bulk.tar")})
	v.Diagnose += "; islet bundle status; cat /var/lib/islet/bundle.json; ls -R /var/lib/islet/bundles"
	v.Run("mkdir -p /root/kiosk/manifests /root/kiosk/images")
	v.Run("cp /payload/podtool.tar /payload/bulk.tar /root/kiosk/images/ && echo ISLET_ARGS=--edge-config=/etc/islet/edge.yaml >/etc/default/islet")
	v.Write("/etc/islet/edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n")
	v.Run("/root/islet/install.sh")
	key := strings.TrimSpace(v.Run("islet bundle keys new /root/anna.key"))
	v.Write("/etc/islet/edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nbundle: {keys: ['"+key+"'], healthyFor: 2s, deadline: 4m}\n")
	v.Run("systemctl restart islet")
	const head = "apiVersion: islet.dev/v1alpha1\nkind: Bundle\nname: kiosk\nnumber: 1\n"
	for number, name := range []string{"p1", "p2"} {
		description := head
		if name == "p2" {
			description += "images: [" + bulk + "]\n"
		}
		v.Write("/root/kiosk/bundle.yaml", description)
		v.Write("/root/kiosk/manifests/"+name+".yaml", manifest(name, "count", "100ms"))
		file := fmt.Sprintf("/root/kiosk-%d.tar", number+1)
		v.Run(fmt.Sprintf("islet bundle build /root/kiosk -o %s --number %d && islet bundle sign %s --key /root/anna.key", file, number+1, file))
	}
	return v
}

// checkBundle waits until no bundle is on trial, and returns the number of the bundle in use. It checks that the node has exactly the pods
// of this bundle, the folders of the bundles in its record, and no damage.
func checkBundle(t *testing.T, v shell) (number int) {
	t.Helper()
	status := v.Await("s=$(islet bundle status 2>&1) && ! echo \"$s\" | grep -q 'on trial' && echo \"$s\" | grep 'in use  '")
	if _, err := fmt.Sscanf(status, "in use kiosk number %d,", &number); err != nil || number < 1 || number > 2 {
		t.Fatalf("%q: %v", status, err)
	}
	waitForPods(v, number)
	var names []string
	for line := range strings.Lines(v.Run("islet pods --no-headers")) {
		names = append(names, strings.Fields(line)[0])
	}
	slices.Sort(names)
	if want := []string{"p1", "p2"}[:number]; !slices.Equal(names, want) {
		t.Errorf("bundle %d has the pods %q, want %q", number, names, want)
	}
	var record struct {
		Current, Previous *struct{ Digest string }
	}
	if err := json.Unmarshal([]byte(v.Run("cat /var/lib/islet/bundle.json")), &record); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, b := range []*struct{ Digest string }{record.Current, record.Previous} {
		if b != nil {
			want = append(want, strings.ReplaceAll(b.Digest, ":", "-"))
		}
	}
	slices.Sort(want)
	if folders := strings.Fields(v.Run("ls /var/lib/islet/bundles")); !slices.Equal(folders, want) {
		t.Errorf("the node has the folders %q, and the record names %q", folders, want)
	}
	if out := v.Run("ls /var/lib/islet | grep corrupt | cat; " +
		"journalctl -b -u islet --no-pager | grep level=ERROR | grep -v ' bundle=.* reason=' | cat"); out != "" {
		t.Errorf("damage after a power cut:\n%s", out)
	}
	return number
}
