package configure

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/internal/config"
)

var kiosk = trial.Source{File: "bundle kiosk number 2", Bundle: "sha256:2"}

// TestBundleAndConfigMap checks that only one of a bundle and a ConfigMap is the source of the configuration. A node that follows a
// ConfigMap refuses the configuration of a bundle. A node that uses a bundle's configuration reports the ConfigMap, and does not use it.
func TestBundleAndConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "configuration: {configMap: fleet}\n")
		standalone := w.args
		w.args = append(w.args, "--kubeconfig="+w.dir+"/kubeconfig")
		r := w.start(guard.Role{})
		if _, _, err := r.PlanBundle(kubeletHead, "", kiosk); err == nil || !strings.Contains(err.Error(), "the node follows ConfigMap fleet: remove kubelet.yaml and edge.yaml") {
			t.Error(err)
		}
		if c, _, err := r.PlanBundle("", "", kiosk); c != nil || err != nil {
			t.Errorf("a bundle without a configuration: %v, %v", c, err)
		}
		w.args = standalone
		r = w.start(guard.Role{})
		c, before, err := r.PlanBundle(kubeletHead+"maxPods: 17\n", "", kiosk)
		if err != nil || before != "local" {
			t.Fatal(before, err)
		}
		if err := r.AssignBundle(c); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.PlanBundle(kubeletHead+"maxPods: 18\n", "", kiosk); !errors.Is(err, ErrBusy) {
			t.Errorf("another bundle: %v", err)
		}
		s := apitest.New(t)
		s.Put(configMap("fleet", kubeletHead+"maxPods: 30\n"))
		_, stop := w.follow(r, s)
		defer stop()
		time.Sleep(time.Second) // in the bubble's time
		got := r.Show()
		if got.Assigned == nil || got.Assigned.ID != c.ID || !strings.Contains(got.FollowProblem, "bundle kiosk number 2") {
			t.Errorf("%+v", got)
		}
		if c := r.Conditions(); len(c) != 1 || c[0].Reason != "Assigned" {
			t.Errorf("%+v", c)
		}
		if !slices.Equal(w.recorded(), []string{ReasonRefused}) {
			t.Errorf("events %v", w.recorded())
		}
	})
}

