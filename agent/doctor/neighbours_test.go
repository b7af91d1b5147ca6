package doctor

import (
	"context"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// others returns the IDs of the findings about other node agents.
func others(f fstest.MapFS) (ids string) {
	for _, got := range Check(context.Background(), input(f), system()) {
		if strings.HasPrefix(got.ID, "other-") {
			ids += got.ID + " "
		}
	}
	return ids
}

// TestNodeAgents checks that islet doctor finds every node agent beside which install.sh and the packages start nothing. The Ansible role
// asks islet doctor.
func TestNodeAgents(t *testing.T) {
	for _, script := range []string{"install.sh", "packages/scripts/common.sh"} {
		text, err := os.ReadFile("../../packaging/" + script)
		if err != nil {
			t.Fatal(err)
		}
		list := ""
		for quoted := range strings.SplitSeq(string(text), "'") {
			if strings.Contains(quoted, "k3s|k3s-agent") && !strings.ContainsAny(quoted, " \n") {
				list = quoted
			}
		}
		if list == "" {
			t.Fatalf("%s has no list of node agents", script)
		}
		for name := range strings.SplitSeq("kubelet|"+list, "|") {
			f := board()
			f["proc/7/comm"] = &fstest.MapFile{Data: []byte(name + "\n")}
			if others(f) == "" {
				t.Errorf("%s knows %s, islet doctor does not", script, name)
			}
		}
	}
}

// TestNodeAgentInContainer checks that a node agent in a container, such as a node of kind, is not a neighbour. A namespace that only root
// can read hides no neighbour.
func TestNodeAgentInContainer(t *testing.T) {
	for space, want := range map[string]string{"pid:[1]": "other-kubelet ", "pid:[2]": "", "": "other-kubelet "} {
		f := board()
		f["proc/7/comm"] = &fstest.MapFile{Data: []byte("kubelet\n")}
		if space != "" {
			f["proc/7/ns/pid"] = &fstest.MapFile{Data: []byte(space), Mode: fs.ModeSymlink}
		}
		f["proc/42/ns/pid"] = &fstest.MapFile{Data: []byte("pid:[1]"), Mode: fs.ModeSymlink}
		if got := others(f); got != want {
			t.Errorf("a kubelet in %s: %q, want %q", space, got, want)
		}
	}
}
