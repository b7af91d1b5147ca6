package configsource

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/islet-edge/islet/edge/apitest"
)

// A scene is an API server and a source that is running.
type scene struct {
	*testing.T
	*apitest.Server
	changed chan struct{}
	stop    func()

	mu      sync.Mutex
	name    string
	taken   []string // values that the source has delivered, in order
	problem string
	asked   map[string]int // number of requests by verb and path
}

func in(t *testing.T, name string, mayWatch bool, test func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, Server: apitest.New(t), name: name, changed: make(chan struct{}, 1), asked: map[string]int{}}
		fault := func(w http.ResponseWriter, r *http.Request) bool {
			watch := r.URL.Query().Get("watch") != ""
			s.mu.Lock()
			s.asked[r.URL.Path]++
			s.mu.Unlock()
			if watch && !mayWatch {
				s.WriteError(w, r, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, name, nil))
			}
			return watch && !mayWatch
		}
		s.Fault.Store(&fault)
		client := s.Server.Client(t)
		src, err := New(Config{
			Client: client, Changed: s.changed, Log: slog.New(slog.DiscardHandler), OnNone: func() { s.set("none") }, OnProblem: s.set,
			WantedName: func() (string, string) { s.mu.Lock(); defer s.mu.Unlock(); return "kube-system", s.name },
			Receive:    func(cm *v1.ConfigMap) { s.mu.Lock(); defer s.mu.Unlock(); s.taken = append(s.taken, cm.Data["v"]) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- src.Run(ctx) }()
		time.Sleep(time.Second)
		test(s)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		client.CloseConnections()
	})
}

func (s *scene) set(why string) { s.mu.Lock(); defer s.mu.Unlock(); s.problem = why }

func (s *scene) put(name, value string) {
	s.Put(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: map[string]string{"v": value}})
	time.Sleep(time.Second)
}

// has checks the last received ConfigMap and the reported problem.
func (s *scene) has(taken, problem string) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.taken, " "); got != taken || !strings.Contains(s.problem, problem) || problem == "" && s.problem != "" {
		s.Errorf("taken %q, want %q; problem %q, want %q", got, taken, s.problem, problem)
	}
}

func TestWatched(t *testing.T) {
	in(t, "mine", true, func(s *scene) {
		s.has("", "no such ConfigMap")
		s.put("other", "x")
		s.put("mine", "a")
		s.put("mine", "b")
		s.has("a b", "")
		s.Remove(&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "mine"}})
		time.Sleep(time.Second)
		s.has("a b", "deleted")
		s.mu.Lock()
		s.name = "other"
		s.mu.Unlock()
		s.changed <- struct{}{}
		time.Sleep(time.Second)
		s.has("a b x", "")
		s.mu.Lock()
		s.name = ""
		s.mu.Unlock()
		s.changed <- struct{}{}
		time.Sleep(time.Second)
		s.has("a b x", "none")
		s.mu.Lock()
		defer s.mu.Unlock()
		for path := range s.asked {
			if !strings.HasPrefix(path, "/api/v1/namespaces/kube-system/configmaps") {
				t.Errorf("the request is for %s", path)
			}
		}
	})
}

// TestMayOnlyGet checks that the permissions of kubeadm's role for kubelet-config are sufficient.
func TestMayOnlyGet(t *testing.T) {
	in(t, "mine", false, func(s *scene) {
		s.put("mine", "a")
		time.Sleep(2 * pollInterval)
		s.put("mine", "b")
		time.Sleep(2 * pollInterval)
		s.mu.Lock()
		got, problem := strings.Join(s.taken, ""), s.problem
		s.mu.Unlock()
		if !strings.Contains(got, "ab") || problem != "" || len(got) > 5 {
			t.Errorf("taken %q, problem %q", got, problem)
		}
	})
}

func TestOutage(t *testing.T) {
	in(t, "mine", true, func(s *scene) {
		s.put("mine", "a")
		s.Disconnect()
		s.CloseConnections()
		time.Sleep(time.Minute)
		s.mu.Lock()
		problem := s.problem
		s.mu.Unlock()
		if problem == "" {
			t.Error("Problem was not called")
		}
		s.Reconnect()
		s.put("mine", "b")
		time.Sleep(lastRetry)
		s.mu.Lock()
		defer s.mu.Unlock()
		if last := s.taken[len(s.taken)-1]; last != "b" || s.problem != "" {
			t.Errorf("%v, %q", s.taken, s.problem)
		}
	})
}

func TestNothingIsAsked(t *testing.T) {
	in(t, "", true, func(s *scene) {
		time.Sleep(time.Hour)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.asked) > 0 {
			t.Errorf("asked: %v", s.asked)
		}
	})
}
