package config

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEveryFieldIsSorted checks that each field of the two configuration documents is in BoundFields or in FreeGroups.
func TestEveryFieldIsSorted(t *testing.T) {
	sorted := map[string]int{}
	for _, b := range BoundFields() {
		sorted[b.Field]++
	}
	for _, g := range FreeGroups() {
		for _, f := range g.Fields {
			sorted[f]++
		}
		if g.Why == "" {
			t.Errorf("%v: why", g.Fields)
		}
	}
	used := map[string]bool{}
	for _, leaf := range leaves(reflect.TypeFor[settings](), "", map[string]bool{"tracing": true, "logging.options": true}) {
		if strings.HasPrefix(leaf, "flags.") {
			continue
		}
		found := 0
		for at := leaf; ; {
			if n := sorted[at]; n > 0 {
				found, used[at] = found+n, true
			}
			i := strings.LastIndexByte(at, '.')
			if i < 0 {
				break
			}
			at = at[:i]
		}
		if found != 1 {
			t.Errorf("%s is sorted %d times: name it in powers() if it gives power over the node, in local() if it differs per machine, else in Free() with the reason", leaf, found)
		}
	}
	for f := range sorted {
		if !used[f] {
			t.Errorf("%s is not a field", f)
		}
	}
}

// This map contains a value for each field that gives power over the node. The value differs from the node's value in newSentNode.
var samples = map[string]string{
	"authentication.anonymous.enabled": "true", "authentication.webhook.enabled": "false", "authentication.webhook.cacheTTL": "9h",
	"authorization.mode": "AlwaysAllow", "authorization.webhook.cacheAuthorizedTTL": "9h", "authorization.webhook.cacheUnauthorizedTTL": "9h",
	"enableDebuggingHandlers": "false", "enableContentionProfiling": "true", "enableProfilingHandler": "false", "enableDebugFlagsHandler": "false",
	"enableSystemLogHandler": "false", "enableSystemLogQuery": "", // true is always rejected
	"enableServer": "false", "address": "192.0.2.1", "port": "10299", "readOnlyPort": "10255", "healthzPort": "10298", "healthzBindAddress": "0.0.0.0",
	"edge.statusPagePort": "8099", "tlsCipherSuites": "[TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA]", "tlsCurvePreferences": "[23]", "tlsMinVersion": "VersionTLS10",
	"rotateCertificates": "true", "allowedUnsafeSysctls": "['kernel.msg*']",
	"defaultPodSysctls": "{net.core.somaxconn: '64'}\nfeatureGates: {DefaultPodSysctls: true}", "seccompDefault": "true",
	"edge.devices":                           "[{resource: islet.dev/disk, match: [{paths: [/dev/sda]}]}]",
	"edge.realTime.pods":                     "[{namespaces: [default], sources: [api], policies: [FIFO]}]",
	"edge.realTime.bandwidth":                "90",
	"edge.realTime.busyLimit":                "1h",
	"edge.realTime.allowUnthrottled":         "true",
	"imagePullCredentialsVerificationPolicy": "NeverVerify", "preloadedImagesVerificationAllowlist": "[registry.example/x]\nimagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages",
	"clusterDNS": "[192.0.2.1]", "clusterDomain": "example.org", "enforceNodeAllocatable": "[none]", "localStorageCapacityIsolation": "false",
	"featureGates": "{GracefulNodeShutdown: false}", "registerWithTaints": "[{key: a, effect: NoSchedule}]",
}

// fieldDocument returns a document that sets the field. The document has the kind of the field.
func fieldDocument(path, value string) (kubelet, edge string) {
	name, isEdge := strings.CutPrefix(path, "edge.")
	text, parts := "", strings.Split(name, ".")
	for i, p := range parts {
		text += strings.Repeat("  ", i) + p + ":"
		if i < len(parts)-1 {
			text += "\n"
		}
	}
	text += " " + value + "\n"
	if isEdge {
		return "", edgeDocHead + text
	}
	return kubeletDocHead + text, ""
}

