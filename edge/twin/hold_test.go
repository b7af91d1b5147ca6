package twin

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
)

type memory map[string]string

func (m memory) Meta(_ context.Context, key string) (string, bool, error) {
	v, ok := m[key]
	return v, ok, nil
}

func (m memory) SetMetaOrRetry(_ context.Context, key, value string) error {
	m[key] = value
	return nil
}

func open(t *testing.T, m memory, serial, boot string) *Twin {
	t.Helper()
	w, err := New(t.Context(), Config{
		Node: "n", Boot: boot, Marks: func() (s, c []string) { return []string{serial}, nil }, Meta: m, Renew: time.Minute,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// joined returns the store of a machine that already uses the node name.
func joined(t *testing.T, serial, boot string) memory {
	t.Helper()
	m := memory{}
	w := open(t, m, serial, boot)
	w.claimName()
	w.EvaluateLease(t.Context(), &metav1.ObjectMeta{ResourceVersion: "7"})
	w.EvaluateLease(t.Context(), &metav1.ObjectMeta{ResourceVersion: "8", Annotations: map[string]string{keys.LeaseClaim: w.claim.String()}})
	if m[MetaKey] == "" {
		t.Fatal("no record was stored")
	}
	return m
}

// TestMarksUnlocked checks that other callers can read the state while the machine's identifying marks are being read.
func TestMarksUnlocked(t *testing.T) {
	m, read := joined(t, "one", "boot"), 0
	w := open(t, m, "two", "boot2") // the disk comes from another machine
	w.cfg.Marks = func() (s, c []string) {
		read++
		if w.mu.TryLock() {
			w.mu.Unlock()
		} else {
			t.Error("the lock is held")
		}
		return []string{"two"}, nil
	}
	if why, _ := w.checkName(); why == "" {
		t.Fatal("the machine has the name")
	}
	if _, err := w.TakeOver(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	w.EvaluateLease(t.Context(), &metav1.ObjectMeta{ResourceVersion: "9"})
	w.EvaluateLease(t.Context(), &metav1.ObjectMeta{ResourceVersion: "10", Annotations: map[string]string{keys.LeaseClaim: w.claim.String()}})
	if read != 3 {
		t.Errorf("the marks were read %d times", read)
	}
}

// TestHold checks that a machine with another machine's disk starts pods as usual. Only pods of the API server that write to volumes
// outside of the machine must wait.
func TestHold(t *testing.T) {
	of := func(s v1.VolumeSource) []v1.Volume { return []v1.Volume{{Name: "v", VolumeSource: s}} }
	pvc := of(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}})
	for name, c := range map[string]struct {
		source  string
		volumes []v1.Volume
		running bool
		held    bool
	}{
		"a claim":              {keys.SourceAPI, pvc, false, true},
		"a pod that runs":      {keys.SourceAPI, pvc, true, false},
		"a static pod":         {keys.SourceFile, pvc, false, false},
		"an applied pod":       {keys.SourceLocal, pvc, false, false},
		"no volume":            {keys.SourceAPI, nil, false, false},
		"a claim that is read": {keys.SourceAPI, of(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: true}}), false, false},
		"a claim of its own":   {keys.SourceAPI, of(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}), false, true},
		"a driver's volume":    {keys.SourceAPI, of(v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}), false, true},
		"a driver's, only read": {keys.SourceAPI, of(v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d",
			ReadOnly: new(true)}}), false, false},
		"a directory":           {keys.SourceAPI, of(v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/data"}}), false, false},
		"a token":               {keys.SourceAPI, of(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}), false, false},
		"the second is a claim": {keys.SourceAPI, append(of(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}), pvc...), false, true},
	} {
		card := joined(t, "one", "b1")
		pod := podtest.New("p", podtest.Source(c.source), podtest.Volumes(c.volumes...))
		h := Hold{Twin: open(t, card, "two", "b2"), IsRunning: func(types.UID) bool { return c.running }}
		if err := h.Prepare(t.Context(), pod); (err != nil) != c.held || err != nil && !strings.Contains(err.Error(), "islet takeover") {
			t.Errorf("%s in another machine: %v", name, err)
		}
		for what, h := range map[string]Hold{"its own machine": {Twin: open(t, card, "one", "b2"), IsRunning: h.IsRunning},
			"a node without a cluster": {}} {
			if err := h.Prepare(t.Context(), pod); err != nil {
				t.Errorf("%s in %s: %v", name, what, err)
			}
		}
	}
}

// TestRecord checks that an invalid record, or a record of another node, does not block a machine. Within one boot, the machine writes its
// claim once.
func TestRecord(t *testing.T) {
	card := joined(t, "one", "b1")
	w := open(t, card, "one", "b1")
	for range 10 {
		if w.EvaluateLease(t.Context(), &metav1.ObjectMeta{Annotations: map[string]string{keys.LeaseClaim: w.claim.String()}}) {
			t.Error("its own claim is renewed again")
		}
		if a := w.Annotations(false); a != nil {
			t.Error("its own claim is written again:", a)
		}
	}
	for name, m := range map[string]memory{"broken": {MetaKey: "{"},
		"another node's": {MetaKey: strings.Replace(card[MetaKey], `"n"`, `"m"`, 1)}} {
		if w := open(t, m, "two", "b2"); w.state != newcomer || w.HoldReason() != "" {
			t.Errorf("%s: state %d, %s", name, w.state, w.HoldReason())
		}
	}
}

// FuzzNameClaim checks that the text of a claim does not change when it is parsed and formatted. The length of the text must be limited.
func FuzzNameClaim(f *testing.F) {
	f.Add("0123456789.abcdefabcd.1.1234")
	f.Add("-.abcdefabcd.0.0")
	f.Add("..1.1")
	f.Fuzz(func(t *testing.T, s string) {
		c, ok := parseNameClaim(s)
		if !ok {
			return
		}
		if again, ok := parseNameClaim(c.String()); !ok || again != c || len(s) > maxNameClaim {
			t.Errorf("%q became %v, then %v", s, c, again)
		}
		if c.hasPriorityOver(c) {
			t.Errorf("%q is before itself", s)
		}
		if n, ok := parseNotice(s); ok && strings.Trim(n.hardware+n.boot, "-0123456789abcdef") != "" {
			t.Errorf("notice %q", s)
		}
	})
}
