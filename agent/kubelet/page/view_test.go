package page

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/internal/api"
)

// The pages of a node.
var views = []string{"/", "/?events=warnings", "/network", "/pod?namespace=default&pod=camera", "/pod?namespace=default&pod=sensor-reader&container=main&events=warnings",
	"/pod?namespace=default&pod=sensor-reader&container=main&previous=true", "/pod?namespace=default&pod=nobody", "/pod?namespace=%3Cimg%20src=x%20onerror=alert(1)%3E&pod=%22%3E%3Cb%3E"}

// parse returns a page of a node, parsed as a browser does.
func parse(t *testing.T, n nodetest, path string) (*html.Node, string) {
	t.Helper()
	p := New(Config{Port: 1, API: n.handler, Machine: &machine{}, Log: newPage().c.Log})
	for i := range 3 {
		p.history.add(Reading{At: time.Now().Add(time.Duration(i-3) * Interval), Cores: 0.3, Memory: 600 << 20, Disk: 9 << 30})
	}
	w := ask(p.localOnly(), "GET", path, "localhost:10247")
	if kind := w.Header().Get("Content-Type"); kind != "text/html; charset=utf-8" {
		t.Errorf("%s is %s", path, kind)
	}
	if contentPolicy != w.Header().Get("Content-Security-Policy") {
		t.Errorf("%s has the policy %s", path, w.Header().Get("Content-Security-Policy"))
	}
	body := w.Body.String()
	root, err := html.ParseWithOptions(strings.NewReader(body), html.ParseOptionEnableScripting(false))
	if err != nil {
		t.Fatal(err)
	}
	return root, body
}

// words returns the text of a node, with one space between its parts.
func words(n *html.Node) string {
	var out []string
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			out = append(out, d.Data)
		}
	}
	return strings.Join(strings.Fields(strings.Join(out, " ")), " ")
}

func find(n *html.Node, match func(*html.Node) bool) *html.Node {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && match(d) {
			return d
		}
	}
	return nil
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func byID(n *html.Node, id string) *html.Node {
	return find(n, func(d *html.Node) bool { return attr(d, "id") == id })
}

// TestHostilePages checks that a pod's text stays plain text. It never becomes an element, an attribute, a script or the address of a link,
// and its control characters do not change the order of the surrounding text.
func TestHostilePages(t *testing.T) {
	allowed := []string{"html", "head", "meta", "title", "link", "script", "noscript", "body", "a", "header", "h1", "h2", "p", "nav", "time", "span", "main", "section",
		"ul", "ol", "li", "figure", "figcaption", "strong", "small", "svg", "line", "path", "div", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "b", "pre"}
	for _, path := range views {
		root, body := parse(t, nodetest{}, path)
		scripts := 0
		for n := range root.Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			if !slices.Contains(allowed, n.Data) {
				t.Errorf("%s has the element %s", path, n.Data)
			}
			if n.Data == "script" {
				scripts++
				if attr(n, "src") != "page.js" || n.FirstChild != nil {
					t.Errorf("%s has the script %v", path, n.Attr)
				}
			}
			for _, a := range n.Attr {
				u, err := url.Parse(a.Val)
				switch {
				case strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "srcdoc":
					t.Errorf("%s has the attribute %s", path, a.Key)
				case a.Key == "href" && (err != nil || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" || u.Scheme == "" && u.Host != ""):
					t.Errorf("%s has a link to %s", path, a.Val)
				}
			}
		}
		if scripts != 1 || strings.ContainsAny(body, "\x1b\u202e") || !utf8.ValidString(body) || strings.Contains(body, "a secret") {
			t.Errorf("%s has %d scripts, control characters or secrets:\n%s", path, scripts, body)
		}
		if title := words(find(root, func(n *html.Node) bool { return n.Data == "title" })); title == "pwned" ||
			!strings.HasSuffix(title, "· islet") {
			t.Errorf("%s has the title %s", path, title)
		}
	}
	root, _ := parse(t, nodetest{}, "/")
	if text := words(byID(root, "pods")); !strings.Contains(text, strings.Join(strings.Fields(hostile), " ")) {
		t.Errorf("the name of the hostile pod is not shown as text: %s", text)
	}
}

