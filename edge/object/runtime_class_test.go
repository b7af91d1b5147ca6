package object

import (
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/internal/keys"
)

func class(name, handler string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"noise": "not stored"}},
		Handler: handler}
}

func ofClass(name, class string) *v1.Pod {
	p := podOf(name)
	p.Spec.RuntimeClassName = &class
	return p
}

func (w *world) handler(p *v1.Pod, want string) {
	w.Helper()
	got, err := w.cache.RuntimeHandler(p)
	if text, fails := strings.CutPrefix(want, "error: "); fails {
		if err == nil || !strings.Contains(err.Error(), text) {
			w.Errorf("pod %s: handler %q, %v, not %q", p.Name, got, err, want)
		}
	} else if err != nil || got != want {
		w.Errorf("pod %s: handler %q, %v, not %q", p.Name, got, err, want)
	}
}

// TestRuntimeClass checks that the handler of a pod comes from the RuntimeClass object. The handler is available after a restart while the
// API server is unreachable. A class name is never used as a handler.
func TestRuntimeClass(t *testing.T) {
	inWorld(t, Watch, func(w *world) {
		w.server.Put(class("boxed", "gvisor"))
		boxed, unknown, plain, empty := ofClass("boxed", "boxed"), ofClass("unknown", "gvisor"), podOf("plain"), ofClass("empty", "")
		static := ofClass("static", "gvisor")
		static.Annotations = map[string]string{keys.ConfigSource: "file"}
		for _, p := range []*v1.Pod{boxed, unknown, plain, empty, static} {
			w.prepare(p)
		}
		w.handler(boxed, "gvisor")
		w.handler(unknown, `error: runtimeclass.node.k8s.io "gvisor" not found`) // although a handler with this name may exist
		w.handler(plain, "")
		w.handler(empty, "")
		w.handler(static, "gvisor")
		if n := w.server.Requests("LIST runtimeclasses"); n != 2 {
			t.Errorf("%d lists of classes for two pods", n)
		}

		w.server.Put(class("gvisor", "kata")) // Changed is called for a waiting pod
		w.pokes()
		w.handler(unknown, "kata")

		w.refuses(func(*http.Request) int { return 500 })
		w.server.CloseConnections()
		w.restart()
		if took := w.again(boxed); took > time.Second {
			t.Errorf("waited for a known class: %v", took)
		}
		w.handler(boxed, "gvisor")
		late := ofClass("late", "other")
		w.prepare(late)
		w.handler(late, "error: failed to lookup RuntimeClass other")
		w.refuses(nil)

		w.server.Remove(class("boxed", ""))
		time.Sleep(time.Minute)
		w.handler(boxed, "gvisor") // the handler of the pod's last run
		second := ofClass("second", "boxed")
		w.prepare(second)
		w.handler(second, `error: runtimeclass.node.k8s.io "boxed" not found`)
	})
}