// TestPowerNeedsConsent checks that a sent configuration cannot set a field that gives power over the node without the node's consent. A
// configuration that was accepted before this rule existed keeps its effect. A change back to the value of the node's own files is always
// allowed.
func TestPowerNeedsConsent(t *testing.T) {
	n := newSentNode(t)
	for _, b := range powerFields() {
		value, ok := samples[b.Field]
		if !ok {
			t.Errorf("%s has no sample", b.Field)
		}
		if value == "" {
			continue
		}
		kubelet, edge := fieldDocument(b.Field, value)
		next, err := n.load(kubelet, edge)
		if err != nil {
			t.Errorf("%s: %v", b.Field, err)
			continue
		}
		if errs := CheckConsent(n.own, next, n.own, nil); !slices.ContainsFunc(errs, func(err error) bool {
			return strings.HasPrefix(err.Error(), b.Field+": Forbidden: it belongs to the node (")
		}) {
			t.Errorf("%s: %s without consent: %v", b.Field, value, errs)
		}
		also := map[string]string{"defaultPodSysctls": "featureGates"}[b.Field] // a field that the sample value requires
		if errs := CheckConsent(n.own, next, n.own, []string{b.Field, "imagePullCredentialsVerificationPolicy", also}); len(errs) > 0 {
			t.Errorf("%s with consent: %v", b.Field, errs)
		}
		back, err := n.load(kubeletDocHead, edgeDocHead)
		if err != nil {
			t.Fatal(err)
		}
		if errs := CheckConsent(next, back, n.own, nil); len(errs) > 0 {
			t.Errorf("%s: back to the node's own: %v", b.Field, errs)
		}
		old, _, err := LoadWith(n.args, func(Dirs) (*SentConfiguration, error) {
			return &SentConfiguration{Name: "kept", Kubelet: []byte(kubelet), Edge: []byte(edge)}, nil
		})
		if err != nil || !reflect.DeepEqual(old.Edge, next.Edge) || !reflect.DeepEqual(old.Kubelet, next.Kubelet) {
			t.Errorf("%s: one that is kept since before: %v", b.Field, err)
		}
	}
}

// TestOwnPowerStays checks that the node keeps its own value of a field that gives power over the node. The received document omits the
// field or sets it to an empty value. A configuration that is older than this rule keeps its effect.
func TestOwnPowerStays(t *testing.T) {
	n := newSentNode(t)
	file := strings.TrimPrefix(n.args[1], "--config=")
	own := kubeletDocHead +
		"authorization: {mode: AlwaysAllow}\nauthentication: {webhook: {cacheTTL: 7m}}\nclusterDNS: [10.96.0.10]\nseccompDefault: true\nreadOnlyPort: 10255\n"
	if err := os.WriteFile(file, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	const sent = kubeletDocHead + "maxPods: 7\nclusterDNS: []\nauthentication: {webhook: {cacheTTL: 0s}}\n"
	next, err := n.load(sent, "")
	if err != nil {
		t.Fatal(err)
	}
	k := &next.Kubelet
	if k.Authorization.Mode != "AlwaysAllow" || k.Authentication.Webhook.CacheTTL.Minutes() != 7 || !slices.Equal(k.ClusterDNS, []string{"10.96.0.10"}) || !*k.SeccompDefault || k.ReadOnlyPort != 10255 || k.MaxPods != 7 {
		t.Errorf("the node's own does not count: %+v", k)
	}
	old, _, err := LoadWith(n.args, func(Dirs) (*SentConfiguration, error) {
		return &SentConfiguration{Name: "kept", Kubelet: []byte(sent)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if k = &old.Kubelet; k.Authorization.Mode != "Webhook" || *k.SeccompDefault || k.ReadOnlyPort != 0 || len(k.ClusterDNS) != 0 {
		t.Errorf("a kept configuration means something else: %+v", k)
	}
}

const securityFile = "../../SECURITY.md"

// TestSecurityNamesTheRest checks that SECURITY.md lists every field that needs no consent, with the reason.
func TestSecurityNamesTheRest(t *testing.T) {
	have, err := os.ReadFile(securityFile)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| What a configuration may change without consent | Why it gives no power |\n| --- | --- |\n"
	want := head
	for _, g := range FreeGroups() {
		want += "| " + strings.Join(g.Fields, ", ") + " | " + g.Why + " |\n"
	}
	before, rest, ok := strings.Cut(string(have), head)
	if !ok {
		t.Fatal("SECURITY.md has no table of fields that a configuration may change")
	}
	_, after, _ := strings.Cut(rest, "\n\n")
	text := before + want + "\n" + after
	if *update {
		if err := os.WriteFile(securityFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != string(have) {
		t.Error("SECURITY.md is stale: go test ./internal/config -run TestSecurityNamesTheRest -update")
	}
}
