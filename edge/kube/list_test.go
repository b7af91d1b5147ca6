package kube_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/kube/kubetest"
	"github.com/islet-edge/islet/internal/podtest"
)

// paged lists a server's pods with two pods per page.
func paged(t *testing.T, s *apitest.Server) (*corev1.PodList, error) {
	to := &rest.Config{Host: "http://127.0.0.1:1"}
	c, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return to, nil }, Dial: s.Dial})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseConnections()
	return kube.List[corev1.PodList](t.Context(), c, "", metav1.ListOptions{Limit: 2, FieldSelector: "spec.nodeName=n"})
}

func bound(name string) *corev1.Pod {
	return podtest.New(name, podtest.Namespace("ns"), podtest.Node("n"))
}

func names(l *corev1.PodList) (all string) {
	for _, p := range l.Items {
		all += p.Name + " "
	}
	return all
}

// TestPages checks that a paged list is complete and consistent when objects change between two pages. If the server no longer has the
// version of the first page, the list has a later version.
func TestPages(t *testing.T) {
	for _, c := range []struct {
		name    string
		between func(s *apitest.Server) // called between the first and the second page
		want    string
		lists   int
		newer   bool // whether the list has the version after the change
	}{
		{"nothing changes", func(*apitest.Server) {}, "a b c d e ", 3, false},
		{"pods come and go", func(s *apitest.Server) { s.Put(bound("aa")); s.Put(bound("f")); s.Remove(bound("d")) },
			"a b c d e ", 3, false},
		{"and the token expires", func(s *apitest.Server) { s.Put(bound("aa")); s.Remove(bound("d")); s.Compact() },
			"a aa b c e ", 3, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apitest.New(t)
				for _, name := range []string{"e", "c", "a", "d", "b"} {
					s.Put(bound(name))
				}
				elsewhere := bound("bb")
				elsewhere.Spec.NodeName = "other"
				s.Put(elsewhere)
				begun := s.Pod("ns", "bb").ResourceVersion // the newest version
				var once atomic.Bool
				fault := func(_ http.ResponseWriter, r *http.Request) bool {
					if r.URL.Query().Get("continue") != "" && once.CompareAndSwap(false, true) {
						c.between(s)
					}
					return false
				}
				s.Fault.Store(&fault)
				l, err := paged(t, s)
				if err != nil {
					t.Fatal(err)
				}
				if got := names(l); got != c.want || l.Continue != "" || s.Requests("LIST pods") != c.lists {
					t.Errorf("got %q after %d requests, continue %q", got, s.Requests("LIST pods"), l.Continue)
				}
				if newer := l.ResourceVersion != begun; newer != c.newer {
					t.Errorf("the list is of version %s", l.ResourceVersion)
				}
			})
		})
	}
}

// TestExpiredTokens checks that the caller gets status 410 if the server returns it for the first page. If every continue token expires,
// the client sends one more request and does not loop.
func TestExpiredTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.New(t)
		for n := range 5 {
			s.Put(bound(fmt.Sprint("p", n)))
		}
		expired := func(w http.ResponseWriter, r *http.Request) bool {
			s.WriteError(w, r, apierrors.NewResourceExpired("always"))
			return true
		}
		s.Fault.Store(&expired)
		if _, err := paged(t, s); !apierrors.IsResourceExpired(err) || s.Requests("LIST pods") != 1 {
			t.Errorf("got %v after %d requests", err, s.Requests("LIST pods"))
		}
		unlessFirst := func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Query().Get("continue") != "" && expired(w, r)
		}
		s.Fault.Store(&unlessFirst)
		if l, err := paged(t, s); err != nil || len(l.Items) != 5 || s.Requests("LIST pods") != 4 {
			t.Errorf("got %v after %d requests", err, s.Requests("LIST pods"))
		}
	})
}

// TestEndlessPages checks that an endless list is an error and uses a limited amount of memory.
func TestEndlessPages(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes int // size of each page
		token func(n int64) string
		most  int64 // maximum number of pages that the client reads
		says  string
	}{
		{"always the same token", 10, func(int64) string { return "t" }, 2, "has a loop"},
		{"two tokens in turn", 10, func(n int64) string { return fmt.Sprint("t", n%2) }, 3, "has a loop"},
		{"pages without end", 10, func(n int64) string { return fmt.Sprint("t", n) }, 2000, "more than 2000 pages"},
		{"large ones", 4 << 20, func(n int64) string { return fmt.Sprint("t", n) }, 6, "more than 24 MiB"}, // pods would be reduced
	} {
		t.Run(c.name, func(t *testing.T) {
			s := kubetest.New(t, corev1.AddToScheme)
			var asked atomic.Int64
			text := strings.Repeat("x", c.bytes)
			s.Mux.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter, r *http.Request) {
				n := asked.Add(1)
				l := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: c.token(n)}}
				l.Items = append(l.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n), Labels: map[string]string{"a": text}}})
				s.Write(w, r, 200, l)
			})
			l, err := kube.List[corev1.NodeList](t.Context(), client(t, s), "", metav1.ListOptions{})
			if err == nil || !strings.Contains(err.Error(), c.says) || l != nil || asked.Load() != c.most {
				t.Errorf("got %v after %d pages", err, asked.Load())
			}
		})
	}
}