// TestOverview checks the contents of the node's page as a browser without JavaScript shows them. Failures come first, and percentages come
// before amounts.
func TestOverview(t *testing.T) {
	root, _ := parse(t, nodetest{kind: true}, "/")
	text := words(root)
	at := -1
	for _, want := range []string{"board-7", "as of", "Needs attention", "the clock is not set", "CPU", "Memory", "46 % 301 MiB", "Disk", "32 % 9.0 GiB", "Network",
		"192.168.1.7, fd00::7", "the node stands alone", "eth0 up, wlan0 down", "not synchronized", "cpu-thermal 83 °C", "40 %, 600 of 1500 MHz",
		"under-voltage now; since the boot: throttled", "3 of 5 ready", "sensor-reader", "CrashLoopBackOff exit code 1: no such device last: exit code 137 (OOMKilled), 3m ago",
		"camera", "from file", "7 % 48.0 MiB 2d1h 0 10.88.0.2 :8080 :8443 :5353/UDP", "registry.example/site/camera:1.4.0 and 1 more", "nightly-report", "Succeeded", "Events", "BackOff", "Started"} {
		i := strings.Index(text[at+1:], want)
		if i < 0 {
			t.Fatalf("%q is missing, or not in order, in: %s", want, text)
		}
		at += 1 + i
	}
	for id, want := range map[string]bool{"Temperature": true, "Power": true, "Clock": false, "Addresses": false} {
		dt := find(root, func(n *html.Node) bool { return n.Data == "dt" && words(n) == id })
		if bad := attr(dt.NextSibling, "class") == "bad"; bad != want {
			t.Errorf("%s is marked: %v", id, bad)
		}
	}
	if a := find(byID(root, "attention"), func(n *html.Node) bool { return n.Data == "a" }); a == nil || words(a) != "default/sensor-reader" ||
		attr(a, "href") != "pod?container=main&namespace=default&pod=sensor-reader" {
		t.Errorf("the pod that needs attention is not a link: %v", a)
	}
	root, _ = parse(t, nodetest{kind: true}, "/?events=warnings")
	if text := words(byID(root, "events")); !strings.Contains(text, "BackOff") || strings.Contains(text, "Started") {
		t.Errorf("warnings only: %s", text)
	}
}

// TestFilterBeforeLimit checks that the filter for warnings is applied before the limit of events. An old warning is shown even if many
// other events are newer.
func TestFilterBeforeLimit(t *testing.T) {
	all := []api.Event{{Type: "Warning", Reason: "Old", Last: time.Unix(1, 0)}}
	for i := range 3 * maxEvents {
		all = append(all, api.Event{Type: "Normal", Reason: "New", Last: time.Unix(int64(100+i), 0)})
	}
	if got := newestEvents(all, true); len(got) != 1 || got[0].Reason != "Old" {
		t.Errorf("%+v", got)
	}
	if got := newestEvents(all, false); len(got) != maxEvents || got[0].Last.Unix() != 99+3*maxEvents {
		t.Errorf("%d events, the first %+v", len(got), got[0])
	}
}

// TestPodPage checks the contents of a pod's page: the pod's properties, its last exit, its origin, and its log next to its events.
func TestPodPage(t *testing.T) {
	root, _ := parse(t, nodetest{kind: true}, "/pod?namespace=default&pod=sensor-reader")
	text := words(byID(root, "pod"))
	for _, want := range []string{"CrashLoopBackOff: exit code 1", "main: exit code 137 (OOMKilled)", "URL /etc/kubernetes/manifests/no such device.yaml", "10.88.0.5", "Restarts 12",
		"registry.example/site/sensor-reader:1.4.3", "busybox:1", "volume data: no such device"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in: %s", want, text)
		}
	}
	log := byID(root, "log")
	if log.Parent != byID(root, "events").Parent || attr(log.Parent, "class") != "beside" {
		t.Error("the events are not beside the log")
	}
	if text := words(log); !strings.Contains(text, "WARN sensor 2: read /dev/i2c-1") || strings.Contains(text, "[33m") ||
		strings.Contains(text, "\uFFFD") {
		t.Errorf("the log: %s", text)
	}
	before := find(log, func(n *html.Node) bool { return strings.Contains(attr(n, "href"), "previous=true") })
	if before == nil || words(before) != "before the last restart" {
		t.Error("no link to the log before the last restart")
	}
	if text := words(byID(root, "events")); !strings.Contains(text, "BackOff") || !strings.Contains(text, "Started") {
		t.Errorf("the events: %s", text)
	}
}

