package node

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// A plainServer is an API server with some objects. It accepts every write, and responds to TokenReviews and SubjectAccessReviews with
// bombs.
type plainServer struct {
	objects map[string]string // JSON, by path
	reviews *hostileServer
	created chan struct{} // closed when the server also has the pods
}

// collection returns the kind and version of the list at a path, or "" if the path is not a list.
func collection(of string) string {
	list := map[string]string{
		"/api/v1/pods":                       `"kind":"PodList","apiVersion":"v1"`,
		"/api/v1/services":                   `"kind":"ServiceList","apiVersion":"v1"`,
		"/apis/storage.k8s.io/v1/csidrivers": `"kind":"CSIDriverList","apiVersion":"storage.k8s.io/v1"`,
	}[of]
	return list
}

// items returns the objects of a list that match the request's field selector.
func (s *plainServer) items(r *http.Request) (all []string) {
	if r.URL.Path == "/api/v1/pods" {
		select {
		case <-s.created:
		default:
			return nil
		}
	}
	_, name, one := strings.Cut(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	for at, object := range s.objects {
		in := path.Dir(at)
		if r.URL.Path == "/api/v1/pods" {
			in = strings.Replace(in, "/namespaces/default", "", 1)
		}
		if in == r.URL.Path && (!one || path.Base(at) == name) {
			all = append(all, object)
		}
	}
	return all
}

// ServeHTTP implements http.Handler.
func (s *plainServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	object, known := s.objects[strings.TrimSuffix(r.URL.Path, "/status")]
	begin := collection(r.URL.Path)
	switch {
	case strings.HasSuffix(r.URL.Path, "reviews"):
		if user := goodToken.Find(body); user != nil && strings.HasSuffix(r.URL.Path, "tokenreviews") {
			object = fmt.Sprintf(
				`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":%q}}}`, user)
			break
		}
		s.reviews.ServeHTTP(w, r)
		return
	case r.URL.Path == "/readyz":
		_, _ = io.WriteString(w, "ok")
		return
	case r.URL.Query().Get("sendInitialEvents") != "": // like an API server without WatchList
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		return
	case r.URL.Query().Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/api/v1/pods" {
			select {
			case <-s.created:
			case <-r.Context().Done():
			}
			for _, pod := range s.items(r) {
				_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, pod)
			}
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
		return
	case known:
	case r.Method == http.MethodGet && begin != "":
		object = "{" + begin + `,"metadata":{"resourceVersion":"1"},"items":[` + strings.Join(s.items(r), ",") + "]}"
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	default: // the response to a write is the object that was sent
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = w.Write(body)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, object)
}

// goodToken matches the tokens that the server accepts. The user name is the token.
var goodToken = regexp.MustCompile("good-[0-9]+")

