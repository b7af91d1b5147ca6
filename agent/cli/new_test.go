package cli

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

func TestWordsOfOtherTools(t *testing.T) {
	n, _ := startNode(t)
	pods := run(t, n, "", "pods").Out
	for _, args := range [][]string{{"get", "pods"}, {"get", "po"}, {"ls"}, {"ps"}, {"get", "all"}} {
		check(t, n, run(t, n, "", args...), 0, pods, "")
	}
	check(t, n, run(t, n, "", "get", "pods", "dns", "-o", "name"), 0, "pod/dns-pi\n", "")
	check(t, n, run(t, n, "", "stats", "pods", "--no-headers", "web"), 0, run(t, n, "", "top", "--no-headers", "web").Out, "")
	check(t, n, run(t, n, "", "rmi", "localhost/web:1"), 0, "removed localhost/web:1\n", "")
	check(t, n, run(t, n, "", "rmi", "localhost/web:1"), command.ExitNotFound, "", "islet: image \"localhost/web:1\" not found\n")
	check(t, n, run(t, n, "", "get", "services"), command.ExitUsage, "", "islet: unknown command \"services\": see 'islet help'\n")
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
			list = c.Sub
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
		if c.Hidden || c.Sub != nil {
			continue
		}
		page := string(pages["islet-"+c.Name+".1"])
		if !strings.Contains(page, ".SH SYNOPSIS") || !strings.Contains(string(pages["islet.1"]), escapeTroff("islet-"+c.Name)) {
			t.Errorf("%s has no page: %q", c.Name, page)
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
				!regexp.MustCompile(`^\.(TH|SH|TP|PP|br|B|BR|I|RS|RE|EX|EE)\b`).MatchString(line) {
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

// TestWatched checks that islet top -w and islet status -w repeat their output until they are interrupted.
func TestWatched(t *testing.T) {
	n, _ := startNode(t)
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
		if code := <-done; times != 3 || code != command.ExitSignal {
			t.Errorf("%q: %d times, code %d", args, times, code)
		}
	}
}

func TestColours(t *testing.T) {
	n, _ := startNode(t)
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
	if !strings.Contains(out, string(terminal.Red)+"CrashLoopBackOff"+terminal.EndColour) ||
		!strings.Contains(out, string(terminal.Green)+"Running"+terminal.EndColour) {
		t.Errorf("coloured: %q", out)
	}
	bare := strings.NewReplacer(string(terminal.Red), "", string(terminal.Green), "", terminal.EndColour, "").Replace(out)
	if want := run(t, n, "", "pods").Out; bare != want {
		t.Errorf("colours move columns: %q, want %q", bare, want)
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
		if code := Main(t.Context(), args, e); code != command.ExitUnreachable || !strings.Contains(errw.String(), "does not answer: it hangs") {
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
	n, _ := startNode(t)
	var errw bytes.Buffer
	e := env(n, nil, io.Discard, &errw)
	e.ResponseTimeout = 50 * time.Millisecond
	if code := Main(t.Context(), []string{"pods", "-w"}, e); code != command.ExitUnreachable || !strings.Contains(errw.String(), "does not answer") {
		t.Errorf("a stream without a sign of life: code %d, %s", code, errw.String())
	}
	errw.Reset()
	if code := Main(t.Context(), []string{"exec", "web", "-c", "nginx", "--", "hang"}, e); code != command.ExitUnreachable || !strings.Contains(errw.String(), "does not answer") {
		t.Errorf("a session without a sign of life: code %d, %s", code, errw.String())
	}
}
