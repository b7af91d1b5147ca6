package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

func TestWordsOfOtherTools(t *testing.T) {
	n, _ := node(t)
	pods := run(t, n, "", "pods").out
	for _, args := range [][]string{{"get", "pods"}, {"get", "po"}, {"ls"}, {"ps"}, {"get", "all"}} {
		check(t, n, run(t, n, "", args...), 0, pods, "")
	}
	check(t, n, run(t, n, "", "get", "pods", "dns", "-o", "name"), 0, "pod/dns-pi\n", "")
	check(t, n, run(t, n, "", "stats", "pods", "--no-headers", "web"), 0, run(t, n, "", "top", "--no-headers", "web").out, "")
	check(t, n, run(t, n, "", "rmi", "localhost/web:1"), 0, "removed localhost/web:1\n", "")
	check(t, n, run(t, n, "", "rmi", "localhost/web:1"), ExitNotFound, "", "islet: image \"localhost/web:1\" not found\n")
	check(t, n, run(t, n, "", "get", "services"), ExitUsage, "", "islet: unknown command \"services\": see 'islet help'\n")
	check(t, n, run(t, n, "", "rm", "crash", "--force"), 0, "pod/crash-pi deleted\n", "")
}

// TestShortcuts checks that each shortcut stands for an existing command.
func TestShortcuts(t *testing.T) {
	for word, args := range shortcutTable() {
		list := commands()
		for _, name := range args {
			c := lookup(list, name)
			if c == nil {
				t.Fatalf("%s leads to %q, which is not a command", word, args)
			}
			list = c.sub
		}
		if lookup(commands(), word) != nil {
			t.Errorf("%s is also the name of a command", word)
		}
	}
}

