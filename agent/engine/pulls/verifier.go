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

// pruneTimeout is the timeout of Removed, which ignores the caller's cancellation.
const pruneTimeout = 10 * time.Second

// Config is the input of New.
type Config struct {
	Policy Policy
	Store  *store.Store
	Images cri.Images
	Log    *slog.Logger
	// HasIncomplete reports whether Images has images that it does not list, because they cannot be read now. If it is nil, there are none.
	HasIncomplete func(context.Context) (bool, error)
}

// A Verifier decides which pods may use the images that are present, and maintains the records for these decisions. Its
// methods may be called from any goroutine. Image names are names in containers, with a tag or digest.
type Verifier struct {
	cfg Config

	mu         sync.Mutex
	active     map[string]activePull // running pulls, and failed pulls whose intent is stored, by image name
	unrecorded map[string]bool       // IDs of images whose record could not be stored

	writeLock sync.Mutex // serializes writing a record and pruning records of removed images
}

type activePull struct {
	runningCount int    // number of running pulls; 0 if all have failed
	previous     string // ID of the image with this name before the pull
}

// New returns a Verifier. It starts nothing.
func New(cfg Config) *Verifier {
	return &Verifier{cfg: cfg, active: map[string]activePull{}, unrecorded: map[string]bool{}}
}

// Open returns the Verifier for a configuration. It sets the Policy in cfg from the KubeletConfiguration. If the feature
// gate of the policy is off, it returns nil, and every pod may use every image.
func Open(k *kubelet.KubeletConfiguration, cfg Config) (g *Verifier, err error) {
	if k.ImagePullCredentialsVerificationPolicy == "" {
		return nil, nil
	}
	if cfg.Policy, err = NewPolicy(k.ImagePullCredentialsVerificationPolicy, k.PreloadedImagesVerificationAllowlist); err != nil {
		return nil, err
	}
	return New(cfg), nil
}

// Reconcile reconciles the records with the images that are present. It is called before any pod
// starts. A record that cannot be stored, as on a full disk, is kept in memory until the next
// start.
func (g *Verifier) Reconcile(ctx context.Context) error {
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
			g.cfg.Log.Info("a pull was interrupted after the image had been stored: pods need credentials to use it", "image",
				b.Ref, "id", id)
			if err = g.recordUnowned(ctx, id, b.Ref); err != nil {
				g.mu.Lock()
				g.unrecorded[id] = true
				g.mu.Unlock()
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, g.deleteUnused(ctx))...)
}

// recordUnowned stores a record without an owner for a pulled image, unless the image has a record.
func (g *Verifier) recordUnowned(ctx context.Context, id, ref string) error {
	known, err := g.cfg.Store.PullsOf(ctx, id)
	if err != nil {
		return err
	}
	if len(known) > 0 {
		return g.cfg.Store.EndPull(ctx, ref)
	}
	return g.cfg.Store.PutPull(ctx, store.Pull{Image: id}, ref)
}

// MayUse reports whether a pod may use the image with this ID under this name without a pull. If the result depends on
// the pod's credentials for the image, MayUse gets them by calling credentials(). It runs no credential provider
// plugin. If MayUse cannot verify the credentials, it logs the error and returns false. It logs nothing if ctx has
// ended.
func (g *Verifier) MayUse(ctx context.Context, name, id string, credentials func() keyring.Credentials) bool {
	ok, err := g.mayUse(ctx, name, id, credentials)
	if err != nil && ctx.Err() == nil {
		g.cfg.Log.Error("cannot verify the credentials for a present image: the image is pulled again", "image", name, "id",
			id, "error", err)
	}
	return ok && err == nil
}

func (g *Verifier) mayUse(ctx context.Context, name, id string, credentials func() keyring.Credentials) (bool, error) {
	repository, err := repositoryOf(name)
	if err != nil {
		return false, err
	}
	unrecorded, err := g.pulledUnrecorded(ctx, id) // must come before the records are read, because a pull writes its record last
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
	if !g.cfg.Policy.needsVerification(repository, pulled) {
		return true, nil
	}
	if !slices.ContainsFunc(records, func(r store.Pull) bool { return r.Name == repository }) {
		return false, nil
	}
	if ok, _ := authorizePod(repository, records, nil); ok {
		return true, nil
	}
	k := credentials()
	has, err := g.sourcesOf(k.Stored)
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
	ok, update := authorizePod(repository, records, has)
	if update != nil {
		if err := g.write(ctx, store.Pull{Image: id, Name: repository, Source: *update}, ""); err != nil {
			g.cfg.Log.Warn("cannot record that a Secret has the credential of an image",
				"image", name, "secret", update.Namespace+"/"+update.Name, "error", err)
		}
	}
	return ok, nil
}

