package object

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podtest"
)

func ptr[T any](v T) *T { return &v }

// A world is an API server and a node in a synctest bubble. The node's agent can be restarted.
type world struct {
	testing.TB
	server  *apitest.Server
	path    string // path of the node's database
	store   *store.Store
	cache   *Cache
	stop    func()
	pods    []*v1.Pod   // the node's pods
	down    atomic.Bool // the link is down
	lag     time.Duration
	touched atomic.Int32     // number of reads of parked objects
	now     func() time.Time // the node's clock; if nil, the bubble's clock is used

	mu     sync.Mutex
	poked  map[types.UID]int
	tokens []authenticationv1.TokenRequest // the received token requests
	refuse func(r *http.Request) (status int)
}

// inWorld runs a test in a synctest bubble.
func inWorld(t *testing.T, strategy string, test func(w *world)) {
	t.Helper()
	inWorldAt(t, t.TempDir()+"/islet.db", strategy, test)
}

// inWorldAt is inWorld with the database at a path.
func inWorldAt(t *testing.T, path, strategy string, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{TB: t, server: apitest.New(t), path: path, poked: map[types.UID]int{}}
		fault := w.fault
		w.server.Fault.Store(&fault)
		w.server.Put(service("default", "kubernetes", "10.96.0.1"))
		w.start(strategy)
		defer func() { w.stop() }()
		test(w)
	})
}

// start starts the agent.
func (w *world) start(strategy string) {
	w.Helper()
	var err error
	if w.store, err = store.Open(w.Context(), w.path, slog.New(slog.NewTextHandler(w.Output(), nil))); err != nil {
		w.Fatal(err)
	}
	to := &rest.Config{Host: "http://127.0.0.1:1"}
	client, err := kube.New(kube.Config{Rest: func() (*rest.Config, error) { return to, nil }, Dial: w.server.Dial,
		BeforeRequest: func(context.Context) error {
			if w.down.Load() {
				return fmt.Errorf("%w: the cable is cut", kube.ErrNoLink)
			}
			return nil
		}})
	if err != nil {
		w.Fatal(err)
	}
	w.cache = New(Config{Client: client, Store: w.store, Strategy: strategy, Changed: w.changed,
		OnPeriodicTask: func() { w.touched.Add(1) }, Now: w.now, Log: slog.New(slog.DiscardHandler)})
	if err := w.cache.Load(w.Context(), w.pods); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.cache.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
		client.CloseConnections()
		if err := w.store.Close(); err != nil {
			w.Error(err)
		}
		w.stop = func() {}
	}
}

func (w *world) restart() {
	w.Helper()
	w.stop()
	w.start(Watch)
}

func (w *world) changed(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.poked[uid]++
}

// pokes returns the number of calls of Changed for each pod since the last call of this method.
func (w *world) pokes() map[types.UID]int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	all := maps.Clone(w.poked)
	clear(w.poked)
	return all
}

