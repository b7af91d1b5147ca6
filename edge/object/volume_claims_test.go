package object

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claimed returns a pod with a named claim and an ephemeral volume.
func claimed(name, claim string) *v1.Pod {
	p := podOf(name)
	p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	return p
}

func claimOf(name, volume string) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-of-claim",
		Labels: map[string]string{"a": "b"}}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: volume}}
	c.Status.Phase = v1.ClaimPending
	if volume != "" {
		c.Status.Phase = v1.ClaimBound
	}
	return c
}

func volumeOf(name, secret string) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-volume"}}
	pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "c", UID: "uid-of-claim"}
	if secret != "" {
		pv.Spec.ISCSI = &v1.ISCSIPersistentVolumeSource{SecretRef: &v1.SecretReference{Namespace: "store", Name: secret}}
	}
	return pv
}

// gets returns the number of GET requests for a resource. The node must not list or watch the resource.
func (w *world) gets(resource string) int {
	w.Helper()
	for _, verb := range []string{"LIST ", "WATCH "} {
		if w.server.Requests(verb+resource) != 0 {
			w.Error(verb + resource + " is not a node's to ask")
		}
	}
	return w.server.Requests("GET " + resource)
}

// TestChainIsReadByName checks that the objects of a volume are available when a pod is prepared: the PersistentVolumeClaim, the
// PersistentVolume and the Secret. They must also be available after a restart without a connection.
func TestChainIsReadByName(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(claimOf("c", "pv"))
		w.server.Put(volumeOf("pv", "chap"))
		w.server.Put(&v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "store", Name: "chap"}, Data: map[string][]byte{"k": []byte("v")}})
		p := claimed("p", "c")
		w.prepare(p)
		check := func() {
			t.Helper()
			c, err := w.cache.Claim(p, "c")
			if err != nil || c.Spec.VolumeName != "pv" || c.UID != "uid-of-claim" || c.Labels != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			pv, err := w.cache.PersistentVolume(p, "pv")
			if err != nil || pv.UID != "uid-of-volume" {
				t.Fatalf("%+v: %v", pv, err)
			}
			if s, err := w.cache.VolumeSecret(p, "store", "chap"); err != nil || string(s.Data["k"]) != "v" {
				t.Fatalf("%+v: %v", s, err)
			}
			if _, err := w.cache.PersistentVolume(p, "other"); err == nil {
				t.Error("a volume that no claim of the pod references")
			}
		}
		check()
		if n, m := w.gets("persistentvolumeclaims"), w.gets("persistentvolumes"); n != 1 || m != 1 {
			t.Errorf("read %d and %d times", n, m)
		}
		w.mount(p)
		w.refuses(func(*http.Request) int { return 500 })
		w.restart()
		if d := w.again(p); d > 0 {
			t.Errorf("waited %s for known objects", d)
		}
		check()
		if err := w.cache.Release(w.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
		if all, err := w.store.Objects(w.Context()); err != nil || len(all) != 0 {
			t.Errorf("left of a released pod: %+v, %v", all, err)
		}
	})
}

// TestReplacedClaim checks that a new pod does not use a claim that was deleted and created again with another volume, although another pod
// of the node still uses the former claim. The server does not answer for a long time, returns errors, or does not answer after an outage.
// Without a link, the new pod uses the known claim.
func TestReplacedClaim(t *testing.T) {
	for name, test := range map[string]struct {
		outage  time.Duration // how long the link is down before the trouble begins
		trouble func(w *world)
		wants   string // the volume of a new pod during the trouble; empty if it must wait
	}{
		"silent": {trouble: func(w *world) { w.set(func() { w.lag = 20 * time.Second }) }},
		"fails":  {trouble: func(w *world) { w.refuses(func(*http.Request) int { return 500 }) }},
		"after an outage": {outage: time.Hour, trouble: func(w *world) {
			w.set(func() { w.lag = 20 * time.Second })
			w.cache.Retry()
		}},
		"no link": {trouble: func(w *world) { w.down.Store(true) }, wants: "pv1"},
		"none":    {trouble: func(*world) {}, wants: "pv2"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Watch, func(w *world) {
				w.server.Put(volumeOf("pv1", ""))
				w.server.Put(volumeOf("pv2", ""))
				w.server.Put(claimOf("c", "pv1"))
				former, fresh := claimed("former", "c"), claimed("fresh", "c")
				w.prepare(former)
				time.Sleep(2 * time.Second)
				replaced := claimOf("c", "pv2")
				replaced.UID = "another"
				w.server.Put(replaced)
				w.down.Store(test.outage > 0)
				time.Sleep(test.outage)
				w.down.Store(false)
				test.trouble(w)
				volume := func(p *v1.Pod) string {
					if c, err := w.cache.Claim(p, "c"); err == nil {
						return c.Spec.VolumeName
					}
					return ""
				}
				if d := w.prepare(fresh); d > updateTimeout {
					t.Errorf("the pod has waited for %s", d)
				}
				if got := volume(fresh); got != test.wants {
					t.Errorf("the new pod gets %q, not %q", got, test.wants)
				}
				if got := volume(former); got != "pv1" && test.wants != "pv2" {
					t.Errorf("the former pod gets %q", got)
				}
				w.pokes()
				w.down.Store(false)
				w.refuses(nil)
				w.cache.Retry()
				time.Sleep(2 * retryMax)
				if got := volume(fresh); got != "pv2" {
					t.Errorf("afterwards, the new pod gets %q", got)
				}
				if test.wants == "" && w.pokes()[fresh.UID] == 0 {
					t.Error("the pod was not notified")
				}
			})
		})
	}
}

