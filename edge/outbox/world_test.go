package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/source"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
)

// A world is an API server and a node without containers. The test sets the states of the containers.
type world struct {
	*testing.T
	*apitest.Server
	box    *Outbox
	wanted *desired.Desired
	path   string
	spoken atomic.Bool
	retry  chan struct{}
	before func(context.Context) error // called before each request of the outbox; may be nil
	forget func(types.UID) error       // called before a pod is forgotten; may be nil
	end    func()
}

func in(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, Server: apitest.New(t), path: filepath.Join(t.TempDir(), "islet.db"), retry: make(chan struct{}, 1)}
		w.spoken.Store(true)
		w.start()
		t.Cleanup(func() { w.end() })
		synctest.Wait()
		test(w)
	})
}

func (w *world) start() {
	w.Helper()
	log := slog.New(slog.DiscardHandler)
	db, err := store.Open(context.Background(), w.path, log)
	if err != nil {
		w.Fatal(err)
	}
	if w.wanted, err = desired.New(desired.Config{Store: db, Poke: func(types.UID) {}, Log: log}); err != nil {
		w.Fatal(err)
	}
	client, wanted := w.Client(w.T), w.wanted
	told := client
	if w.before != nil {
		told = w.gated()
	}
	w.box, err = New(Config{
		Client: told, Node: "n", NodeUID: func() types.UID { return "node-uid" }, SourcesReported: w.spoken.Load,
		IsWanted: func(uid types.UID) bool { _, ok := wanted.Get(uid); return ok }, Retry: kube.LinkSignal{C: w.retry}, Log: log,
		IsReplaced: wanted.IsReplaced,
		Forget: func(ctx context.Context, uid types.UID) error {
			if w.forget != nil {
				if err := w.forget(uid); err != nil {
					return err
				}
			}
			return wanted.Forget(ctx, uid)
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	api, err := source.NewAPI(source.APIConfig{Client: client, Node: "n", Sink: wanted, Observer: w.box, Log: log})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	box := w.box
	go func() { ended <- box.Run(ctx) }()
	go func() { ended <- api.Run(ctx) }()
	w.end = func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				w.Error(err)
			}
		}
		client.CloseConnections()
		if err := db.Close(); err != nil {
			w.Error(err)
		}
	}
}

// gated returns a client that first calls the hook w.before for each request. The request is not sent if w.before returns an error.
func (w *world) gated() *kube.Client {
	to := &rest.Config{Host: "http://127.0.0.1:1"}
	c, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return to, nil }, Dial: w.Dial, BeforeRequest: w.before})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(c.CloseConnections)
	return c
}

func bound(name string) *v1.Pod {
	return podtest.New(name, podtest.UID(""), podtest.Node("n"), podtest.Image("a:1"))
}

// bind creates a pod on the API server and returns the pod as the node receives it.
func (w *world) bind(name string) *v1.Pod {
	w.Helper()
	w.Put(bound(name))
	synctest.Wait()
	return w.known(name)
}

// known returns a pod that the node has received.
func (w *world) known(name string) *v1.Pod {
	p, ok := w.wanted.Get(w.Pod("default", name).UID)
	if !ok {
		w.Fatal("the node does not know", name)
	}
	return p.Pod
}

func static(name, hash string) *v1.Pod {
	p := bound(name)
	podtest.UID(hash)(p)
	podtest.Source("file")(p)
	podtest.Annotation(keys.ConfigHash, hash)(p)
	return p
}

func status(phase v1.PodPhase, message string) *v1.PodStatus {
	s := &v1.PodStatus{Phase: phase, Message: message}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for _, t := range []v1.PodConditionType{v1.PodReady, v1.PodScheduled} {
		s.Conditions = append(s.Conditions, v1.PodCondition{Type: t,
			Status: v1.ConditionStatus(fmt.Sprint(phase == v1.PodRunning)), LastTransitionTime: now})
	}
	return s
}

func (w *world) shown(name string) string {
	p := w.Pod("default", name)
	if p == nil {
		return "gone"
	}
	return strings.TrimSpace(string(p.Status.Phase) + " " + p.Status.Message)
}

func (w *world) patches() int { return w.Requests("PATCH pods/status") }

func (w *world) fail(err error) {
	f := func(rw http.ResponseWriter, r *http.Request) bool {
		if err != nil {
			w.WriteError(rw, r, err)
		}
		return err != nil
	}
	w.Fault.Store(&f)
}
