package twin

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
)

// leaseOf returns the Lease of a machine that renewed it at a time.
func leaseOf(w *Twin, renewed int64) *coordinationv1.Lease {
	at := metav1.NewMicroTime(time.Unix(renewed, 0))
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "9", Annotations: map[string]string{
		keys.LeaseClaim: w.claim.String()}}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
}

// TestRestored restores the store of a machine on another one. The other machine waits while the first one renews the Lease, and starts no
// pod that writes to a shared volume. Then it claims the name with a higher term, and the first machine backs off when it comes back.
func TestRestored(t *testing.T) {
	old := joined(t, "one", "b1")
	first := open(t, old, "one", "b1")
	text, err := Restored(old[MetaKey], "n")
	if err != nil {
		t.Fatal(err)
	}
	card := memory{MetaKey: text}
	second := open(t, card, "two", "b2")
	held := func(want bool, when string) {
		t.Helper()
		pod := podtest.New("p", podtest.Source(keys.SourceAPI), podtest.Claims("c"))
		if err := (Hold{Twin: second, IsRunning: func(types.UID) bool { return false }}).Prepare(t.Context(), pod); (err != nil) != want {
			t.Errorf("%s: %v", when, err)
		}
	}
	for renewed := range int64(3) { // the first machine is alive
		if second.evaluateLease(leaseOf(first, renewed)); second.state != newcomer {
			t.Fatalf("the restored machine has the name after %d reads", renewed+1)
		}
		held(true, "the first machine is alive")
	}
	result := make(chan error)
	go func() {
		_, err := second.TakeOver(t.Context(), false)
		result <- err
	}()
	<-second.Changed() // the reads begin again
	for renewed := range int64(2) {
		if second.evaluateLease(leaseOf(first, 3+renewed)); second.state != newcomer {
			t.Fatalf("the restored machine has the name after %d reads of a takeover", renewed+1)
		}
		held(true, "a takeover, and the first machine is alive")
	}
	if err := <-result; err == nil {
		t.Error("a takeover while the first machine is alive")
	}
	if second.evaluateLease(leaseOf(first, 4)); second.state != owningState || second.claim.term != first.claim.term+1 {
		t.Fatalf("state %d, term %d", second.state, second.claim.term)
	}
	held(false, "the first machine is gone")
	m := &metav1.ObjectMeta{ResourceVersion: "10", Annotations: map[string]string{keys.LeaseClaim: second.claim.String()}}
	second.EvaluateLease(t.Context(), m)
	for _, boot := range []string{"b1", "b3"} { // after an outage of the network, and after a boot
		back := open(t, memory{MetaKey: old[MetaKey]}, "one", boot)
		if back.EvaluateLease(t.Context(), m); back.HoldReason() == "" {
			t.Errorf("the first machine uses the name in boot %s", boot)
		}
	}
	again := open(t, card, "two", "b4")
	if again.EvaluateLease(t.Context(), m); again.state != owningState || again.HoldReason() != "" {
		t.Error("the restored machine does not keep the name after a boot")
	}
	for name, text := range map[string]string{"another node's": `{"node":"m","term":7}`, "broken": "{", "missing": ""} {
		if got, err := Restored(text, "n"); err != nil || got != `{"node":"n","marks":{},"restored":true}` {
			t.Errorf("%s record: %s, %v", name, got, err)
		}
	}
	// The same board with a new disk, and a cluster that has lost the Lease, need no wait.
	for name, lease := range map[string]*coordinationv1.Lease{"the same board": leaseOf(first, 1), "no Lease": {}} {
		w := open(t, memory{MetaKey: text}, "one", "b5")
		if w.evaluateLease(lease); w.state != owningState {
			t.Errorf("%s: state %d", name, w.state)
		}
	}
}

// TestRestoredInDoubt restores the store of a machine on another one, whose Lease does not say which machine renews it. The restored
// machine waits until nobody renews the Lease.
func TestRestoredInDoubt(t *testing.T) {
	old := joined(t, "one", "b1")
	first := open(t, old, "one", "b1")
	text, err := Restored(old[MetaKey], "n")
	if err != nil {
		t.Fatal(err)
	}
	none := func(l *coordinationv1.Lease, _ *Twin) { l.Annotations = nil }
	for name, change := range map[string]func(*coordinationv1.Lease, *Twin){
		"no claim":         none,
		"no valid claim":   func(l *coordinationv1.Lease, _ *Twin) { l.Annotations[keys.LeaseClaim] = "x" },
		"unknown hardware": func(_ *coordinationv1.Lease, w *Twin) { w.now = Marks{} },
		"unknown hardware of the other one": func(l *coordinationv1.Lease, _ *Twin) {
			l.Annotations[keys.LeaseClaim] = nameClaim{hardware: unknownHardware, boot: first.claim.boot}.String()
		},
	} {
		w := open(t, memory{MetaKey: text}, "two", "b2")
		for renewed := range int64(3) {
			lease := leaseOf(first, renewed)
			change(lease, w)
			if w.evaluateLease(lease); w.state != newcomer {
				t.Fatalf("%s: the machine has the name after %d reads", name, renewed+1)
			}
		}
		lease := leaseOf(first, 2)
		change(lease, w)
		if w.evaluateLease(lease); w.state != owningState || w.claim.term <= first.claim.term {
			t.Errorf("%s: state %d, term %d", name, w.state, w.claim.term)
		}
	}
	// A server that shows no Lease for a moment does not decide.
	status := http.StatusForbidden
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	c, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return &rest.Config{Host: server.URL}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	w := open(t, memory{MetaKey: text}, "two", "b2")
	if why, _, err := w.CheckOwner(t.Context(), c); err == nil || w.state != newcomer {
		t.Errorf("Forbidden: state %d, %q, %v", w.state, why, err)
	}
	status = http.StatusNotFound
	if why, _, err := w.CheckOwner(t.Context(), c); why != "" || err != nil {
		t.Errorf("NotFound: %q, %v", why, err)
	}
}
