package pods_test

import (
	"encoding/json"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

func TestWatch(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("a", time.Now(), "app")
	resp, err := n.Client().Get("http://islet" + api.PathPods)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	next := func() string {
		t.Helper()
		var e api.PodEvent
		if err := dec.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if e.Pod == nil {
			return e.Type
		}
		return e.Type + " " + e.Pod.Name
	}
	want := func(events ...string) {
		t.Helper()
		for _, w := range events {
			if got := next(); got != w {
				t.Fatalf("got %s, want %s", got, w)
			}
		}
	}
	want("ADDED a", "SYNCED")
	b := n.Pod("b", time.Now(), "app")
	want("ADDED b")
	n.Put(b.DeepCopy()) // an unchanged pod
	b = b.DeepCopy()
	b.Status.Phase = v1.PodFailed
	n.Put(b)
	want("MODIFIED b")
	n.Remove(b.UID)
	want("DELETED b")
}
