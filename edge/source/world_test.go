package source

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keys"
)

// A node is a real sink that signals each call.
type node struct {
	testing.TB
	*desired.Desired
	local *local.Objects
	store *store.Store
	told  chan struct{}
	lasts bool // whether a deleting pod ends only after the next set
}

func newNode(t testing.TB) *node {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := store.Open(context.Background(), filepath.Join(t.TempDir(), "islet.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	d, err := desired.New(desired.Config{Store: s, Poke: func(types.UID) {}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	l, err := local.Open(context.Background(), local.Config{Store: s, Changed: func(types.UID) {}, Log: log}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &node{TB: t, Desired: d, local: l, store: s, told: make(chan struct{}, 1)}
}

func (n *node) SetObjects(ctx context.Context, source string, objects []local.DefinedObject, problems []desired.Problem) error {
	unsure := map[string]bool{}
	for _, p := range problems {
		unsure[p.Origin] = true
	}
	return n.local.Set(ctx, source, objects, unsure)
}

// objects returns "kind/name" of all objects.
func (n *node) objects() string {
	var all []string
	for _, o := range n.local.List() {
		all = append(all, o.Kind+"/"+o.Name)
	}
	return strings.Join(all, " ")
}

func (n *node) Set(ctx context.Context, source string, pods []desired.SourcePod, problems []desired.Problem) error {
	defer n.tell()
	before := n.List()
	err := n.Desired.Set(ctx, source, pods, problems)
	if !n.lasts { // there are no containers
		before = n.List()
	}
	for _, p := range before {
		if p.Deleting {
			if err := n.Forget(ctx, p.Pod.UID); err != nil {
				n.Error(err)
			}
		}
	}
	return err
}

func (n *node) ReportFailure(source string, problems []desired.Problem) {
	defer n.tell()
	n.Desired.ReportFailure(source, problems)
}

func (n *node) tell() {
	select {
	case n.told <- struct{}{}:
	default:
	}
}

// pods returns "name=image" of the wanted pods.
func (n *node) pods() string {
	var all []string
	for _, p := range n.List() {
		if !p.Deleting {
			all = append(all, strings.TrimSuffix(p.Pod.Name, "-node")+"="+p.Pod.Spec.Containers[0].Image)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// problems returns "base name field: message" of each problem.
func (n *node) problems() string {
	var all []string
	for _, p := range n.Problems() {
		all = append(all, fmt.Sprintf("%s %s: %s", filepath.Base(p.Origin), p.Field, p.Message))
	}
	return strings.Join(all, "\n")
}

// until waits until the sink has the given pods, and its list of problems contains the given text. If the text is "", the list must be
// empty.
func (n *node) until(pods, problem string) {
	n.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		if got := n.problems(); n.pods() == pods && strings.Contains(got, problem) && (problem == "") == (got == "") {
			return
		}
		select {
		case <-n.told:
		case <-deadline:
			n.Fatalf("have pods %q and problems %q, want %q and %q", n.pods(), n.problems(), pods, problem)
		}
	}
}

func decode(data []byte, origin string) (manifest.Set, error) {
	return manifest.Decode(data, manifest.Options{Origin: origin, Source: keys.SourceFile, NodeName: "node", Lists: true})
}

func podYAML(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers: [{name: c, image: %s}]\n", name, image)
}