// TestReplacedClaimAfterRestart checks that a stored pod that has not mounted a volume before a restart does not use the stored claim
// while the server returns errors. A pod that has mounted a volume uses the stored claim. Without a link, both pods use it.
func TestReplacedClaimAfterRestart(t *testing.T) {
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprint("down ", down), func(t *testing.T) {
			inWorld(t, Watch, func(w *world) {
				w.server.Put(volumeOf("pv", ""))
				w.server.Put(claimOf("c", "pv"))
				ran, waited := claimed("ran", "c"), claimed("waited", "c")
				w.prepare(ran)
				w.mount(ran)
				w.storePod(waited)
				w.refuses(func(*http.Request) int { return 500 })
				w.down.Store(down)
				w.restart()
				for _, p := range []*v1.Pod{ran, waited} {
					w.again(p)
					if _, err := w.cache.Claim(p, "c"); (err == nil) != (p == ran || down) {
						t.Errorf("pod %s: %v", p.Name, err)
					}
				}
				w.pokes()
				w.refuses(nil)
				w.down.Store(false)
				w.cache.Retry()
				time.Sleep(2 * retryMax)
				if _, err := w.cache.Claim(waited, "c"); err != nil || !down && w.pokes()[waited.UID] == 0 {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}

// TestLinkEndsDuringRead checks that a new pod uses a known claim after all if the link ends while the pod waits for the server's answer.
func TestLinkEndsDuringRead(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(volumeOf("pv", ""))
		w.server.Put(claimOf("c", "pv"))
		w.prepare(claimed("former", "c"))
		time.Sleep(2 * time.Second)
		w.set(func() { w.lag = time.Hour })
		p := claimed("fresh", "c")
		w.prepare(p)
		if c, err := w.cache.Claim(p, "c"); err == nil {
			t.Errorf("the pod gets %+v", c)
		}
		w.pokes()
		w.down.Store(true)
		w.server.CloseConnections()
		time.Sleep(time.Minute)
		if n := w.pokes()[p.UID]; n != 1 {
			t.Errorf("the pod was notified %d times", n)
		}
		if _, err := w.cache.Claim(p, "c"); err != nil {
			t.Error(err)
		}
	})
}

// TestWhatWaitsIsReadAgain checks that an unbound claim is read again for each attempt to start its pod. Bound claims are read rarely. If
// no pod uses a claim, no claim is read.
func TestWhatWaitsIsReadAgain(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(claimOf("c", ""))
		p := claimed("p", "c")
		w.prepare(p)
		if c, err := w.cache.Claim(p, "c"); err != nil || c.Spec.VolumeName != "" {
			t.Fatalf("%+v: %v", c, err)
		}
		w.server.Put(volumeOf("pv", ""))
		w.server.Put(claimOf("c", "pv"))
		time.Sleep(2 * time.Second)
		w.again(p)
		if _, err := w.cache.PersistentVolume(p, "pv"); err != nil {
			t.Fatal(err)
		}
		w.again(p)
		n := w.gets("persistentvolumeclaims")
		if n != 2 {
			t.Errorf("read %d times", n)
		}
		w.pokes()
		grown := claimOf("c", "pv")
		grown.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending}}
		w.server.Put(grown)
		time.Sleep(time.Hour)
		synctest.Wait()
		if more := w.gets("persistentvolumeclaims") - n; more < 3 || more > 8 {
			t.Errorf("read %d times in an hour", more)
		}
		if w.pokes()[p.UID] != 1 {
			t.Error("Changed was not called for the claim")
		}
		n = w.gets("persistentvolumes")
		if err := w.cache.Renew(w.Context(), p); err != nil || w.gets("persistentvolumes") != n+1 {
			t.Errorf("%v, read %d times more", err, w.gets("persistentvolumes")-n)
		}
		if err := w.cache.Release(w.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
		n = w.gets("persistentvolumeclaims")
		time.Sleep(time.Hour)
		if more := w.gets("persistentvolumeclaims") - n; more != 0 {
			t.Errorf("read %d times without a pod", more)
		}
	})
}

