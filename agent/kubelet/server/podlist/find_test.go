package podlist_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/kubelet/server/podlist"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
)

// TestFind checks that a pod is found by its name on this node, and by the name of its mirror pod, which kubectl uses.
func TestFind(t *testing.T) {
	apply := podtest.New("web", podtest.UID("apply"), podtest.Source(keys.SourceLocal), podtest.Node("n"))
	same := podtest.New("web.n", podtest.UID("same"), podtest.Source(keys.SourceAPI), podtest.Node("n"))
	file := podtest.New("web-n", podtest.UID("file"), podtest.Source(keys.SourceFile), podtest.Node("n"))
	for _, c := range []struct {
		name string
		uid  types.UID
		pods []*v1.Pod
		want *v1.Pod
	}{
		{"web", "", []*v1.Pod{file, apply}, apply},
		{"web.n", "", []*v1.Pod{file, apply}, apply},
		{"web.n", "", []*v1.Pod{apply, same}, same},
		{"web.n", "", []*v1.Pod{same, apply}, same},
		{"web.n", "apply", []*v1.Pod{same, apply}, apply},
		{"web-n", "", []*v1.Pod{apply, file}, file},
		{"web-n.n", "", []*v1.Pod{apply, file}, nil},
		{"web.n", "file", []*v1.Pod{apply, file}, nil},
	} {
		if got, err := podlist.Find(c.pods, "default", c.name, c.uid); got != c.want || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
		if _, err := podlist.Find(c.pods, "other", c.name, ""); err == nil {
			t.Errorf("%s was found in another namespace", c.name)
		}
	}
}
