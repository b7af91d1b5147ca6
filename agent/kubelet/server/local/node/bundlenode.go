package node

import (
	"net/http"

	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/config"
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

// makeRecipient returns the node's public key for sealed Secrets. It makes the key if there is none.
func (n *Node) makeRecipient(*http.Request) (any, error) {
	recipient, err := n.Bundles.MakeRecipient()
	return api.Recipient{Recipient: recipient}, err
}

// describeNode returns the description of this node for islet bundle verify --for.
func (n *Node) describeNode(r *http.Request) (any, error) {
	out := &bundle.Node{
		APIVersion: bundle.NodeAPIVersion, Kind: bundle.NodeKind, Name: n.Name, Version: n.Version, Labels: n.Bundles.Labels(),
		Fields: config.FieldNames(), Devices: n.Bundles.Devices(), Platform: platforms.Format(platforms.Normalize(platforms.DefaultSpec())),
	}
	var err error
	if out.Recipient, err = n.Bundles.Recipient(); err != nil {
		return nil, err
	}
	if n.Layers == nil {
		return out, nil
	}
	ids, err := n.Layers.ListLayers(r.Context())
	for _, id := range ids {
		out.Layers = append(out.Layers, digest.Digest(id))
	}
	return out, err
}
