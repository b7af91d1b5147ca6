package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/growthtest"
)

const kubeletDocHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
const edgeDocHead = "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n"

// A sentNode is a node that has its own files and receives documents.
type sentNode struct {
	args []string
	own  *Config
}

func newSentNode(t *testing.T) *sentNode {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kubelet.yaml": kubeletDocHead + "podCIDR: 10.8.0.0/24\nmaxPods: 9\nauthentication: {x509: {clientCAFile: ca.crt}}\n",
		"edge.yaml":    edgeDocHead + "bridgeName: mine0\nshimPods: 7\nconfiguration: {healthyFor: 5s, consent: [cgroupDriver]}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := &sentNode{args: []string{"--hostname-override=n", "--config=" + dir + "/kubelet.yaml", "--edge-config=" + dir + "/edge.yaml", "--pods-per-core=3"}}
	var err error
	if n.own, _, err = Load(n.args); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *sentNode) load(kubelet, edge string, consent ...string) (*Config, error) {
	next, _, err := LoadWith(n.args, func(Dirs) (*SentConfiguration, error) {
		return &SentConfiguration{Name: "sent", Kubelet: []byte(kubelet), Edge: []byte(edge), Consent: consent, Binding: Binding}, nil
	})
	return next, err
}

func TestSentKeepsTheNodesOwn(t *testing.T) {
	n := newSentNode(t)
	own := n.own
	next, err := n.load(kubeletDocHead+"authentication: {anonymous: {enabled: true}}\npodsPerCore: 5\n", edgeDocHead+"shimPods: 3\n")
	if err != nil {
		t.Fatal(err)
	}
	if errs := CheckConsent(own, next, own, []string{"authentication.anonymous.enabled"}); len(errs) > 0 {
		t.Errorf("withheld: %v", errs)
	}
	if next.Kubelet.PodCIDR != "10.8.0.0/24" ||
		next.Kubelet.Authentication.X509.ClientCAFile != own.Kubelet.Authentication.X509.ClientCAFile || next.Edge.BridgeName != "mine0" ||
		next.Edge.Configuration.HealthyFor.Seconds() != 5 {
		t.Errorf("the node lost its own values: %+v", next.Edge)
	}
	if next.Kubelet.MaxPods != 110 || next.Edge.ShimPods != 3 || !*next.Kubelet.Authentication.Anonymous.Enabled ||
		next.Kubelet.PodsPerCore != 3 {
		t.Error("the sent configuration does not replace the node's files, or a flag has no effect")
	}
	next, err = n.load(kubeletDocHead+"podCIDR: 10.9.0.0/24\ncgroupDriver: systemd\n",
		edgeDocHead+"bridgeName: other0\nconfiguration: {healthyFor: 1h}\n")
	if err == nil || !strings.Contains(err.Error(), "configuration.deadline") {
		t.Errorf("want an error for configuration.deadline, got %v", err)
	}
	next, err = n.load(kubeletDocHead+"podCIDR: 10.9.0.0/24\ncgroupDriver: systemd\n",
		edgeDocHead+"bridgeName: other0\nconfiguration: {healthyFor: 1s}\n")
	if err != nil {
		t.Fatal(err)
	}
	if errs := CheckConsent(own, next, own, own.Edge.Configuration.Consent); len(errs) != 3 {
		t.Errorf("withheld: %v", errs)
	}
	if errs := CheckConsent(own, next, own, []string{"podCIDR", "cgroupDriver", "edge.bridgeName", "edge.configuration"}); len(errs) > 0 {
		t.Errorf("withheld with consent: %v", errs)
	}
}

