package cluster

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/keys"
)

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "cluster")) }

// TestReport checks that the Node gets an event when an operator must repair the link, and for no other reason.
func TestReport(t *testing.T) {
	for reason, want := range map[string]bool{
		link.ReasonCertificateExpired: true, link.ReasonUnauthorized: true, link.ReasonServerCertificate: true, link.ReasonNotServer: true, link.ReasonDuplicate: true,
		link.ReasonUnreachable: false, link.ReasonNotReady: false, link.ReasonNoCredentials: false, link.ReasonBootstrapping: false, "": false,
	} {
		told := 0
		recordLinkDown(link.State{Phase: link.Down, Reason: reason, Message: "why"}, func(kind, reason, message string) {
			eventtest.RecordEvent(kind, reason, message)
			told++
		})
		if told > 1 || told == 1 != want {
			t.Errorf("%q: %d events", reason, told)
		}
	}
}

// TestKeptAnnotations checks the annotations of the Node that are set, and removed when the configuration changes, and the labels that are
// removed. As with a kubelet, ControllerManagedAttachDetach belongs to another program if the node does not register itself.
func TestKeptAnnotations(t *testing.T) {
	addresses := func() []string { return []string{"192.0.2.7", "2001:db8::7"} }
	k3s := filepath.Join(t.TempDir(), "edge.yaml")
	const egress = "egress.k3s.io/cluster"
	ofK3s := []string{"k3s.io/external-dns", "k3s.io/external-ip", "k3s.io/hostname", "k3s.io/internal-dns", "k3s.io/internal-ip"}
	kept := map[string]string{keys.ProvidedNodeIP: ""}
	for _, key := range ofK3s {
		kept[key] = ""
	}
	const edge = "apiVersion: islet.dev/v1beta1\nkind: EdgeConfiguration\nk3s: {directory: /var/lib/islet/k3s/current}\n"
	if err := os.WriteFile(k3s, []byte(edge), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		flags   []string
		want    map[string]string
		removed []string
	}{
		{nil, map[string]string{keys.ProvidedNodeIP: "", keys.ControllerManagedAttachDetach: "true"}, nil},
		{[]string{"--enable-controller-attach-detach=false"},
			map[string]string{keys.ProvidedNodeIP: "", keys.ControllerManagedAttachDetach: ""}, nil},
		{[]string{"--register-node=false"}, map[string]string{keys.ProvidedNodeIP: ""}, nil},
		{[]string{"--register-node=false", "--edge-config=" + k3s}, kept, append([]string{egress}, ofK3s...)},
		{[]string{"--register-node=false", "--edge-config=" + k3s, "--cloud-provider=external"},
			map[string]string{keys.ProvidedNodeIP: ""}, []string{egress}},
		{[]string{"--cloud-provider=external", "--node-ip=192.0.2.7"},
			map[string]string{keys.ProvidedNodeIP: "192.0.2.7,2001:db8::7", keys.ControllerManagedAttachDetach: "true"}, nil},
	} {
		cfg, _, err := config.Load(append([]string{"--hostname-override=n", "--state-dir=" + t.TempDir()}, tt.flags...))
		if err != nil {
			t.Fatal(err)
		}
		if got := keptAnnotations(cfg, addresses); !maps.Equal(got, tt.want) {
			t.Errorf("%q: %v, not %v", tt.flags, got, tt.want)
		}
		if got := slices.Sorted(slices.Values(removedLabels(cfg))); !slices.Equal(got, tt.removed) {
			t.Errorf("%q: labels %q, not %q", tt.flags, got, tt.removed)
		}
	}
}

// TestFindLeft checks that a node without a cluster in its configuration keeps running as a node of a cluster while it has pods of one.
func TestFindLeft(t *testing.T) {
	pods := func(source string, deleting bool) []desired.Pod {
		return []desired.Pod{{Source: desired.File}, {Source: source, Deleting: deleting}}
	}
	for name, tt := range map[string]struct {
		flags []string
		pods  []desired.Pod
		want  bool
	}{
		"pods of a cluster":          {nil, pods(desired.API, false), true},
		"pods that end":              {nil, pods(desired.API, true), false},
		"static pods":                {nil, pods(desired.HTTP, false), false},
		"no pods":                    {nil, nil, false},
		"the cluster is configured":  {[]string{"--kubeconfig=/etc/k"}, pods(desired.API, false), false},
		"the node joins its cluster": {[]string{"--bootstrap-kubeconfig=/etc/b", "--kubeconfig=/etc/k"}, pods(desired.API, false), false},
	} {
		cfg, _, err := config.Load(append([]string{"--hostname-override=n", "--state-dir=" + t.TempDir()}, tt.flags...))
		if err != nil {
			t.Fatal(err)
		}
		alone := cfg.Standalone()
		if FindLeft(cfg, tt.pods); cfg.Left != tt.want || cfg.Standalone() != (alone && !tt.want) {
			t.Errorf("%s: left is %v, standalone %v", name, cfg.Left, cfg.Standalone())
		}
	}
}