// TestManPages checks that each command has a man page with all its flags. troff must report no warning.
func TestManPages(t *testing.T) {
	pages := manPages()
	for _, c := range commands() {
		if c.hidden || c.sub != nil {
			continue
		}
		page := string(pages["islet-"+c.name+".1"])
		if !strings.Contains(page, ".SH SYNOPSIS") || !strings.Contains(string(pages["islet.1"]), escapeTroff("islet-"+c.name)) {
			t.Errorf("%s has no page: %q", c.name, page)
		}
	}
	if page := string(pages["islet-images-prune.1"]); !strings.Contains(page, `\-\-dry\-run`) {
		t.Errorf("a flag is missing: %s", page)
	}
	dir := t.TempDir()
	check(t, nil, run(t, nil, "", "man", dir), 0, "", "")
	again := manPages()
	for name, text := range pages {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(data, text) || !bytes.Equal(again[name], text) {
			t.Errorf("%s: %v, or not the same each time", name, err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") &&
				!regexp.MustCompile(`^\.(TH|SH|TP|PP|br|B|BR|I)\b`).MatchString(line) {
				t.Errorf("%s: troff takes %q for a request", name, line)
			}
		}
	}
	if _, err := exec.LookPath("groff"); err != nil {
		return
	}
	for name, text := range pages {
		cmd := exec.Command("groff", "-man", "-ww", "-z")
		cmd.Stdin = bytes.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}

func TestSelector(t *testing.T) {
	n, _ := node(t)
	for name, labels := range map[string]map[string]string{"web-pi": {"app": "web"}, "dns-pi": {"app": "dns"}} {
		i := slices.IndexFunc(n.List(), func(p *v1.Pod) bool { return p.Name == name })
		p := n.List()[i].DeepCopy()
		p.Labels = labels
		n.Put(p)
	}
	check(t, n, run(t, n, "", "pods", "-A", "-l", "app", "-o", "name"), 0, "pod/web-pi\npod/dns-pi\n", "")
	check(t, n, run(t, n, "", "pods", "-l", "app=web", "-o", "name"), 0, "pod/web-pi\n", "")
	check(t, n, run(t, n, "", "pods", "-l", "app notin (web)", "-o", "name"), 0, "pod/crash-pi\n", "")
	if got := run(t, n, "", "top", "-l", "app=web", "--no-headers"); got.code != 0 || !strings.HasPrefix(got.out, "web-pi ") ||
		strings.Count(got.out, "\n") != 1 {
		t.Errorf("top -l: %+v", got)
	}
	if got := run(t, n, "", "pods", "-l", "app in web"); got.code != ExitUsage || !strings.Contains(got.err, `selector "app in web"`) {
		t.Errorf("a wrong selector: %+v", got)
	}
	check(t, n, run(t, n, "", "delete", "-l", "app=web", "--wait=false"), 0, "pod/web-pi deleted\n", "")
}

func TestDeleteAll(t *testing.T) {
	n, _ := node(t) // the pod dns-pi comes from a file and is in another namespace
	check(t, n, run(t, n, "", "delete", "--all", "web"), ExitUsage, "", "islet: --all and -l cannot be combined with names of pods\n")
	check(t, n, run(t, n, "", "delete", "--all", "-n", "kube-system"), 0, "", "No pods to delete.\n")
	got := run(t, n, "", "delete", "--all", "-A", "--force")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	slices.Sort(lines)
	if got.code != 0 || !slices.Equal(lines, []string{"pod/crash-pi deleted", "pod/web-pi deleted"}) || len(n.List()) != 1 {
		t.Errorf("delete --all: %+v, %d pods are left", got, len(n.List()))
	}
}

func TestApplyDryRun(t *testing.T) {
	n, _ := node(t)
	before := len(n.List())
	check(t, n, run(t, n, "apiVersion: v1\nkind: Pod\nmetadata: {name: hello}\n", "apply", "--dry-run", "-f", "-"), 0,
		"pod/hello created (dry run)\n", "")
	check(t, n, run(t, n, "bad: x", "apply", "--dry-run", "-f", "-"), 1, "",
		"islet: standard input: error unmarshaling JSON: while decoding JSON: json: unknown field \"bad\"\n")
	if len(n.List()) != before {
		t.Error("a dry run must not apply")
	}
}

func TestRestart(t *testing.T) {
	n, _ := node(t)
	var asked []string
	n.Restart = func(uid types.UID, container, id string, grace time.Duration) {
		asked = append(asked, fmt.Sprint(uid, " ", container, " ", id, " ", grace))
		if uid == "uid-web-pi" {
			n.Replace("web-pi", container) // the worker replaces the container
		}
	}
	check(t, n, run(t, n, "", "restart", "web"), 0, "pod/web-pi restarted\n", "")
	check(t, n, run(t, n, "", "restart", "none"), ExitNotFound, "", "islet: pod \"none\" not found\n")
	check(t, n, run(t, n, "", "restart"), ExitUsage, "", "islet: restart needs a pod: islet restart POD\n")
	check(t, n, run(t, n, "", "restart", "web", "--grace-period=1", "--wait=false"), 0, "pod/web-pi restarted\n", "")

	// The restart of a crashed container does not wait for its back-off.
	asked = nil
	check(t, n, run(t, n, "", "restart", "crash", "--wait=false", "--grace-period=7"), 0, "pod/crash-pi restarted\n", "")
	if len(asked) != 1 || !strings.HasPrefix(asked[0], "uid-crash-pi app ") || !strings.HasSuffix(asked[0], " 7s") {
		t.Errorf("requested %q", asked)
	}
	// The container is not replaced, so the wait times out.
	if got := run(t, n, "", "restart", "crash", "--timeout=50ms"); got.code != 1 || !strings.Contains(got.err, "is not ready 50ms after") {
		t.Errorf("no new container: %+v", got)
	}
	fresh := n.Pod("fresh", now, "app").DeepCopy()
	fresh.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "app", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}
	n.Put(fresh)
	if got := run(t, n, "", "restart", "fresh"); got.code != 1 || !strings.Contains(got.err, "has no container that has run yet") {
		t.Errorf("nothing to restart: %+v", got)
	}
	once := n.Pod("once", now, "job")
	once.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	check(t, n, run(t, n, "", "restart", "once"), 1, "",
		"islet: pod default/once: container job has the restartPolicy OnFailure, so it would not start again: delete the pod and apply it again\n")
}

func TestEvents(t *testing.T) {
	n, _ := node(t)
	check(t, n, run(t, n, "", "events"), 0, "", "No events.\n")
	event := func(pod, kind, reason string, ago time.Duration, count int32) api.Event {
		e := api.Event{Pod: pod, Type: kind, Reason: reason, Message: "m\x1b", Count: count, First: now.Add(-time.Hour), Last: now.Add(-ago)}
		if pod != "" {
			e.Namespace, e.Container = "default", "c"
		}
		return e
	}
	list := []api.Event{event("web-pi", "Warning", "BackOff", 10*time.Second, 7), event("", "Normal", "Starting", time.Minute, 1), event("crash-pi", "Normal", "Pulled", 30*time.Second, 1)}
	news := make(chan []api.Event, 1)
	n.Events = func() []api.Event {
		select {
		case list = <-news:
		default:
		}
		return list
	}
	check(t, n, run(t, n, "", "events"), 0, `LAST SEEN           TYPE      REASON     OBJECT           MESSAGE
60s                 Normal    Starting   node             m?
30s                 Normal    Pulled     pod/crash-pi c   m?
10s (x7 over 60m)   Warning   BackOff    pod/web-pi c     m?
`, "")
	if got := run(t, n, "", "events", "web", "--no-headers"); got.code != 0 || strings.Count(got.out, "\n") != 1 ||
		!strings.Contains(got.out, "BackOff") {
		t.Errorf("of a pod: %+v", got)
	}
	if got := run(t, n, "", "get", "events", "--warnings", "-o", "json"); got.code != 0 || strings.Count(got.out, "reason") != 1 {
		t.Errorf("warnings as JSON: %+v", got)
	}

	// The command pods -w prints the existing pods, then each new one.
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- Main(ctx, []string{"events", "-w", "--no-headers"}, env(n, nil, w, io.Discard))
		w.Close()
	}()
	lines := bufio.NewScanner(r)
	for _, want := range []string{"Starting", "Pulled", "BackOff", "Killing"} {
		if want == "Killing" {
			news <- append(list, event("web-pi", "Normal", "Killing", 0, 1))
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("%q instead of %s", lines.Text(), want)
		}
	}
	cancel()
	r.Close()
	if code := <-done; code != exitSignal {
		t.Errorf("an interrupted watch: code %d", code)
	}
}

