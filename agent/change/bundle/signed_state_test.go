package bundle

import (
	"context"
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/api"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/signed"
)

// TestState checks the state document of a node, and that the node has signed it.
func TestState(t *testing.T) {
	w := newWorld(t)
	w.must(Record{Current: new(Bundle{"kiosk", 4, someDigest("4")}), Last: &Outcome{Bundle: Bundle{"kiosk", 5, someDigest("5")},
		Result: Failed, Why: "web"}}.save(w.dir))
	n := w.boot(nil)
	n.SetFacts("0.3.0", func(_ context.Context, s *api.Status) { s.Flash = &api.Flash{Days: 3} })
	good, bad := w.pod("good"), w.pod("bad")
	bad.Pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a", State: v1.ContainerState{
		Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
	w.bad["bad"] = true
	w.sourcePods = []desired.SourcePod{{Pod: good.Pod}, {Pod: bad.Pod}}
	text, err := n.Report(t.Context())
	w.must(err)
	var document format.SignedState
	w.must(json.Unmarshal(text, &document))
	if key, err := document.Verify(); err != nil || key.ID() != signed.PublicKey(w.key).ID() {
		t.Errorf("%v, %v", key, err)
	}
	var s api.BundleState
	w.must(json.Unmarshal(document.State, &s))
	if s.Node != "a" || !s.Time.Equal(w.clock) || s.Current.Number != 4 || s.Last.Why != "web" || s.Wear.Days != 3 ||
		s.Versions.Islet != "0.3.0" || s.Versions.Kernel == "" || s.Disk.Free == 0 {
		t.Errorf("%s", document.State)
	}
	want := []api.BundlePod{{Name: "default/good", Ready: true}, {Name: "default/bad", Reason: "ImagePullBackOff"}}
	if len(s.Pods) != 2 || s.Pods[0] != want[0] || s.Pods[1] != want[1] {
		t.Errorf("%+v, want %+v", s.Pods, want)
	}
}