// TestSentEmpty checks that an empty value in a document does not change a field that belongs to the node. An example is
// containerRuntimeEndpoint in kubeadm's configuration for all nodes. With consent, an empty value clears the field.
func TestSentEmpty(t *testing.T) {
	n := newSentNode(t)
	own := n.own
	for _, empty := range []string{"''", "null"} {
		kubelet := kubeletDocHead + "podCIDR: " + empty + "\nstaticPodURLHeader: {}\nauthentication: {x509: {clientCAFile: " + empty + "}}\n"
		edge := edgeDocHead + "bridgeName: " + empty + "\ncniBinDirs: []\nconfiguration: {}\n"
		next, err := n.load(kubelet, edge)
		if err != nil {
			t.Fatal(err)
		}
		if errs := CheckConsent(own, next, own, nil); len(errs) > 0 {
			t.Errorf("%s: withheld: %v", empty, errs)
		}
		if next.Kubelet.PodCIDR != "10.8.0.0/24" || next.Kubelet.Authentication.X509.ClientCAFile == "" || next.Edge.BridgeName != "mine0" {
			t.Errorf("%s: the node lost its own values: %+v", empty, next.Edge)
		}
		next, err = n.load(kubelet, edge, "podCIDR", "edge.bridgeName")
		if err != nil {
			t.Fatal(err)
		}
		if next.Kubelet.PodCIDR == own.Kubelet.PodCIDR || next.Edge.BridgeName == "mine0" || next.Kubelet.Authentication.X509.ClientCAFile == "" {
			t.Errorf("%s: with consent: podCIDR %q, bridgeName %q", empty, next.Kubelet.PodCIDR, next.Edge.BridgeName)
		}
		if errs := CheckConsent(own, next, own, nil); len(errs) != 2 {
			t.Errorf("%s: withheld: %v", empty, errs)
		}
	}
}