// TestNetworkPage checks the page of the network.
func TestNetworkPage(t *testing.T) {
	root, _ := parse(t, nodetest{kind: true}, "/network")
	for id, want := range map[string][]string{
		"node-network":  {"192.168.1.7, fd00::7", "eth0 up 1000 Mbit/s 192.168.1.7/24", "wlan0 down", "not synchronized"},
		"pod-network":   {"ready", "built in", "10.88.0.0/16", "2 times"},
		"host-ports":    {":5353/UDP default/camera 53", ":8080 default/camera 80", ":8443 default/camera 8443 https", ":9000 default/web"},
		"pod-addresses": {"10.88.0.5 default/sensor-reader", "10.88.0.2 default/camera"},
	} {
		text := words(byID(root, id))
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s has no %q: %s", id, w, text)
			}
		}
	}
}

// TestKeyboard checks that the pages need no mouse. All controls are links, and the first link leads to the main contents. A log can be
// scrolled with the keyboard. The focus is visible, and moves in the order of the elements.
func TestKeyboard(t *testing.T) {
	for _, path := range views {
		root, _ := parse(t, nodetest{kind: true}, path)
		first := find(root, func(n *html.Node) bool { return n.Data == "a" })
		if target := byID(root, strings.TrimPrefix(attr(first, "href"), "#")); target == nil || target.Data != "main" {
			t.Errorf("%s: the first link leads to %s", path, attr(first, "href"))
		}
		for n := range root.Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			order := attr(n, "tabindex")
			if n.Data == "a" && attr(n, "href") == "" || n.Data == "pre" && order != "0" || order != "" && order != "0" && order != "-1" {
				t.Errorf("%s has a %s that a keyboard does not reach in order: %v", path, n.Data, n.Attr)
			}
		}
	}
	script, _ := assets.ReadFile("assets/page.js")
	style, _ := assets.ReadFile("assets/page.css")
	if strings.Contains(string(script), `"click"`) || strings.Contains(string(script), "mouse") || !strings.Contains(string(style), "a:focus-visible, pre:focus-visible { outline: 3px") {
		t.Error("the page needs a mouse, or hides the focus")
	}
}

// TestPortAddresses checks the URLs of the links to host ports.
func TestPortAddresses(t *testing.T) {
	node := []string{"192.168.1.7", "fd00::7"}
	for _, x := range []struct {
		asked     string
		addresses []string
		port      hostPort
		want      string
	}{
		{"localhost:10247", node, hostPort{Port: 8080}, "http://192.168.1.7:8080/"}, {"[::1]:10247", node[1:], hostPort{Port: 8080}, "http://[fd00::7]:8080/"},
		{"localhost:10247", nil, hostPort{Port: 80}, "http://localhost:80/"}, {"127.0.0.1:10247", node, hostPort{Port: 1, HostIP: "127.0.0.1"}, "http://127.0.0.1:1/"},
		{"board.example:10250", node, hostPort{Port: 8080, HostIP: "0.0.0.0"}, "http://board.example:8080/"}, {"10.0.0.9", node, hostPort{Port: 8080, HostIP: "::"}, "http://10.0.0.9:8080/"},
		{"[fd00::9]:10250", node, hostPort{Port: 8443, Name: "https"}, "https://[fd00::9]:8443/"}, {"localhost", node, hostPort{Port: 443}, "https://192.168.1.7:443/"},
		{"localhost", node, hostPort{Port: 2, HostIP: "javascript:alert(1)//"}, "http://192.168.1.7:2/"},
	} {
		if got := portAddress(x.asked, x.addresses, x.port); got != x.want {
			t.Errorf("%q %+v: %s, want %s", x.asked, x.port, got, x.want)
		}
	}
	for _, evil := range []string{`x"><script>`, "a@b", "a b\x00/../", "a/b", "a%00b"} {
		got := portAddress(evil, nil, hostPort{Port: 1})
		if got != "http://localhost:1/" {
			t.Errorf("%q: %s", evil, got)
		}
	}
}