// TestBundleConsent checks that the configuration of a bundle needs the consent of the node. The consent that an operator gave for another
// configuration does not count.
func TestBundleConsent(t *testing.T) {
	w := newWorld(t, "configuration: {consent: [volumePluginDir]}\n")
	r := w.start(guard.Role{})
	if got := r.Received(); got != "" {
		t.Errorf("with the node's own files, %q is in use", got)
	}
	if err := w.apply(r, kubeletHead+"podCIDR: 10.9.0.0/24\n", "podCIDR"); err != nil || !r.beginTrial(t.Context(), r.record.Assigned) {
		t.Fatal(err)
	}
	rec, err := trial.Load(w.dir)
	if err != nil || !rec.Accept(time.Now()) {
		t.Fatal(err)
	}
	if err := trial.Save(w.dir, rec); err != nil {
		t.Fatal(err)
	}
	r = w.start(guard.Role{})
	if got, want := r.Received(), rec.Good.ID+" from "; !strings.HasPrefix(got, want) {
		t.Errorf("%q is in use, want %q", got, want)
	}
	for text, want := range map[string]string{
		"podCIDR: 10.8.0.0/24\n": "podCIDR: Forbidden", "podCIDR: 10.9.0.0/24\n": "",
		"podCIDR: 10.9.0.0/24\nvolumePluginDir: /elsewhere\n": "", "podCIDR: 10.9.0.0/24\nreadOnlyPort: 10255\n": "readOnlyPort: Forbidden",
	} {
		_, _, err := r.PlanBundle(kubeletHead+text, "", kiosk)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestAssignedBetween checks the race of a bundle with other sources between its plan and its assignment. A bundle does not replace the
// request of an operator. A ConfigMap does not replace the configuration of a bundle.
func TestAssignedBetween(t *testing.T) {
	w := newWorld(t, "")
	r := w.start(guard.Role{})
	c, _, err := r.PlanBundle(kubeletHead+"maxPods: 17\n", "", kiosk)
	if err == nil {
		err = w.apply(r, kubeletHead+"maxPods: 18\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.AssignBundle(c); !errors.Is(err, ErrBusy) || r.record.Assigned.ID == c.ID {
		t.Errorf("%v, %+v", err, r.record.Assigned)
	}
	w = newWorld(t, "")
	r = w.start(guard.Role{})
	if err := r.AssignBundle(c); err != nil {
		t.Fatal(err)
	}
	cm := trial.New(kubeletHead+"maxPods: 19\n", "", nil, trial.Source{Namespace: "kube-system", Name: "fleet"}, time.Now())
	if err := r.Offer(cm, false, false); !errors.Is(err, ErrBusy) || r.record.Assigned.ID != c.ID {
		t.Errorf("%v, %+v", err, r.record.Assigned)
	}
}

// TestBundleDuringFallback checks that a configuration does not count as in use while the agent has fallen back to an earlier one.
func TestBundleDuringFallback(t *testing.T) {
	w := newWorld(t, "")
	r := w.start(guard.Role{})
	c, _, err := r.PlanBundle(kubeletHead+"maxPods: 17\n", "", kiosk)
	if err != nil {
		t.Fatal(err)
	}
	if err := trial.Save(w.dir, trial.Record{Good: c}); err != nil {
		t.Fatal(err)
	}
	for reason, want := range map[string]bool{"": true, "no such cgroup": false} {
		role := guard.Role{UnfitReason: reason}
		if !want {
			role.Passed = 1
		}
		r := w.start(role)
		if used := r.UsesConfiguration(c.ID); used != want {
			t.Errorf("%q: the configuration is in use: %v", reason, used)
		}
		if _, _, err := r.PlanBundle(c.Kubelet, "", kiosk); (err == nil) != want || err != nil && !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %v", reason, err)
		}
	}
}

// TestAbandonUnreadable checks that a configuration does not count as given up while the record of configurations cannot be read.
func TestAbandonUnreadable(t *testing.T) {
	w := newWorld(t, "")
	r := w.start(guard.Role{})
	if done, err := r.AbandonBundle("x"); !done || err != nil {
		t.Error(done, err)
	}
	r.recordError = trial.ErrNewer
	if done, err := r.AbandonBundle("x"); done || !errors.Is(err, trial.ErrNewer) {
		t.Error(done, err)
	}
	if v, _ := r.BundleResult("x"); v != trial.Bad {
		t.Error("an unknown configuration:", v)
	}
	r.recordError, r.isEnding = nil, true
	if done, err := r.AbandonBundle("x"); done || err != nil {
		t.Error("the agent ends, so the next one decides:", done, err)
	}
}

// TestAssignedAgain checks that no trial begins if another configuration was assigned than the one for which the trials of bundles are
// held.
func TestAssignedAgain(t *testing.T) {
	w := newWorld(t, "")
	r := w.start(guard.Role{})
	for i, text := range []string{"maxPods: 17\n", "maxPods: 18\n"} {
		first := r.record.Assigned
		if err := w.apply(r, kubeletHead+text); err != nil {
			t.Fatal(err)
		}
		if i > 0 && r.beginTrial(t.Context(), first) {
			t.Error("a trial of a configuration began that is not held")
		}
	}
	if !r.beginTrial(t.Context(), r.record.Assigned) {
		t.Error("no trial began")
	}
}

// TestAbandonOnTrial checks an agent on trial. It ends only if the configuration that is given up is the one on trial.
func TestAbandonOnTrial(t *testing.T) {
	w := newWorld(t, "")
	r := w.start(guard.Role{})
	c, _, err := r.PlanBundle(kubeletHead+"maxPods: 17\n", "", kiosk)
	if err == nil {
		err = r.AssignBundle(c)
	}
	if err != nil || !r.beginTrial(t.Context(), r.record.Assigned) {
		t.Fatal(err)
	}
	text := `{"trial":{"digest":"sha256:2"},"configurations":{"sha256:2":{"id":"` + c.ID + `"}}}`
	if err := os.WriteFile(filepath.Join(w.dir, trial.BundleFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r = w.start(guard.Role{Kind: guard.Trial})
	if r.cfg.Kubelet.MaxPods != 17 {
		t.Fatal("it is not on trial")
	}
	if done, err := r.AbandonBundle("another"); !done || err != nil || r.isEnding {
		t.Error("another configuration:", done, err)
	}
	if done, err := r.AbandonBundle(c.ID); done || err != nil || !r.isEnding {
		t.Error("the configuration on trial:", done, err)
	}
}

// TestBundleFallback checks that the configuration of a bundle counts as failed if the host cannot use it, even after a successful trial.
func TestBundleFallback(t *testing.T) {
	w := newWorld(t, "")
	r := w.start(guard.Role{})
	c, other := trial.New("x", "", nil, kiosk, time.Now()), trial.New("y", "", nil, trial.Source{}, time.Now())
	r.record.Good = c
	if v, why := r.BundleResult(c.ID); v != trial.Good {
		t.Error(v, why)
	}
	r.fallbackReason = errors.New("the port is taken")
	if v, why := r.BundleResult(c.ID); v != trial.Bad || !strings.Contains(why, "the port is taken") {
		t.Error(v, why)
	}
	r.record.Before = other
	if err := r.CheckReturn(trial.Change{ID: c.ID, Before: "local"}); err == nil || !strings.Contains(err.Error(), "no longer stored") {
		t.Error("others were sent since:", err)
	}
	if err := r.CheckReturn(trial.Change{ID: c.ID, Before: other.ID}); err == nil || !strings.Contains(err.Error(), "no longer valid") {
		t.Error("the configuration before is not valid:", err)
	}
	if err := r.CheckReturn(trial.Change{ID: other.ID, Before: "local"}); err != nil {
		t.Error("the configuration of the bundle is not in use:", err)
	}
}

// TestRemovedIndexKeys checks that a configuration that would bring back a removed key of the index is found, unless its document names the
// key.
func TestRemovedIndexKeys(t *testing.T) {
	with := func(keys ...string) *config.Config {
		return &config.Config{Edge: config.EdgeConfiguration{Update: config.Updates{IndexKeys: keys}}}
	}
	for _, x := range []struct {
		now, next *config.Config
		document  string
		want      string
	}{
		{with("a"), with("a"), "", ""},
		{with("a", "b"), with("a"), "", ""},
		{with("a"), with(), "", ""},
		{with("a"), with("a", "b"), "", "update.indexKeys"},
		{with("a"), with("b"), "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nupdate: {indexKeys: [b]}\n", ""},
	} {
		if got := strings.Join(weakenedFields(x.now, x.next, x.document), " "); got != x.want {
			t.Errorf("%q after %q: %q, want %q", x.next.Edge.Update.IndexKeys, x.now.Edge.Update.IndexKeys, got, x.want)
		}
	}
}
