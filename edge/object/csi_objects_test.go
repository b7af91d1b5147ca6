package object

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func csiVolume() *v1.PersistentVolume {
	pv := volumeOf("pv", "")
	ref := func(name string) *v1.SecretReference { return &v1.SecretReference{Namespace: "store", Name: name} }
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h", NodeStageSecretRef: ref("stage"),
		NodePublishSecretRef: ref("publish"), NodeExpandSecretRef: ref("expand")}
	return pv
}

// TestCSIVolume checks that the objects of a CSI volume are available when a pod with this volume is prepared. They must also be available
// after a restart without a connection. The VolumeAttachment is read only on request.
func TestCSIVolume(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(claimOf("c", "pv"))
		pv := csiVolume()
		w.server.Put(pv)
		for _, name := range []string{"stage", "publish", "expand"} {
			w.server.Put(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "store", Name: name}})
		}
		yes := true
		w.server.Put(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: storagev1.CSIDriverSpec{PodInfoOnMount: &yes}})
		p, name := claimed("p", "c"), AttachmentName("", pv.Spec.CSI)
		w.prepare(p)
		check := func() {
			t.Helper()
			if d, err := w.cache.CSIDriver(p, "d"); err != nil || !*d.Spec.PodInfoOnMount {
				t.Errorf("%+v: %v", d, err)
			}
			for _, name := range []string{"stage", "publish", "expand"} {
				if _, err := w.cache.VolumeSecret(p, "store", name); err != nil {
					t.Error(err)
				}
			}
		}
		check()
		if n := w.gets("volumeattachments"); n != 0 {
			t.Errorf("the VolumeAttachment was read %d times", n)
		}
		if _, err := w.cache.RenewAttachment(w.Context(), p, name); !apierrors.IsNotFound(err) {
			t.Errorf("it does not exist: %v", err)
		}
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"disk": "sdb"}}}
		w.server.Put(a)
		time.Sleep(2 * time.Second)
		if got, err := w.cache.RenewAttachment(w.Context(), p, name); err != nil || got.Status.AttachmentMetadata["disk"] != "sdb" {
			t.Errorf("%+v: %v", got, err)
		}
		w.refuses(func(*http.Request) int { return 500 })
		w.restart()
		if d := w.again(p); d > 0 {
			t.Errorf("waited %s for known objects", d)
		}
		check()
		if got, err := w.cache.RenewAttachment(w.Context(), p, name); err != nil || !got.Status.Attached {
			t.Errorf("without a link: %+v: %v", got, err)
		}
		w.refuses(nil)
		w.server.Remove(a)
		time.Sleep(2 * time.Minute)
		if _, err := w.cache.RenewAttachment(w.Context(), p, name); !apierrors.IsNotFound(err) {
			t.Errorf("the attachment is missing: %v", err)
		}
		if err := w.cache.Release(w.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
		if all, err := w.store.Objects(w.Context()); err != nil || len(all) != 0 {
			t.Errorf("left of a released pod: %+v, %v", all, err)
		}
		synctest.Wait()
	})
}

// TestInlineCSIVolume checks a CSI volume in the spec of a pod. The volume's driver and the tokens for the driver are available after a
// restart.
func TestInlineCSIVolume(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		p := podOf("p")
		p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d",
			NodePublishSecretRef: &v1.LocalObjectReference{Name: "s"}}}}}
		w.server.Put(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}})
		w.prepare(p)
		if _, err := w.cache.CSIDriver(p, "d"); !apierrors.IsNotFound(err) {
			t.Errorf("it does not exist: %v", err)
		}
		if _, err := w.cache.VolumeSecret(p, "default", "s"); err != nil {
			t.Error(err)
		}
		first, expires, err := w.cache.VolumeToken(w.Context(), p, "vault", 0)
		if err != nil || first == "" || time.Until(expires) <= 0 {
			t.Fatalf("%q, %s, %v", first, expires, err)
		}
		w.refuses(func(*http.Request) int { return 500 })
		w.restart()
		w.again(p)
		if got, _, err := w.cache.VolumeToken(w.Context(), p, "vault", 0); err != nil || got != first {
			t.Errorf("%q, %v", got, err)
		}
		if got, _, err := w.cache.VolumeToken(w.Context(), p, "other", 600); err == nil {
			t.Errorf("without a link: %q", got)
		}
	})
}