// TestWithheldAdvice checks that the error gives correct advice for a changed field. The advice must also be correct for an omitted field
// whose current value comes from an earlier consent.
func TestWithheldAdvice(t *testing.T) {
	n := newSentNode(t)
	const consent = "name it in configuration.consent"
	now, err := n.load(kubeletDocHead+
		"podCIDR: 10.9.0.0/24\nstaticPodURL: http://me:secret@192.0.2.1/\nstaticPodURLHeader: {Authorization: [secret]}\nauthentication: {x509: {clientCAFile: ''}}\nuserNamespaces: {idsPerPod: 131072}\n", "", "authentication.x509.clientCAFile")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		sent, field string
		own         *Config
		says        []string
		not         string
	}{
		"set":             {"podCIDR: 10.10.0.0/24\n", "podCIDR", n.own, []string{": leave it out, or " + consent}, "10.9"},
		"left out":        {"", "podCIDR", n.own, []string{"set it to 10.9.0.0/24, which is in use now, or " + consent}, "leave it out"},
		"set back":        {"podCIDR: 10.8.0.0/24\n", "podCIDR", n.own, []string{"set it to 10.9.0.0/24, which is in use now, or " + consent}, "leave it out"},
		"a number":        {"", "userNamespaces.idsPerPod", n.own, []string{"set it to 131072, which"}, "leave it out"},
		"a password":      {"", "staticPodURL", n.own, []string{"set it to what is in use now, or " + consent}, "secret"},
		"a token":         {"", "staticPodURLHeader", n.own, []string{"set it to what is in use now, or " + consent}, "secret"},
		"emptied":         {"", "authentication.x509.clientCAFile", n.own, []string{"is empty now", consent, "set it to the empty value"}, "leave it out"},
		"no files to ask": {"", "podCIDR", nil, []string{": leave it out, or " + consent}, "10.9"},
	} {
		next, err := n.load(kubeletDocHead+c.sent, "")
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, err := range CheckConsent(now, next, c.own, nil) {
			if strings.HasPrefix(err.Error(), c.field+": Forbidden: it belongs to the node (") {
				said = err.Error()
			}
		}
		for _, want := range c.says {
			if !strings.Contains(said, want) {
				t.Errorf("%s: %q does not say %q", name, said, want)
			}
		}
		if strings.Contains(said, c.not) {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// TestHeldByPods checks that some fields cannot change while the node has pods, even with consent.
func TestHeldByPods(t *testing.T) {
	n := newSentNode(t)
	next, err := n.load(kubeletDocHead+"podLogsDir: /elsewhere\ncgroupDriver: systemd\nmaxPods: 5\npodCIDR: 10.9.0.0/24\n", "",
		"podLogsDir", "cgroupDriver", "podCIDR")
	if err != nil {
		t.Fatal(err)
	}
	errs := CheckHeld(n.own, next, 2, false)
	if text := fmt.Sprint(errs); len(errs) != 2 || !strings.Contains(text, "podLogsDir: Forbidden: this node has 2 pods") ||
		!strings.Contains(text, "cgroupDriver: ") {
		t.Errorf("held: %v", errs)
	}
	if errs := CheckHeld(n.own, next, 0, true); len(errs) != 2 || !strings.Contains(fmt.Sprint(errs), "podLogsDir: Forbidden: a bundle") {
		t.Errorf("held by the pods of a bundle: %v", errs)
	}
	if errs := slices.Concat(CheckHeld(n.own, next, 0, false), CheckHeld(n.own, n.own, 2, true)); len(errs) > 0 {
		t.Errorf("held: %v", errs)
	}
	for _, f := range HeldByPods() {
		if !IsBound(f.Field) {
			t.Errorf("%s does not belong to the node", f.Field)
		}
	}
}

func TestSplit(t *testing.T) {
	k, e, err := Split("f", []byte("# both\n---\n"+kubeletDocHead+"maxPodz: 1\n---\n"+edgeDocHead+"shimPodz: 1\n---\n"))
	n := newSentNode(t)
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.load(string(k), string(e))
	if err == nil || !strings.Contains(err.Error(), ":5: maxPodz: unknown field") {
		t.Error(err)
	}
	_, err = n.load("", string(e))
	if err == nil || !strings.Contains(err.Error(), ":9: shimPodz: unknown field") {
		t.Error(err)
	}
	for _, text := range []string{"kind: Pod\n", kubeletDocHead + "---\n" + kubeletDocHead, "[", "- a\n", "7"} {
		if _, _, err := Split("f", []byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if k, e, err := Split("f", nil); err != nil || k != nil || e != nil {
		t.Error(k, e, err)
	}
}

// hostileDocuments returns configurations of attackers and configurations with mistakes. Every field gets wrong values, extreme values and
// values of another type. There are also whole documents.
func hostileDocuments() map[string][2]string {
	all := map[string][2]string{}
	set := func(path, value string) string {
		text, parts := "", strings.Split(path, ".")
		for i, p := range parts {
			text += strings.Repeat("  ", i) + p + ":"
			if i < len(parts)-1 {
				text += "\n"
			}
		}
		return text + " " + value + "\n"
	}
	for _, row := range slices.Concat(kubeletFields(), edgeFields()) {
		for _, value := range []string{"-1", `"\u0000nonsense"`, "[[]]"} {
			if path, edge := strings.CutPrefix(row.path, "edge."); edge {
				all[row.path+"="+value] = [2]string{"", edgeDocHead + set(path, value)}
			} else {
				all[row.path+"="+value] = [2]string{kubeletDocHead + set(row.path, value), ""}
			}
		}
	}
	for name, text := range map[string]string{
		"deep":      strings.Repeat("[", 100_000),
		"deep map":  kubeletDocHead + "featureGates: " + strings.Repeat("{a: ", 20_000) + strings.Repeat("}", 20_000),
		"aliases":   kubeletDocHead + "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n",
		"unknown":   kubeletDocHead + strings.Repeat("x", 1000) + ": 1\n",
		"many":      kubeletDocHead + manyFields(30_000),
		"many bad":  kubeletDocHead + "evictionHard: {" + strings.Repeat("a", 10) + manyWrong(20_000) + "}\n",
		"too long":  kubeletDocHead + "# " + strings.Repeat("x", MaxSent) + "\n",
		"no text":   "\x00\xff\xfe",
		"duplicate": kubeletDocHead + "maxPods: 1\nmaxPods: 2\n",
		"two":       kubeletDocHead + "---\n" + kubeletDocHead,
		"api":       strings.Replace(kubeletDocHead, "v1beta1", "v1", 1),
		"kind":      strings.Replace(kubeletDocHead, "Kubelet", "Cubelet", 1),
		"list":      "- " + kubeletDocHead,
		"null":      "null\n",
		"relative":  kubeletDocHead + "staticPodPath: ../../etc\n",
		"ports":     kubeletDocHead + "port: 70000\nhealthzPort: -3\nreadOnlyPort: 10250\n",
	} {
		all[name] = [2]string{text, ""}
	}
	return all
}

func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "unknown%d: 1\n", i)
	}
	return b.String()
}

func manyWrong(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ": x, k%d: [1]", i)
	}
	return b.String()
}

