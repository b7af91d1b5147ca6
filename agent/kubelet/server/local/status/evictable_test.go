package status

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/internal/podtest"
)

func TestEvictable(t *testing.T) {
	seconds, controller := int64(300), true
	tolerate := func(key string, seconds *int64) v1.Toleration {
		return v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: seconds}
	}
	const notReady, unreachable = v1.TaintNodeNotReady, v1.TaintNodeUnreachable
	pod := func(name, source string, tolerations ...v1.Toleration) *v1.Pod {
		p := podtest.New(name, podtest.Namespace("a"), podtest.Source(source))
		p.Spec.Tolerations = tolerations
		return p
	}
	changed := func(p *v1.Pod, f func(*v1.Pod)) *v1.Pod { f(p); return p }
	got := evictablePods([]*v1.Pod{
		pod("usual", "api", tolerate(notReady, &seconds), tolerate(unreachable, &seconds)),
		pod("stays", "api", tolerate(notReady, nil), tolerate(unreachable, nil)),
		pod("all", "api", v1.Toleration{Operator: v1.TolerationOpExists}),
		pod("half", "api", tolerate(notReady, nil), tolerate(unreachable, &seconds)),
		pod("first", "api", tolerate(notReady, &seconds), tolerate("", nil)),
		pod("none", "api"),
		pod("static", "file"),
		pod("local", "local"),
		changed(pod("daemon", "api"), func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: &controller}}
		}),
		changed(pod("replica", "api"), func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: &controller}}
		}),
		changed(pod("done", "api"), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }),
		changed(pod("going", "api"), func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }),
	})
	if want := []string{"a/first", "a/half", "a/none", "a/replica", "a/usual"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
