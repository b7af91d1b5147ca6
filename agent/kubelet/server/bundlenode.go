package server

import (
	"context"
	"net/http"

	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/runtime/cri"
)

// A BundleNode returns the facts about a node that decide whether the node can use a bundle. *describe.Describer implements it.
type BundleNode interface {
	// Labels returns the labels of the Node. Devices returns the allocatable devices by resource.
	Labels() map[string]string
	Devices() map[string]int64
	// Recipient returns the node's public key for sealed Secrets, or "" if the node has no key yet.
	Recipient() (string, error)
	// MakeRecipient does the same, but makes the key if there is none.
	MakeRecipient() (string, error)
}

func (s *Server) routeBundleNode(m mux) {
	if s.Bundles == nil {
		return
	}
	m.HandleFunc("GET "+api.PathBundleNode, response.JSON(func(r *http.Request) (any, error) {
		return s.describeNode(r.Context())
	}))
	m.HandleFunc("POST "+api.PathRecipient, response.JSON(func(*http.Request) (any, error) {
		recipient, err := s.Bundles.MakeRecipient()
		return api.Recipient{Recipient: recipient}, err
	}))
}

// describeNode returns the description of this node for islet bundle verify --for.
func (s *Server) describeNode(ctx context.Context) (n *bundle.Node, err error) {
	n = &bundle.Node{
		APIVersion: bundle.NodeAPIVersion, Kind: bundle.NodeKind, Name: s.NodeName, Version: s.Version, Labels: s.Bundles.Labels(),
		Fields: config.FieldNames(), Devices: s.Bundles.Devices(), Platform: platforms.Format(platforms.Normalize(platforms.DefaultSpec())),
	}
	if n.Recipient, err = s.Bundles.Recipient(); err != nil {
		return nil, err
	}
	images, ok := s.Images.(cri.Layers)
	if !ok {
		return n, nil
	}
	ids, err := images.ListLayers(ctx)
	for _, id := range ids {
		n.Layers = append(n.Layers, digest.Digest(id))
	}
	return n, err
}