// TestHostile checks that every sent document is valid or is rejected quickly. The error names the field. A valid document does not change
// fields that belong to the node.
func TestHostile(t *testing.T) {
	all := hostileDocuments()
	if len(all) < 200 {
		t.Fatalf("%d configurations", len(all))
	}
	n, refused, taken := newSentNode(t), 0, 0
	runtime.LockOSThread() // so that the CPU time does not depend on what else the machine does
	defer runtime.UnlockOSThread()
	slowest := time.Duration(0)
	for name, docs := range all {
		began := growthtest.ThreadTime(t)
		next, err := n.load(docs[0], docs[1])
		took := growthtest.ThreadTime(t) - began
		slowest = max(slowest, took)
		if took > 10*time.Second {
			t.Errorf("%.80s: took %v of CPU", name, took)
		}
		path, _, field := strings.Cut(name, "=")
		switch {
		case err != nil:
			refused++
			last := path[strings.LastIndex(path, ".")+1:]
			if file := (*FileError)(nil); field && !strings.Contains(err.Error(), last) && !errors.As(err, &file) {
				t.Errorf("%s: the error does not name the field: %v", name, err)
			}
			if len(err.Error()) > 1<<20 {
				t.Errorf("%.80s: an error of %d bytes", name, len(err.Error()))
			}
		default:
			taken++
			for _, err := range CheckConsent(n.own, next, n.own, nil) {
				if !IsBound(path) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	t.Logf("%d refused, %d valid, the slowest took %v", refused, taken, slowest)
	if refused < 200 {
		t.Errorf("%d were refused", refused)
	}
}

// TestBoundFieldsAreFields checks that the fields that belong to the node are in the tables of fields.
func TestBoundFieldsAreFields(t *testing.T) {
	known := fieldRows()
	for _, b := range BoundFields() {
		if _, ok := known[b.Field]; !ok && b.Field != "edge.configuration" && b.Field != "edge.update" && b.Field != "edge.bundle" {
			t.Errorf("%s is not a field", b.Field)
		}
		if b.Why == "" {
			t.Errorf("%s: why", b.Field)
		}
	}
}

// TestSentCounts checks that a value in a sent document has the same effect as in a file. The defaults for small machines and standalone
// nodes must not replace the value.
func TestSentCounts(t *testing.T) {
	n := newSentNode(t)
	next, err := n.load(kubeletDocHead+"evictionHard: {memory.available: 7Mi}\nfailSwapOn: true\n", "")
	if err != nil {
		t.Fatal(err)
	}
	if got := next.Kubelet.EvictionHard["memory.available"]; got != "7Mi" || !*next.Kubelet.FailSwapOn || next.SwapUnasked {
		t.Errorf("memory.available %s, failSwapOn %v", got, *next.Kubelet.FailSwapOn)
	}
}
