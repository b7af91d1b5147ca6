package vm

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
	"github.com/islet-edge/islet/test/system"
)

// A change is a command that changes what was applied, and its effect.
type change struct {
	manifest string // the input of islet apply, or empty
	command  string // another command
	set      map[string]string
	removed  string
}

// changes returns commands that create, change and remove pods and objects. The effects name each object by its kind and name, and give its
// version: its keys with the sizes of their values, or an argument of the pod.
func changes() []change {
	object := func(kind, name string, size int) change {
		field := map[string]string{"ConfigMap": "data", "Secret": "stringData"}[kind]
		return change{
			manifest: fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata: {name: %s}\n%s: {k: %s}\n", kind, name, field, strings.Repeat("x", size)),
			set:      map[string]string{kind + "/" + name: fmt.Sprint(map[string]int{"k": size})},
		}
	}
	pod := func(name, interval string) change {
		return change{manifest: manifest(name, "count", interval), set: map[string]string{"Pod/" + name: interval}}
	}
	remove := func(kind, name string) change {
		return change{command: "islet delete --grace-period 1 " + strings.ToLower(kind) + " " + name, removed: kind + "/" + name}
	}
	return []change{
		object("ConfigMap", "a", 1), object("Secret", "s", 10), pod("p1", "100ms"), object("ConfigMap", "a", 2000), pod("p2", "101ms"),
		remove("Pod", "p1"), object("ConfigMap", "b", 30), object("Secret", "s", 40_000), remove("ConfigMap", "a"), pod("p2", "102ms"),
		object("ConfigMap", "a", 5), remove("Secret", "s"), pod("p3", "103ms"), remove("ConfigMap", "b"),
	}
}

// TestAcknowledgedWrites records all writes to the disk while pods and objects are applied, changed and deleted. It boots the disks that
// power cuts at these writes leave. The node has all changes that were acknowledged before the cut, and all or nothing of the next change.
func TestAcknowledgedWrites(t *testing.T) {
	v := appliedNode(t)
	prepareNamespaces(v)
	end := v.Record()
	versions := []map[string]string{{}} // what the node has after each change
	var acknowledged []int              // the number of writes before the acknowledgment of each change
	for _, c := range changes() {
		if c.manifest != "" {
			v.Run("islet apply -f - <<'END'\n" + c.manifest + "END")
		} else {
			v.Run(c.command)
		}
		acknowledged = append(acknowledged, v.Recorded())
		now := maps.Clone(versions[len(versions)-1])
		maps.Copy(now, c.set)
		delete(now, c.removed)
		versions = append(versions, now)
	}
	v.Run("sync")
	record := end()
	v.PowerCut()
	t.Logf("%d changes take %d writes: %v", len(acknowledged), record.Writes(), acknowledged)
	bootStates(t, record, func(t *testing.T, s *system.System, writes int) {
		done := 0
		for done < len(acknowledged) && acknowledged[done] <= writes {
			done++
		}
		allowed := versions[done:min(done+2, len(versions))]
		s.Await("islet status >/dev/null")
		// A pod that is being deleted, or that is not yet started, changes within seconds.
		found, got := false, map[string]string(nil)
		for deadline := time.Now().Add(machine.WaitTimeout); !found && time.Now().Before(deadline); {
			s.Await("! islet pods --no-headers 2>&1 | grep -vE '1/1 +Running|^No pods'")
			got = readApplied(t, s)
			found = slices.ContainsFunc(allowed, func(want map[string]string) bool { return maps.Equal(want, got) })
		}
		t.Logf("power cut after %d writes: %d changes were acknowledged, the node has %v", writes, done, got)
		if !found {
			t.Errorf("the node has %v, want one of %v", got, allowed)
		}
	})
}

// appliedNode returns a machine whose node has the image of the tests, and neither pods nor objects.
func appliedNode(t *testing.T) *VM {
	t.Helper()
	v := bootUnpacked(t, nil)
	v.Run("/root/islet/install.sh && islet images import /payload/podtool.tar && sync")
	return v
}

// readApplied returns the versions of the node's pods and objects, by kind and name.
func readApplied(t *testing.T, s shell) map[string]string {
	t.Helper()
	got := map[string]string{}
	var objects []struct {
		Kind, Name string
		Keys       map[string]int
	}
	var pods struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ Containers []struct{ Args []string } }
		}
	}
	for command, into := range map[string]any{"islet objects -A -o json": &objects, "islet pods -A -o json": &pods} {
		if err := json.Unmarshal([]byte(s.Run(command)), into); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range objects {
		got[o.Kind+"/"+o.Name] = fmt.Sprint(o.Keys)
	}
	for _, p := range pods.Items {
		got["Pod/"+p.Metadata.Name] = p.Spec.Containers[0].Args[1]
	}
	return got
}
