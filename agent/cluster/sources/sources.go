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
	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/internal/keys"
)

// Names are the names of all sources of pods.
var Names = []string{desired.File, desired.HTTP, desired.Local, desired.Bundle, desired.API}

// Config is the input of New.
type Config struct {
	Config        *config.Config
	HasServer     bool // set if there is an API server
	Desired       *desired.Desired
	Objects       *local.Objects
	HasBundle     bool                  // a bundle was in use when the agent started
	OnFirstReport func(context.Context) // called when a source reports its pods for the first time since the agent started
	Events        event.Sink            // gets the problems of manifests; may be nil
	Log           *slog.Logger
}

// Sources contains the sources of desired pods of this node.
type Sources struct {
	c        Config
	announce *announcer
}

// New returns Sources. It starts no source.
func New(c Config) *Sources {
	return &Sources{c, &announcer{events: c.Events, known: map[string]map[desired.Problem]bool{}}}
}

// A Sink passes pods to Desired. It also calls OnFirstReport when a source reports its pods for the first time.
type Sink struct {
	*desired.Desired
	objects       *local.Objects
	onFirstReport func(context.Context)
	announcer     *announcer
}

// Sink returns the sink for the pods of all sources.
func (s *Sources) Sink() Sink { return Sink{s.c.Desired, s.c.Objects, s.c.OnFirstReport, s.announce} }

// Set replaces the pods of a source.
func (s Sink) Set(ctx context.Context, name string, pods []desired.SourcePod, problems []desired.Problem) error {
	before := s.HasReported(name)
	err := s.Desired.Set(ctx, name, pods, problems)
	s.announcer.announce(name, problems)
	if !before && err == nil {
		s.onFirstReport(ctx)
	}
	return err
}

// ReportFailure records why a source cannot read its pods.
func (s Sink) ReportFailure(name string, problems []desired.Problem) {
	s.Desired.ReportFailure(name, problems)
	s.announcer.announce(name, problems)
}

// SetObjects replaces the objects of a source that are not pods. If an origin has a problem, its objects are kept.
func (s Sink) SetObjects(ctx context.Context, name string, objects []local.DefinedObject, problems []desired.Problem) error {
	unsure := map[string]bool{}
	for _, p := range problems {
		unsure[p.Origin] = true
	}
	err := s.objects.Set(ctx, name, objects, unsure)
	if err != nil {
		s.ReportFailure(name, append(slices.Clone(problems), desired.Problem{Message: err.Error()}))
	}
	return err
}

// HasReported reports whether a source has reported its pods. It returns true for a source that is not configured, and for
// locally applied objects, which are in the store.
func (s *Sources) HasReported(name string) bool {
	switch name {
	case desired.File:
		return s.c.Config.Kubelet.StaticPodPath == "" || s.c.Desired.HasReported(name)
	case desired.HTTP:
		return s.c.Config.Kubelet.StaticPodURL == "" || s.c.Desired.HasReported(name)
	case desired.Bundle:
		return !s.c.HasBundle || s.c.Desired.HasReported(name)
	case desired.API:
		return !s.c.HasServer || s.c.Desired.HasReported(name)
	}
	return true
}

// OthersSpoken reports whether all sources except the API server have reported their pods.
func (s *Sources) OthersSpoken() bool {
	return s.HasReported(desired.File) && s.HasReported(desired.HTTP) && s.HasReported(desired.Bundle)
}

// A Runner reports the pods of its source until ctx ends.
type Runner interface {
	Run(ctx context.Context) error
}

// Runners returns the Runners of all sources. For a source that is not configured, the Runner reports that there are
// no pods. This ends the pods of a source that is no longer configured.
func (s *Sources) Runners() (out []Runner, err error) {
	to, k, log := s.Sink(), s.c.Config.Kubelet, s.c.Log
	if k.StaticPodPath != "" {
		d, err := source.NewDirectory(source.DirectoryConfig{
			Path: k.StaticPodPath, Interval: k.FileCheckFrequency.Duration, Decode: s.decoderFor(keys.SourceFile), Sink: to, Log: log,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	} else {
		out = append(out, noSource{to, desired.File, log})
	}
	if k.StaticPodURL != "" {
		u, err := source.NewURL(source.URLConfig{
			URL: k.StaticPodURL, Header: http.Header(k.StaticPodURLHeader), Interval: k.HTTPCheckFrequency.Duration,
			Decode: s.decoderFor(keys.SourceHTTP), Sink: to, Log: log,
		})
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	} else {
		out = append(out, noSource{to, desired.HTTP, log})
	}
	if !s.c.HasServer {
		out = append(out, noSource{to, desired.API, log})
	}
	return out, nil
}

// noSource is the Runner of a source that is not configured.
type noSource struct {
	to   Sink
	name string
	log  *slog.Logger
}

// Run reports that there are no pods.
func (s noSource) Run(ctx context.Context) error {
	if err := errors.Join(s.to.SetObjects(ctx, s.name, nil, nil), s.to.Set(ctx, s.name, nil, nil)); err != nil {
		s.log.Warn("cannot remove the pods of a source that is no longer configured: they are kept until the next start", "source", s.name,
			"error", err)
	}
	return nil
}

func (s *Sources) decoderFor(from string) source.Decode {
	return func(data []byte, origin string) (manifest.Set, error) {
		return manifest.Decode(data, manifest.Options{
			Origin: origin, Source: from, NodeName: s.c.Config.Node.Name, Seen: time.Now(),
			Lists: from == keys.SourceHTTP, // a kubelet accepts a PodList from a URL, but not from a file
		})
	}
}

// DecodeLocal decodes locally applied objects. The data may contain several documents. The names of the objects are
// not changed.
func (s *Sources) DecodeLocal(data []byte, origin string) (manifest.Set, error) {
	return manifest.Decode(data, manifest.Options{Origin: origin, Source: keys.SourceLocal, NodeName: s.c.Config.Node.Name,
		Seen: time.Now(), Lists: true})
}
