package object

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/internal/inputweight"
)

// bundleOf returns a bundle with one certificate per word. The word is the name of the certificate.
func bundleOf(name, signer, label string, words ...string) *certificatesv1.ClusterTrustBundle {
	b := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": label}}}
	b.Spec.SignerName = signer
	for _, w := range words {
		b.Spec.TrustBundle += "comment\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Headers: map[string]string{"h": "dropped"}, Bytes: []byte(w)}))
	}
	return b
}

// trusting returns a pod with projections of trust bundles.
func trusting(name string, all ...v1.ClusterTrustBundleProjection) *v1.Pod {
	p := podOf(name)
	var sources []v1.VolumeProjection
	for i := range all {
		sources = append(sources, v1.VolumeProjection{ClusterTrustBundle: &all[i]})
	}
	p.Spec.Volumes = []v1.Volume{{Name: "t", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}}}
	return p
}

// trusts returns the sorted certificate names in a pod's projections, or the error.
func (w *world) trusts(p *v1.Pod) (all []string) {
	for _, s := range p.Spec.Volumes[0].Projected.Sources {
		got, err := w.cache.TrustAnchors(p, s.ClusterTrustBundle)
		if err != nil {
			all = append(all, "error: "+err.Error())
			continue
		}
		var words []string
		for b, rest := pem.Decode(got); b != nil; b, rest = pem.Decode(rest) {
			words = append(words, string(b.Bytes))
			if len(b.Headers) > 0 {
				w.Error("a header is left")
			}
		}
		if bytes.Contains(got, []byte("comment")) {
			w.Error("a comment is left")
		}
		slices.Sort(words)
		all = append(all, strings.Join(words, " "))
	}
	return all
}

func (w *world) wantsTrust(p *v1.Pod, want ...string) {
	w.Helper()
	for i, got := range w.trusts(p) {
		if e, is := strings.CutPrefix(want[i], "error: "); is && strings.HasPrefix(got, "error: ") && strings.Contains(got, e) {
			continue
		}
		if got != want[i] {
			w.Errorf("projection %d trusts %q, want %q", i, got, want[i])
		}
	}
}

func TestTrustBundles(t *testing.T) {
	inWorld(t, TTL, func(w *world) { // the strategy applies to ConfigMaps and Secrets
		w.server.Put(bundleOf("one", "", "", "a", "b", "a"))
		w.server.Put(bundleOf("s.x:live", "s.x/y", "live", "c", "d"))
		w.server.Put(bundleOf("s.x:test", "s.x/y", "test", "d", "e"))
		w.server.Put(bundleOf("o.x:live", "o.x/y", "live", "f"))
		live := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "live"}}
		p := trusting("p",
			v1.ClusterTrustBundleProjection{Name: ptr("one")},
			v1.ClusterTrustBundleProjection{SignerName: ptr("s.x/y"), LabelSelector: &metav1.LabelSelector{}},
			v1.ClusterTrustBundleProjection{SignerName: ptr("s.x/y"), LabelSelector: live},
			v1.ClusterTrustBundleProjection{SignerName: ptr("s.x/y")}, // a nil selector selects no bundle
			v1.ClusterTrustBundleProjection{SignerName: ptr("s.x/y"), Optional: ptr(true)},
			v1.ClusterTrustBundleProjection{Name: ptr("none")},
			v1.ClusterTrustBundleProjection{Name: ptr("none"), Optional: ptr(true)},
			v1.ClusterTrustBundleProjection{SignerName: ptr("n.x/y"), LabelSelector: live},
			v1.ClusterTrustBundleProjection{SignerName: ptr("s.x/y"),
				LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Maybe"}}}},
			v1.ClusterTrustBundleProjection{SignerName: ptr("s.x/y"),
				LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env",
					Operator: "In", Values: slices.Repeat([]string{strings.Repeat("v", 50)}, 3000)}}}},
			v1.ClusterTrustBundleProjection{},
		)
		want := []string{"a b", "c d e", "c d", "error: no ClusterTrustBundle", "", "error: not found", "",
			"error: no ClusterTrustBundle", "error: labelSelector", "error: characters", "error: a name or a signerName"}
		w.prepare(p)
		w.wantsTrust(p, want...)
		first, err := w.cache.TrustAnchors(p, p.Spec.Volumes[0].Projected.Sources[1].ClusterTrustBundle)
		if err != nil {
			t.Fatal(err)
		}

		// Changed is called for changes, but not for bundles of another signer.
		w.pokes()
		w.server.Put(bundleOf("s.x:more", "s.x/y", "live", "g"))
		if w.pokes()["p"] != 1 {
			t.Error("Changed was not called for a new bundle of the signer")
		}
		w.server.Put(bundleOf("o.x:more", "o.x/y", "live", "h"))
		if w.pokes()["p"] != 0 {
			t.Error("Changed was called for a bundle of another signer")
		}
		want[1], want[2] = "c d e g", "c d g"
		w.wantsTrust(p, want...)
		w.server.Remove(bundleOf("s.x:more", "s.x/y", "live", "g"))
		w.pokes()
		if again, err := w.cache.TrustAnchors(p, p.Spec.Volumes[0].Projected.Sources[1].ClusterTrustBundle); err != nil ||
			!bytes.Equal(first, again) {
			t.Error("the same bundles in another order:", err)
		}
		want[1], want[2] = "c d e", "c d"

		// A running pod keeps a deleted bundle, unless the bundle is optional. All bundles are available after a restart without a
		// connection.
		optional := trusting("q", v1.ClusterTrustBundleProjection{Name: ptr("one"), Optional: ptr(true)})
		w.prepare(optional)
		w.wantsTrust(optional, "a b")
		w.server.Remove(bundleOf("one", "", "", "a", "b", "a"))
		w.pokes()
		w.wantsTrust(p, want...)
		w.wantsTrust(optional, "")
		w.refuses(func(*http.Request) int { return 500 })
		w.restart()
		if d := w.again(p); d > 0 {
			t.Errorf("waited %s for known objects", d)
		}
		w.wantsTrust(p, want...)
		w.wantsTrust(optional, "")
		for _, p := range []*v1.Pod{p, optional} {
			if err := w.cache.Release(w.Context(), p.UID); err != nil {
				t.Error(err)
			}
		}
		if all, err := w.store.Objects(w.Context()); err != nil || len(all) != 0 {
			t.Errorf("left of released pods: %+v, %v", all, err)
		}
	})
}