// fault answers token requests. It rejects the requests that the test has selected.
func (w *world) fault(rw http.ResponseWriter, r *http.Request) bool {
	w.mu.Lock()
	refuse, lag := w.refuse, w.lag
	w.mu.Unlock()
	linger(r, lag)
	if refuse != nil {
		if status := refuse(r); status != 0 {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(status)
			fmt.Fprintf(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"refused"}`,
				status, map[int]string{403: "Forbidden", 404: "NotFound", 500: "InternalError"}[status])
			return true
		}
	}
	if !strings.HasSuffix(r.URL.Path, "/token") {
		return false
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.Error(err)
	}
	req := authenticationv1.TokenRequest{}
	if err := req.Unmarshal(unwrapped(body)); err != nil {
		w.Error(err)
	}
	w.mu.Lock()
	w.tokens = append(w.tokens, req)
	n := len(w.tokens)
	w.mu.Unlock()
	if len(req.Spec.Audiences) == 0 {
		req.Spec.Audiences = []string{"https://kubernetes.default.svc"} // the server sets this default
	}
	req.TypeMeta = metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}
	req.Status = authenticationv1.TokenRequestStatus{Token: fmt.Sprint("ey", n),
		ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Duration(*req.Spec.ExpirationSeconds) * time.Second))}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(http.StatusCreated)
	if err := json.NewEncoder(rw).Encode(req); err != nil {
		w.Error(err)
	}
	return true
}

// linger blocks for the time d, or until the client disconnects.
func linger(r *http.Request, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

func (w *world) refuses(f func(*http.Request) int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = f
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) requests() []authenticationv1.TokenRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tokens
}

// prepare stores and registers a pod as its worker does. It returns the time that Prepare has taken.
func (w *world) prepare(p *v1.Pod) time.Duration {
	w.Helper()
	w.storePod(p)
	return w.again(p)
}

// storePod stores a pod of the node.
func (w *world) storePod(p *v1.Pod) {
	w.Helper()
	w.pods = append(w.pods, p)
	if err := w.store.UpdatePods(w.Context(), []store.Pod{{Pod: p, Seq: int64(len(w.pods)), Source: "api"}}, nil); err != nil {
		w.Fatal(err)
	}
}

// mount records a mounted volume of a pod.
func (w *world) mount(p *v1.Pod) {
	w.Helper()
	row := store.Volume{VolumeKey: store.VolumeKey{Volume: "v", Pod: string(p.UID), Path: "/v"}, Data: []byte("{}")}
	if err := w.store.PutVolume(w.Context(), row); err != nil {
		w.Fatal(err)
	}
}

func (w *world) again(p *v1.Pod) time.Duration {
	w.Helper()
	began := time.Now()
	if err := w.cache.Prepare(w.Context(), p); err != nil {
		w.Error(err)
	}
	return time.Since(began)
}

// value returns a value of a ConfigMap, or the error.
func (w *world) value(p *v1.Pod, name string) string {
	m, err := w.cache.ConfigMap(p, name)
	if err != nil {
		return "error: " + err.Error()
	}
	return m.Data["k"]
}

func (w *world) wants(p *v1.Pod, name, want string) {
	w.Helper()
	if got := w.value(p, name); got != want && !(strings.HasPrefix(want, "error: ") && strings.HasPrefix(got, "error: ") &&
		strings.Contains(got, want[len("error: "):])) {
		w.Errorf("pod %s: ConfigMap %s has %q, not %q", p.Name, name, got, want)
	}
}

func (w *world) token(p *v1.Pod) string {
	text, err := w.cache.Token(p, p.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken)
	if err != nil {
		return "error: " + err.Error()
	}
	return text
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"noise": "not stored"}}
}

func configMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: meta("default", name), Data: map[string]string{"k": value}}
}

func service(namespace, name, ip string) *v1.Service {
	return &v1.Service{ObjectMeta: meta(namespace, name), Spec: v1.ServiceSpec{ClusterIP: ip, Ports: []v1.ServicePort{{Port: 443}}}}
}

// podOf returns a pod whose environment references ConfigMaps.
func podOf(name string, maps ...string) *v1.Pod {
	p := podtest.New(name)
	for _, m := range maps {
		c := &p.Spec.Containers[0]
		c.EnvFrom = append(c.EnvFrom, v1.EnvFromSource{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: m}}})
	}
	return p
}

// withToken returns a pod with a projected token.
func withToken(name, audience string, seconds *int64) *v1.Pod {
	p := podOf(name)
	p.Spec.ServiceAccountName = "robot"
	p.Spec.Volumes = []v1.Volume{{Name: "t", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", Audience: audience, ExpirationSeconds: seconds}},
	}}}}}
	return p
}

// unwrapped removes the envelope of Kubernetes' protobuf encoding.
func unwrapped(body []byte) []byte {
	raw := struct{ data []byte }{}
	for b := body[4:]; len(b) > 1; { // fields of runtime.Unknown: 1 typeMeta, 2 raw ...
		field, n := b[0]>>3, 0
		size, shift := 0, 0
		for n = 1; ; n++ {
			size |= int(b[n]&0x7f) << shift
			shift += 7
			if b[n] < 0x80 {
				n++
				break
			}
		}
		if field == 2 {
			raw.data = b[n : n+size]
		}
		b = b[n+size:]
	}
	return raw.data
}
