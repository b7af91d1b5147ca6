package agent

import (
	"context"
	"errors"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/edge/source"
	"github.com/islet-edge/islet/keys"
)

// sink is Desired, and wakes those who waited for a source to speak.
type sink struct {
	*desired.Desired
	a *agent
}

// Set takes the full set of a source.
func (s sink) Set(ctx context.Context, name string, claims []desired.Claim, problems []desired.Problem) error {
	before := s.Spoken(name)
	err := s.Desired.Set(ctx, name, claims, problems)
	if !before && err == nil {
		s.a.workers.PokeAll() // what runs and nobody wants may end now
		s.a.sweep(ctx)
	}
	return err
}

// sourceNames are all sources that a pod may come from.
var sourceNames = []string{desired.File, desired.HTTP, desired.Local, desired.API}

// spoken reports whether a source has said what it wants. One that is not
// configured wants nothing, and what a person applied is in the store.
func (a *agent) spoken(name string) bool {
	switch name {
	case desired.File:
		return a.cfg.Kubelet.StaticPodPath == "" || a.desired.Spoken(name)
	case desired.HTTP:
		return a.cfg.Kubelet.StaticPodURL == "" || a.desired.Spoken(name)
	case desired.API:
		return a.cluster == nil || a.desired.Spoken(name)
	}
	return true
}

// buildSources makes the sources that are configured. One that no longer is
// wants nothing.
func (a *agent) buildSources() (out []runner, err error) {
	to := sink{a.desired, a}
	k := a.cfg.Kubelet
	if k.StaticPodPath != "" {
		d, err := source.NewDirectory(source.DirectoryConfig{
			Path: k.StaticPodPath, Interval: k.FileCheckFrequency.Duration, Decode: a.decode(keys.SourceFile), Sink: to, Log: a.log,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	} else {
		out = append(out, silent{to, desired.File})
	}
	if k.StaticPodURL != "" {
		u, err := source.NewURL(source.URLConfig{
			URL: k.StaticPodURL, Header: http.Header(k.StaticPodURLHeader), Interval: k.HTTPCheckFrequency.Duration,
			Decode: a.decode(keys.SourceHTTP), Sink: to, Log: a.log,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	} else {
		out = append(out, silent{to, desired.HTTP})
	}
	if a.cluster == nil {
		out = append(out, silent{to, desired.API})
	}
	return out, nil
}

// silent is a source that is not configured: it wants nothing, and says so once.
type silent struct {
	to   sink
	name string
}

// Run says that nothing is wanted.
func (s silent) Run(ctx context.Context) error {
	if err := s.to.Set(ctx, s.name, nil, nil); err != nil {
		s.to.a.log.Warn("pods of a source that is gone stay until the next start", "source", s.name, "error", err)
	}
	return nil
}

func (a *agent) decode(from string) source.Decode {
	return func(data []byte, origin string) ([]*v1.Pod, error) {
		return manifest.Decode(data, manifest.Options{
			Origin: origin, Source: from, NodeName: a.cfg.Node.Name, Seen: time.Now(),
			Lists: from == keys.SourceHTTP, // a kubelet takes a PodList from a URL, but none from a file
		})
	}
}

// decodeLocal reads what a person applies: several documents, names as given.
func (a *agent) decodeLocal(data []byte, origin string) ([]*v1.Pod, error) {
	return manifest.Decode(data, manifest.Options{Origin: origin, Source: keys.SourceLocal, NodeName: a.cfg.Node.Name, Seen: time.Now(), Lists: true})
}

// sweep removes what is left on disk of pods that are neither wanted nor there:
// directories, mounts, logs. It is called once all sources have spoken.
func (a *agent) sweep(ctx context.Context) {
	if !a.pods.Spoken("") || a.rt.Known() != nil { // later, then
		return
	}
	keep := func(uid types.UID) bool {
		seen := a.observer.Pod(uid)
		_, wanted := a.desired.Get(uid)
		return wanted || len(seen.Sandboxes)+len(seen.Containers) > 0
	}
	if err := errors.Join(a.volumes.Sweep(ctx, keep), a.logs.Sweep(ctx, keep), a.links.Sweep(ctx, keep)); err != nil {
		a.log.Warn("not everything of pods that are gone could be removed", "error", err)
	}
}