// reviewBombs returns responses to reviews that are small on the wire and large in memory.
func reviewBombs(t *testing.T) []answer {
	const user = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"allowed":true,"authenticated":true,"user":{"username":"x",`
	return answersOf(t, "application/json", map[string]string{
		"groups":        user + `"groups":[` + strings.Repeat(`"",`, 2_000_000) + `""]}}}`,
		"extra":         user + `"extra":{"a":[` + strings.Repeat(`"",`, 2_000_000) + `""]}}}}`,
		"extra of keys": user + `"extra":{` + strings.Repeat(`"":[""],`, 800_000) + `"":[]}}}}`,
		"nested extra":  user + `"extra":{"a":` + strings.Repeat("[", 4<<20),
		"uid":           user + `"uid":"` + strings.Repeat("x", 64<<20) + `"}}}`,
		"unknown":       user + strings.Repeat(`"a":{},`, 1_000_000) + `"b":0}}}`,
	})
}

// joinBombed starts the agent as a node of an API server that has the given objects.
func joinBombed(t *testing.T, objects map[string]string) (*bombedNode, *plainServer) {
	t.Helper()
	cert, ca := signed(t)
	objects["/api/v1/nodes/edge"] = emptyNode
	objects["/api/v1/namespaces/default/services/kubernetes"] = `{"kind":"Service","apiVersion":"v1","metadata":{"name":"kubernetes","namespace":"default","uid":"s"}}`
	api := &plainServer{objects, &hostileServer{lists: reviewBombs(t), sent: map[string]int{}, next: map[string]int{}}, make(chan struct{})}
	b := bombedMachine(t)
	serveInside(t, b.Machine, "127.0.0.1:6443", func(ln net.Listener) error {
		s := &http.Server{Handler: api, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}, ErrorLog: log.New(io.Discard, "", 0)}
		defer s.Close()
		return s.ServeTLS(ln, "", "")
	})
	b.Run("mkdir", "-p", b.Disk+"/kubelet/plugins")
	b.Write("ca.crt", string(ca))
	b.Write("kubeconfig", fmt.Sprintf(
		`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: %s}}]}`,
		base64.StdEncoding.EncodeToString(ca)))
	b.start("authentication: {x509: {clientCAFile: "+b.Disk+"/ca.crt}, webhook: {enabled: true}}\nauthorization: {mode: Webhook}\n",
		"--kubeconfig="+b.Disk+"/kubeconfig")
	return b, api
}

// TestReviewBombs checks that the agent survives an API server that responds to the reviews of many tokens with bombs. Every request must
// be rejected. The agent's memory limit is 96 MiB above its own usage.
func TestReviewBombs(t *testing.T) {
	t.Parallel()
	b, api := joinBombed(t, map[string]string{})
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: b.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	var all sync.WaitGroup
	for _, kind := range []string{"bad", "good"} {
		for i := range 6 * len(api.reviews.lists) {
			all.Go(func() {
				q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:10250/pods", nil)
				if err != nil {
					t.Error(err)
					return
				}
				q.Header.Set("Authorization", fmt.Sprintf("Bearer %s-%d", kind, i))
				resp, err := client.Do(q)
				if err != nil {
					return // the request timed out while it waited for its review
				}
				_ = resp.Body.Close()
				if resp.StatusCode < 400 {
					t.Errorf("the response to token %s-%d is %s", kind, i, resp.Status)
				}
			})
		}
	}
	all.Wait()
	b.checkAlive("reviews")
	if left := api.reviews.unsentBombs(4); len(left) > 0 {
		t.Errorf("not sent: %q", left)
	}
	requireSame(t, b.before, b.Pods()["good-edge"])
}

// TestDriverBombs checks that the agent survives bombs from CSI and DRA drivers. CSI drivers send bombs as responses to NodeGetInfo,
// NodeGetCapabilities and NodePublishVolume. DRA drivers send them as responses to NodePrepareResources. The agent's memory limit is 96
// MiB above its own usage.
func TestDriverBombs(t *testing.T) {
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("as TestAllocationBombs and TestPluginBombs, by other plugins: ISLET_TEST_LONG=1")
	}
	t.Parallel()
	objects := map[string]string{}
	var all []*fakePlugin
	for _, bomb := range shortForm(answerBombs()) {
		for _, call := range []string{"NodeGetInfo", "NodeGetCapabilities", "NodePublishVolume", "NodePrepareResources"} {
			name := fmt.Sprintf("bomb%d", len(all))
			p := &fakePlugin{kind: "CSIPlugin", version: "1.0.0", name: name, call: call, bomb: bomb}
			all = append(all, p)
			more := ""
			switch call {
			case "NodePublishVolume":
				objects["/apis/storage.k8s.io/v1/csidrivers/"+
					name] = fmt.Sprintf(
					`{"kind":"CSIDriver","apiVersion":"storage.k8s.io/v1","metadata":{"name":%q,"uid":%[1]q,"resourceVersion":"1"},"spec":{"attachRequired":false,"volumeLifecycleModes":["Ephemeral"]}}`, name)
				more = fmt.Sprintf(`"volumes":[{"name":"v","csi":{"driver":%q}}],"containers":[{"name":"c","image":%q,"imagePullPolicy":"Never","args":["count","1s"],"volumeMounts":[{"name":"v","mountPath":"/v"}]}]`, name, machine.Image)
			case "NodePrepareResources":
				p.kind, p.version = "DRAPlugin", "v1.DRAPlugin"
				objects["/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/"+
					name] = fmt.Sprintf(
					`{"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1","metadata":{"name":%q,"namespace":"default","uid":"claim-%[1]s","resourceVersion":"1"},`+
						`"spec":{},"status":{"allocation":{"devices":{"results":[{"request":"r","driver":%[1]q,"pool":"p","device":"d"}]}},"reservedFor":[{"resource":"pods","name":%[1]q,"uid":%[1]q}]}}`, name)
				more = fmt.Sprintf(`"resourceClaims":[{"name":"r","resourceClaimName":%q}],"containers":[{"name":"c","image":%q,"imagePullPolicy":"Never","args":["count","1s"],"resources":{"claims":[{"name":"r"}]}}]`, name, machine.Image)
			default:
				continue
			}
			objects["/api/v1/namespaces/default/pods/"+name] = fmt.Sprintf(
				`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"default","uid":%[1]q,"resourceVersion":"2"},"spec":{"nodeName":"edge","restartPolicy":"Always","terminationGracePeriodSeconds":1,%s}}`, name, more)
		}
	}
	b, api := joinBombed(t, objects)
	for _, p := range all {
		b.register(p, p.name+".sock")
		b.checkAlive("the sockets of drivers")
	}
	close(api.created)
	b.allAsked(all)
	b.checkAlive("all")
	requireSame(t, b.before, b.Pods()["good-edge"])
}
