package pulls

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keyring"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/fake"
)

const app = "reg.example/app:1"

// world is a node with a Verifier. The agent can be restarted.
type world struct {
	*testing.T
	*Verifier
	images *fake.Runtime
	path   string
	mode   kubelet.ImagePullCredentialsVerificationPolicy
	store  *store.Store
}

func newWorld(t *testing.T, images ...string) *world {
	w := &world{T: t, images: fake.New(images...), path: filepath.Join(t.TempDir(), "islet.db"), mode: kubelet.NeverVerifyPreloadedImages}
	w.restart()
	t.Cleanup(func() { w.store.Close() })
	return w
}

func (w *world) restart() {
	w.Helper()
	if w.store != nil {
		w.must(w.store.Close())
	}
	var err error
	w.store, err = store.Open(w.Context(), w.path, slog.New(slog.DiscardHandler))
	w.must(err)
	policy, err := NewPolicy(w.mode, nil)
	w.must(err)
	w.Verifier = New(Config{Policy: policy, Store: w.store, Images: w.images, Log: slog.New(slog.DiscardHandler)})
	w.must(w.Reconcile(w.Context()))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// keysOf returns a user's credential from the Secret "pull" of a namespace. The user "" has no credential. The user "account" has the
// credential of a service account, and the user "node" has the node's credential.
func keysOf(namespace, user string) (k keyring.Credentials) {
	from := v1.ObjectReference{Kind: keyring.Secret, Namespace: namespace, Name: "pull", UID: types.UID("uid-" + namespace)}
	switch user {
	case "":
	case "account":
		from.Kind = keyring.ServiceAccount
		k.Account = func(context.Context) (v1.ObjectReference, error) { return from, nil }
	case "node":
		k.Stored = with(user, v1.ObjectReference{})
	default:
		k.Stored = with(user, from)
	}
	return k
}

func with(user string, from v1.ObjectReference) []keyring.Credential {
	return []keyring.Credential{{Auth: &api.AuthConfig{Username: user, Password: "pw"}, From: from}}
}

// This helper adds an image, as a pull or an import does, and returns the image's ID.
func (w *world) bring(name string) string {
	w.Helper()
	r, err := w.images.PullImage(w.Context(), &api.PullImageRequest{Image: &api.ImageSpec{Image: name}})
	w.must(err)
	return r.ImageRef
}

// pull makes a pod pull an image. The pull has a credential unless user is empty.
func (w *world) pull(name, namespace, user string) string {
	w.Helper()
	k := keysOf(namespace, user)
	if k.Account != nil { // the credential comes from a plugin
		from, err := k.Account(w.Context())
		w.must(err)
		k.Stored = with(user, from)
	}
	w.must(w.BeginPull(w.Context(), name, k.IsPrivate()))
	id := w.bring(name)
	w.RecordPull(w.Context(), name, id, k.IsPrivate(), append(k.Stored, keyring.Credential{})[0])
	return id
}

func (w *world) may(want bool, name, namespace, user string) {
	w.Helper()
	id, err := w.imageID(w.Context(), name)
	w.must(err)
	got := w.MayUse(w.Context(), name, id, func() keyring.Credentials { return keysOf(namespace, user) })
	if got != want {
		w.Errorf("%s of %s may use %s: %v", user, namespace, name, got)
	}
}

func (w *world) begun(want int) {
	w.Helper()
	got, err := w.store.BegunPulls(w.Context())
	if err != nil || len(got) != want {
		w.Error(got, err)
	}
}

// TestPulled checks that a pod may use an image if its Secret has pulled the image. A Secret with the same credential gives access too.
// Both still apply after a restart.
func TestPulled(t *testing.T) {
	w := newWorld(t, "reg.example/pre:1")
	w.pull(app, "a", "ann")
	w.pull("reg.example/open:1", "a", "")
	for range 2 {
		w.may(true, app, "a", "ann")
		w.may(false, app, "b", "bob")
		w.may(false, app, "b", "")
		w.may(true, app, "c", "ann")     // another Secret contains the same credential
		w.may(true, app, "c", "renewed") // the new version of the credential is already stored
		w.may(true, "reg.example/open:1", "b", "")
		w.may(true, "reg.example/pre:1", "b", "")
		w.begun(0)
		w.restart()
	}
	w.pull(app, "b", "bob") // the registry accepts this credential
	w.may(true, app, "b", "bob")
	w.may(true, app, "a", "ann")
	w.pull(app, "b", "") // the image is public now
	w.may(true, app, "d", "")
	w.mode = kubelet.AlwaysVerify
	w.restart()
	w.may(true, app, "d", "")
	w.may(false, "reg.example/pre:1", "b", "bob")
}

// TestPulledByAccount checks that a pull with a plugin's credential is recorded for the service account for which the plugin was called. If
// it was called without an account, every pod may use the image (KEP-4412).
func TestPulledByAccount(t *testing.T) {
	w := newWorld(t)
	w.pull(app, "a", "account")
	w.pull("reg.example/node:1", "a", "node")
	for range 2 {
		w.may(true, app, "a", "account")
		w.may(false, app, "b", "account") // the account is in another namespace
		w.may(false, app, "a", "ann")
		w.may(false, app, "a", "node")
		w.may(true, "reg.example/node:1", "b", "")
		w.begun(0)
		w.restart()
	}
	w.pull(app, "a", "ann")
	w.may(true, app, "a", "ann")
	w.may(true, app, "a", "account")
	w.pull(app, "b", "node")
	w.may(true, app, "c", "")
}

// TestUnknownAccount checks that a service account that cannot be identified gives no access. The account is looked up only if the decision
// depends on it.
func TestUnknownAccount(t *testing.T) {
	w := newWorld(t)
	id := w.pull(app, "a", "account")
	other := w.pull("reg.example/other:1", "a", "ann")
	k := keysOf("a", "ann")
	asked := 0
	k.Account = func(context.Context) (v1.ObjectReference, error) {
		asked++
		return v1.ObjectReference{}, errors.New("no link")
	}
	if w.MayUse(w.Context(), app, id, func() keyring.Credentials { return k }) || asked != 1 {
		t.Error(asked)
	}
	if !w.MayUse(w.Context(), "reg.example/other:1", other, func() keyring.Credentials { return k }) || asked != 1 {
		t.Error(asked)
	}
}

// TestBrokenOffPull checks an image that was pulled just before a power cut, so that the pull was not recorded. Such an image is not
// available to every pod.
func TestBrokenOffPull(t *testing.T) {
	w := newWorld(t)
	key := keysOf("a", "ann").Stored[0]
	w.must(w.BeginPull(w.Context(), app, true))
	w.restart()
	w.begun(0) // the pull did not store an image
	w.must(w.BeginPull(w.Context(), app, true))
	id := w.bring(app)
	w.may(false, app, "b", "bob")
	w.may(false, app, "a", "ann")
	for range 2 {
		w.restart()
		w.begun(0)
		w.may(false, app, "b", "")
		w.may(false, app, "a", "ann") // the record names no credential
	}
	w.must(w.BeginPull(w.Context(), app, true))
	w.RecordPull(w.Context(), app, id, true, key)
	w.may(true, app, "a", "ann")
	w.may(false, app, "b", "")
}

// TestFailedPull checks that an image that was imported from an archive counts as preloaded, even if pulls of the same image name have
// failed before. A failed pull does not change the records of an image that was already present.
func TestFailedPull(t *testing.T) {
	w := newWorld(t, "reg.example/pre:1")
	for _, name := range []string{app, "reg.example/pre:1"} {
		for range 3 {
			w.must(w.BeginPull(w.Context(), name, true))
			w.RecordFailure(w.Context(), name, true, true)
		}
	}
	w.begun(2)
	w.may(true, "reg.example/pre:1", "b", "")
	w.bring(app)
	w.may(true, app, "b", "")
	w.restart()
	w.may(true, app, "b", "")
	w.may(true, "reg.example/pre:1", "b", "")
	w.must(w.BeginPull(w.Context(), app, true))
	w.RecordFailure(w.Context(), app, true, false)
	w.begun(0)
}

// TestTwoPulls checks that the failure of one of two concurrent pulls does not end the other one.
func TestTwoPulls(t *testing.T) {
	w := newWorld(t)
	ann := keysOf("a", "ann").Stored[0]
	w.must(w.BeginPull(w.Context(), app, true))
	w.must(w.BeginPull(w.Context(), app, true))
	w.RecordFailure(w.Context(), app, true, false)
	w.begun(1)
	id := w.bring(app)
	w.may(false, app, "b", "bob")
	w.RecordPull(w.Context(), app, id, true, ann)
	w.begun(0)
	w.may(true, app, "a", "ann")
}

// TestRemoved checks that the records of an image are deleted with the image. A later image with the same name has no records.
func TestRemoved(t *testing.T) {
	w := newWorld(t)
	gone, stays := w.pull(app, "a", "ann"), w.pull("reg.example/stays:1", "a", "ann")
	_, err := w.images.RemoveImage(w.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: gone}})
	w.must(err)
	w.PruneRecords(w.Context())
	if ids, err := w.store.PulledImages(w.Context()); err != nil || len(ids) != 1 || ids[0] != stays {
		t.Error(ids, err)
	}
	w.bring(app)
	w.may(true, app, "b", "") // the image was imported from an archive
	w.may(false, "reg.example/stays:1", "b", "")
}