// TestClaimsAreFollowed checks that a claim is read within seconds while it is being resized or a pod waits for it. No attempt to start
// the pod is needed. The claim of a CSI volume is read about as often as by a kubelet.
func TestClaimsAreFollowed(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		size := func(s string) v1.ResourceList { return v1.ResourceList{v1.ResourceStorage: resource.MustParse(s)} }
		claim := func(volume, want, has string) *v1.PersistentVolumeClaim {
			c := claimOf("c", volume)
			c.Spec.Resources.Requests = size(want)
			if has != "" {
				c.Status.Capacity = size(has)
			}
			return c
		}
		pv := func(has string) *v1.PersistentVolume {
			v := volumeOf("pv", "")
			v.Spec.CSI, v.Spec.Capacity = &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}, size(has)
			return v
		}
		w.server.Put(claim("", "1Gi", ""))
		p := claimed("p", "c")
		w.prepare(p)
		time.Sleep(5 * time.Second)
		w.pokes()
		w.server.Put(pv("1Gi"))
		w.server.Put(claim("pv", "1Gi", "1Gi"))
		time.Sleep(10 * time.Second)
		if _, err := w.cache.PersistentVolume(p, "pv"); err != nil || w.pokes()["p"] == 0 {
			t.Error("a bound claim:", err)
		}
		n, m := w.gets("persistentvolumeclaims"), w.gets("persistentvolumes")
		time.Sleep(time.Hour)
		synctest.Wait()
		if n, m = w.gets("persistentvolumeclaims")-n, w.gets("persistentvolumes")-m; n < 35 || n > 60 || m > 8 {
			t.Errorf("parked items are read %d and %d times an hour", n, m)
		}
		w.server.Put(claim("pv", "2Gi", "1Gi"))
		time.Sleep(2 * time.Minute)
		w.pokes()
		w.server.Put(pv("2Gi"))
		time.Sleep(maxWaitingPoll + maxWaitingPoll/2)
		if got, err := w.cache.PersistentVolume(p, "pv"); err != nil || got.Spec.Capacity.Storage().String() != "2Gi" ||
			w.pokes()["p"] == 0 {
			t.Error("a volume that has grown:", got, err)
		}
	})
}

// TestClaimThatIsNotThere checks that the claim of an ephemeral volume is named after the pod. A missing claim and an unreadable claim
// are errors.
func TestClaimThatIsNotThere(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		p := claimed("p", "c")
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "scratch",
			VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}})
		w.server.Put(claimOf("p-scratch", ""))
		w.prepare(p)
		if _, err := w.cache.Claim(p, "c"); !apierrors.IsNotFound(err) || err.Error() != `persistentvolumeclaims "c" not found` {
			t.Error(err)
		}
		if _, err := w.cache.Claim(p, EphemeralClaim(p, "scratch")); err != nil {
			t.Error(err)
		}
		w.refuses(func(*http.Request) int { return 500 })
		q := claimed("q", "unknown")
		w.prepare(q)
		if _, err := w.cache.Claim(q, "unknown"); err == nil || apierrors.IsNotFound(err) ||
			!strings.Contains(err.Error(), "PersistentVolumeClaim default/unknown") {
			t.Error(err)
		}
	})
}

// TestBoundBefore checks that the time of binding does not affect how often a claim is read. The claim is bound before or after the start
// of its pod.
func TestBoundBefore(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		pv := volumeOf("pv", "")
		pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}
		w.server.Put(pv)
		w.server.Put(claimOf("c", "pv"))
		w.prepare(claimed("p", "c"))
		n := w.gets("persistentvolumeclaims")
		time.Sleep(5 * claimPoll)
		synctest.Wait()
		if n = w.gets("persistentvolumeclaims") - n; n < 3 || n > 7 {
			t.Errorf("read %d times in %s", n, 5*claimPoll)
		}
	})
}

