package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/trial"
	"github.com/islet-edge/islet/agent/change/update"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/release"
	"github.com/islet-edge/islet/internal/rollout"
)

// withArchive returns a change of a source directory that adds a signed archive of islet with another program of this machine.
func (w *world) withArchive(version, program string, key ed25519.PrivateKey) func(string) {
	text, err := os.ReadFile(program)
	w.must(err)
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	t := tar.NewWriter(z)
	w.must(t.WriteHeader(&tar.Header{Name: "islet-" + version + "/islet", Size: int64(len(text)), Mode: 0o755, Typeflag: tar.TypeReg}))
	_, err = t.Write(text)
	w.must(errors.Join(err, t.Close(), z.Close()))
	r, err := release.Describe(version, runtime.GOARCH, bytes.NewReader(archive.Bytes()))
	w.must(err)
	return func(dir string) {
		file := filepath.Join(dir, "islet", "islet.tar.gz")
		w.must(errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, archive.Bytes(), 0o600),
			os.WriteFile(file+update.Suffix, r.Sign(key), 0o600)))
	}
}

// updater returns the real Updater of a node that follows an index, with the real record of trials. It trusts archives that are signed by
// the key.
func (w *world) updater(key ed25519.PublicKey) *update.Updater {
	dir := filepath.Join(w.dir, "updates")
	program := filepath.Join(dir, "bin", "islet")
	w.must(errors.Join(os.MkdirAll(filepath.Dir(program), 0o755), os.WriteFile(program, []byte("old"), 0o755)))
	s := configure.Begin(guard.Role{}, []string{"--hostname-override=a", "--state-dir=" + dir, "--run-dir=" + dir + "/run",
		"--root-dir=" + dir + "/root", "--fail-swap-on=false"})
	cfg, _, err := s.Load()
	w.must(err)
	k, err := configure.Open(configure.Config{Config: cfg, Start: s, Version: "0.2.0", IsNewer: release.IsNewer, Events: event.Discard{},
		End: func(error) {}, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	w.must(err)
	return update.New(update.Config{
		Stager: update.Stager{Dir: filepath.Join(dir, "update"), Program: program, Version: "0.2.0", Arch: runtime.GOARCH,
			Keys: []release.Key{release.Key(key)}, Threshold: 1, Client: http.DefaultClient, Log: slog.New(slog.DiscardHandler)},
		IsRefused: k.IsRefused, AddUntried: k.AddUntriedProgram, StagedPath: k.StagedPath, CheckOffer: k.CheckOffer,
		Offer: func(*update.StagedProgram, string, bool) (string, bool, error) {
			return "", false, errors.New("a program that fails its self-test is offered")
		},
		Index: update.IndexConfig{Source: "https://office.example.com/index", Trials: k.ProgramTrials,
			Node: rollout.Node{Name: "a", Arch: runtime.GOARCH}},
	})
}

// TestUntestedProgram applies a bundle with a version of islet whose self-test has no result, or crashes. The node does not use the bundle,
// and each report of the node contains the reason. After the third crash the version counts as failed, and the node does not test the
// version again. /bin/false ends without a result; a shell without a script ends like a crash.
func TestUntestedProgram(t *testing.T) {
	const untested, unfit = api.UpdateUntested, api.UpdateUnfit
	for program, want := range map[string][]string{
		"/bin/false": {untested, untested, untested, untested},
		"/bin/sh":    {untested, untested, unfit, unfit},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, o := newWorld(t), &office{t: t}
			public, key, err := ed25519.GenerateKey(rand.Reader)
			w.must(err)
			file := w.bundle(1, w.withArchive("9.1.0", program, key))
			n, stop := o.startNodeWith(w, w.updater(public))
			defer stop()
			for i, want := range want {
				seen := feed.Seen{}
				_, err := n.apply(t.Context(), request{from: file, followed: true, seen: &seen}, func(string, int64, int64) {})
				if err == nil || errors.Is(err, update.ErrFailed) != (want == unfit && i == 3) || errors.Is(err, trial.ErrBusy) {
					t.Errorf("%q, attempt %d: %v", program, i, err)
				}
				time.Sleep(time.Hour)
				_, states := o.set(nil)
				if i == 3 && want == unfit { // nothing has changed
					if len(states) > 0 {
						t.Errorf("%q, attempt %d: %+v", program, i, states)
					}
					continue
				}
				if len(states) == 0 || states[len(states)-1].Update == nil {
					t.Fatalf("%q, attempt %d: %+v", program, i, states)
				}
				u := states[len(states)-1].Update
				if last := len(u.Trials) - 1; last < 0 || u.Trials[last].Result != want || u.Trials[last].Why == "" ||
					slices.Contains(u.Refused, u.Trials[last].ID) != (want == unfit) {
					t.Errorf("%q, attempt %d: %+v, want %s", program, i, u, want)
				}
			}
			if r := n.now(); r.Trial != nil || r.Current != nil || r.Last != nil || len(w.folders()) > 0 {
				t.Errorf("%q: the bundle was used: %+v", program, r)
			}
		})
	}
}