// An unlisted runtime lists no images.
type unlisted struct{ cri.Images }

func (unlisted) ListImages(context.Context, *api.ListImagesRequest) (*api.ListImagesResponse, error) {
	return &api.ListImagesResponse{}, nil
}

// TestUnreadable checks that an image which cannot be read for some time keeps its pull records. Without these records, every pod could use
// the image afterwards.
func TestUnreadable(t *testing.T) {
	w := newWorld(t)
	w.pull(app, "a", "ann")
	unreadable := true
	w.cfg.HasIncomplete = func(context.Context) (bool, error) { return unreadable, nil }
	w.cfg.Images = unlisted{w.images}
	w.must(w.Reconcile(w.Context()))
	w.PruneRecords(w.Context())
	w.may(false, app, "b", "")
	w.may(true, app, "a", "ann")
	unreadable = false
	w.PruneRecords(w.Context())
	if ids, err := w.store.PulledImages(w.Context()); err != nil || len(ids) != 0 {
		t.Error(ids, err)
	}
}

// TestNoRecord checks that no pod may use an image whose record cannot be stored or read.
func TestNoRecord(t *testing.T) {
	w := newWorld(t)
	key := keysOf("a", "ann").Stored[0]
	w.must(w.BeginPull(w.Context(), app, true))
	id := w.bring(app)
	ctx, cancel := context.WithCancel(w.Context())
	cancel()
	w.RecordPull(ctx, app, id, true, key)
	w.may(false, app, "b", "")
	w.begun(1)
	w.restart()
	w.may(false, app, "b", "")
	w.must(w.store.Close())
	if err := w.BeginPull(w.Context(), app, true); !errors.Is(err, store.ErrClosed) {
		t.Error(err)
	}
	w.may(false, app, "a", "ann")
}