func TestPortForward(t *testing.T) {
	n, _ := node(t)
	for _, c := range []struct{ arg, want string }{
		{"80", "{80 80}"}, {"8080:80", "{8080 80}"}, {":80", "{0 80}"}, {"0", "0"}, {"x", "x"}, {"1:2:3", "3"}, {"70000", "70000"}, {"80:", "80:"},
	} {
		if p, err := parseForwarded(c.arg); err == nil && fmt.Sprint(p) != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", c.arg, p, err)
		}
	}
	check(t, n, run(t, n, "", "port-forward", "web"), ExitUsage, "",
		"islet: port-forward needs a pod and a port: islet port-forward POD [LOCAL:]REMOTE\n")
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- Main(ctx, []string{"port-forward", "web", ":80", ":81"}, env(n, nil, w, io.Discard))
		w.Close()
	}()
	lines, where := bufio.NewScanner(r), regexp.MustCompile(`^Forwarding from (\S+) -> 8[01]$`)
	for range 2 {
		lines.Scan()
		m := where.FindStringSubmatch(lines.Text())
		if m == nil {
			t.Fatalf("printed %q", lines.Text())
		}
		for i := range 3 {
			c, err := net.Dial("tcp", m[1])
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("hello %d", i)
			io.WriteString(c, want)
			c.(*net.TCPConn).CloseWrite()
			c.SetReadDeadline(time.Now().Add(time.Minute))
			if got, err := io.ReadAll(c); string(got) != want {
				t.Errorf("got %q, %v", got, err)
			}
			c.Close()
		}
	}
	cancel()
	if code := <-done; code != exitSignal {
		t.Errorf("interrupted: code %d", code)
	}
}

