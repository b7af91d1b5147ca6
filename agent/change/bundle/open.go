package bundle

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/agent/change/bundle/medium"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/remote"
	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/signed"
	"github.com/islet-edge/islet/runtime/image"
)

// A Database is a Store that also has the private keys of this node. *store.Store implements it.
type Database interface {
	Store
	Signer() (ed25519.PrivateKey, error)
	OpenSecret(d *sealed.Document) (*sealed.Secret, error)
}

// A Clock returns the current time, corrected by signed times. *link.Link implements it.
type Clock interface {
	Now() time.Time
	IsSynced() bool
	RecordSigned(ctx context.Context, t time.Time)
}

// A Start is the start of this process of the agent. *configure.Start implements it.
type Start interface {
	OnTrial() bool // another configuration or version of islet is on trial
	CheckKeys() error
}

// OpenFor returns the Node for the configuration of the agent. While another configuration or version of islet is on trial, the Node starts
// no trial of a bundle. The parameter images is nil with a remote runtime. The other parameters are fields of Config.
func OpenFor(
	c *config.Config, start Start, labels func() map[string]string, clock Clock, images *image.Service, store Database, log *slog.Logger,
) (*Node, error) {
	edge := c.Edge.Bundle
	out := Config{
		Dir: c.Dirs.State, Policy: format.Policy{Threshold: int(edge.Threshold)}, HealthyFor: edge.HealthyFor.Duration,
		Deadline: edge.Deadline.Duration, Name: c.Node.Name, Labels: labels, Now: clock.Now, IsSynced: clock.IsSynced, Store: store,
		RecordSigned: clock.RecordSigned, OpenSecret: store.OpenSecret, Signer: store.Signer, Log: log,
		CheckTrial: func() error {
			if start.OnTrial() {
				return errors.New("a configuration or version of islet is on trial: wait for its end (islet config show)")
			}
			return nil
		},
		CheckKeys: start.CheckKeys,
	}
	out.Remote.ReportURL = edge.Report // also with a remote runtime: such a node reports its updates of islet
	if images != nil {
		out.Images = images
		out.Remote = Remote{
			Source: edge.Source, Every: edge.Every.Duration, ReportURL: edge.Report, ReadStored: images.ReadStored,
			OpenRepository: func(ctx context.Context, ref string, auth *api.AuthConfig) (feed.Repository, error) {
				idle := time.Duration(0)
				if edge.Source == remote.Scheme+ref { // keep the connection open for the next poll
					idle = 2 * edge.Every.Duration
				}
				r, err := images.OpenRemote(ctx, ref, auth, idle)
				if err != nil {
					return nil, err
				}
				return r, nil
			},
		}
	}
	var err error
	if out.Policy.Keys, err = parseKeys(edge.Keys); err != nil {
		return nil, err
	}
	n := Open(out)
	if m := edge.Medium; m.Label != "" {
		n.medium = medium.New(medium.Config{Label: m.Label, Result: m.Result, LED: m.LED, Node: c.Node.Name, Bundles: n,
			Now: clock.Now, Log: log})
	}
	return n, nil
}

// parseKeys returns the public keys of signers.
func parseKeys(texts []string) (keys []signed.Key, _ error) {
	for _, text := range texts {
		key, err := signed.ParseKey(text)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}
