package pulls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keyring"
	"github.com/islet-edge/islet/runtime/cri"
)

// pruneTimeout bounds Removed, which nobody can end.
const pruneTimeout = 10 * time.Second

// Config is what a Guard needs.
type Config struct {
	Policy Policy
	Store  *store.Store
	Images cri.Images
	Log    *slog.Logger
}

// A Guard decides which pods may use the images that are here, and keeps the records
// that it needs for that. Its methods may be called from any goroutine. Images are named
// as containers name them, with a tag or digest.
type Guard struct {
	cfg Config

	mu    sync.Mutex
	active map[string]activePull // pulls that go on, or failed and are still noted, by name
	unrecorded  map[string]bool  // IDs of images whose record could not be written

	writes sync.Mutex // held while a record is written, or records of images that are gone are removed
}

type activePull struct {
	running int    // 0: it failed
	previous   string // the image that the name meant before
}

// New starts nothing.
func New(cfg Config) *Guard {
	return &Guard{cfg: cfg, active: map[string]activePull{}, unrecorded: map[string]bool{}}
}

// Open makes the Guard that a configuration asks for, whose Policy cfg lacks. It is nil where
// the gate of the policy is off: images are everybody's then, and there is nothing to settle.
func Open(k *kubelet.KubeletConfiguration, cfg Config) (g *Guard, err error) {
	if k.ImagePullCredentialsVerificationPolicy == "" {
		return nil, nil
	}
	if cfg.Policy, err = NewPolicy(k.ImagePullCredentialsVerificationPolicy, k.PreloadedImagesVerificationAllowlist); err != nil {
		return nil, err
	}
	return New(cfg), nil
}