// TestPodRows checks the order of pods, their last exits, and the host ports of a pod in the host's network.
func TestPodRows(t *testing.T) {
	d := document{Pods: []pod{}}
	at := metav1.NewTime(time.Unix(1000, 0))
	ended := func(code int32, sec int64) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Unix(sec, 0)}}
	}
	pods := []v1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "ready"}, Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
			InitContainerStatuses:      []v1.ContainerStatus{{Name: "init", State: ended(0, 900)}},
			EphemeralContainerStatuses: []v1.ContainerStatus{{Name: "debug", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}}, Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "init"}}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "done"}, Status: v1.PodStatus{Phase: v1.PodSucceeded}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "c", Name: "start"}, Status: v1.PodStatus{Phase: v1.PodPending, StartTime: &at}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "ends", DeletionTimestamp: &at}, Status: v1.PodStatus{Phase: v1.PodRunning}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "e", Name: "failed"}, Status: v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "x", State: ended(3, 50), LastTerminationState: ended(4, 40)}, {Name: "y", LastTerminationState: ended(5, 60)}}},
			Spec: v1.PodSpec{HostNetwork: true, InitContainers: []v1.Container{{Name: "i", Ports: []v1.ContainerPort{{ContainerPort: 6}}}}, Containers: []v1.Container{{Name: "x", Ports: []v1.ContainerPort{{ContainerPort: 7}}}, {Name: "y"}}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "f", Name: "stuck"}, Status: v1.PodStatus{Phase: v1.PodPending}},
	}
	for range 2 * maxParts {
		pods[1].Spec.Containers = append(pods[1].Spec.Containers, v1.Container{Name: "c", Ports: []v1.ContainerPort{{HostPort: 1}, {HostPort: 2}}})
	}
	d.pods(pods, nil, []api.Trouble{{Namespace: "f", Name: "stuck", Reason: "Pending", Message: "for 9m"}})
	var got []string
	for _, p := range d.Pods {
		got = append(got, p.Name)
	}
	if want := "failed stuck start ends ready done"; strings.Join(got, " ") != want {
		t.Errorf("order %q, want %q", got, want)
	}
	if ready := d.Pods[4]; ready.State != string(v1.PodRunning) { // a debugging container does not change the state of its pod
		t.Errorf("state %q", ready.State)
	}
	failed := d.Pods[0]
	if e := failed.LastExit; e == nil || e.Code != 5 || failed.Containers[0].Exit.Code != 3 || failed.State != "Evicted" ||
		len(failed.Ports) != 1 || failed.Ports[0].Port != 7 || len(failed.Addresses) != 0 {
		t.Errorf("%+v", failed)
	}
	if ready, start := d.Pods[4], d.Pods[2]; ready.LastExit != nil || !start.Created.Equal(at.Time) || d.Pods[1].Why != "for 9m" {
		t.Errorf("%+v %+v", ready, start)
	}
	if done := d.Pods[5]; len(done.Containers) != maxParts || len(done.Ports) != maxParts {
		t.Errorf("%d containers, %d ports", len(done.Containers), len(done.Ports))
	}
	if b, err := json.Marshal(d); err != nil || strings.Contains(string(b), "null,\"ports\"") {
		t.Errorf("%s, %v", b, err)
	}
}

// FuzzEscape checks that arbitrary text is escaped, both in an element and in the value of an attribute.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{hostile, "a&lt;b", "\"'>", "\x1b[31mx\x1b[", "\xff\x00\u202e", "\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var m markup
		m.element("p", s, attribute{"title", "x" + s})
		root, err := html.Parse(strings.NewReader(string(m.b)))
		if err != nil {
			t.Fatal(err)
		}
		p := find(root, func(n *html.Node) bool { return n.Data == "p" })
		if p == nil || len(p.Attr) != 1 || p.FirstChild != nil && (p.FirstChild != p.LastChild ||
			p.FirstChild.Type != html.TextNode) || p.NextSibling != nil {
			t.Fatalf("%q became %s", s, m.b)
		}
		if strings.ContainsAny(string(m.b), "\x00\x1b\u202e\u2066") || len(plain(s)) > len(s) {
			t.Errorf("%q has control characters: %q", s, m.b)
		}
	})
}
