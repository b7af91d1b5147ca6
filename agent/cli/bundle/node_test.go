package bundle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/runtime/cri"
)

// kiosk is the node of a kiosk: its facts, its key once it was made, and the layers that it has.
type kiosk struct {
	cri.Images
	key    *sealed.Identity
	broken error
	layers []string
}

func (k *kiosk) Labels() map[string]string { return map[string]string{"site": "x"} }

func (k *kiosk) Devices() map[string]int64 { return map[string]int64{"example.com/gpu": 2} }

func (k *kiosk) Recipient() (string, error) {
	if k.key == nil {
		return "", nil
	}
	return k.key.Recipient(), nil
}

func (k *kiosk) MakeRecipient() (recipient string, err error) {
	if k.key == nil && k.broken == nil {
		k.key, k.broken = sealed.NewIdentity([]byte(strings.Repeat("k", sealed.IdentitySize)))
	}
	if k.broken != nil {
		return "", k.broken
	}
	return k.key.Recipient(), nil
}

func (k *kiosk) ListLayers(context.Context) ([]string, error) { return k.layers, nil }

// TestBundleNode checks the way from a node to the office: the description that the node prints is the one that verify reads, the Secret
// that is sealed for the key of the node opens with it, and verify does not count the layers that the node has.
func TestBundleNode(t *testing.T) {
	o, k := newOffice(t), &kiosk{}
	n, _ := servertest.Start(t, func(c *server.Config) {
		k.Images = c.Images
		c.Bundles, c.Images, c.NodeName, c.Version = k, k, "a", "0.2.0"
	})
	recipient := run(t, n, "", "key", "recipient")
	if recipient.Code != 0 || k.key == nil || recipient.Out != k.key.Recipient()+"\n" {
		t.Fatalf("%+v", recipient)
	}
	o.write("nodes.txt", recipient.Out)
	o.write("wifi.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: wifi}\nstringData: {password: hunter2}\n")
	o.run(0, "seal @wifi.yaml --to @nodes.txt -o @kiosk/manifests/wifi.sealed.yaml")
	docs, err := sealed.Parse([]byte(o.read("kiosk/manifests/wifi.sealed.yaml")))
	if err != nil || len(docs) != 1 {
		t.Fatal(docs, err)
	}
	if s, err := k.key.Open(&docs[0]); err != nil || s.Name != "wifi" {
		t.Errorf("%+v, %v", s, err)
	}
	o.write("kiosk/manifests/web.yaml", strings.Replace(bundletest.Pod, "{configMapRef: {name: settings}}]",
		"{configMapRef: {name: settings}}, {secretRef: {name: wifi}}], resources: {limits: {example.com/gpu: 2}}", 1))
	o.run(0, "build @kiosk -o @kiosk.tar")
	describe := func(want string) {
		t.Helper()
		got := run(t, n, "", "bundle", "node")
		node, err := bundle.ParseNode([]byte(got.Out))
		if got.Code != 0 || err != nil || node.Name != "a" || node.Version != "0.2.0" || node.Recipient != k.key.Recipient() ||
			node.Labels["site"] != "x" || node.Devices["example.com/gpu"] != 2 || len(node.Layers) != len(k.layers) ||
			!slices.Contains(node.Fields, "edge.bundle.medium.label") || !slices.Contains(node.Fields, "maxPods") {
			t.Fatalf("%+v, %v", got, err)
		}
		// The images of the test are for these two platforms, so it also passes on other machines.
		o.write("node.yaml", strings.Replace(got.Out, "platform: "+node.Platform, "platform: linux/arm64", 1))
		o.run(0, "verify -q @kiosk.tar --for @node.yaml", want)
	}
	describe("(3 of 3 layers)")
	l, b := o.open("kiosk.tar")
	defer l.Close()
	var chains []digest.Digest // base, web, base, db
	err = b.VisitImages(t.Context(), func(p *bundle.PlatformImage) error {
		if p.Platform == "linux/arm64" {
			chains = append(chains, p.ChainIDs...)
		}
		return nil
	})
	if err != nil || len(chains) != 4 {
		t.Fatal(chains, err)
	}
	k.layers = []string{chains[0].String()}
	describe("(2 of 3 layers)")
	k.layers = append(k.layers, chains[1].String(), chains[3].String())
	describe("(0 of 3 layers)")
	k.key, k.broken = nil, errors.New("the key does not open")
	for _, args := range [][]string{{"bundle", "node"}, {"key", "recipient"}} {
		if got := run(t, n, "", args...); got.Code != command.ExitFailed || got.Out != "" || !strings.Contains(got.Err, k.broken.Error()) {
			t.Errorf("%q: %+v", args, got)
		}
	}
}