func TestTopAsJSON(t *testing.T) {
	n, _ := node(t)
	if got := run(t, n, "", "top", "web", "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"name": "web-pi"`) ||
		strings.Contains(got.out, "crash-pi") || !strings.Contains(got.out, `"usageNanoCores"`) {
		t.Errorf("top -o json: %+v", got)
	}
	if got := run(t, n, "", "top", "node", "-o", "yaml"); got.code != 0 || !strings.Contains(got.out, "nodeName: pi") {
		t.Errorf("top node -o yaml: %+v", got)
	}
	if got := run(t, n, "", "top", "web", "-o", "wide"); got.code != 0 || !strings.Contains(got.out, "READ/s") {
		t.Errorf("top -o wide: %+v", got)
	}
	check(t, n, run(t, n, "", "top", "-o", "name"), ExitUsage, "", "islet: output \"name\": must be wide, json or yaml\n")
}

// TestWatched checks that islet top -w and islet status -w repeat their output until they are interrupted.
func TestWatched(t *testing.T) {
	n, _ := node(t)
	for _, args := range [][]string{{"status", "-w", "--interval=1ms"}, {"top", "-w", "--interval=1ms"}} {
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		done := make(chan int, 1)
		go func() { done <- Main(ctx, args, env(n, nil, w, io.Discard)); w.Close() }()
		lines, times := bufio.NewScanner(r), 0
		for times < 3 && lines.Scan() {
			if strings.HasPrefix(lines.Text(), "Node:") || strings.HasPrefix(lines.Text(), "NAME") {
				times++
			}
		}
		cancel()
		r.Close()
		if code := <-done; times != 3 || code != exitSignal {
			t.Errorf("%q: %d times, code %d", args, times, code)
		}
	}
}

func TestColours(t *testing.T) {
	n, _ := node(t)
	coloured := func(name, value string, args ...string) string {
		var out bytes.Buffer
		e := env(n, nil, &out, io.Discard)
		socket := e.Getenv
		e.Getenv = func(key string) string {
			if key == name {
				return value
			}
			return socket(key)
		}
		Main(t.Context(), args, e)
		return out.String()
	}
	for _, c := range []struct{ name, value string }{{"", ""}, {"NO_COLOR", "1"}, {"CLICOLOR_FORCE", "0"}} {
		if out := coloured(c.name, c.value, "pods"); strings.Contains(out, "\x1b") {
			t.Errorf("%s=%s: %q", c.name, c.value, out)
		}
	}
	out := coloured("CLICOLOR_FORCE", "1", "pods")
	if !strings.Contains(out, string(red)+"CrashLoopBackOff"+endColour) || !strings.Contains(out, string(green)+"Running"+endColour) {
		t.Errorf("coloured: %q", out)
	}
	bare := strings.NewReplacer(string(red), "", string(green), "", endColour, "").Replace(out)
	if want := run(t, n, "", "pods").out; bare != want {
		t.Errorf("colours move columns: %q, want %q", bare, want)
	}
	var doc bytes.Buffer
	io.WriteString(&severityWriter{w: &doc}, "error    x\n   -> errors\nok       y\n\nwarning  z\n")
	if want := string(red) + "error" + endColour + "    x\n   -> errors\n" + string(green) + "ok" + endColour + "       y\n\n" +
		string(yellow) + "warning" + endColour + "  z\n"; doc.String() != want {
		t.Errorf("got %q, want %q", doc.String(), want)
	}
}

// TestProgressFits checks that a progress line fits the width of the terminal. The line contains the size and the end of the image's name.
func TestProgressFits(t *testing.T) {
	long := "registry.example.com/some/team/and/a/very/long/name/of/an/image@sha256:" + strings.Repeat("ab", 32)
	for width := 1; width < 200; width++ {
		for _, i := range []item{{"downloading", 5 << 20, 1 << 30}, {"downloading", 1 << 40, 0}, {"exists", 0, 0}, {"unpacking", 2, 1}, {"downloading", 1 << 62, 1 << 62}} {
			if line := i.formatRow(long, width); textWidth(line) > width || strings.Contains(line, "\n") {
				t.Fatalf("%d cells in %d: %q", textWidth(line), width, line)
			}
		}
	}
	line := item{"downloading", 512 << 20, 1 << 30}.formatRow(long, 79)
	if !strings.Contains(line, "[") || !strings.Contains(line, "512MiB of 1.0GiB") || !strings.HasSuffix(line, "abab") {
		t.Errorf("at 80 columns: %q", line)
	}
	var out bytes.Buffer
	p := &progress{w: &out, screen: func() (int, int) { return 80, 4 }, items: map[string]item{}}
	for i := range 10 {
		p.updateItem(fmt.Sprint("layer", i), "downloading", 1, 2)
	}
	if p.drawn != 3 || !strings.Contains(out.String(), "\x1b[3A") {
		t.Errorf("%d rows are drawn on a screen of 4", p.drawn)
	}
}

// startSilentAgent returns a node whose agent accepts connections and never responds.
func startSilentAgent(t *testing.T) *servertest.Node {
	t.Helper()
	dir, err := os.MkdirTemp("", "islet")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &servertest.Node{Dir: dir, Socket: filepath.Join(dir, "s")}
	ln, err := net.Listen("unix", n.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return n
}

// TestHungAgent checks that every command times out with an error if the agent does not respond.
func TestHungAgent(t *testing.T) {
	n := startSilentAgent(t)
	archive := filepath.Join(n.Dir, "big.tar")
	os.WriteFile(archive, make([]byte, 8<<20), 0o600)
	manifest := filepath.Join(n.Dir, "pod.yaml")
	os.WriteFile(manifest, []byte("kind: Pod"), 0o600)
	for _, args := range [][]string{
		{"status"}, {"pods"}, {"pods", "-w"}, {"describe", "x"}, {"logs", "x"}, {"exec", "x", "--", "y"}, {"attach", "x"}, {"top"}, {"events"}, {"events", "-w"},
		{"images", "ls"}, {"images", "import", archive}, {"images", "pull", "x"}, {"images", "rm", "x"}, {"images", "prune"}, {"apply", "-f", manifest},
		{"delete", "-f", manifest}, {"delete", "x"}, {"restart", "x"}, {"port-forward", "x", "80"}, {"cp", "x:/y", "z"},
	} {
		var out, errw bytes.Buffer
		e := env(n, strings.NewReader(""), &out, &errw)
		e.ResponseTimeout = 50 * time.Millisecond
		began := time.Now()
		if code := Main(t.Context(), args, e); code != ExitUnreachable || !strings.Contains(errw.String(), "does not answer: it hangs") {
			t.Errorf("%q: code %d, %s", args, code, errw.String())
		}
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("%q gave up after %s", args, d)
		}
	}
}

// TestHungInTheMiddle checks that a command times out if the agent stops responding during a session or a stream. It does not time out
// while the agent sends keep-alives without data.
func TestHungInTheMiddle(t *testing.T) {
	n, _ := node(t)
	var errw bytes.Buffer
	e := env(n, nil, io.Discard, &errw)
	e.ResponseTimeout = 50 * time.Millisecond
	if code := Main(t.Context(), []string{"pods", "-w"}, e); code != ExitUnreachable || !strings.Contains(errw.String(), "does not answer") {
		t.Errorf("a stream without a sign of life: code %d, %s", code, errw.String())
	}
	errw.Reset()
	if code := Main(t.Context(), []string{"exec", "web", "-c", "nginx", "--", "hang"}, e); code != ExitUnreachable || !strings.Contains(errw.String(), "does not answer") {
		t.Errorf("a session without a sign of life: code %d, %s", code, errw.String())
	}
}

// TestSlowReader checks that a command does not time out if its output is read slowly, as by a pager.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl := &tool{Env: Env{ResponseTimeout: time.Second}}
		ctx, dog, cancel := tl.newWatchdog(t.Context())
		defer cancel()
		r := responseBody{strings.NewReader("abc"), dog}
		for range 3 {
			r.Read(make([]byte, 1))
			select {
			case <-ctx.Done():
				t.Fatal("timed out although no read was waiting")
			case <-time.After(time.Minute):
			}
		}
		slow, _ := io.Pipe()
		defer slow.Close()
		began := time.Now()
		go responseBody{slow, dog}.Read(make([]byte, 1))
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), errSilent) || time.Since(began) != time.Second {
			t.Errorf("timed out after %s: %v", time.Since(began), context.Cause(ctx))
		}
	})
}