// TestAtRestTogether checks that objects that are polled at long intervals are read at the same time, even if their pods started at
// different times. Reading needs additional memory. Objects that are read together need this memory only once.
func TestAtRestTogether(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		const many, beats = 5, 10
		for i := range many {
			pv := volumeOf(fmt.Sprint("pv", i), "")
			pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}
			w.server.Put(pv)
			w.server.Put(claimOf(fmt.Sprint("c", i), pv.Name))
			w.prepare(claimed(fmt.Sprint("p", i), fmt.Sprint("c", i)))
			time.Sleep(7 * time.Second)
		}
		time.Sleep(claimPoll)
		began := time.Now()
		w.touched.Store(0)
		at, before := 0, w.gets("persistentvolumeclaims")
		for last := before; time.Since(began) < beats*claimPoll; {
			time.Sleep(claimPoll / 16)
			synctest.Wait()
			if now := w.gets("persistentvolumeclaims"); now > last {
				last = now
				at++
			}
		}
		reads := w.gets("persistentvolumeclaims") - before
		if at < beats-1 || at > beats+1 || reads < (beats-1)*many {
			t.Errorf("%d reads of %d claims at %d times in %s", reads, many, at, beats*claimPoll)
		}
		if w.touched.Load() < int32(reads) {
			t.Errorf("%d reads, %d calls of Changed", reads, w.touched.Load())
		}
		synctest.Wait()
		w.cache.mu.Lock()
		defer w.cache.mu.Unlock()
		for k, it := range w.cache.items {
			if it.kind.get != nil && !it.parked {
				t.Errorf("%v is parked and has a goroutine", k)
			}
		}
	})
}

// TestResizing checks that the progress of a resize changes only the claim's status, and is reported once.
func TestResizing(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		c := claimOf("c", "pv")
		c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
		c.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimFileSystemResizePending}}
		w.server.Put(c)
		w.server.Put(volumeOf("pv", ""))
		p := claimed("p", "c")
		w.prepare(p)
		now := func(state v1.ClaimResourceStatus, conditions int) *v1.PersistentVolumeClaim {
			t.Helper()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			got, err := w.cache.Claim(p, "c")
			if err != nil || got.Status.AllocatedResourceStatuses[v1.ResourceStorage] != state ||
				len(got.Status.Conditions) != conditions || got.Spec.VolumeName != "pv" {
				t.Fatalf("%+v: %v", got, err)
			}
			return got
		}
		if err := w.cache.ReportResizing(w.Context(), c); err != nil {
			t.Fatal(err)
		}
		c = now(v1.PersistentVolumeClaimNodeResizeInProgress, 1)
		message := strings.Repeat("x", 2*maxResizeError)
		for range 2 {
			if err := w.cache.ResizeFailed(w.Context(), c, false, message); err != nil {
				t.Fatal(err)
			}
			before := c
			c = now(v1.PersistentVolumeClaimNodeResizeInProgress, 2)
			if i := len(c.Status.Conditions) - 1; len(before.Status.Conditions) == 2 &&
				!c.Status.Conditions[i].LastTransitionTime.Equal(&before.Status.Conditions[i].LastTransitionTime) ||
				len(c.Status.Conditions[i].Message) > maxResizeError {
				t.Errorf("reported again: %+v", c.Status.Conditions[i])
			}
		}
		if err := w.cache.ResizeFailed(w.Context(), c, true, "never"); err != nil {
			t.Fatal(err)
		}
		c = now(v1.PersistentVolumeClaimNodeResizeInfeasible, 2)
		if err := w.cache.ReportResized(w.Context(), c, resource.MustParse("2Gi")); err != nil {
			t.Fatal(err)
		}
		now("", 0)
	})
}

// TestResized checks that a completed resize changes only the claim's status.
func TestResized(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		c := claimOf("c", "pv")
		c.Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
		c.Status.Conditions = []v1.PersistentVolumeClaimCondition{
			{Type: v1.PersistentVolumeClaimFileSystemResizePending}, {Type: v1.PersistentVolumeClaimResizing}, {Type: "Other"},
			{Type: v1.PersistentVolumeClaimControllerResizeError}, {Type: v1.PersistentVolumeClaimNodeResizeError},
		}
		w.server.Put(c)
		w.server.Put(volumeOf("pv", ""))
		p := claimed("p", "c")
		w.prepare(p)
		if err := w.cache.ReportResized(w.Context(), c, resource.MustParse("2Gi")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got, err := w.cache.Claim(p, "c")
		if err != nil || got.Status.Capacity.Storage().String() != "2Gi" || len(got.Status.Conditions) != 1 || got.Spec.VolumeName != "pv" {
			t.Errorf("%+v: %v", got, err)
		}
	})
}