// sourcesOf returns the sources of credentials, without the node's own.
func (g *Verifier) sourcesOf(all []keyring.Credential) (out []store.PullSource, err error) {
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

// withHash returns the source of a credential, with a hash if it is a Secret. A credential from a plugin differs at
// each call, so only the service account identifies its source.
func (g *Verifier) withHash(c keyring.Credential) (store.PullSource, error) {
	s, auth := sourceOf(c.From), c.Auth
	if s.Kind != keyring.Secret {
		return s, nil
	}
	// The hash need not cover the registry, because a record is only used for its own repository.
	text, err := json.Marshal([]string{auth.Username, auth.Password, auth.Auth, auth.IdentityToken, auth.RegistryToken})
	if err != nil {
		return s, err
	}
	s.Hash, err = g.cfg.Store.Fingerprint(text)
	return s, err
}

// pulledUnrecorded reports whether an image was pulled but may lack a record: a running pull
// has fetched it, or storing its record failed.
func (g *Verifier) pulledUnrecorded(ctx context.Context, id string) (bool, error) {
	g.mu.Lock()
	unrecorded := g.unrecorded[id]
	var running []store.BegunPull
	for name, b := range g.active {
		if b.runningCount > 0 && b.previous != id {
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

// forgetFailed removes the intent of a failed pull, because the image was later loaded in another way. With the intent,
// the image would count as pulled after a restart.
func (g *Verifier) forgetFailed(ctx context.Context, name string) {
	g.mu.Lock()
	b, noted := g.active[name]
	if noted = noted && b.runningCount == 0; noted {
		delete(g.active, name)
	}
	g.mu.Unlock()
	if noted {
		if err := g.cfg.Store.EndPull(ctx, name); err != nil {
			g.cfg.Log.Warn("cannot remove the record of a failed pull: after a restart the image counts as pulled with credentials",
				"image", name, "error", err)
		}
	}
}

// BeginPull stores the intent of a pull before it starts. If private is false, every pod may use the image, and BeginPull
// does nothing.
func (g *Verifier) BeginPull(ctx context.Context, name string, private bool) error {
	if !private {
		return nil
	}
	was, err := g.imageID(ctx, name)
	if err != nil {
		return err
	}
	g.mu.Lock()
	b := g.active[name]
	if b.runningCount == 0 {
		b.previous = was
	}
	b.runningCount++
	g.active[name] = b
	g.mu.Unlock()
	if err := g.cfg.Store.BeginPull(ctx, store.BegunPull{Ref: name, Was: b.previous}); err != nil {
		g.finishPull(name, true)
		return fmt.Errorf("failed to record image pull intent: %w", err)
	}
	return nil
}

// RecordFailure is called after BeginPull if the pull failed. It removes the intent, unless the registry was
// unreachable. In that case the pull is retried soon, and the next attempt would have to store the same intent again.
func (g *Verifier) RecordFailure(ctx context.Context, name string, private, unreachable bool) {
	if !private || !g.finishPull(name, !unreachable) || unreachable {
		return
	}
	if err := g.cfg.Store.EndPull(ctx, name); err != nil {
		g.cfg.Log.Warn("cannot remove the record of a failed pull", "image", name, "error", err)
	}
}

// finishPull ends one pull of an image name. It returns true if no other pull of this name is running. In that case, if
// forget is true, it also removes the entry for the name.
func (g *Verifier) finishPull(name string, forget bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.active[name]
	b.runningCount = max(0, b.runningCount-1)
	g.active[name] = b
	if b.runningCount == 0 && forget {
		delete(g.active, name)
	}
	return b.runningCount == 0
}

// RecordPull is called after BeginPull if the pull succeeded, with the credential that the registry accepted. Without
// a credential, or with one of the node itself, every pod may use the image.
func (g *Verifier) RecordPull(ctx context.Context, name, id string, private bool, with keyring.Credential) {
	err := g.storePull(ctx, name, id, with)
	g.mu.Lock()
	if err != nil {
		g.unrecorded[id] = true
	} else {
		delete(g.unrecorded, id)
	}
	g.mu.Unlock()
	if err != nil {
		g.cfg.Log.Error("cannot record the credentials of an image pull: the image is pulled again", "image", name, "id", id,
			"error", err)
	}
	if private {
		g.finishPull(name, err == nil)
	}
	if err == nil {
		g.PruneRecords(ctx)
	}
}

func (g *Verifier) storePull(ctx context.Context, name, id string, with keyring.Credential) error {
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

func (g *Verifier) write(ctx context.Context, p store.Pull, ref string) error {
	g.writeLock.Lock()
	defer g.writeLock.Unlock()
	return g.cfg.Store.PutPull(ctx, p, ref)
}

// PruneRecords deletes the records of images that no longer exist. It is called after images were
// removed.
func (g *Verifier) PruneRecords(ctx context.Context) {
	if g == nil {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), pruneTimeout)
	defer stop()
	if err := g.deleteUnused(ctx); err != nil {
		g.cfg.Log.Warn("cannot delete the pull records of removed images", "error", err)
	}
}

// deleteUnused deletes the records of images that no longer exist. Without a record, every pod may use an image. Therefore it deletes
// nothing while the runtime has images whose IDs are unknown because they cannot be read: one of them may be usable again later.
func (g *Verifier) deleteUnused(ctx context.Context) error {
	g.writeLock.Lock()
	defer g.writeLock.Unlock()
	ids, err := g.cfg.Store.PulledImages(ctx)
	if err != nil || len(ids) == 0 {
		return err
	}
	if g.cfg.HasIncomplete != nil {
		if incomplete, err := g.cfg.HasIncomplete(ctx); incomplete || err != nil {
			return err
		}
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

// imageID returns the ID of the image with this name, or "" if it is not present.
func (g *Verifier) imageID(ctx context.Context, name string) (string, error) {
	r, err := g.cfg.Images.ImageStatus(ctx, &api.ImageStatusRequest{Image: &api.ImageSpec{Image: name}})
	if err != nil {
		return "", fmt.Errorf("look for image %q: %w", name, err)
	}
	return r.GetImage().GetId(), nil
}
