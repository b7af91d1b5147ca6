package pulls

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keyring"
)

func TestPolicy(t *testing.T) {
	allow := []string{"reg.example/open", "reg.example:5000/team/*", "docker.io/library/*"}
	for _, tt := range []struct {
		mode             kubelet.ImagePullCredentialsVerificationPolicy
		image            string
		preloaded, asked bool // true: the policy requires verification
	}{
		{kubelet.NeverVerify, "reg.example/app:1", false, false},
		{kubelet.NeverVerifyPreloadedImages, "reg.example/app:1", false, true},
		{kubelet.AlwaysVerify, "reg.example/app:1", true, true},
		{kubelet.NeverVerifyAllowlistedImages, "reg.example/app:1", true, true},
		{kubelet.NeverVerifyAllowlistedImages, "reg.example/open:1", false, false},
		{kubelet.NeverVerifyAllowlistedImages, "reg.example/open@sha256:" + fmt.Sprintf("%064d", 1), false, false},
		{kubelet.NeverVerifyAllowlistedImages, "reg.example/open/not:1", true, true},
		{kubelet.NeverVerifyAllowlistedImages, "reg.example/opener:1", true, true},
		{kubelet.NeverVerifyAllowlistedImages, "reg.example:5000/team/a/b:1", false, false},
		{kubelet.NeverVerifyAllowlistedImages, "reg.example:5000/teams/a:1", true, true},
		{kubelet.NeverVerifyAllowlistedImages, "nginx", false, false}, // the same image as docker.io/library/nginx
	} {
		p, err := NewPolicy(tt.mode, allow)
		if err != nil {
			t.Fatal(err)
		}
		name, err := repositoryOf(tt.image)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.needsVerification(name, false); got != tt.preloaded {
			t.Errorf("%s verifies %s, preloaded: %v", tt.mode, tt.image, got)
		}
		if got := p.needsVerification(name, true); got != tt.asked {
			t.Errorf("%s verifies %s, pulled: %v", tt.mode, tt.image, got)
		}
	}
	if _, err := NewPolicy("Sometimes", nil); err == nil {
		t.Error("a policy that is none")
	}
}

func secret(namespace, name string, uid types.UID, hash string) store.PullSource {
	return store.PullSource{Kind: keyring.Secret, Namespace: namespace, Name: name, UID: uid, Hash: []byte(hash)}
}

func TestProves(t *testing.T) {
	const app = "reg.example/app"
	a := secret("a", "pull", "u1", "h1")
	sa := store.PullSource{Kind: keyring.ServiceAccount, Namespace: "a", Name: "app", UID: "u1"}
	anew, unknown := sa, sa
	anew.UID, unknown.UID = "u2", ""
	by := func(name string, all ...store.PullSource) (out []store.Pull) {
		for _, s := range all {
			out = append(out, store.Pull{Image: "id", Name: name, Source: s})
		}
		return out
	}
	var many []store.PullSource
	for i := range maxSecrets {
		many = append(many, secret("a", fmt.Sprint("s", i), "u", fmt.Sprint("many", i)))
	}
	for name, tt := range map[string]struct {
		pulled  []store.Pull
		has     []store.PullSource
		ok      bool
		learned bool
	}{
		"no record":                       {nil, []store.PullSource{a}, false, false},
		"nobody knows by whom":            {by("", store.PullSource{}), []store.PullSource{a}, false, false},
		"every pod":                       {by(app, store.PullSource{}), nil, true, false},
		"every pod, by another name":      {by("reg.example/other", store.PullSource{}), nil, false, false},
		"same Secret":                     {by(app, a), []store.PullSource{a}, true, false},
		"no Secret":                       {by(app, a), nil, false, false},
		"by another name":                 {by("reg.example/other", a), []store.PullSource{a}, false, false},
		"same credential elsewhere":       {by(app, a), []store.PullSource{secret("b", "mine", "u2", "h1")}, true, true},
		"other credential elsewhere":      {by(app, a), []store.PullSource{secret("b", "pull", "u2", "h2")}, false, false},
		"the Secret changed":              {by(app, a), []store.PullSource{secret("a", "pull", "u1", "h2")}, true, true},
		"the Secret was replaced":         {by(app, a), []store.PullSource{secret("a", "pull", "u3", "h2")}, false, false},
		"changed, of unknown identity":    {by(app, secret("a", "pull", "", "h1")), []store.PullSource{secret("a", "pull", "", "h2")}, false, false},
		"unknown identity, unchanged":     {by(app, secret("a", "pull", "", "h1")), []store.PullSource{secret("a", "pull", "", "h1")}, true, false},
		"no hashes are not the same":      {by(app, secret("a", "pull", "u1", "")), []store.PullSource{secret("b", "pull", "u2", "")}, false, false},
		"the second is right":             {by(app, secret("x", "y", "z", "h9"), a), []store.PullSource{secret("b", "b", "b", "b"), a}, true, false},
		"same account":                    {by(app, sa), []store.PullSource{a, sa}, true, false},
		"an account by another name":      {by("reg.example/other", sa), []store.PullSource{sa}, false, false},
		"the account was replaced":        {by(app, sa), []store.PullSource{anew}, false, false},
		"an unknown account":              {by(app, unknown), []store.PullSource{unknown}, false, false},
		"a Secret named as an account":    {by(app, sa), []store.PullSource{secret("a", "app", "u1", "h1")}, false, false},
		"an account named as a Secret":    {by(app, secret("a", "app", "u1", "h1")), []store.PullSource{sa}, false, false},
		"bound: the same credential":      {by(app, many...), []store.PullSource{secret("b", "new", "u2", "many7")}, true, false},
		"bound: a changed one is refused": {by(app, many...), []store.PullSource{secret("a", "s7", "u", "new")}, false, false},
	} {
		ok, learned := authorizePod(app, tt.pulled, tt.has)
		if ok != tt.ok || (learned != nil) != tt.learned {
			t.Errorf("%s: %v, learned %v", name, ok, learned)
		}
	}
}

// TestOpen checks that Open returns nil if the feature gate is off. It returns an error for an unknown policy.
func TestOpen(t *testing.T) {
	var k kubelet.KubeletConfiguration
	g, err := Open(&k, Config{})
	if g != nil || err != nil {
		t.Fatalf("without a policy: %v, %v", g, err)
	}
	g.PruneRecords(t.Context())
	if err := g.Reconcile(t.Context()); err != nil {
		t.Error(err)
	}
	k.ImagePullCredentialsVerificationPolicy = "Sometimes"
	if g, err := Open(&k, Config{}); g != nil || err == nil {
		t.Errorf("an unknown policy: %v, %v", g, err)
	}
	k.ImagePullCredentialsVerificationPolicy = kubelet.AlwaysVerify
	if g, err := Open(&k, Config{}); err != nil || !g.cfg.Policy.needsVerification("example.org/a", false) {
		t.Errorf("AlwaysVerify does not verify: %v", err)
	}
}
