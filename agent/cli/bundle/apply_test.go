package bundle_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/local/node"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
)

// oneTrial starts the trial of every bundle. It returns the path of the bundle as the name.
type oneTrial struct{}

func (oneTrial) Status() (api.Bundles, error) { return api.Bundles{}, nil }

func (oneTrial) State(context.Context) (*bundle.SignedState, error) {
	return bundle.SignState(api.BundleState{Node: "a"}, ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
}

func (oneTrial) Apply(_ context.Context, from string, _ bool, _ func(string, int64, int64)) (api.Bundle, error) {
	if filepath.Base(from) == "bad.tar" {
		return api.Bundle{}, errors.New("it is not a bundle")
	}
	return api.Bundle{Name: from, Number: 3}, nil
}

func (oneTrial) Revert(context.Context) (api.Bundles, error) { return api.Bundles{}, nil }

// TestBundleApplyFile checks the exit codes of islet bundle apply, and that the agent gets the name of a bundle on a server unchanged.
func TestBundleApplyFile(t *testing.T) {
	n, _ := servertest.Start(t, func(c *server.Config) { c.BundleTrials = oneTrial{} })
	dir := t.TempDir()
	for _, name := range []string{"good.tar", "bad.tar"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for from, want := range map[string]struct {
		code int
		out  string
	}{
		"good.tar":                        {command.ExitOK, dir + "/good.tar number 3 is on trial"},
		dir:                               {command.ExitOK, dir + " number 3 is on trial"},
		"bad.tar":                         {command.ExitFailed, "it is not a bundle"},
		"none.tar":                        {command.ExitNotFound, "no file none.tar"},
		"oci://registry.example.com/k:42": {command.ExitOK, "oci://registry.example.com/k:42 number 3 is on trial"},
		"https://example.com/kiosk.tar":   {command.ExitOK, "https://example.com/kiosk.tar number 3 is on trial"},
	} {
		if got := run(t, n, "", "bundle", "apply", "-q", from); got.Code != want.code || !strings.Contains(got.Out+got.Err, want.out) {
			t.Errorf("%s: %+v", from, got)
		}
	}
}

// TestBundleState checks that the state that islet bundle status prints is signed, also after another program has formatted it, and that a
// changed state is detected.
func TestBundleState(t *testing.T) {
	n, _ := servertest.Start(t, func(c *server.Config) { c.BundleTrials = oneTrial{} })
	got := run(t, n, "", "bundle", "status", "-o", "json")
	var s bundle.SignedState
	if err := json.Unmarshal([]byte(got.Out), &s); err != nil || got.Code != command.ExitOK {
		t.Fatalf("%+v, %v", got, err)
	}
	if key, err := s.Verify(); err != nil || key.String() != s.Key || !strings.Contains(string(s.State), `"node": "a"`) {
		t.Errorf("%s, %v", s.State, err)
	}
	s.State = []byte(strings.Replace(string(s.State), `"a"`, `"b"`, 1))
	if _, err := s.Verify(); err == nil {
		t.Error("a changed state has a right signature")
	}
}

// TestBundleCollect checks the table of the states of nodes. A state that was changed, and one of an unknown key, are errors, and the table
// has the others.
func TestBundleCollect(t *testing.T) {
	o := newOffice(t)
	state := func(node string, seed byte, s api.BundleState) {
		t.Helper()
		s.Node = node
		key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
		d, err := bundle.SignState(s, key)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		o.write(node+".json", string(text))
		o.write(node+".key", d.Key+"\n")
	}
	state("a", 1, api.BundleState{Bundles: api.Bundles{Current: &api.Bundle{Name: "kiosk", Number: 42},
		Medium: &api.BundleMedium{Result: "kept"}}, Pods: []api.BundlePod{{Name: "default/web", Ready: true}}})
	state("b", 2, api.BundleState{Bundles: api.Bundles{Current: &api.Bundle{Name: "kiosk", Number: 41},
		Medium: &api.BundleMedium{Result: "failed", Why: "not Ready before the deadline: default/web (<x>)"}},
		Pods: []api.BundlePod{{Name: "default/web"}}})
	state("c", 3, api.BundleState{})
	o.run(0, "collect @a.json @b.json @c.json", "NODE", "kiosk 42", "kept", "1/1", "kiosk 41", "failed", "0/1", "default/web (<x>)", "none")
	failed := &api.BundleOutcome{Result: "failed", Why: "web crashes", Time: time.Unix(1, 0)}
	state("f", 6, api.BundleState{Bundles: api.Bundles{Last: failed, Medium: &api.BundleMedium{Result: "nothing", Time: time.Unix(2, 0)}}})
	state("g", 7, api.BundleState{Bundles: api.Bundles{Last: failed, Medium: &api.BundleMedium{Result: "kept"}}})
	o.run(0, "collect @f.json", "failed", "web crashes") // the stick has only collected the state
	o.run(0, "collect @g.json", "failed", "web crashes") // of a bundle after that of the stick
	state("h", 8, api.BundleState{Bundles: api.Bundles{Source: &api.BundleSource{Problem: "certificate has expired"}}})
	o.run(0, "collect @h.json", "certificate has expired")
	o.write("d.json", strings.Replace(o.read("a.json"), "42", "43", 1))
	o.run(1, "collect @d.json @a.json", "d.json: the signature is wrong", "kiosk 42")
	o.run(1, "collect --keys @b.key @b.json @a.json", "a.json: it is signed by the key ", "kiosk 41")
	o.write("e.json", "[]")
	o.run(1, "collect @e.json", "it is not the state of a node")
	o.run(4, "collect @none.json", "no file")
	o.run(2, "collect", "needs files")
}

// A failingTrial is a node that returns from a bundle with a configuration. Its first answer is that of the agent that restarts then.
type failingTrial struct {
	oneTrial
	asked *int
}

func (f failingTrial) Status() (api.Bundles, error) {
	*f.asked++
	b := api.Bundle{Name: "good.tar", Number: 3}
	return api.Bundles{Last: &api.BundleOutcome{Bundle: b, Result: "failed", Why: "a pod"}, Returning: *f.asked == 1}, nil
}

func (failingTrial) Revert(context.Context) (api.Bundles, error) {
	return api.Bundles{Returning: true}, nil
}

// TestBundleReturning checks that islet bundle apply --wait waits until the configuration before the bundle is in use again, and that
// revert says that the agent restarts.
func TestBundleReturning(t *testing.T) {
	asked := 0
	n, _ := servertest.Start(t, func(c *server.Config) { c.BundleTrials = failingTrial{asked: &asked} })
	file := filepath.Join(t.TempDir(), "good.tar")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := run(t, n, "", "bundle", "apply", "--wait", "-q", file)
	if got.Code != command.ExitFailed || !strings.Contains(got.Err, "a pod") || asked != 2 {
		t.Errorf("%+v, asked %d times", got, asked)
	}
	if got := run(t, n, "", "bundle", "revert"); got.Code != command.ExitOK || !strings.Contains(got.Out, "The agent restarts") {
		t.Errorf("%+v", got)
	}
}

// withVersion answers the first application with a version of islet that is tried first.
type withVersion struct {
	oneTrial
	applied *int
}

func (w withVersion) Apply(_ context.Context, from string, _ bool, _ func(string, int64, int64)) (api.Bundle, error) {
	*w.applied++
	b := api.Bundle{Name: "kiosk", Number: 3}
	if *w.applied == 1 || filepath.Base(from) == "again.tar" {
		b.Update = &api.Update{Version: "9.1.0", ID: "islet-9.1.0-ab"}
	}
	return b, nil
}

// triedVersion is the node's configuration after the trial of a version of islet.
type triedVersion struct {
	node.Configurer
	failed bool
}

func (v triedVersion) Show() api.Configuration {
	if v.failed {
		return api.Configuration{FailedUpdate: &api.ConfigurationFailure{ID: "islet-9.1.0-ab", Why: "it crashed"}}
	}
	return api.Configuration{History: []api.ConfigurationTrial{{ID: "islet-9.1.0-ab"}}}
}

// TestBundleApplyVersion checks that islet bundle apply waits for the trial of the version of islet in the bundle, and then applies the
// bundle again. It does not apply the bundle if the version has failed, and it does not repeat this for ever.
func TestBundleApplyVersion(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kiosk.tar")
	again := filepath.Join(filepath.Dir(file), "again.tar")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.WriteFile(again, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file          string
		failed        bool
		code, applied int
		want          string
	}{
		"kept":   {file, false, command.ExitOK, 2, "version 9.1.0 is installed and runs (0s)\nkiosk number 3 is on trial"},
		"failed": {file, true, command.ExitFailed, 1, "version 9.1.0 failed, the previous version is running: it crashed"},
		"again":  {again, false, command.ExitFailed, 2, "version 9.1.0 of islet is tried again"},
	} {
		applied := 0
		n, _ := servertest.Start(t, func(s *server.Config) {
			s.BundleTrials, s.Configuration = withVersion{applied: &applied}, triedVersion{failed: c.failed}
		})
		got := run(t, n, "", "bundle", "apply", "-q", c.file)
		if got.Code != c.code || applied != c.applied || !strings.Contains(got.Out+got.Err, c.want) {
			t.Errorf("%s: applied %d times, %+v", name, applied, got)
		}
	}
}
