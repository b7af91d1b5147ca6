package desired

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podtest"
)

// A world is a Desired with its store. A test can restart the Desired.
type world struct {
	testing.TB
	*Desired
	db    *store.Store
	path  string
	hold  bool
	poked []types.UID
}

func newWorld(t testing.TB) *world {
	w := &world{TB: t, path: filepath.Join(t.TempDir(), "islet.db")}
	w.restart()
	t.Cleanup(func() { w.db.Close() })
	return w
}

func (w *world) restart() {
	w.Helper()
	if w.Desired != nil {
		if err := w.db.Close(); err != nil {
			w.Fatal(err)
		}
	}
	log := slog.New(slog.NewTextHandler(w.Output(), nil))
	var err error
	if w.db, err = store.Open(context.Background(), w.path, log); err != nil {
		w.Fatal(err)
	}
	poke := func(uid types.UID) { w.poked = append(w.poked, uid) }
	if w.Desired, err = New(Config{Store: w.db, Poke: poke, Hold: w.hold, Log: log}); err != nil {
		w.Fatal(err)
	}
}

// pod returns the pod of a spec "name/uid" or "name/uid/version". Pods of different versions have different content.
func pod(spec string) *v1.Pod {
	part := strings.Split(spec+"//", "/")
	return podtest.New(part[0], podtest.UID(part[1]), podtest.Label("version", part[2]), podtest.GracePeriod(7))
}

// sourcePods returns a SourcePod for each argument "name/uid" or "name/uid/version". The UID is also the name of the pod's manifest, so
// each pod comes from another file.
func sourcePods(specs ...string) (all []SourcePod) {
	for _, spec := range specs {
		all = append(all, SourcePod{Pod: pod(spec), Origin: "/manifests/" + strings.Split(spec, "/")[1]})
	}
	return all
}

// show returns each pod as "uid", "uid deleting" or "uid waiting other".
func (w *world) show() string {
	var out []string
	for _, p := range w.List() {
		s := string(p.Pod.UID)
		if p.Deleting {
			s += " deleting"
		}
		if p.Predecessor != "" {
			s += " waiting " + string(p.Predecessor)
		}
		out = append(out, s)
	}
	each := map[types.UID]Pod{}
	w.ForEach(func(p Pod) { each[p.Pod.UID] = p })
	if listed := w.List(); len(each) != len(listed) || slices.ContainsFunc(listed, func(p Pod) bool { return each[p.Pod.UID] != p }) {
		w.Errorf("Each passes %v, List returns %v", each, listed)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (w *world) want(what string, err error, show string, poked ...types.UID) {
	w.Helper()
	slices.Sort(w.poked)
	got := slices.Compact(w.poked)
	w.poked = nil
	if err != nil {
		w.Errorf("%s: %v", what, err)
	}
	if w.show() != show {
		w.Errorf("%s: have %q, want %q", what, w.show(), show)
	}
	if !slices.Equal(got, poked) {
		w.Errorf("%s: poked %v, want %v", what, got, poked)
	}
	for _, row := range w.rows {
		stored, err := w.Store.Pods(w.Context())
		if err != nil || !slices.ContainsFunc(stored, func(p store.Pod) bool {
			return p.Pod.UID == row.Pod.UID && p.Deleting == row.Deleting && p.Again == row.Again && p.Lives == row.Lives &&
				p.Grace == row.Grace
		}) {
			w.Errorf("%s: pod %s is not stored so: %v", what, row.Pod.UID, err)
		}
	}
}

func (w *world) problems() string {
	var all []string
	for _, p := range w.Problems() {
		all = append(all, fmt.Sprintf("%s %s %s: %s", p.Source, p.Origin, p.Field, p.Message))
	}
	return strings.Join(all, "\n")
}
