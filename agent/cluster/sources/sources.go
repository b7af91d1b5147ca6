package sources

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/edge/source"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/keys"
)

// Names are all sources that a pod may come from.
var Names = []string{desired.File, desired.HTTP, desired.Local, desired.API}

// Config is what a Sources needs.
type Config struct {
	Config  *config.Config
	Joins   bool // there is an API server
	Desired *desired.Desired
	Objects *local.Objects
	Spoke   func(context.Context) // a source has said what it wants, for the first time in this run
	Log     *slog.Logger
}

// Sources are those of this node.
type Sources struct{ c Config }

// New starts nothing.
func New(c Config) *Sources { return &Sources{c} }

// A Sink is Desired, and tells when a source speaks for the first time.
type Sink struct {
	*desired.Desired
	objects *local.Objects
	spoke   func(context.Context)
}

// Sink is where the pods of any source go.
func (s *Sources) Sink() Sink { return Sink{s.c.Desired, s.c.Objects, s.c.Spoke} }

// Set takes the full set of a source.
func (s Sink) Set(ctx context.Context, name string, claims []desired.Claim, problems []desired.Problem) error {
	before := s.Spoken(name)
	err := s.Desired.Set(ctx, name, claims, problems)
	if !before && err == nil {
		s.spoke(ctx)
	}
	return err
}

// SetObjects takes what else a source has. What came from an origin that has a problem
// stays.
func (s Sink) SetObjects(ctx context.Context, name string, objects []local.Claimed, problems []desired.Problem) error {
	unsure := map[string]bool{}
	for _, p := range problems {
		unsure[p.Origin] = true
	}
	err := s.objects.Set(ctx, name, objects, unsure)
	if err != nil {
		s.Fail(name, append(slices.Clone(problems), desired.Problem{Message: err.Error()}))
	}
	return err
}

// Spoken reports whether a source has said what it wants. One that is not
// configured wants nothing, and what a person applied is in the store.
func (s *Sources) Spoken(name string) bool {
	switch name {
	case desired.File:
		return s.c.Config.Kubelet.StaticPodPath == "" || s.c.Desired.Spoken(name)
	case desired.HTTP:
		return s.c.Config.Kubelet.StaticPodURL == "" || s.c.Desired.Spoken(name)
	case desired.API:
		return !s.c.Joins || s.c.Desired.Spoken(name)
	}
	return true
}

// OthersSpoken reports whether all sources but the API server have said what they want.
func (s *Sources) OthersSpoken() bool {
	return s.Spoken(desired.File) && s.Spoken(desired.HTTP) && s.Spoken(desired.Local)
}

// A Runner says what its source wants until ctx ends.
type Runner interface {
	Run(ctx context.Context) error
}

// Runners makes the sources that are configured. One that no longer is wants nothing.
func (s *Sources) Runners() (out []Runner, err error) {
	to, k, log := s.Sink(), s.c.Config.Kubelet, s.c.Log
	if k.StaticPodPath != "" {
		d, err := source.NewDirectory(source.DirectoryConfig{
			Path: k.StaticPodPath, Interval: k.FileCheckFrequency.Duration, Decode: s.decode(keys.SourceFile), Sink: to, Log: log,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	} else {
		out = append(out, silent{to, desired.File, log})
	}
	if k.StaticPodURL != "" {
		u, err := source.NewURL(source.URLConfig{
			URL: k.StaticPodURL, Header: http.Header(k.StaticPodURLHeader), Interval: k.HTTPCheckFrequency.Duration,
			Decode: s.decode(keys.SourceHTTP), Sink: to, Log: log,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	} else {
		out = append(out, silent{to, desired.HTTP, log})
	}
	if !s.c.Joins {
		out = append(out, silent{to, desired.API, log})
	}
	return out, nil
}

// silent is a source that is not configured: it wants nothing, and says so once.
type silent struct {
	to   Sink
	name string
	log  *slog.Logger
}

// Run says that nothing is wanted.
func (s silent) Run(ctx context.Context) error {
	if err := errors.Join(s.to.SetObjects(ctx, s.name, nil, nil), s.to.Set(ctx, s.name, nil, nil)); err != nil {
		s.log.Warn("pods of a source that is gone stay until the next start", "source", s.name, "error", err)
	}
	return nil
}

func (s *Sources) decode(from string) source.Decode {
	return func(data []byte, origin string) (manifest.Set, error) {
		return manifest.Decode(data, manifest.Options{
			Origin: origin, Source: from, NodeName: s.c.Config.Node.Name, Seen: time.Now(),
			Lists: from == keys.SourceHTTP, // a kubelet takes a PodList from a URL, but none from a file
		})
	}
}

// DecodeLocal reads what a person applies: several documents, names as given.
func (s *Sources) DecodeLocal(data []byte, origin string) (manifest.Set, error) {
	return manifest.Decode(data, manifest.Options{Origin: origin, Source: keys.SourceLocal, NodeName: s.c.Config.Node.Name, Seen: time.Now(), Lists: true})
}
