package bundle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/inputweight"
)

const (
	// NodeAPIVersion is the apiVersion of the description of a node.
	NodeAPIVersion = "islet.dev/v1alpha1"
	// NodeKind is the kind of the description of a node.
	NodeKind = "BundleNode"
)

// A Node is what is known about a node where it is not reachable.
type Node struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Name       string            `json:"name"`
	Labels     map[string]string `json:"labels,omitempty"`
	Platform   string            `json:"platform"`
	Version    string            `json:"version"`             // of islet
	Devices    map[string]int64  `json:"devices,omitempty"`   // extended resources
	Layers     []digest.Digest   `json:"layers,omitempty"`    // chain IDs of the unpacked layers
	Recipient  string            `json:"recipient,omitempty"` // for sealed Secrets
	// Fields are the fields of configurations that this version of islet knows. Those of an EdgeConfiguration begin with edgePrefix.
	Fields []string `json:"fields,omitempty"`
}

// maxAliases is the maximum number of YAML aliases in a configuration. The parser copies a part of the text for each one.
const maxAliases = 8

// edgePrefix is the first part of the names of an EdgeConfiguration's fields.
const edgePrefix = "edge."

// ParseNode parses the description of a node.
func ParseNode(text []byte) (*Node, error) {
	if err := inputweight.YAML(text, maxWeight); err != nil {
		return nil, err
	}
	n := &Node{}
	if err := yaml.UnmarshalStrict(text, n); err != nil {
		return nil, err
	}
	switch {
	case n.APIVersion != NodeAPIVersion || n.Kind != NodeKind:
		return nil, fmt.Errorf("it is not %s of %s", NodeKind, NodeAPIVersion)
	case n.Name == "" || !platformForm.matches(n.Platform):
		return nil, fmt.Errorf("it has no name, or %.80q is not a platform", n.Platform)
	}
	return n, nil
}

// Missing returns a line for everything that the manifests need and the bundle does not have, and for each name that is defined twice.
func (b *Bundle) Missing(inv *Inventory) (lines []string) {
	for _, name := range inv.Images() {
		if !slices.ContainsFunc(b.Contents.Images, func(i Image) bool { return i.Name == name }) {
			lines = append(lines, "image "+name+" is missing")
		}
	}
	for _, m := range inv.MissingObjects() {
		lines = append(lines, m+", is missing")
	}
	for _, m := range inv.Twice() {
		lines = append(lines, m+" is defined twice")
	}
	return lines
}

// UnknownFields returns the fields of a configuration that a node does not know, if the node's fields are known. The name is the name of
// the file in the bundle.
func (n *Node) UnknownFields(name string, text []byte) (fields []string, err error) {
	if len(n.Fields) == 0 {
		return nil, nil
	}
	tree := map[string]any{}
	if err = inputweight.YAML(text, maxWeight); err == nil && inputweight.Aliases(text) > maxAliases {
		err = fmt.Errorf("it has more than %d aliases", maxAliases)
	}
	if err == nil {
		err = yaml.Unmarshal(text, &tree)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	delete(tree, "apiVersion")
	delete(tree, "kind")
	prefix := ""
	if name == EdgeFile {
		prefix = edgePrefix
	}
	n.visitUnknown(prefix, tree, func(field string) { fields = append(fields, strings.TrimPrefix(field, prefix)) })
	return fields, nil
}

// visitUnknown calls visit for each field below a prefix that the node does not know. The fields below a known field are values of it.
func (n *Node) visitUnknown(prefix string, tree map[string]any, visit func(string)) {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		field := prefix + key
		if slices.Contains(n.Fields, field) {
			continue
		}
		if !slices.ContainsFunc(n.Fields, func(f string) bool { return strings.HasPrefix(f, field+".") }) {
			visit(field)
			continue
		}
		if below, ok := tree[key].(map[string]any); ok {
			n.visitUnknown(field+".", below, visit)
		}
	}
}

// Unfit returns a line for each reason why a node cannot use the bundle now.
func (b *Bundle) Unfit(inv *Inventory, n *Node, now time.Time) (lines []string) {
	c := b.Contents
	if !c.For.Matches(n.Name, n.Labels) {
		lines = append(lines, fmt.Sprintf("the bundle is not for node %s: it is for %s", n.Name, c.For.Text()))
	}
	if c.IsExpired(now) {
		lines = append(lines, "the bundle has expired on "+c.Expires)
	}
	if len(c.Images) > 0 && !slices.Contains(c.Platforms, n.Platform) {
		lines = append(lines, fmt.Sprintf("the bundle has no images for %s, but for %v", n.Platform, c.Platforms))
	}
	sum := map[string]int64{}
	for _, p := range inv.Pods {
		for name, count := range p.Devices {
			sum[name] += count
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		if sum[name] > n.Devices[name] {
			lines = append(lines, fmt.Sprintf("the pods request %d of device %s, the node has %d", sum[name], name, n.Devices[name]))
		}
	}
	return lines
}

// IsExpired reports whether no node may start to use the bundle any more.
func (c *Contents) IsExpired(now time.Time) bool {
	t, err := time.Parse(time.RFC3339, c.Expires)
	return c.Expires != "" && (err != nil || !now.Before(t))
}

// Need contains the sizes of the parts of a bundle that a node needs.
type Need struct {
	Bytes, Layers         int64 // size of all documents and layers for the platform of the node; number of these layers
	Fetched, LayersAbsent int64 // the same without the layers that the node already has
}

// Need returns the sizes of the parts of the bundle that a node needs, and of the parts that the node would fetch.
func (b *Bundle) Need(ctx context.Context, n *Node) (need Need, err error) {
	has := map[digest.Digest]bool{}
	for _, id := range n.Layers {
		has[id] = true
	}
	l, all, absent := newBlobList(), newBlobList(), newBlobList()
	l.add(b.manifest, b.config)
	for _, f := range b.Files {
		l.add(f.Descriptor)
	}
	err = b.VisitImages(ctx, func(p *PlatformImage) error {
		if p.Platform != n.Platform {
			return nil
		}
		l.add(p.Manifest, p.Config)
		all.add(p.Layers...)
		for i, d := range p.Layers {
			if !has[p.ChainIDs[i]] {
				absent.add(d)
			}
		}
		return nil
	})
	if err == nil {
		err = errors.Join(l.err, all.err, absent.err)
	}
	return Need{
		Bytes: l.size + all.size, Layers: int64(len(all.blobs)), Fetched: l.size + absent.size, LayersAbsent: int64(len(absent.blobs)),
	}, err
}