// Settle brings the records in line with the images that are here. It is called before
// any pod starts. What cannot be written, as on a full disk, holds until the next start.
func (g *Guard) Settle(ctx context.Context) error {
	if g == nil {
		return nil
	}
	broken, err := g.cfg.Store.BegunPulls(ctx)
	errs := []error{err}
	for _, b := range broken {
		id, err := g.imageID(ctx, b.Ref)
		switch {
		case err != nil:
		case id == "" || id == b.Was:
			err = g.cfg.Store.EndPull(ctx, b.Ref)
		default:
			g.cfg.Log.Info("a pull was broken off when the image had come: pods have to prove that they may use it", "image", b.Ref, "id", id)
			if err = g.recordUnowned(ctx, id, b.Ref); err != nil {
				g.mu.Lock()
				g.unrecorded[id] = true
				g.mu.Unlock()
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, g.prune(ctx))...)
}

// recordUnowned records that an image was pulled, unless it is known by whom.
func (g *Guard) recordUnowned(ctx context.Context, id, ref string) error {
	known, err := g.cfg.Store.PullsOf(ctx, id)
	if err != nil {
		return err
	}
	if len(known) > 0 {
		return g.cfg.Store.EndPull(ctx, ref)
	}
	return g.cfg.Store.PutPull(ctx, store.Pull{Image: id}, ref)
}

// May reports whether a pod may use the image with this ID by this name without asking
// its registry. credentials gives those that it has for it, and is called if they matter; no
// plugin is asked. What cannot be read proves nothing; nor does a ctx that has ended, which nothing is said of.
func (g *Guard) May(ctx context.Context, name, id string, credentials func() keyring.Credentials) bool {
	ok, err := g.may(ctx, name, id, credentials)
	if err != nil && ctx.Err() == nil {
		g.cfg.Log.Error("it is not known whose image it is: its registry has to decide", "image", name, "id", id, "error", err)
	}
	return ok && err == nil
}

func (g *Guard) may(ctx context.Context, name, id string, credentials func() keyring.Credentials) (bool, error) {
	repository, err := repositoryOf(name)
	if err != nil {
		return false, err
	}
	unrecorded, err := g.pulledUnrecorded(ctx, id) // before the records, which follow it
	if err != nil {
		return false, err
	}
	records, err := g.cfg.Store.PullsOf(ctx, id)
	if err != nil {
		return false, err
	}
	pulled := unrecorded || len(records) > 0
	if !pulled {
		g.forgetFailed(ctx, name)
	}
	if !g.cfg.Policy.verifies(repository, pulled) {
		return true, nil
	}
	if !slices.ContainsFunc(records, func(r store.Pull) bool { return r.Name == repository }) {
		return false, nil
	}
	if ok, _ := authorized(repository, records, nil); ok {
		return true, nil
	}
	k := credentials()
	has, err := g.sourcesOf(k.Has)
	if err != nil {
		return false, err
	}
	byAccount := func(r store.Pull) bool { return r.Name == repository && r.Source.Kind == keyring.ServiceAccount }
	if k.Account != nil && slices.ContainsFunc(records, byAccount) {
		account, err := k.Account(ctx)
		if err != nil {
			return false, err
		}
		has = append(has, sourceOf(account))
	}
	ok, update := authorized(repository, records, has)
	if update != nil {
		if err := g.write(ctx, store.Pull{Image: id, Name: repository, Source: *update}, ""); err != nil {
			g.cfg.Log.Warn("it could not be noted that a Secret has the credential of an image", "image", name, "secret", update.Namespace+"/"+update.Name, "error", err)
		}
	}
	return ok, nil
}

// sourcesOf leaves out what is the node's own.
func (g *Guard) sourcesOf(all []keyring.Credential) (out []store.PullSource, err error) {
	for _, c := range all {
		if c.From.Kind == "" {
			continue
		}
		s, err := g.withHash(c)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func sourceOf(from v1.ObjectReference) store.PullSource {
	return store.PullSource{Kind: from.Kind, Namespace: from.Namespace, Name: from.Name, UID: from.UID}
}

// withHash is for a credential of a Secret: those that plugins give to a service account
// differ each time, so the account counts and they do not.
func (g *Guard) withHash(c keyring.Credential) (store.PullSource, error) {
	s, auth := sourceOf(c.From), c.Auth
	if s.Kind != keyring.Secret {
		return s, nil
	}
	// Its place among the registries does not matter: the record has the image's.
	text, err := json.Marshal([]string{auth.Username, auth.Password, auth.Auth, auth.IdentityToken, auth.RegistryToken})
	if err != nil {
		return s, err
	}
	s.Hash, err = g.cfg.Store.Fingerprint(text)
	return s, err
}

// pulledUnrecorded reports whether a pull that goes on has brought an image, of which there may be
// no record yet, or whether there could be none.
func (g *Guard) pulledUnrecorded(ctx context.Context, id string) (bool, error) {
	g.mu.Lock()
	unrecorded := g.unrecorded[id]
	var running []store.BegunPull
	for name, b := range g.active {
		if b.running > 0 && b.previous != id {
			running = append(running, store.BegunPull{Ref: name})
		}
	}
	g.mu.Unlock()
	for _, b := range running {
		if got, err := g.imageID(ctx, b.Ref); err != nil || got == id {
			return true, err
		}
	}
	return unrecorded, nil
}

// forgetFailed forgets a pull that failed before the image came otherwise, which would look
// after a restart as if it had brought it.
func (g *Guard) forgetFailed(ctx context.Context, name string) {
	g.mu.Lock()
	b, noted := g.active[name]
	if noted = noted && b.running == 0; noted {
		delete(g.active, name)
	}
	g.mu.Unlock()
	if noted {
		if err := g.cfg.Store.EndPull(ctx, name); err != nil {
			g.cfg.Log.Warn("a pull that failed stays noted: after a restart the image counts as pulled", "image", name, "error", err)
		}
	}
}

// Begin notes a pull that begins. One whose image is for every pod of the node is not
// noted.
func (g *Guard) Begin(ctx context.Context, name string, private bool) error {
	if !private {
		return nil
	}
	was, err := g.imageID(ctx, name)
	if err != nil {
		return err
	}
	g.mu.Lock()
	b := g.active[name]
	if b.running == 0 {
		b.previous = was
	}
	b.running++
	g.active[name] = b
	g.mu.Unlock()
	if err := g.cfg.Store.BeginPull(ctx, store.BegunPull{Ref: name, Was: b.previous}); err != nil {
		g.finish(name, true)
		return fmt.Errorf("failed to record image pull intent: %w", err)
	}
	return nil
}

// Failed is called after Begin, when nothing was pulled. What the registry said is
// forgotten; a pull that did not reach it is to be repeated soon, and stays noted so that
// a node without a network does not write at each attempt.
func (g *Guard) Failed(ctx context.Context, name string, private, unreachable bool) {
	if !private || !g.finish(name, !unreachable) || unreachable {
		return
	}
	if err := g.cfg.Store.EndPull(ctx, name); err != nil {
		g.cfg.Log.Warn("a pull that failed stays noted", "image", name, "error", err)
	}
}

// finish reports whether no pull of that name goes on any more.
func (g *Guard) finish(name string, forget bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.active[name]
	b.running = max(0, b.running-1)
	if g.active[name] = b; b.running == 0 && forget {
		delete(g.active, name)
	}
	return b.running == 0
}

// Pulled is called after Begin, with the ID of the image that was pulled and the
// credential that the registry took. With none, or one of the node's own, every pod of
// the node may use the image.
func (g *Guard) Pulled(ctx context.Context, name, id string, private bool, with keyring.Credential) {
	err := g.pulled(ctx, name, id, with)
	g.mu.Lock()
	if err != nil {
		g.unrecorded[id] = true
	} else {
		delete(g.unrecorded, id)
	}
	g.mu.Unlock()
	if err != nil {
		g.cfg.Log.Error("it could not be recorded who pulled an image: its registry is asked again", "image", name, "id", id, "error", err)
	}
	if private {
		g.finish(name, err == nil)
	}
	if err == nil {
		g.Removed(ctx)
	}
}

func (g *Guard) pulled(ctx context.Context, name, id string, with keyring.Credential) error {
	repository, err := repositoryOf(name)
	if err != nil {
		return err
	}
	p := store.Pull{Image: id, Name: repository}
	if p.Source, err = g.withHash(with); err != nil {
		return err
	}
	return g.write(ctx, p, name)
}

func (g *Guard) write(ctx context.Context, p store.Pull, ref string) error {
	g.writes.Lock()
	defer g.writes.Unlock()
	return g.cfg.Store.PutPull(ctx, p, ref)
}

// Removed is called when images were removed: their records go.
func (g *Guard) Removed(ctx context.Context) {
	if g == nil {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), pruneTimeout)
	defer stop()
	if err := g.prune(ctx); err != nil {
		g.cfg.Log.Warn("records of images that are gone stay for now", "error", err)
	}
}

func (g *Guard) prune(ctx context.Context) error {
	g.writes.Lock()
	defer g.writes.Unlock()
	ids, err := g.cfg.Store.PulledImages(ctx)
	if err != nil || len(ids) == 0 {
		return err
	}
	list, err := g.cfg.Images.ListImages(ctx, &api.ListImagesRequest{})
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	ids = slices.DeleteFunc(ids, func(id string) bool {
		return slices.ContainsFunc(list.Images, func(i *api.Image) bool { return i.Id == id })
	})
	return g.cfg.Store.DeletePulls(ctx, ids)
}

// imageID is the ID of the image that a name means; empty: none.
func (g *Guard) imageID(ctx context.Context, name string) (string, error) {
	r, err := g.cfg.Images.ImageStatus(ctx, &api.ImageStatusRequest{Image: &api.ImageSpec{Image: name}})
	if err != nil {
		return "", fmt.Errorf("look for image %q: %w", name, err)
	}
	return r.GetImage().GetId(), nil
}