// TestTrustBundlesOfFormerServers checks that bundles of an API server that serves only v1beta1 are read and watched. After an upgrade to
// an API server that serves only v1, pods keep their bundles and get changes.
func TestTrustBundlesOfFormerServers(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Former.Store(true)
		w.server.Put(bundleOf("one", "", "", "a"))
		w.server.Put(bundleOf("s.x:live", "s.x/y", "live", "c"))
		p := trusting("p", v1.ClusterTrustBundleProjection{Name: ptr("one")},
			v1.ClusterTrustBundleProjection{SignerName: ptr("s.x/y"), LabelSelector: &metav1.LabelSelector{}})
		w.prepare(p)
		w.wantsTrust(p, "a", "c")
		w.server.Put(bundleOf("one", "", "", "b"))
		w.pokes()
		w.wantsTrust(p, "b", "c")
		for former, want := range map[bool]string{false: "d", true: "e"} {
			w.server.Former.Store(former)
			w.server.CloseConnections()
			w.server.Put(bundleOf("s.x:live", "s.x/y", "live", want))
			time.Sleep(time.Hour)
			w.wantsTrust(p, "b", want)
		}
		w.server.Disconnect()
		w.restart()
		w.wantsTrust(p, "b", w.trusts(p)[1])
	})
}

// TestStoredTrustBundles checks that bundles that were stored as v1beta1 can be read.
func TestStoredTrustBundles(t *testing.T) {
	former := &certificatesv1beta1.ClusterTrustBundleList{Items: []certificatesv1beta1.ClusterTrustBundle{{
		ObjectMeta: metav1.ObjectMeta{Name: "s.x:live", Labels: map[string]string{"env": "live"}},
		Spec:       certificatesv1beta1.ClusterTrustBundleSpec{SignerName: "s.x/y", TrustBundle: "pem"},
	}}}
	data, err := former.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got := newBundleKind().newContent().(*certificatesv1.ClusterTrustBundleList)
	if err := got.Unmarshal(data); err != nil || len(got.Items) != 1 || got.Items[0].Name != "s.x:live" ||
		got.Items[0].Labels["env"] != "live" || got.Items[0].Spec.SignerName != "s.x/y" || got.Items[0].Spec.TrustBundle != "pem" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestManyTrustBundles checks that a pod can use more than 100 bundles.
func TestManyTrustBundles(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		var sources []v1.ClusterTrustBundleProjection
		var want []string
		for i := range 130 {
			name := fmt.Sprintf("bundle-%d", i)
			w.server.Put(bundleOf(name, "", "", name))
			sources, want = append(sources, v1.ClusterTrustBundleProjection{Name: &name}), append(want, name)
		}
		p := trusting("p", sources...)
		if d := w.prepare(p); d > time.Minute {
			t.Error("waited", d)
		}
		w.wantsTrust(p, want...)
	})
}

// TestTrustBundlesNotServed checks that an optional projection is empty if the API server does not support bundles.
func TestTrustBundlesNotServed(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.refuses(func(r *http.Request) int {
			if strings.Contains(r.URL.Path, "clustertrustbundles") {
				return 404
			}
			return 0
		})
		p := trusting("p", v1.ClusterTrustBundleProjection{Name: ptr("one"), Optional: ptr(true)},
			v1.ClusterTrustBundleProjection{SignerName: ptr("s.x/y"), LabelSelector: &metav1.LabelSelector{}})
		if d := w.prepare(p); d > time.Second {
			t.Error("waited", d)
		}
		w.wantsTrust(p, "", "error: read ClusterTrustBundles of signer s.x/y")
	})
}

// TestAnchorsHaveNoOrder checks that the order of the certificates differs between pods.
func TestAnchorsHaveNoOrder(t *testing.T) {
	bundle := bundleOf("one", "", "", strings.Split("abcdefghij", "")...).Spec.TrustBundle
	if bytes.Equal(joinAnchors("p", []string{bundle}), joinAnchors("q", []string{bundle})) {
		t.Error("two pods have ten certificates in the same order")
	}
	if got := joinAnchors("p", nil); got == nil || len(got) != 0 {
		t.Error(errors.New("nothing is not an empty file"), got)
	}
}

// TestAnchorBombs checks that a bundle is rejected if it would be too large when decoded. A projection selects the bundle by name or by
// signer.
func TestAnchorBombs(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		bomb := bundleOf("one", "s.x/y", "a")
		bomb.Spec.TrustBundle = "-----BEGIN CERTIFICATE-----\n" + strings.Repeat("abc:\n", 200_000) + "\n-----END CERTIFICATE-----\n"
		w.server.Put(bomb)
		p := trusting("p", v1.ClusterTrustBundleProjection{Name: ptr("one")},
			v1.ClusterTrustBundleProjection{SignerName: ptr("s.x/y"), LabelSelector: &metav1.LabelSelector{}})
		w.prepare(p)
		for _, got := range w.trusts(p) {
			if !strings.Contains(got, inputweight.ErrTooHeavy.Error()) {
				t.Errorf("got %.200s", got)
			}
		}
	})
}
